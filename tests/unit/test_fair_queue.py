"""The line in which clients take turns."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from pydspark.server.fair_queue import FairQueue


def drain(queue: FairQueue[str]) -> list[str]:
    taken = []
    while (item := queue.get()) is not None:
        taken.append(item)
    return taken


def test_one_client_is_served_in_order() -> None:
    queue: FairQueue[str] = FairQueue(9)
    assert all(queue.put("a", item) for item in "123")
    assert drain(queue) == ["1", "2", "3"]


def test_a_client_with_many_requests_does_not_hold_up_another() -> None:
    queue: FairQueue[str] = FairQueue(9)
    for client, item in (("a", "a1"), ("a", "a2"), ("a", "a3"), ("b", "b1"), ("c", "c1")):
        queue.put(client, item)
    assert drain(queue) == ["a1", "b1", "c1", "a2", "a3"]


def test_a_full_line_takes_nothing_more() -> None:
    queue: FairQueue[str] = FairQueue(2)
    assert queue.put("a", "1") and queue.put("b", "2")
    assert not queue.put("c", "3")
    assert queue.get() == "1"
    assert queue.put("c", "3")


def test_what_is_removed_does_not_come() -> None:
    queue: FairQueue[str] = FairQueue(9)
    for item in "123":
        queue.put("a", item)
    assert queue.remove("a", "2")
    assert not queue.remove("a", "2") and not queue.remove("b", "1")
    assert drain(queue) == ["1", "3"]
    queue.put("a", "4")
    assert queue.clear() == ["4"] and len(queue) == 0


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 99)), max_size=30))
def test_nobody_is_ahead_by_more_than_one_while_others_wait(puts: list[tuple[str, int]]) -> None:
    queue: FairQueue[tuple[str, int]] = FairQueue(100)
    for i, (client, _) in enumerate(puts):
        queue.put(client, (client, i))
    left = Counter(client for client, _ in puts)
    served: Counter[str] = Counter()
    last: dict[str, int] = {}
    while (item := queue.get()) is not None:
        client, i = item
        assert last.get(client, -1) < i
        last[client] = i
        served[client] += 1
        for other, n in left.items():
            if served[other] < n:
                assert served[client] <= served[other] + 1
    assert served == left
