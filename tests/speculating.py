"""Runs a target with a drafter, or without, on the compiled core."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from running import Array
from tiny.pairs import Pair

from pydspark._native import Draft, Gguf, Model, Session
from pydspark.errors import Cancelled
from pydspark.params import ModelParams, SamplingParams
from pydspark.records import Finish, Learnt, LearntCost, LearntCosts, Progress, Request, Stats, Step, TokenMask

F32_CACHES = {"type_k": "f32", "type_v": "f32", "type_k_draft": "f32", "type_v_draft": "f32"}

MANY_TOKENS = 400  # time enough for another thread to cancel one of their steps

MakePair = Callable[..., Pair]


@dataclass(frozen=True)
class Answer:
    """Everything that a generation gave."""

    tokens: list[int]
    finish: Finish
    stop_id: int | None
    logprobs: list[float]
    tops: list[tuple[tuple[int, float], ...]]
    steps: list[Step]
    stats: Stats


class Speculating:
    """A target with one session, on one thread unless told otherwise. Greedy unless told otherwise.

    Args:
        target: a GGUF file.
        draft: its drafter, or None for plain decoding.
        params: fields of ``ModelParams``.
    """

    def __init__(self, target: Path, draft: Path | None = None, **params: object) -> None:
        # tiny drafters know what they know by their Markov head, whose choice candidates would cut
        whole = {"draft_candidates": 0}
        settings = ModelParams(**{"n_ctx": 512, "n_threads": 1, "n_threads_batch": 1, **whole, **params})
        gguf = Gguf(target)
        model = Model(gguf, settings)
        drafter = None if draft is None else Draft(Gguf(draft), model, settings)
        self.info = gguf.describe()
        self.session = Session(model, settings, drafter)

    def request(
        self,
        prompt: Sequence[int],
        *,
        stop_ids: Sequence[int] = (),
        bias: Mapping[int, float] | None = None,
        reuse_prefix: bool = False,
        boundaries: Sequence[int] = (),
        mask: TokenMask | None = None,
        seed: int = 7,
        **sampling: object,
    ) -> Request:
        """A request with fields of ``SamplingParams``.

        By default nothing is cut off from the distribution, and depths do not depend on the clock.
        """
        settings = SamplingParams(
            **{
                "temperature": 0.0,
                "top_k": 0,
                "top_p": 1.0,
                "min_p": 0.0,
                "max_tokens": 24,
                "draft_schedule": "fixed",
                "draft_sampling": "probabilistic",
                **sampling,
            }
        )
        return Request(prompt, settings, seed, tuple(stop_ids), bias, reuse_prefix, tuple(boundaries), mask)

    def generate(
        self,
        prompt: Sequence[int],
        *,
        on_step: Callable[[int], None] = lambda n_tokens: None,
        progress: Progress | None = None,
        **options: object,
    ) -> Answer:
        """Generates to the end.

        Args:
            prompt: token ids.
            on_step: told the tokens emitted so far, after every step.
            progress: for the prompt.
            options: of ``request``.
        """
        self.session.start(self.request(prompt, **options), progress)
        steps: list[Step] = []
        while not steps or steps[-1].finish is Finish.NONE:
            steps.append(self.session.step())
            on_step(sum(len(step.tokens) for step in steps))
        return Answer(
            tokens=[token for step in steps for token in step.tokens],
            finish=steps[-1].finish,
            stop_id=steps[-1].stop_id,
            logprobs=[value for step in steps for value in step.logprobs],
            tops=[top for step in steps for top in step.tops],
            steps=steps,
            stats=self.session.stats(),
        )

    def hold(self, ids: Sequence[int]) -> None:
        """Makes ``ids`` the whole sequence."""
        self.session.start(self.request(ids))

    def read(self, ids: Sequence[int], *names: str) -> list[Array]:
        """Appends tokens as one batch. Returns the named tensors, one row per token."""
        widths = [self.info.n_vocab_rows if name == "result_output" else self.info.n_embd for name in names]
        values = self.session.inspect(ids, names, [width * len(ids) for width in widths])
        return [
            np.array(value, np.float32).reshape(len(ids), width) for value, width in zip(values, widths, strict=True)
        ]

    def block_hidden(self, anchor: int, n: int = 1) -> Array:
        """Hidden states of the first n slots of a drafter's block: [n, n_embd]. Nothing of it is kept."""
        (values,) = self.session.inspect_draft(anchor, n, ["draft_hidden"], [n * self.info.n_embd])[1]
        return np.array(values, np.float32).reshape(n, self.info.n_embd)

    def next_logits(self, token: int) -> Array:
        """Logits behind what is held and ``token``, which is appended: [n_vocab_rows]."""
        return self.read([token], "result_output")[0][0]


def speculating(pair: Pair, **params: object) -> Speculating:
    """A pair with one session; ``params`` are fields of ``ModelParams``."""
    return Speculating(pair.target_path, pair.draft_path, **params)


@contextmanager
def cancelling(session: Session) -> Iterator[None]:
    """Meanwhile another thread cancels whatever runs on a session, over and over."""
    begun, enough = threading.Event(), threading.Event()

    def cancel() -> None:
        while not enough.is_set():
            session.cancel()
            begun.set()

    thread = threading.Thread(target=cancel)
    thread.start()
    begun.wait()
    try:
        yield
    finally:
        enough.set()
        thread.join()


def step_until_cancelled(target: Speculating, tokens: list[int]) -> None:
    """Steps, collecting tokens, until one step is cancelled."""
    with cancelling(target.session):
        while len(tokens) < MANY_TOKENS:
            try:
                tokens.extend(target.session.step().tokens)
            except Cancelled:
                return
    raise AssertionError("no step was cancelled")


def costs(*verify: float, draft: float = 0.2, n_slots: int = 8) -> Learnt:
    """What a session may know of costs: milliseconds of batches of 1, 2, ... rows, and of a block."""
    rows = tuple(LearntCost(i + 1, 50.0, ms, 20.0) for i, ms in enumerate(verify))
    return Learnt(LearntCosts(rows), LearntCosts((LearntCost(n_slots, 50.0, draft, 20.0),)))


class RuleMask:
    """Of ``n_vocab`` tokens, forbids every fourth, which ones depends on the token before and on the place.

    Attributes:
        n_asked: calls so far.
    """

    def __init__(self, prompt: Sequence[int], n_vocab: int) -> None:
        self._last_of_prompt = prompt[-1]
        self._n_vocab = n_vocab
        self.n_asked = 0

    def allows(self, n_tokens: int, last: int, token: int) -> bool:
        return (token + 3 * last + n_tokens) % 4 != 0

    def allowed(self, n_tokens: int, last: Sequence[int]) -> bytes:
        """The mask; see ``pydspark.records.TokenMask``."""
        self.n_asked += 1
        before = last[-1] if last else self._last_of_prompt
        bits = sum(1 << token for token in range(self._n_vocab) if self.allows(n_tokens, before, token))
        return bits.to_bytes((self._n_vocab + 31) // 32 * 4, "little")
