"""One generation that a client asked for."""

from __future__ import annotations

import time
from collections.abc import Hashable
from dataclasses import dataclass

from pydspark.chat import ChatEvent
from pydspark.engine import Engine
from pydspark.generate import Done, Token
from pydspark.params import SamplingParams
from pydspark.prompts import ChatPrompt
from pydspark.records import Stats
from pydspark.server.outlet import Outlet


@dataclass(frozen=True)
class Ask:
    """What is to be generated, and what the client wants to know meanwhile.

    Attributes:
        prompt: of a chat or of plain text.
        params: how to generate.
        reuse_prefix: keep what the session holds of the same beginning.
        wants_progress: tell how far the prompt is.
        wants_timings: tell the times after every round.
        wants_plain_speed: measure at the end how long a token takes without drafts.
    """

    prompt: ChatPrompt
    params: SamplingParams
    reuse_prefix: bool = True
    wants_progress: bool = False
    wants_timings: bool = False
    wants_plain_speed: bool = False


@dataclass(frozen=True)
class PromptProgress:
    """How many tokens of the prompt are evaluated; ``n_cached`` of them were there before."""

    n_prompt: int
    n_cached: int
    n_processed: int
    ms: float


@dataclass(frozen=True)
class LiveStats:
    """Counts and times up to the event that comes next."""

    stats: Stats


@dataclass(frozen=True)
class PlainSpeed:
    """How long the model takes for a token without drafts. Comes before Done."""

    ms_per_token: float


@dataclass(frozen=True)
class Failure:
    """The generation ended with an error. It is the last item."""

    error: Exception


Told = ChatEvent | PromptProgress | LiveStats | PlainSpeed
Item = Told | Failure


def chat_event(told: Told) -> ChatEvent | None:
    """What is told as an event of the answer, or None if it is about something else."""
    return None if isinstance(told, (PromptProgress, LiveStats, PlainSpeed)) else told


class Job:
    """A generation from its request to its end. Made on the event loop that reads its items.

    Args:
        ask: what is wanted.
        client: whoever asks; clients take turns.
        engine: generates.

    Attributes:
        ask, client: as given.
        items: what the engine's thread tells.
        events: to be read by the engine's thread.
        is_cancelled: nobody wants the answer any more.
        n_processed, n_cached: tokens of the prompt that are evaluated, and that were there before.
        n_decoded: tokens generated so far.

    Raises:
        ArgumentError: the engine cannot do what is asked.
    """

    def __init__(self, ask: Ask, client: Hashable, engine: Engine) -> None:
        self.ask = ask
        self.client = client
        self.items: Outlet[Item] = Outlet()
        self.is_cancelled = False
        self.n_processed = self.n_cached = self.n_decoded = 0
        self._engine = engine
        self._begin = time.monotonic()
        self._done: Done | None = None
        self._fraction = -1.0
        self.events = engine.chat_events(ask.prompt, ask.params, self._note_progress, ask.reuse_prefix)

    # ---- on the engine's thread ----

    def begin(self) -> None:
        """Its turn has come."""
        self._begin = time.monotonic()

    def note(self, event: ChatEvent) -> None:
        """Counts an event."""
        if isinstance(event, Done):
            self._done = event
        elif isinstance(event, Token):
            if not self.n_decoded:
                self._tell_progress()
            self.n_decoded += 1
            if self.ask.wants_timings:
                self.items.put(LiveStats(self._engine.stats()))

    def final_stats(self) -> Stats | None:
        """The counts of what was done; None if nothing was."""
        if self._done is not None:
            return self._done.stats
        return self._engine.stats() if self.n_processed or self.n_decoded else None

    def _note_progress(self, fraction: float) -> bool:
        if fraction != self._fraction:  # most calls only ask whether to go on
            self._fraction = fraction
            self._tell_progress()
        return not self.is_cancelled

    def _tell_progress(self) -> None:
        stats = self._engine.stats()
        self.n_cached, self.n_processed = stats.cache_n, stats.cache_n + stats.prompt_n
        if self.ask.wants_progress:
            ms = (time.monotonic() - self._begin) * 1e3
            n_prompt = len(self.ask.prompt.tokens)
            self.items.put(PromptProgress(n_prompt, self.n_cached, self.n_processed, ms))
