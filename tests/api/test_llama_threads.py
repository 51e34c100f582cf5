"""One Llama used by several threads."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pydspark import Llama
from pydspark.errors import Cancelled

WAIT_S = 30.0
ASK: dict[str, Any] = {"temperature": 0, "max_tokens": 12}


def text_of(answer: dict[str, Any]) -> str:
    return str(answer["choices"][0]["text"])


def test_calls_from_several_threads_give_the_same_texts_as_one_by_one(llama: Llama) -> None:
    prompts = [f"hello {i} world" for i in range(8)]
    expected = [text_of(llama(prompt, **ASK)) for prompt in prompts]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda prompt: text_of(llama(prompt, **ASK)), prompts)) == expected


def test_streams_from_several_threads_do_not_mix(llama: Llama) -> None:
    prompts = [f"hello {i}" for i in range(4)]
    expected = [text_of(llama(prompt, **ASK)) for prompt in prompts]

    def streamed(prompt: str) -> str:
        return "".join(map(text_of, llama(prompt, stream=True, **ASK)))

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(streamed, prompts)) == expected


def test_dropped_stream_of_another_thread_is_no_obstacle(llama: Llama) -> None:
    def begin_and_drop() -> None:
        next(llama("hello", stream=True, **ASK))

    thread = threading.Thread(target=begin_and_drop)
    thread.start()
    thread.join(WAIT_S)
    assert text_of(llama("hello world", **ASK)) != ""


def test_stream_kept_by_a_thread_that_ended_is_no_obstacle(llama: Llama) -> None:
    kept: list[Any] = []

    def begin_and_keep() -> None:
        kept.append(llama("hello", stream=True, **ASK))
        next(kept[0])

    thread = threading.Thread(target=begin_and_keep)
    thread.start()
    thread.join(WAIT_S)
    assert text_of(llama("hello world", **ASK)) != ""
    with pytest.raises(Cancelled):
        list(kept[0])


def test_call_in_the_middle_of_a_stream_of_the_same_thread_ends_the_stream(llama: Llama) -> None:
    stream = llama("hello", stream=True, **ASK)
    next(stream)
    assert text_of(llama("hello world", **ASK)) != ""
    with pytest.raises(Cancelled, match="same thread"):
        next(stream)


def test_two_objects_do_not_wait_for_each_other(llama: Llama, tiny_llama_path: Path) -> None:
    with Llama(tiny_llama_path, n_ctx=64, n_threads=1) as other:
        expected = text_of(llama("hello", **ASK))
        pairs = list(zip(llama("hello", stream=True, **ASK), other("hello", stream=True, **ASK), strict=True))
        assert ["".join(text_of(pair[i]) for pair in pairs) for i in (0, 1)] == [expected, expected]
