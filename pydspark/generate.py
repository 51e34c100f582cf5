"""Drives a session: one request in, events out."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from pydspark.records import Finish, Progress, Request, SessionLike, Stats, Step


@dataclass(frozen=True)
class Token:
    """A generated token, before the text that it belongs to.

    Attributes:
        id: token id.
        logprob: its log-probability under the model, before any filter; None unless asked for.
        top: the likeliest tokens of this position and their log-probabilities.
        draft_position: its position in the block if it was drafted; None for a token of the model's own.
    """

    id: int
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()
    draft_position: int | None = None


@dataclass(frozen=True)
class Text:
    """The next piece of the answer: whole characters that cannot be part of a stop string any more."""

    text: str


@dataclass(frozen=True)
class Usage:
    """Token counts. ``completion_tokens`` includes tokens of a stop string, but not an end token."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    reasoning_tokens: int = 0


@dataclass(frozen=True)
class Done:
    """The last event.

    Attributes:
        finish_reason: ``"stop"`` or ``"length"``; of a chat (see ``pydspark.chat``) also ``"tool_calls"``.
        stop: the stop string that was met.
        stop_id: the token id that ended the answer.
        usage: token counts.
        stats: counts and times from the core.
        seed: the seed that was used.
    """

    finish_reason: str
    stop: str | None
    stop_id: int | None
    usage: Usage
    stats: Stats
    seed: int


Event = Token | Text | Done


class TextDecoder(Protocol):
    """Token ids to whole characters (``text.detokenizer.Detokenizer``)."""

    def add(self, token: int, /) -> str: ...

    def finish(self) -> str: ...


class StopText(Protocol):
    """Holds back what may become a stop string (``text.stop.StopMatcher``)."""

    def add(self, text: str, /) -> str: ...

    @property
    def hit(self) -> str | None: ...

    def finish(self) -> str: ...


def generate(
    session: SessionLike,
    request: Request,
    decoder: TextDecoder,
    stop: StopText,
    progress: Progress | None = None,
) -> Iterator[Event]:
    """Runs one request on a session.

    Tokens come before the text that they produced; tokens whose text is cut off by a stop string do not come at all.
    After a stop string the session and the counts are as if tokens had come one at a time: a round can commit more of
    them, and what is behind the one that completed the stop string is forgotten. Closing the iterator early is allowed
    at any time: the session is then ready for the next request.

    Args:
        session: nobody else may use it until the iterator ends or is closed.
        request: the prompt and the choices.
        decoder, stop: fresh ones.
        progress: told how much of the prompt is evaluated; may stop the request.

    Raises:
        ContextFullError: the prompt does not fit.
        Cancelled: the session or progress was told to stop.
    """
    if request.sampling.max_tokens == 0:
        yield _done(request, "length", _NOTHING, 0)
        return
    session.start(request, progress)
    text = _TextRelease(decoder, stop)
    n_tokens = 0
    finish, stop_id = Finish.NONE, None
    while finish is Finish.NONE:
        step = session.step()
        finish, stop_id = step.finish, step.stop_id
        for n_kept, token in enumerate(_tokens(step), 1):
            n_tokens += 1
            yield from text.add(token)
            if stop.hit is not None:
                stats = _stats_until(n_kept, step, session.stats())
                # decoding one by one, the last token would not have been evaluated yet
                session.cut(len(request.tokens) + n_tokens - 1)
                yield _done(request, "stop", stats, n_tokens, stop.hit)
                return
    yield from text.finish()
    met_stop = stop.hit is not None or finish is Finish.STOP_ID
    yield _done(request, "stop" if met_stop else "length", session.stats(), n_tokens, stop.hit, stop_id)


_NOTHING = Stats(prompt_n=0, cache_n=0, prompt_ms=0.0, predicted_n=0, predicted_ms=0.0, host_ms=0.0, n_rounds=0)


def _done(
    request: Request, reason: str, stats: Stats, n_tokens: int, stop: str | None = None, stop_id: int | None = None
) -> Done:
    usage = Usage(len(request.tokens), n_tokens, stats.cache_n)
    return Done(reason, stop, None if stop is not None else stop_id, usage, stats, request.seed)


def _stats_until(n_kept: int, step: Step, stats: Stats) -> Stats:
    """The counts as if the last round had ended after its first ``n_kept`` tokens."""
    n_accepted = _n_accepted(step)
    accepted_at = _without(stats.accepted_at, range(n_kept, n_accepted))
    return replace(
        stats,
        predicted_n=stats.predicted_n - (len(step.tokens) - n_kept),
        draft_n_accepted=sum(accepted_at),
        accepted_at=accepted_at,
        lookup_accepted_at=_without(stats.lookup_accepted_at, range(max(n_kept, step.n_by_drafter), n_accepted)),
    )


def _without(counts: Sequence[int], places: range) -> tuple[int, ...]:
    return tuple(count - (i in places) for i, count in enumerate(counts))


def _n_accepted(step: Step) -> int:
    # All of its tokens are accepted drafts, but for the target's own at the end, which a stop id takes the place of.
    return len(step.tokens) - (step.finish is not Finish.STOP_ID)


def _tokens(step: Step) -> Sequence[Token]:
    n_accepted = _n_accepted(step)
    return [
        Token(
            id=token,
            logprob=step.logprobs[i] if step.logprobs else None,
            top=step.tops[i] if step.tops else (),
            draft_position=i if i < n_accepted else None,
        )
        for i, token in enumerate(step.tokens)
    ]


class _TextRelease:
    """Lets tokens and text through together, in order, as far as the text is settled."""

    def __init__(self, decoder: TextDecoder, stop: StopText) -> None:
        self._decoder = decoder
        self._stop = stop
        self._waiting: deque[tuple[int, Token]] = deque()  # with the position in characters where its text begins
        self._n_decoded = 0
        self._n_released = 0

    def add(self, token: Token) -> Iterator[Event]:
        self._waiting.append((self._n_decoded, token))
        yield from self._push(self._decoder.add(token.id))

    def finish(self) -> Iterator[Event]:
        """The end without a stop string, unless the last characters complete one."""
        yield from self._push(self._decoder.finish())
        if self._stop.hit is None:
            yield from self._release(self._stop.finish(), everything=True)

    def _push(self, text: str) -> Iterator[Event]:
        self._n_decoded += len(text)
        if text:
            yield from self._release(self._stop.add(text), everything=False)

    def _release(self, text: str, everything: bool) -> Iterator[Event]:
        self._n_released += len(text)
        while self._waiting and (everything or self._waiting[0][0] < self._n_released):
            yield self._waiting.popleft()[1]
        if text:
            yield Text(text)
