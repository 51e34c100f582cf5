"""``--compare``: settings of drafting side by side, on the command line."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydspark._native import Gguf
from pydspark.bench.contest import (
    PROMPTS,
    STANDARD,
    Contest,
    Question,
    Run,
    every_depth,
    parse_acceptance,
    parse_setting,
    questions,
)  # fmt: skip
from pydspark.bench.contest_report import Report, Result
from pydspark.bench.machine import facts
from pydspark.bench.picture import bars
from pydspark.bench.report import facts_text
from pydspark.params import ModelParams, SamplingParams


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The flags of this benchmark."""
    group = parser.add_argument_group("settings of drafting side by side (--compare)")
    group.add_argument("--compare", action="store_true",
                       help="answer prompts of all categories plainly, with fixed numbers of drafts, with a threshold "
                       "and with the automatic depth, a round of each in turns; -n tokens, -r times")  # fmt: skip
    group.add_argument("-md", "--model-draft", metavar="MODEL", help="the drafter; with --demo that of the demo")
    group.add_argument("--setting", action="append", default=[], metavar="NAME:FIELD=VALUE,...",
                       help="one more setting, by fields of ModelParams and SamplingParams")  # fmt: skip
    group.add_argument("--acceptance", metavar="P,P,...",
                       help="accept drafts by chance: that of the first, the second ... slot")  # fmt: skip
    group.add_argument("--only", metavar="NAME,...", help="of all settings, the first (plain) and these")
    group.add_argument("--per-category", type=int, default=1, metavar="N", help="prompts of each (%(default)s)")
    group.add_argument("--temperature", type=float, default=0.0, metavar="X", help="(%(default)s)")
    group.add_argument(
        "--texts", type=Path, default=PROMPTS, metavar="FILE", help="JSON lines with id, category, turns"
    )
    group.add_argument("--clock", choices=["cpu", "wall"], help="what ratios are of (cpu with one thread, else wall)")
    group.add_argument("--save", type=Path, metavar="FILE", help="also write the JSON here, after every prompt")
    group.add_argument("--picture", type=Path, metavar="FILE", help="bars by category, as SVG")


def run(args: argparse.Namespace, path: Path, draft: Path | None, params: ModelParams) -> tuple[str, dict[str, Any]]:
    """Measures, and returns text and JSON. Ctrl-C ends it early with what there is.

    Raises:
        PydsparkError: the models or the settings cannot be used.
    """
    gguf = Gguf(path)
    found = questions(gguf, args.per_category, args.texts)
    draft_gguf = None if draft is None else Gguf(draft)
    acceptance = parse_acceptance(args.acceptance) if args.acceptance else ()
    standard = every_depth(draft_gguf.describe_draft().n_slots) if acceptance and draft_gguf is not None else STANDARD
    settings = [*standard, *map(parse_setting, args.setting)]
    if args.only:
        settings = [settings[0], *(s for s in settings[1:] if s.name in args.only.split(","))]
    names = [setting.name for setting in settings]
    longest = max(len(question.tokens) for question in found)
    params = replace(params, n_ctx=longest + args.n_gen + 1, calibration=False)
    sampling = SamplingParams(temperature=args.temperature, max_tokens=args.n_gen)
    contest = Contest(gguf, draft_gguf, params, sampling, settings, acceptance)
    machine = facts(gguf, params) | {"repetitions": args.repetitions, "tokens": args.n_gen}
    machine |= {"synthetic_acceptance": acceptance} if acceptance else {}
    clock = args.clock or ("cpu" if machine["settings"]["n_threads"] == 1 else "wall")
    report = Report([], names, "cpu_ms" if clock == "cpu" else "wall_ms")
    try:
        for i, question in enumerate(found):
            _tell(f"{i + 1}/{len(found)} {question.category}: {question.id}")
            report.results = [*report.results, _answers(contest, question, max(1, args.repetitions))]
            report.categories = list(dict.fromkeys(result.question.category for result in report.results))
            _save(args, report, machine)
    except KeyboardInterrupt:
        _tell("stopped; this is what there is so far")
    if not report.results:
        return "nothing was measured\n", machine
    return f"{facts_text(machine)}\n{report.text()}", machine | report.json()


def _answers(contest: Contest, question: Question, n_repeats: int) -> Result:
    runs: dict[str, list[Run]] = defaultdict(list)
    for repeat in range(n_repeats + 1):
        for name, one in contest.answer(question, repeat).items():
            if repeat > 0:  # the first time also builds graphs
                runs[name].append(one)
    return Result(question, runs)


def _save(args: argparse.Namespace, report: Report, machine: dict[str, Any]) -> None:
    if args.save is not None:
        _write(args.save, json.dumps(machine | report.json(), indent=1))
    if args.picture is not None:
        groups = {
            category: {name: report.ratio_of(name, report.of_category(category)) for name in report.names[1:]}
            for category in report.categories
        }
        title = f"Speed in units of {report.base}, {machine['model_filename']}"
        _write(args.picture, bars(title, groups, report.names[1:]))


def _write(path: Path, text: str) -> None:
    """Replaces the file, or leaves it as it was."""
    part = path.with_name(f".{path.name}.part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
