"""Stop strings in a stream of text."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from pydspark.errors import ArgumentError


class StopMatcher:
    """Passes text on until a stop string is complete; the stop string and what follows are not passed on.

    The stop string that is complete first wins, so the result does not depend on how the text is cut into pieces and no
    text beyond it is needed. Of several that end at the same character the longest wins. Only text that may be the
    beginning of a stop string is held back. Time is linear in the length of the text, however many stop strings there
    are (Aho-Corasick automaton).

    Args:
        stops: the stop strings; may be empty.

    Attributes:
        hit: the stop string found, or None.

    Raises:
        ArgumentError: a stop string is empty or not a string.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self.hit: str | None = None
        self._state = 0
        # Per state; state 0 is the empty prefix.
        self._next: list[dict[str, int]] = [{}]
        self._fallback = [0]  # state of the longest proper suffix that is also a prefix of a stop string
        self._prefix = [("", 0)]  # a stop string and how many of its characters the state stands for
        self._found: list[str | None] = [None]  # longest stop string that ends here
        for i, stop in enumerate([stops] if isinstance(stops, str) else stops):
            if not isinstance(stop, str) or not stop:
                raise ArgumentError(f"stop string {i} is {stop!r}; it should be a string that is not empty")
            self._insert(stop)
        self._link()

    def add(self, text: str) -> str:
        """The text that can be passed on now; nothing once a stop string was found."""
        if self.hit is not None:
            return ""
        # What is held back is a prefix of a stop string, so there is no need to store it.
        stop, n_held = self._prefix[self._state]
        n_pass = n_held
        for i, char in enumerate(text):
            self._state = self._step(self._state, char)
            self.hit = self._found[self._state]
            if self.hit is not None:
                n_pass += i + 1 - len(self.hit)
                break
        else:
            n_pass += len(text) - self._prefix[self._state][1]
        return stop[: min(n_held, n_pass)] + text[: max(0, n_pass - n_held)]

    def finish(self) -> str:
        """The text held back, when the stream ends without a stop string."""
        stop, n_held = self._prefix[self._state]
        self._state = 0
        return stop[:n_held] if self.hit is None else ""

    def _insert(self, stop: str) -> None:
        state = 0
        for length, char in enumerate(stop, start=1):
            if char not in self._next[state]:
                self._next[state][char] = len(self._next)
                self._next.append({})
                self._fallback.append(0)
                self._prefix.append((stop, length))
                self._found.append(None)
            state = self._next[state][char]
        self._found[state] = stop

    def _link(self) -> None:
        # Breadth first: a fallback is shorter than its state, so it is linked before.
        waiting = deque(self._next[0].values())
        while waiting:
            state = waiting.popleft()
            for char, child in self._next[state].items():
                self._fallback[child] = self._step(self._fallback[state], char)
                self._found[child] = self._found[child] or self._found[self._fallback[child]]
                waiting.append(child)

    def _step(self, state: int, char: str) -> int:
        while state and char not in self._next[state]:
            state = self._fallback[state]
        return self._next[state].get(char, 0)
