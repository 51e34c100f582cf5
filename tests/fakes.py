"""Stand-ins for the compiled core."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pydspark.params import SamplingParams
from pydspark.records import Finish, Progress, Request, Stats, Step


class FakeSession:
    """Emits ready-made token ids, some per step, and notes what it was asked.

    With ``drafts`` a step counts as a round whose tokens were drafted, but for the last one; a stop id takes the place
    of that one.
    """

    def __init__(
        self, tokens: Sequence[int], per_step: int = 1, finish: Finish = Finish.STOP_ID, drafts: bool = False
    ) -> None:
        self.tokens = list(tokens)
        self.per_step = per_step
        self.finish = finish
        self.drafts = drafts
        self.started: list[Request] = []
        self.n_steps = 0
        self.cuts: list[int] = []

    def start(self, request: Request, progress: Progress | None = None) -> None:
        self.started.append(request)
        self.n_steps = 0

    def step(self) -> Step:
        begin = self.n_steps * self.per_step
        self.n_steps += 1
        tokens = tuple(self.tokens[begin : begin + self.per_step])
        last = begin + self.per_step >= len(self.tokens)
        return Step(
            tokens=tokens,
            finish=self.finish if last else Finish.NONE,
            stop_id=0 if last and self.finish is Finish.STOP_ID else None,
            logprobs=tuple(-0.5 for _ in tokens),
            tops=tuple(((token, -0.5), (token + 1, float("-inf"))) for token in tokens),
        )

    def cut(self, n: int) -> None:
        self.cuts.append(n)

    def stats(self) -> Stats:
        n = len(self.started[-1].tokens)
        begins = range(0, self.n_steps * self.per_step, self.per_step)
        counts = [len(self.tokens[begin : begin + self.per_step]) for begin in begins]
        plain = Stats(n - 1, 1, 4.0, sum(counts), 8.0, 1.0, self.n_steps)
        if not self.drafts:
            return plain
        ended_by_id = self.finish is Finish.STOP_ID and sum(counts) == len(self.tokens)
        accepted = [count - 1 for count in counts[:-1]] + [counts[-1] - (not ended_by_id)]
        return replace(
            plain,
            draft_rounds=self.n_steps,
            draft_n=self.n_steps * self.per_step,
            draft_n_accepted=sum(accepted),
            draft_ms=2.0,
            verify_ms=5.0,
            drafted_at=(self.n_steps,) * self.per_step,
            accepted_at=tuple(sum(i < count for count in accepted) for i in range(self.per_step)),
        )


class ByteDecoder:
    """Token ids are bytes of UTF-8."""

    def __init__(self) -> None:
        self._bytes = b""

    def add(self, token: int) -> str:
        self._bytes += bytes([token])
        try:
            text = self._bytes.decode()
        except UnicodeDecodeError:
            return ""
        self._bytes = b""
        return text

    def finish(self) -> str:
        return "\ufffd" if self._bytes else ""


class OneStop:
    """Holds back the beginning of one stop string."""

    def __init__(self, stop: str | None = None) -> None:
        self._stop = stop
        self._held = ""
        self.hit: str | None = None

    def add(self, text: str) -> str:
        self._held += text
        if self._stop is None:
            return self.finish()
        at = self._held.find(self._stop)
        if at >= 0:
            self.hit = self._stop
            return self._held[:at]
        n_held = next(n for n in range(len(self._stop), -1, -1) if self._held.endswith(self._stop[:n]))
        cut = len(self._held) - n_held
        text, self._held = self._held[:cut], self._held[cut:]
        return text

    def finish(self) -> str:
        text, self._held = self._held, ""
        return text


def request(prompt: Sequence[int] = (1, 2, 3), **sampling: object) -> Request:
    """A request with defaults for what a test does not care about."""
    return Request(tokens=tuple(prompt), sampling=SamplingParams(**sampling), seed=7)
