"""Measures what it costs recurrent layers to take rejected drafts back, by replay and by snapshots.

    python tools/measure_rollback.py TARGET.gguf DRAFT.gguf [--depth 256] [--repeats 5]

One round here is a batch of a whole block and its anchor, of which some tokens stay, and the next single token. Times
are CPU milliseconds of one thread, the fastest of the repeats, both ways by turns.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from pydspark._native import Draft, Gguf, Model, Session
from pydspark.params import ROLLBACK_FORMS, ModelParams


class Side:
    """A session that takes drafts back in one of the ways."""

    def __init__(self, target: Path, draft: Path, rollback: str, depth: int) -> None:
        params = ModelParams(n_ctx=depth + 1024, n_threads=1, rollback=rollback, cache_ram=0)
        gguf, drafter = Gguf(target), Gguf(draft)
        model = Model(gguf, params)
        self.n_batch = drafter.describe_draft().n_slots + 1
        self._session = Session(model, params, Draft(drafter, model, params))
        self.state_bytes = sum(line.state for line in self._session.memory().lines)
        self._prompt = [i % gguf.describe().n_vocab for i in range(depth)]
        self._session.inspect(self._prompt, (), ())

    def round_ms(self, n_kept: int) -> float:
        """One batch, of which ``n_kept`` tokens stay, and one token more."""
        n_past = self._session.n_past
        started = time.thread_time()
        self._session.inspect([1] * self.n_batch, (), ())
        self._session.cut(n_past + n_kept)
        self._session.inspect([2], (), ())
        return (time.thread_time() - started) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", type=Path)
    parser.add_argument("draft", type=Path)
    parser.add_argument("--depth", type=int, default=256, help="tokens before the rounds (%(default)s)")
    parser.add_argument("--repeats", type=int, default=5, help="(%(default)s)")
    options = parser.parse_args()
    sides = {form: Side(options.target, options.draft, form, options.depth) for form in ROLLBACK_FORMS}
    n_batch = sides["replay"].n_batch
    print("state, with what it takes to go back: " + ", ".join(f"{k} {s.state_bytes:,} B" for k, s in sides.items()))
    print(f"\n| of {n_batch} stay | replay, ms | snapshots, ms | replay / snapshots |\n| ---: | ---: | ---: | ---: |")
    for n_kept in sorted({1, n_batch // 3, n_batch // 2, n_batch}):
        rounds = [{form: side.round_ms(n_kept) for form, side in sides.items()} for _ in range(options.repeats + 1)]
        best = {form: min(times[form] for times in rounds[1:]) for form in sides}
        ratio = best["replay"] / best["snapshots"]
        print(f"| {n_kept} | {best['replay']:.1f} | {best['snapshots']:.1f} | {ratio:.3f} |", flush=True)


if __name__ == "__main__":
    main()
