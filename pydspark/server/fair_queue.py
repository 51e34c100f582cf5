"""A bounded line in which clients take turns."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable
from typing import Generic, TypeVar

_Item = TypeVar("_Item")


class FairQueue(Generic[_Item]):
    """First come, first served within a client; between clients, one each in turn.

    It is not safe for several threads by itself.

    Args:
        limit: most items.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        # the client whose turn is next comes first
        self._waiting: OrderedDict[Hashable, deque[_Item]] = OrderedDict()

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def put(self, client: Hashable, item: _Item) -> bool:
        """Adds an item at the end of its client's line. Returns False, and does not add it, if there is no room."""
        if len(self) >= self._limit:
            return False
        self._waiting.setdefault(client, deque()).append(item)
        return True

    def get(self) -> _Item | None:
        """Takes the next item out; None if there is none."""
        if not self._waiting:
            return None
        client, items = self._waiting.popitem(last=False)
        item = items.popleft()
        if items:
            self._waiting[client] = items
        return item

    def remove(self, client: Hashable, item: _Item) -> bool:
        """Takes an item out wherever it stands. Returns False if it is not in here."""
        items = self._waiting.get(client)
        if items is None or item not in items:
            return False
        items.remove(item)
        if not items:
            del self._waiting[client]
        return True

    def clear(self) -> list[_Item]:
        """Takes all items out."""
        items = [item for line in self._waiting.values() for item in line]
        self._waiting.clear()
        return items
