"""Events as the dictionaries of OpenAI's API and llama-cpp-python: text completions, and what chats share with them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from pydspark.generate import Done, Event, Text, Token, Usage
from pydspark.records import DEPTH_REASONS, Stats

Piece = Callable[[int], bytes]
"""The bytes of a token id."""

_LEAST_LOGPROB = -9999.0  # JSON has no infinity


@dataclass(frozen=True)
class Answer:
    """All events of one generation, put together."""

    text: str
    tokens: tuple[Token, ...]
    done: Done


def collect(events: Iterable[Event]) -> Answer:
    """Reads events to their end."""
    texts: list[str] = []
    tokens: list[Token] = []
    for event in events:
        if isinstance(event, Text):
            texts.append(event.text)
        elif isinstance(event, Token):
            tokens.append(event)
        else:
            return Answer("".join(texts), tuple(tokens), event)
    raise RuntimeError("the events ended without Done")


@dataclass(frozen=True)
class Shape:
    """What all dictionaries of one answer share.

    Attributes:
        model: name that is echoed back.
        piece: bytes of a token id, for log-probabilities.
        logprobs: whether log-probabilities are reported.
        echo: text put before the answer (completions only).
        id: ``cmpl-...`` or ``chatcmpl-...``.
        created: Unix time in seconds.
    """

    model: str
    piece: Piece
    logprobs: bool
    id: str
    created: int
    echo: str = ""


def new_shape(prefix: str, model: str, piece: Piece, logprobs: bool = False, echo: str = "") -> Shape:
    """A shape with a fresh id that begins with ``prefix``."""
    return Shape(model, piece, logprobs, f"{prefix}-{uuid.uuid4()}", int(time.time()), echo)


def completion(events: Iterable[Event], shape: Shape) -> dict[str, Any]:
    """A text completion."""
    answer = collect(events)
    logprobs = _legacy_logprobs(answer.tokens, shape, len(shape.echo)) if shape.logprobs else None
    choice = {
        "text": shape.echo + answer.text,
        "index": 0,
        "logprobs": logprobs,
        "finish_reason": answer.done.finish_reason,
    }
    return {**head(shape, "text_completion"), "choices": [choice], **tail(answer.done)}


class CompletionChunks:
    """Turns the events of one answer into chunks of a text completion, one by one.

    Args:
        shape: what the chunks share.
    """

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._tokens: list[Token] = []  # since the last chunk
        self._offset = len(shape.echo)

    def begin(self) -> dict[str, Any] | None:
        """The first chunk: the text that is put before the answer, if there is one."""
        return self._chunk(self._shape.echo, None) if self._shape.echo else None

    def add(self, event: Event) -> dict[str, Any] | None:
        """The chunk for an event, if it makes one; the last one has an empty text and the finish reason."""
        if isinstance(event, Token):
            self._tokens.append(event)
            return None
        if isinstance(event, Done):
            return {**self._chunk("", event.finish_reason), "timings": timings(event.stats, event.seed)}
        chunk = self._chunk(event.text, None)
        self._offset += len(event.text)
        return chunk

    def _chunk(self, text: str, reason: str | None) -> dict[str, Any]:
        tokens, self._tokens = self._tokens, []
        logprobs = _legacy_logprobs(tokens, self._shape, self._offset) if self._shape.logprobs and tokens else None
        choice = {"text": text, "index": 0, "logprobs": logprobs, "finish_reason": reason}
        return {**head(self._shape, "text_completion"), "choices": [choice]}


def completion_stream(events: Iterable[Event], shape: Shape) -> Iterator[dict[str, Any]]:
    """Chunks of a text completion."""
    chunks = CompletionChunks(shape)
    first = chunks.begin()
    if first is not None:
        yield first
    for event in events:
        chunk = chunks.add(event)
        if chunk is not None:
            yield chunk


def head(shape: Shape, kind: str) -> dict[str, Any]:
    """What a dictionary of this kind begins with."""
    return {"id": shape.id, "object": kind, "created": shape.created, "model": shape.model}


def tail(done: Done) -> dict[str, Any]:
    """What a dictionary about a whole answer ends with."""
    return {"usage": usage(done.usage), "timings": timings(done.stats, done.seed)}


def usage(counts: Usage) -> dict[str, Any]:
    """The ``usage`` object."""
    details = {"completion_tokens_details": {"reasoning_tokens": counts.reasoning_tokens}}
    return {
        "prompt_tokens": counts.prompt_tokens,
        "completion_tokens": counts.completion_tokens,
        "total_tokens": counts.prompt_tokens + counts.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": counts.cached_tokens},
        **(details if counts.reasoning_tokens else {}),
    }


def timings(stats: Stats, seed: int | None = None) -> dict[str, Any]:
    """The ``timings`` object: llama-server's fields, and the seed if it is told. Every number is finite.

    Fields about drafting are there only if the drafter ran; those about depths also if it never paid to run it.
    """
    return {
        "cache_n": stats.cache_n,
        **_speed("prompt", stats.prompt_n, stats.prompt_ms),
        **_speed("predicted", stats.predicted_n, stats.predicted_ms),
        **(_drafting(stats) if stats.draft_rounds else {}),
        **(_depths(stats) if stats.draft_rounds or any(stats.reasons[:1]) else {}),
        **({} if seed is None else {"seed": seed}),
    }


def _drafting(stats: Stats) -> dict[str, Any]:
    return {
        "draft_n": stats.draft_n,
        "draft_n_accepted": stats.draft_n_accepted,
        "draft_rounds": stats.draft_rounds,
        "accept_len": stats.accept_len,
        "accept_rate": stats.accept_rate,
        "drafted_at": list(stats.drafted_at),
        "draft_n_accepted_at": list(stats.accepted_at),
        "draft_ms": stats.draft_ms,
        "verify_ms": stats.verify_ms,
        "host_ms": stats.host_ms,
    }


def _depths(stats: Stats) -> dict[str, Any]:
    reasons = zip(DEPTH_REASONS, stats.reasons, strict=True)
    return {
        "saved_ms": stats.saved_ms,
        "depths": list(stats.depths),
        "depth_reasons": {reason: count for reason, count in reasons if count},
    }


def _speed(name: str, n: int, ms: float) -> dict[str, Any]:
    return {
        f"{name}_n": n,
        f"{name}_ms": ms,
        f"{name}_per_token_ms": ms / n if n else 0.0,
        f"{name}_per_second": n / ms * 1e3 if ms > 0 else 0.0,
    }


def stats(done: Done) -> dict[str, Any]:
    """Counts and times of a generation, for ``Llama.last_stats``: ``timings``, and the same for every generation.

    ``accept_len`` counts tokens per round with drafts, the target's own included; ``accepted_at`` and ``drafted_at``
    count tokens by their position in the block.
    """
    counts = done.stats
    return {
        **timings(counts, done.seed),
        "n_rounds": counts.n_rounds,
        "n_drafted": counts.draft_n,
        "n_accepted": counts.draft_n_accepted,
        "accept_rate": counts.accept_rate,
        "accept_len": counts.accept_len,
        "accepted_at": list(counts.accepted_at),
        "drafted_at": list(counts.drafted_at),
        "decode_ms": counts.predicted_ms,
        "draft_ms": counts.draft_ms,
        "verify_ms": counts.verify_ms,
        "host_ms": counts.host_ms,
        "saved_ms": counts.saved_ms,
    }


def finite(logprob: float | None) -> float:
    """A log-probability that JSON can hold."""
    return logprob if logprob is not None and logprob > _LEAST_LOGPROB else _LEAST_LOGPROB


def _legacy_logprobs(tokens: Sequence[Token], shape: Shape, offset: int) -> dict[str, list[Any]]:
    texts = [shape.piece(token.id).decode("utf-8", "replace") for token in tokens]
    offsets = list(accumulate(map(len, texts), initial=offset))[:-1]
    tops = [
        {shape.piece(id).decode("utf-8", "replace"): finite(logprob) for id, logprob in token.top}
        | {text: finite(token.logprob)}
        for token, text in zip(tokens, texts, strict=True)
    ]
    return {
        "tokens": texts,
        "text_offset": offsets,
        "token_logprobs": [finite(token.logprob) for token in tokens],
        "top_logprobs": tops,
    }
