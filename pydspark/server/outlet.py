"""Carries what the engine's thread says to a coroutine."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Generic, TypeVar

_Item = TypeVar("_Item")


class Outlet(Generic[_Item]):
    """A line of items from any thread to one coroutine. It holds all of them: a slow reader stops nobody.

    Made on the event loop that reads it.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._items: deque[_Item] = deque()
        self._has_items = asyncio.Event()
        self._is_told = False  # the loop has been told and has not looked yet

    def put(self, item: _Item) -> None:
        """Adds an item, from any thread."""
        with self._lock:
            self._items.append(item)
            if self._is_told:
                return
            self._is_told = True
        with suppress(RuntimeError):  # the loop is closed: nobody reads any more
            self._loop.call_soon_threadsafe(self._has_items.set)

    async def take(self, timeout_s: float) -> Sequence[_Item]:
        """Waits for items and takes all that are there; none when the time is up."""
        try:
            await asyncio.wait_for(self._has_items.wait(), timeout_s)
        except (asyncio.TimeoutError, TimeoutError):
            return ()
        self._has_items.clear()
        with self._lock:
            self._is_told = False
            items = tuple(self._items)
            self._items.clear()
        return items
