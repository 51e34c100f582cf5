"""Measures in a process of its own, so that two builds of ggml can take turns.

The parent writes lines to the worker's stdin and reads lines from its stdout:

    parent: the plan           worker: the facts of machine.py, once the model is loaded
    parent: "round"            worker: one [wall_ms, cpu_ms, host_ms] per case
    (end of input)             the worker ends
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, astuple
from pathlib import Path
from typing import IO, Any

from pydspark.bench.machine import facts
from pydspark.bench.measure import Bench, Plan, Sample, run_round
from pydspark.errors import PydsparkError
from pydspark.params import ModelParams

ROUND = "round"


def plan_to_json(plan: Plan) -> str:
    """A plan as one line."""
    return json.dumps(asdict(plan) | {"path": str(plan.path)})


def plan_from_json(line: str) -> Plan:
    """The plan that ``plan_to_json`` wrote."""
    values = json.loads(line)
    return Plan(
        path=Path(values["path"]),
        params=ModelParams(**values["params"]),
        n_prompt=values["n_prompt"],
        n_gen=values["n_gen"],
        depths=tuple(values["depths"]),
        widths=tuple(values["widths"]),
    )


def serve(commands: IO[str], answers: IO[str]) -> None:
    """The worker's side."""
    bench = Bench(plan_from_json(commands.readline()))
    print(json.dumps(facts(bench.gguf, bench.params)), file=answers, flush=True)
    for line in commands:
        assert line.strip() == ROUND, line
        print(json.dumps([astuple(sample) for sample in run_round(bench)]), file=answers, flush=True)


class Worker:
    """The parent's side: a process that measures when asked. Use it in a ``with`` statement.

    Args:
        plan: what to measure.
        library_folder: a folder with another build of ggml; None = the one that this process uses.

    Attributes:
        facts: what the worker runs on.

    Raises:
        PydsparkError: the worker could not start, or did not take ggml from ``library_folder``.
    """

    def __init__(self, plan: Plan, library_folder: Path | None = None) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "pydspark.bench.worker"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=_environment(library_folder),
        )  # fmt: skip
        try:
            self.facts: Mapping[str, Any] = self._ask(plan_to_json(plan))
            self._check_library(library_folder)
        except BaseException:
            self.close()
            raise

    def _ask(self, line: str) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            print(line, file=self._process.stdin, flush=True)
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            status = self._process.wait()
            raise PydsparkError(f"the measuring process ended with status {status}; see its message above")
        return json.loads(answer)

    def _check_library(self, wanted: Path | None) -> None:
        loaded = self.facts["ggml_loaded_from"]
        if wanted is not None and loaded is not None and Path(loaded).resolve() != wanted.resolve():
            raise PydsparkError(f"ggml was loaded from {loaded}; {wanted} has no library of that name")

    def run_round(self) -> list[Sample]:
        """Measures every case once."""
        return [Sample(*values) for values in self._ask(ROUND)]

    def close(self) -> None:
        """Ends the process."""
        self._process.communicate()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _environment(library_folder: Path | None) -> dict[str, str]:
    environment = dict(os.environ)
    if library_folder is not None:
        folders = [str(library_folder.resolve()), *filter(None, [environment.get("LD_LIBRARY_PATH")])]
        environment["LD_LIBRARY_PATH"] = os.pathsep.join(folders)
    return environment


if __name__ == "__main__":
    try:
        serve(sys.stdin, sys.stdout)
    except PydsparkError as error:
        sys.exit(f"pydspark bench worker: {error}")
