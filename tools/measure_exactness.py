"""Compares batches of tokens with the same tokens decoded one by one: by how much do logits differ, and what does it
cost to have no difference?

    python tools/measure_exactness.py [MODEL] [--types q4_0,f16] [--threads 1,2] [--rounds 5]

Without MODEL the demo model is taken. Each type is a copy of it in a temporary folder. Two Markdown tables come out.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pydspark._native import Gguf, Model, Session
from pydspark.demo import demo_model_path
from pydspark.params import ModelParams
from pydspark.quantize import TYPES, quantize

MODES = ("exact", "fast")
DEPTHS = (20, 252, 600)  # tokens in the cache; a batch after 252 reads one step of cache rows more than its first token
WIDTHS = (2, 3, 4, 5, 8, 9)
COST_WIDTHS = range(1, 10)
COST_DEPTH = 300
N_CTX = 1024
PREFILL = 100  # tokens at once
DEFAULT_TYPES = ("as-is", "q4_0", "q5_0", "q8_0", "f16", "bf16", "f32")


@dataclass(frozen=True)
class Setting:
    """What may decide which kernels run."""

    repack: bool
    flash_attn: bool
    n_threads: int

    def params(self, verify: str) -> ModelParams:
        return ModelParams(
            repack=self.repack,
            flash_attn=self.flash_attn,
            n_threads=self.n_threads,
            verify=verify,
            n_ctx=N_CTX,
        )


class Bench:
    """A model in one setting, with one session for each mode."""

    def __init__(self, gguf: Gguf, setting: Setting) -> None:
        self._n_vocab = gguf.describe().n_vocab_rows
        model = Model(gguf, setting.params("exact"))
        self.sessions = {mode: Session(model, setting.params(mode)) for mode in MODES}
        self._ids = np.random.default_rng(0).integers(0, self._n_vocab, N_CTX).tolist()

    def fill(self, session: Session, depth: int) -> None:
        """Makes the first ``depth`` ids the sequence."""
        session.cut(depth)
        while session.n_past < depth:
            session.inspect(self._ids[session.n_past : min(session.n_past + PREFILL, depth)], [], [])

    def largest_difference(self, mode: str) -> float:
        """Of any logit between a batch and single tokens, over all depths and widths."""
        session = self.sessions[mode]
        return max(self._difference(session, depth) for depth in sorted(DEPTHS, reverse=True))

    def _difference(self, session: Session, depth: int) -> float:
        self.fill(session, depth)
        ids = self._ids[depth : depth + max(WIDTHS)]
        single = np.concatenate([self._logits(session, [token]) for token in ids])
        worst = 0.0
        for width in WIDTHS:
            session.cut(depth)
            batch = self._logits(session, ids[:width])
            worst = max(worst, float(np.abs(batch - single[:width]).max()))
        return worst

    def _logits(self, session: Session, ids: Sequence[int]) -> NDArray[np.float64]:
        (values,) = session.inspect(ids, ["result_output"], [self._n_vocab * len(ids)])
        return np.array(values).reshape(len(ids), self._n_vocab)

    def best_ms(self, rounds: int) -> dict[str, list[float]]:
        """By mode: the shortest time of a batch of each width, modes and widths taking turns."""
        for session in self.sessions.values():
            self.fill(session, COST_DEPTH)
        best = {mode: [float("inf")] * len(COST_WIDTHS) for mode in MODES}
        for _ in range(rounds + 1):  # the first also builds the graphs
            for (i, width), (mode, session) in product(enumerate(COST_WIDTHS), self.sessions.items()):
                best[mode][i] = min(best[mode][i], *session.measure(width, 2))
        return best


def has_other_layout(gguf: Gguf) -> bool:
    """Whether loading with ``repack`` moves weights out of the mapped file."""
    plans = [gguf.memory_plan(ModelParams(repack=repack)) for repack in (False, True)]
    mapped = {sum(line.mapped for line in plan.lines) for plan in plans}
    return len(mapped) == 2


def copies(path: Path, types: Sequence[str], folder: Path) -> Iterator[tuple[str, Gguf]]:
    """(name of the type, model in that type), one at a time."""
    for kind in types:
        copy = path if kind == "as-is" else quantize(path, folder / f"{kind}.gguf", kind)
        yield kind, Gguf(copy)
        if kind != "as-is":
            copy.unlink()


def layouts(kind: str, gguf: Gguf) -> Iterator[tuple[str, bool]]:
    """(label, whether to repack)."""
    yield kind, False
    if has_other_layout(gguf):
        yield f"{kind}, repacked", True


def print_table(heads: Sequence[str], align: str, rows: Iterator[Sequence[str]]) -> None:
    """Prints rows as they come."""
    print("| " + " | ".join(heads) + " |")
    print("|" + "|".join([" --- "] + [align] * (len(heads) - 1)) + "|")
    for row in rows:
        print("| " + " | ".join(row) + " |", flush=True)
    print()


Copies = Callable[[], Iterator[tuple[str, Gguf]]]


def difference_rows(models: Copies, threads: Sequence[int]) -> Iterator[list[str]]:
    for kind, gguf in models():
        for label, repack in layouts(kind, gguf):
            cells = []
            for flash_attn, n_threads in product((True, False), threads):
                bench = Bench(gguf, Setting(repack, flash_attn, n_threads))
                cells.append(" / ".join(f"{bench.largest_difference(mode):.2g}" for mode in MODES))
            yield [label, *cells]


def cost_rows(models: Copies, rounds: int) -> Iterator[list[str]]:
    for kind, gguf in models():
        for label, repack in layouts(kind, gguf):
            best = Bench(gguf, Setting(repack, True, 1)).best_ms(rounds)
            first = best["fast"][0]
            yield [f"{label}: fast, in units of one token"] + [f"{ms / first:.2f}" for ms in best["fast"]]
            pairs = zip(best["exact"], best["fast"], strict=True)
            yield [f"{label}: exact, in units of fast"] + [f"{exact / fast:.2f}" for exact, fast in pairs]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", type=Path, help="a GGUF file (default: the demo model)")
    parser.add_argument("--types", default=",".join(DEFAULT_TYPES), help=f"as-is or {', '.join(TYPES)}")
    parser.add_argument("--threads", default="1,2", help="thread counts of the first table")
    parser.add_argument("--rounds", type=int, default=5, help="of the second table; 0 for none")
    options = parser.parse_args(arguments)
    threads = [int(n) for n in options.threads.split(",")]
    path = options.model or demo_model_path()
    with tempfile.TemporaryDirectory() as folder:

        def models() -> Iterator[tuple[str, Gguf]]:
            return copies(path, options.types.split(","), Path(folder))

        print(f"{path.name}: largest difference of a logit, exact / fast\n")
        heads = [f"{form}, {n} thread{'s' * (n > 1)}" for form, n in product(("fused", "plain"), threads)]
        print_table(["weights", *heads], " ---: ", difference_rows(models, threads))
        if options.rounds:
            print(f"{path.name}: time of a batch after {COST_DEPTH} tokens, one thread, fused attention\n")
            widths = [str(width) for width in COST_WIDTHS]
            print_table(["tokens at once", *widths], " ---: ", cost_rows(models, options.rounds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
