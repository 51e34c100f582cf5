"""The benchmark command: parses, measures in rounds, prints."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydspark import hub
from pydspark._native import Gguf
from pydspark.bench import contest_command
from pydspark.bench.machine import facts
from pydspark.bench.measure import Bench, Plan, Sample, run_round
from pydspark.bench.report import MEASURED, facts_text, ratio_json, ratio_table, row_json, table
from pydspark.bench.second_turn import measure_second_turn, second_turn_json, second_turn_text
from pydspark.bench.stages import StageBench, stage_json, stage_table
from pydspark.bench.summary import compare, summarize
from pydspark.bench.worker import Worker
from pydspark.demo import demo_draft_path, demo_model_path, demo_target
from pydspark.errors import ArgumentError, PydsparkError
from pydspark.params import ModelParams, options

# fields of ModelParams that are flags here; n_ctx follows from what is measured
_MODEL_FIELDS = (
    "n_ubatch", "n_threads", "n_threads_batch", "n_gpu_layers", "use_mmap", "repack", "type_k", "type_v", "flash_attn",
)  # fmt: skip


def parser() -> argparse.ArgumentParser:
    """The command line of the benchmark."""
    parser = argparse.ArgumentParser(
        prog="pydspark bench",
        description="Measures prompts, generation and small batches of a model in this process. Every case is run once "
        "unmeasured, then once in each of -r rounds.",
        epilog="The last line of the output is JSON.",
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("-m", "--model", help="a GGUF file, or user/model[:quant]")
    what.add_argument("--demo", action="store_true", help="the demo model")
    parser.add_argument("-p", "--n-prompt", type=_count, default=512, metavar="N", help="prompt tokens (%(default)s)")
    parser.add_argument("-n", "--n-gen", type=_count, default=64, metavar="N", help="generated tokens (%(default)s)")
    parser.add_argument("-d", "--n-depth", type=_counts, default=(0,), metavar="N,...", help="cached tokens (0)")
    parser.add_argument("-w", "--widths", type=_counts, default=tuple(range(1, 10)), metavar="N,...",
                        help="tokens of the batches (1 to 9; 0 = none)")  # fmt: skip
    parser.add_argument("-r", "--repetitions", type=_count, default=5, metavar="N", help="rounds (%(default)s)")
    parser.add_argument("-o", "--output", choices=["md", "json"], default="md", help="table and JSON, or JSON alone")
    parser.add_argument("--against", type=Path, metavar="LIBDIR",
                        help="take turns with another build of ggml, whose libraries are in this folder")  # fmt: skip
    parser.add_argument("--stages", action="store_true",
                        help="of batches, tell what each kind of layer and the head take")  # fmt: skip
    parser.add_argument("--second-turn", type=_count, metavar="N",
                        help="how long the second question below N tokens waits for its first token")  # fmt: skip
    contest_command.add_flags(parser)
    settings = parser.add_argument_group("settings of the model")
    for name, option in options(ModelParams).items():
        if name in _MODEL_FIELDS:
            kind: dict[str, Any] = {"type": option.kind if option.kind is not object else str, "metavar": "X"}
            if option.kind is bool:
                kind = {"action": argparse.BooleanOptionalAction}
            default = getattr(ModelParams, name)
            settings.add_argument(*option.flags, dest=name, default=default, help=option.help, **kind)
    return parser


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 0")
    return int(text)


def _counts(text: str) -> tuple[int, ...]:
    return tuple(_count(part) for part in text.split(","))


def plan_of(args: argparse.Namespace) -> Plan:
    """What the arguments ask for.

    Raises:
        ModelFileError: the model is not there.
        ArgumentError: a setting is out of range.
    """
    return Plan(
        path=demo_model_path() if args.demo else hub.resolve(args.model),
        params=ModelParams(**{name: getattr(args, name) for name in _MODEL_FIELDS}),
        n_prompt=args.n_prompt,
        n_gen=args.n_gen,
        depths=args.n_depth,
        widths=tuple(width for width in args.widths if width),
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command. Returns its exit status."""
    args = parser().parse_args(argv)
    try:
        plan = plan_of(args)
        n_rounds = max(1, args.repetitions)
        if args.compare:
            text, result = _compared(args)
        elif args.second_turn:
            found = measure_second_turn(Gguf(plan.path), plan.params, args.second_turn)
            text, result = second_turn_text(found), second_turn_json(found)
        elif args.stages:
            text, result = _stages(plan, n_rounds)
        else:
            text, result = _versus(plan, args.against, n_rounds) if args.against else _alone(plan, n_rounds)
    except PydsparkError as error:
        print(f"pydspark bench: {error}", file=sys.stderr)
        return error.exit_code
    if args.output == "md":
        print(text)
    print(json.dumps(result))
    return 0


def _compared(args: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    params = ModelParams(**{name: getattr(args, name) for name in _MODEL_FIELDS})
    if args.demo:
        return contest_command.run(args, demo_target(), demo_draft_path(), params)
    draft = None if args.model_draft is None else hub.resolve(args.model_draft)
    return contest_command.run(args, hub.resolve(args.model), draft, params)


def _alone(plan: Plan, n_rounds: int) -> tuple[str, dict[str, Any]]:
    bench = Bench(plan)
    run_round(bench)
    rounds = [run_round(bench) for _ in range(n_rounds)]
    rows = [summarize(case, samples) for case, samples in zip(bench.cases, zip(*rounds, strict=True), strict=True)]
    found = facts(bench.gguf, bench.params) | {"repetitions": n_rounds}
    text = f"{facts_text(found)}\n{MEASURED}\n{table(rows)}"
    return text, found | {"results": [row_json(row) for row in rows]}


def _stages(plan: Plan, n_rounds: int) -> tuple[str, dict[str, Any]]:
    if not plan.widths:
        raise ArgumentError("nothing to measure: --widths is 0")
    depth = max(plan.depths)
    gguf = Gguf(plan.path)
    params = replace(plan.params, n_ctx=depth + max(plan.widths), n_batch=depth + max(plan.widths))
    bench = StageBench(gguf, params, depth, max(plan.widths))
    rows = bench.rows(plan.widths, n_rounds)
    found = facts(gguf, params) | {"depth": depth, "repetitions": n_rounds}
    found |= {
        "context_token_bytes": bench.memory.token_bytes,
        "checkpoint_bytes": bench.memory.checkpoint_bytes,
        "memory_gb_per_s": round(bench.reading.bytes_per_ms / 1e6, 2),
    }
    text = f"{facts_text(found)}\n{stage_table(rows)}"
    return text, found | {"results": stage_json(rows)}


def _versus(plan: Plan, folder: Path, n_rounds: int) -> tuple[str, dict[str, Any]]:
    with Worker(plan) as ours, Worker(plan, folder) as theirs:
        rounds = [_pair(ours, theirs, i) for i in range(n_rounds + 1)][1:]
        sides = {"ours": dict(ours.facts), "theirs": dict(theirs.facts)}
    by_case = list(zip(plan.cases(), *(zip(*side, strict=True) for side in zip(*rounds, strict=True)), strict=True))
    rows = {
        "ours": [summarize(case, mine) for case, mine, _ in by_case],
        "theirs": [summarize(case, other) for case, _, other in by_case],
    }
    ratios = [compare(case, mine, other) for case, mine, other in by_case]
    parts = [f"## {name}\n\n{facts_text(sides[name])}\n{table(rows[name])}" for name in rows]
    parts.append(f"## speed of ours in units of theirs ({n_rounds} rounds)\n\n{ratio_table(ratios)}")
    result: dict[str, Any] = {
        name: sides[name] | {"repetitions": n_rounds, "results": [row_json(row) for row in rows[name]]} for name in rows
    }
    return "\n".join([MEASURED, *parts]), result | {"ratios": [ratio_json(ratio) for ratio in ratios]}


def _pair(ours: Worker, theirs: Worker, i: int) -> tuple[list[Sample], list[Sample]]:
    """One round of both; who goes first alternates."""
    if i % 2:
        later = theirs.run_round()
        return ours.run_round(), later
    return ours.run_round(), theirs.run_round()
