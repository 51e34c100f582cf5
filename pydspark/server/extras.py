"""What answers tell beside their text, as far as a request wants to know it."""

from __future__ import annotations

from typing import Any

from pydspark import results
from pydspark.generate import Done, Token
from pydspark.server.job import LiveStats, PlainSpeed, PromptProgress, Told


class Extras:
    """Collects it from the items of one answer.

    Args:
        wants_tokens: tell the ids of the tokens, and how each of them came.
    """

    def __init__(self, wants_tokens: bool) -> None:
        self._wants_tokens = wants_tokens
        self._tokens: list[Token] = []
        self._live: LiveStats | None = None
        self._plain_ms: float | None = None

    def note(self, item: Told) -> None:
        """Takes an item in."""
        if isinstance(item, Token) and self._wants_tokens:
            self._tokens.append(item)
        elif isinstance(item, LiveStats):
            self._live = item
        elif isinstance(item, PlainSpeed):
            self._plain_ms = item.ms_per_token

    def take(self) -> dict[str, Any]:
        """What has come since the last call: tokens, and times so far."""
        tokens, self._tokens = self._tokens, []
        live, self._live = self._live, None
        return {
            **(token_fields(tokens) if tokens else {}),
            **({} if live is None else {"timings": results.timings(live.stats)}),
        }

    def timings(self, done: Done) -> dict[str, Any]:
        """The final times."""
        timings = results.timings(done.stats, done.seed)
        return timings if self._plain_ms is None else {**timings, "plain_per_token_ms": self._plain_ms}


def token_fields(tokens: list[Token]) -> dict[str, Any]:
    """Ids, and the position in its block of every token that was drafted, None for the model's own."""
    return {
        "tokens": [token.id for token in tokens],
        "draft_positions": [token.draft_position for token in tokens],
    }


def progress_object(progress: PromptProgress) -> dict[str, Any]:
    """How far a prompt is, with llama-server's names."""
    return {
        "total": progress.n_prompt,
        "cache": progress.n_cached,
        "processed": progress.n_processed,
        "time_ms": progress.ms,
    }
