"""Compares settings of drafters by what a draft costs and how much of it is accepted, side by side.

    python tools/measure_drafter.py TARGET.gguf SIDE [SIDE ...] [--prompts 12] [--tokens 96] [--temperature 0]

A side is DRAFT.gguf[:CANDIDATES[:SHORTLIST]]; where a number is missing the default holds. All sides draft whole blocks
for the same prompts, a round of each in turns. The time of a draft is the lower quartile of a prompt's rounds, which
other programs disturb least; printed are its mean over the prompts and, as geometric mean, its ratio to that of the
first side. "Gain" is the speed of the whole decoding over that of plain decoding, with the best number of drafts for
each side: from its acceptance by position, its time and the measured time of checks.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from statistics import fmean, geometric_mean, quantiles

import pydspark.bench
from pydspark._native import Draft, Gguf, Model, Session
from pydspark.params import ModelParams, SamplingParams
from pydspark.prompts import Prompts
from pydspark.records import Finish, Request

_PROMPTS = Path(pydspark.bench.__file__).parent / "prompts.jsonl"


@dataclass
class Side:
    """A drafter under some settings, with its own session."""

    name: str
    session: Session
    n_slots: int
    draft_ms: list[float] = field(default_factory=list)  # one for each prompt
    n_rounds: int = 0
    accepted: Counter[int] = field(default_factory=Counter)  # by position

    def rounds(self, request: Request) -> Iterator[None]:
        """Answers a prompt, a round for each item."""
        self.session.start(request)
        times, before = [], 0.0
        while self.session.step().finish is Finish.NONE:
            now = self.session.stats().draft_ms
            times.append(now - before)
            before = now
            yield
        stats = self.session.stats()
        drafted = [ms for ms in times if ms > 0][1:]  # the first draft may build the graph
        if len(drafted) > 1:
            self.draft_ms.append(quantiles(drafted, n=4)[0])
        self.n_rounds += stats.draft_rounds
        self.accepted.update(dict(enumerate(stats.accepted_at)))

    @property
    def survival(self) -> list[float]:
        """How often the draft at each position is accepted."""
        return [self.accepted[i] / max(self.n_rounds, 1) for i in range(self.n_slots)]


def open_side(text: str, model: Model, options: argparse.Namespace) -> Side:
    path, candidates, shortlist = (*text.split(":"), "", "")[:3]
    given = {"draft_candidates": candidates, "draft_shortlist": shortlist}
    wanted = {name: int(value) for name, value in given.items() if value}
    params = ModelParams(n_ctx=options.context, n_threads=options.threads, n_threads_batch=options.threads, **wanted)
    gguf = Gguf(path)
    session = Session(model, params, Draft(gguf, model, params))
    name = f"{Path(path).name}, {params.draft_candidates or 'all'}, {shortlist or 'as in file'}"
    return Side(name, session, gguf.describe_draft().n_slots)


def requests(target: Gguf, options: argparse.Namespace) -> list[Request]:
    sampling = SamplingParams(
        temperature=options.temperature, max_tokens=options.tokens, draft_schedule="fixed", n_draft_max=2**31 - 1
    )
    texts = [json.loads(line)["turns"][0] for line in options.texts.read_text().splitlines()]
    texts = texts[:: max(len(texts) // options.prompts, 1)][: options.prompts]
    metadata = target.metadata()
    prompts = Prompts(metadata)
    if "tokenizer.chat_template" in metadata:
        tokens = [prompts.chat([{"role": "user", "content": text}]).tokens for text in texts]
    else:
        tokens = [prompts.encode(text) for text in texts]
    ends = tuple(prompts.vocab.eog_ids)
    return [Request(ids, sampling, seed, ends, reuse_prefix=False) for seed, ids in enumerate(tokens)]


def check_ms(session: Session, n_most: int) -> list[float]:
    """Milliseconds of batches of 1 to ``n_most`` tokens behind what the session holds."""
    times = [quantiles(session.measure(n, 5), n=4)[0] for n in range(1, n_most + 1)]
    return [min(times[i:]) for i in range(n_most)]  # more tokens never take less


def best_gain(side: Side, checks: list[float], draft_ms: float) -> tuple[float, int]:
    """(tokens per time of a plain step, number of drafts) of the best number of drafts."""
    gains = [(1.0, 0)]
    for n in range(1, side.n_slots + 1):
        n_tokens = 1 + sum(side.survival[:n])
        gains.append((n_tokens * checks[0] / (draft_ms + checks[n]), n))
    return max(gains)


def report(sides: list[Side], checks: list[float]) -> None:
    print("checks of 1, 2, ... tokens, ms: " + ", ".join(f"{ms:.1f}" for ms in checks) + "\n")
    print("| drafter, candidates, short list | ms per draft | ratio | accept_len | accepted at, % | gain (drafts) |")
    print("| --- | ---: | ---: | ---: | --- | ---: |")
    for side in sides:
        pairs = zip(side.draft_ms, sides[0].draft_ms, strict=True)
        ratio = geometric_mean([mine / first for mine, first in pairs])
        draft_ms = fmean(side.draft_ms)
        gain, n = best_gain(side, checks, ratio * fmean(sides[0].draft_ms))
        at = " ".join(f"{100 * share:.1f}" for share in side.survival)
        print(
            f"| {side.name} | {draft_ms:.2f} | {ratio:.3f} | {1 + sum(side.survival):.3f} | {at} | {gain:.3f} ({n}) |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", type=Path)
    parser.add_argument("sides", nargs="+", metavar="SIDE")
    parser.add_argument("--prompts", type=int, default=12, help="(%(default)s)")
    parser.add_argument("--tokens", type=int, default=96, help="of each answer (%(default)s)")
    parser.add_argument("--temperature", type=float, default=0.0, help="(%(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="(%(default)s)")
    parser.add_argument("--context", type=int, default=1024, help="(%(default)s)")
    parser.add_argument("--texts", type=Path, default=_PROMPTS, help="prompts as JSON lines with 'turns'")
    options = parser.parse_args()
    target = Gguf(options.target)
    model = Model(target, ModelParams(n_threads=options.threads))
    sides = [open_side(text, model, options) for text in options.sides]
    for request in requests(target, options):
        for _ in zip_longest(*(side.rounds(request) for side in sides)):
            pass
    report(sides, check_ms(sides[0].session, sides[0].n_slots + 1))


if __name__ == "__main__":
    main()
