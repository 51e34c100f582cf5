"""What is measured: prompts, decoding and batches of one model in this process."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from pydspark._native import Gguf, Model, Session
from pydspark.errors import ArgumentError
from pydspark.generate import Done, generate
from pydspark.params import ModelParams, SamplingParams
from pydspark.prompts import Prompts
from pydspark.records import Request, Stats
from pydspark.text.detokenizer import Detokenizer
from pydspark.text.stop import StopMatcher

GREEDY = SamplingParams(temperature=0.0)
SAMPLED = SamplingParams()


class Kind(Enum):
    """What a case does; the value begins its name."""

    PROMPT = "pp"  # evaluates n tokens of a prompt
    GREEDY = "tg"  # generates n tokens, always the likeliest
    SAMPLED = "sampled"  # generates n tokens with the default sampling
    BATCH = "batch"  # evaluates n tokens with logits for each, then forgets them


@dataclass(frozen=True)
class Case:
    """One thing to measure.

    Attributes:
        kind: what is done.
        n: with how many tokens.
        depth: tokens in the cache before it.
    """

    kind: Kind
    n: int
    depth: int

    @property
    def name(self) -> str:
        """Such as ``tg128 @ d512``."""
        return f"{self.kind.value}{self.n}" + (f" @ d{self.depth}" if self.depth else "")


@dataclass(frozen=True)
class Sample:
    """One measurement of a case, in milliseconds for all of its tokens.

    Attributes:
        wall_ms: by the clock.
        cpu_ms: CPU time of the calling thread, which computes its share of every graph. Waiting for the CPU does not
            count, so it varies less than ``wall_ms`` on a busy machine.
        host_ms: the part of ``wall_ms`` outside of graphs; None where it is not known.
    """

    wall_ms: float
    cpu_ms: float
    host_ms: float | None = None


@dataclass(frozen=True)
class Plan:
    """Everything a measuring process needs to know.

    Attributes:
        path: the model file.
        params: how to run it; ``n_ctx`` is chosen to fit.
        n_prompt: tokens of the prompt case; 0 = none.
        n_gen: tokens of the generation cases; 0 = none.
        depths: tokens in the cache before generation and batches.
        widths: tokens of the batch cases.
    """

    path: Path
    params: ModelParams
    n_prompt: int
    n_gen: int
    depths: tuple[int, ...]
    widths: tuple[int, ...]

    def cases(self) -> list[Case]:
        """What to measure, in order."""
        found = [Case(Kind.PROMPT, self.n_prompt, 0)] if self.n_prompt else []
        for depth in self.depths:
            if self.n_gen:
                found += [Case(Kind.GREEDY, self.n_gen, depth), Case(Kind.SAMPLED, self.n_gen, depth)]
            found += [Case(Kind.BATCH, width, depth) for width in self.widths]
        return found


class Bench:
    """A loaded model, ready to be measured.

    Raises:
        ArgumentError: there is nothing to measure, or it does not fit in the model's context.
        ModelFileError, UnsupportedError, OutOfMemoryError: the model cannot be loaded.
    """

    def __init__(self, plan: Plan) -> None:
        self.cases = plan.cases()
        if not self.cases:
            raise ArgumentError("nothing to measure: -p, -n and --widths are all 0")
        self.gguf = Gguf(plan.path)
        self._prompts = Prompts(self.gguf.metadata())
        self.params = replace(plan.params, n_ctx=max(case.depth + case.n + 2 for case in self.cases))
        info = self.gguf.describe()
        if self.params.n_ctx > info.n_ctx_train:
            raise ArgumentError(f"{self.params.n_ctx} tokens are needed; the model has {info.n_ctx_train}")
        self._session = Session(Model(self.gguf, self.params), self.params)
        # random ids: a text that repeats would be easier on the caches of the CPU than a real one
        draw = random.Random(0)
        self._ids = [draw.randrange(info.n_vocab) for _ in range(self.params.n_ctx)]

    def run(self, case: Case) -> Sample:
        """Measures one case once."""
        if case.kind is Kind.PROMPT:
            return self._prompt(case.n)
        if case.kind is Kind.BATCH:
            return self._batch(case)
        return self._generation(case)

    def _request(self, n_prompt: int, sampling: SamplingParams = GREEDY, reuse_prefix: bool = True) -> Request:
        return Request(tokens=self._ids[:n_prompt], sampling=sampling, seed=0, reuse_prefix=reuse_prefix)

    def _prompt(self, n: int) -> Sample:
        request = self._request(n, reuse_prefix=False)
        watch = _Watch()
        self._session.start(request)
        return watch.sample()

    def _batch(self, case: Case) -> Sample:
        if case.depth:
            self._session.start(self._request(case.depth))
        else:
            self._session.reset()
        watch = _Watch()
        self._session.measure(case.n)
        return watch.sample()

    def _generation(self, case: Case) -> Sample:
        """From the first token, which needs no graph beside the prompt's, to the last: ``case.n`` graphs."""
        sampling = replace(GREEDY if case.kind is Kind.GREEDY else SAMPLED, max_tokens=case.n + 1)
        decoder = Detokenizer(self._prompts.tokenizer)
        events = generate(self._session, self._request(case.depth + 1, sampling), decoder, StopMatcher(()))
        next(events)
        before = self._session.stats()
        watch = _Watch()
        *_, done = events
        sample = watch.sample()
        assert isinstance(done, Done)
        return replace(sample, host_ms=sample.wall_ms - (_graph_ms(done.stats) - _graph_ms(before)))


class _Watch:
    def __init__(self) -> None:
        self._cpu = time.thread_time()
        self._wall = time.perf_counter()

    def sample(self) -> Sample:
        wall = time.perf_counter() - self._wall
        return Sample(wall_ms=wall * 1e3, cpu_ms=(time.thread_time() - self._cpu) * 1e3)


def _graph_ms(stats: Stats) -> float:
    return stats.predicted_ms - stats.host_ms


def run_round(bench: Bench, cases: Sequence[Case] | None = None) -> list[Sample]:
    """Measures every case once, in order."""
    return [bench.run(case) for case in (bench.cases if cases is None else cases)]
