"""Llama.create_completion and generate on a tiny model."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from tiny.models import token_id, write_tiny_model

from pydspark import Llama
from pydspark.errors import ArgumentError, ContextFullError, UnsupportedError

N_CTX = 64
GREEDY: dict[str, Any] = {"temperature": 0.0}


def text_of(answer: dict[str, Any]) -> str:
    return str(answer["choices"][0]["text"])


def streamed_text(llama: Llama, prompt: Any, **more: Any) -> str:
    return "".join(map(text_of, llama(prompt, stream=True, **more)))


def test_call_and_create_completion_are_the_same(llama: Llama) -> None:
    assert text_of(llama("hello", seed=1)) == text_of(llama.create_completion("hello", seed=1))


@pytest.mark.parametrize("seed", range(5))
def test_streamed_text_equals_the_text_in_one_piece(llama: Llama, seed: int) -> None:
    more = {"seed": seed, "max_tokens": 40, "temperature": 1.5}
    text = text_of(llama("hello world", **more))
    assert streamed_text(llama, "hello world", **more) == text
    text.encode()


@pytest.mark.parametrize("n", [1, 2, 7, 8, 9])
def test_at_most_that_many_tokens(llama: Llama, n: int) -> None:
    answer = llama("hello", max_tokens=n, logit_bias={token_id("<|im_end|>"): False}, **GREEDY)
    assert answer["usage"]["completion_tokens"] == n
    assert answer["choices"][0]["finish_reason"] == "length"


def test_no_tokens_at_all(llama: Llama) -> None:
    answer = llama("hello", max_tokens=0)
    assert text_of(answer) == ""
    assert answer["choices"][0]["finish_reason"] == "length"
    assert (answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"]) == (1, 0)
    assert all(math.isfinite(value) for value in answer["timings"].values())


@pytest.mark.parametrize("max_tokens", [None, -1, -2])
def test_without_a_limit_the_context_ends_it(llama: Llama, max_tokens: int | None) -> None:
    ends = {token_id(text): False for text in ("<|im_end|>", "<|endoftext|>")}
    answer = llama("hello", max_tokens=max_tokens, logit_bias=ends, **GREEDY)
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["total_tokens"] == N_CTX


def test_end_token_stops_and_is_not_counted(llama: Llama) -> None:
    answer = llama("hello", max_tokens=5, logit_bias={token_id("<|im_end|>"): 1000})
    assert (text_of(answer), answer["choices"][0]["finish_reason"]) == ("", "stop")
    assert answer["usage"]["completion_tokens"] == 0


def test_prompt_that_does_not_fit(llama: Llama) -> None:
    for n in (N_CTX + 1, 5000):
        with pytest.raises(ContextFullError) as caught:
            llama([65] * n)
        assert (caught.value.n_prompt_tokens, caught.value.n_ctx) == (n, N_CTX)
        with pytest.raises(ContextFullError):
            next(llama([65] * n, stream=True))
    assert text_of(llama("hello", seed=1, max_tokens=4)) != ""


@pytest.mark.parametrize("n", [N_CTX - 2, N_CTX - 1])
def test_prompt_that_just_fits(llama: Llama, n: int) -> None:
    answer = llama([65] * n, max_tokens=None, logit_bias={token_id("<|im_end|>"): False}, **GREEDY)
    assert answer["usage"]["prompt_tokens"] == n
    assert answer["choices"][0]["finish_reason"] == "length"
    assert 1 <= answer["usage"]["completion_tokens"] <= N_CTX + 1 - n


@pytest.mark.parametrize("prompt", ["", b"", []])
def test_empty_prompt_is_refused_and_leaves_no_trace(llama: Llama, prompt: Any) -> None:
    with pytest.raises(ArgumentError, match="the prompt is empty"):
        llama(prompt)
    assert llama("hello", max_tokens=3)["usage"]["completion_tokens"] <= 3


def test_prompt_as_text_bytes_or_ids(llama: Llama) -> None:
    ids = llama.tokenize("hello world")
    answers = [text_of(llama(prompt, seed=3)) for prompt in ("hello world", b"hello world", ids)]
    assert len(set(answers)) == 1


def test_control_tokens_in_a_raw_prompt_are_read_as_such(llama: Llama) -> None:
    assert llama("<|im_start|>", max_tokens=1)["usage"]["prompt_tokens"] == 1


def test_token_id_that_does_not_exist(llama: Llama) -> None:
    for prompt in ([-1], [llama.n_vocab()]):
        with pytest.raises(ArgumentError, match="prompt: token id"):
            llama(prompt)


def test_echo(llama: Llama) -> None:
    answer = text_of(llama("hello", seed=5))
    assert text_of(llama("hello", seed=5, echo=True)) == "hello" + answer
    assert streamed_text(llama, llama.tokenize("hello"), seed=5, echo=True) == "hello" + answer
    with pytest.raises(UnsupportedError, match="echo with logprobs"):
        llama("hello", echo=True, logprobs=1)


# ---- stop strings ----


def test_stop_string_across_two_tokens(llama: Llama) -> None:
    more = {"seed": 4, "max_tokens": 40}
    whole = text_of(llama("hello", **more))
    stop = whole[5:7]
    cut = whole[: whole.index(stop)]
    answer = llama("hello", stop=stop, **more)
    assert (text_of(answer), answer["choices"][0]["finish_reason"]) == (cut, "stop")
    assert streamed_text(llama, "hello", stop=[stop], **more) == cut


def test_stop_string_that_does_not_come_changes_nothing(llama: Llama) -> None:
    more = {"seed": 4, "max_tokens": 20}
    whole = text_of(llama("hello", **more))
    assert text_of(llama("hello", stop=[whole[-3:] + "\x00never"], **more)) == whole


# ---- seeds ----


def test_seed_repeats_a_text_and_is_reported(llama: Llama) -> None:
    answers = [llama("hello", seed=42, temperature=1.5) for _ in range(3)]
    assert len({text_of(answer) for answer in answers}) == 1
    assert {answer["timings"]["seed"] for answer in answers} == {42}


@pytest.mark.parametrize("seed", [None, -1, 0xFFFFFFFF])
def test_without_a_seed_texts_differ_and_can_be_repeated(llama: Llama, seed: int | None) -> None:
    answers = [llama("hello", seed=seed, temperature=1.5) for _ in range(5)]
    assert len({text_of(answer) for answer in answers}) > 1
    again = llama("hello", seed=answers[0]["timings"]["seed"], temperature=1.5)
    assert text_of(again) == text_of(answers[0])
    assert llama.last_stats["seed"] == answers[0]["timings"]["seed"]


def test_seed_of_the_object_is_for_calls_without_one(llama: Llama) -> None:
    llama.set_seed(9)
    try:
        assert llama("hello")["timings"]["seed"] == 9
        assert llama("hello", seed=5)["timings"]["seed"] == 5
    finally:
        llama.set_seed(-1)


# ---- sampling ----


def test_temperature_zero_and_top_k_one_agree(llama: Llama) -> None:
    greedy = text_of(llama("hello", temperature=0))
    assert text_of(llama("hello", temperature=2.0, top_k=1)) == greedy
    assert text_of(llama("hello", temperature=-1)) == greedy
    assert text_of(llama("hello", temperature=1.0, top_p=0, top_k=0, min_p=0)) == greedy


@pytest.mark.parametrize("spell", [lambda i: {i: -100}, lambda i: {str(i): False}, lambda i: [[i, -100.0]]])
def test_banned_token_does_not_come(llama: Llama, spell: Any) -> None:
    first = next(llama.generate(llama.tokenize("hello"), temp=0.0))
    answer = llama("hello", max_tokens=1, logprobs=0, logit_bias=spell(first), **GREEDY)
    allowed = llama("hello", max_tokens=1, logprobs=0, **GREEDY)
    assert answer["choices"][0]["logprobs"]["tokens"] != allowed["choices"][0]["logprobs"]["tokens"]


def test_bias_for_an_unknown_id_is_refused(llama: Llama) -> None:
    with pytest.raises(ArgumentError, match="logit_bias: token id 9999"):
        llama("hello", logit_bias={9999: 1})


def test_settings_recommended_by_the_file_count_unless_the_caller_chose(tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "m.gguf", extra={"general.sampling.temp": 0.0})
    with Llama(path, n_ctx=N_CTX, n_threads=1) as llama:
        greedy = text_of(llama("hello", temperature=0))
        assert all(text_of(llama("hello", seed=seed)) == greedy for seed in range(3))
        assert any(text_of(llama("hello", seed=seed, temperature=0.8)) != greedy for seed in range(8))


def test_generate_gives_the_ids_of_the_text(llama: Llama) -> None:
    tokens = llama.tokenize("hello world")
    ids = list(llama.generate(tokens, temp=0.0))
    text = text_of(llama("hello world", max_tokens=None, **GREEDY))
    assert llama.detokenize(ids).decode("utf-8", "replace") == text
    assert list(llama.generate(tokens, temperature=0.0)) == ids


# ---- log-probabilities ----


def test_logprobs(llama: Llama) -> None:
    logprobs = llama("hello", max_tokens=6, logprobs=3, **GREEDY)["choices"][0]["logprobs"]
    assert list(logprobs) == ["tokens", "text_offset", "token_logprobs", "top_logprobs"]
    assert all(-20 < value <= 0 for value in logprobs["token_logprobs"])
    for token, value, top in zip(*(logprobs[k] for k in ("tokens", "token_logprobs", "top_logprobs")), strict=True):
        assert value == max(top.values())
        assert top[token] == value
        assert sum(map(math.exp, top.values())) <= 1 + 1e-5


# ---- reuse ----


def test_prompt_with_the_same_beginning_is_reused_without_changing_the_text(llama: Llama) -> None:
    first = llama("hello world hello", max_tokens=8, **GREEDY)
    longer = llama("hello world hello the", max_tokens=8, **GREEDY)
    assert longer["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
    assert longer["timings"]["cache_n"] + longer["timings"]["prompt_n"] == longer["usage"]["prompt_tokens"]
    llama.reset()
    fresh = llama("hello world hello the", max_tokens=8, **GREEDY)
    assert fresh["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert text_of(fresh) == text_of(longer)
    assert text_of(llama("hello world hello", max_tokens=8, **GREEDY)) == text_of(first)


def test_stream_left_half_way_leaves_no_trace(llama: Llama) -> None:
    expected = text_of(llama("hello", max_tokens=10, **GREEDY))
    stream = llama("hello world", stream=True, max_tokens=20, **GREEDY)
    next(stream)
    stream.close()
    assert text_of(llama("hello", max_tokens=10, **GREEDY)) == expected
