"""Counts of all requests, as Prometheus reads them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

from pydspark.records import Stats

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_PREFIX = "llamacpp:"  # the names of llama-server, so that dashboards go on working


class Metrics:
    """Counters over the life of the server, and gauges.

    Attributes:
        started: Unix time of the server's start.
    """

    def __init__(self) -> None:
        self.started = time.time()
        self._lock = threading.Lock()
        self._prompt_n = self._cache_n = self._predicted_n = self._n_rounds = self._n_tokens_max = 0
        self._prompt_s = self._predicted_s = 0.0
        self._last_prompt_per_s = self._last_predicted_per_s = 0.0
        self._draft_n = self._draft_n_accepted = self._draft_rounds = 0
        self._lookup_n = self._lookup_n_accepted = self._lookup_rounds = 0
        self._accepted_at: list[int] = []

    def note(self, stats: Stats) -> None:
        """Takes in one generation that has ended, in whatever way."""
        with self._lock:
            self._prompt_n += stats.prompt_n
            self._cache_n += stats.cache_n
            self._prompt_s += stats.prompt_ms / 1e3
            self._predicted_n += stats.predicted_n
            self._predicted_s += stats.predicted_ms / 1e3
            self._n_rounds += stats.n_rounds
            self._n_tokens_max = max(self._n_tokens_max, stats.cache_n + stats.prompt_n + stats.predicted_n)
            self._draft_n += stats.draft_n
            self._draft_n_accepted += stats.draft_n_accepted
            self._draft_rounds += stats.draft_rounds
            self._lookup_n += sum(stats.lookup_drafted_at)
            self._lookup_n_accepted += sum(stats.lookup_accepted_at)
            self._lookup_rounds += stats.lookup_rounds
            missing = len(stats.accepted_at) - len(self._accepted_at)
            self._accepted_at += [0] * missing
            for i, count in enumerate(stats.accepted_at):
                self._accepted_at[i] += count
            self._last_prompt_per_s = _rate(stats.prompt_n, stats.prompt_ms)
            self._last_predicted_per_s = _rate(stats.predicted_n, stats.predicted_ms)

    def text(self, n_running: int, n_waiting: int) -> str:
        """Prometheus' text format."""
        with self._lock:
            return "".join(self._lines(n_running, n_waiting))

    def _lines(self, n_running: int, n_waiting: int) -> Iterator[str]:
        yield from _counter("prompt_tokens_total", "Prompt tokens evaluated.", self._prompt_n)
        yield from _counter("prompt_tokens_cached_total", "Prompt tokens that were there before.", self._cache_n)
        yield from _counter("prompt_seconds_total", "Time for prompts.", self._prompt_s)
        yield from _counter("tokens_predicted_total", "Tokens generated.", self._predicted_n)
        yield from _counter("tokens_predicted_seconds_total", "Time for generating.", self._predicted_s)
        yield from _counter("n_decode_total", "Rounds, with drafts or without.", self._n_rounds)
        yield from _counter("n_tokens_max", "Most tokens that the context held.", self._n_tokens_max)
        yield from _counter("spec_decode_num_draft_tokens_total", "Drafted tokens that were verified.", self._draft_n)
        yield from _counter("spec_decode_num_accepted_tokens_total", "Drafted tokens accepted.", self._draft_n_accepted)
        yield from _counter("spec_decode_num_drafts_total", "Rounds with drafts.", self._draft_rounds)
        yield from _counter("spec_lookup_num_draft_tokens_total", "Drafted tokens that were copied.", self._lookup_n)
        yield from _counter("spec_lookup_num_accepted_tokens_total", "Of these, accepted.", self._lookup_n_accepted)
        yield from _counter("spec_lookup_num_drafts_total", "Rounds with copied tokens.", self._lookup_rounds)
        name = "spec_decode_num_accepted_tokens_per_pos_total"
        yield from _head(name, "Drafted tokens accepted, by position in the block.", "counter")
        for i, count in enumerate(self._accepted_at):
            yield f'{_PREFIX}{name}{{position="{i}"}} {count}\n'
        yield from _gauge("prompt_tokens_seconds", "Prompt tokens per second, last request.", self._last_prompt_per_s)
        text = "Tokens generated per second, last request."
        yield from _gauge("predicted_tokens_seconds", text, self._last_predicted_per_s)
        yield from _gauge("requests_processing", "Requests that run.", n_running)
        yield from _gauge("requests_deferred", "Requests that wait.", n_waiting)
        yield from _gauge("n_busy_slots_per_decode", "Sequences per round.", float(self._n_rounds > 0))


def _rate(n: int, ms: float) -> float:
    return n / ms * 1e3 if ms > 0 else 0.0


def _head(name: str, text: str, kind: str) -> Iterator[str]:
    yield f"# HELP {_PREFIX}{name} {text}\n# TYPE {_PREFIX}{name} {kind}\n"


def _counter(name: str, text: str, value: float) -> Iterator[str]:
    yield from _head(name, text, "counter")
    yield f"{_PREFIX}{name} {value:.10g}\n"


def _gauge(name: str, text: str, value: float) -> Iterator[str]:
    yield from _head(name, text, "gauge")
    yield f"{_PREFIX}{name} {value:.10g}\n"
