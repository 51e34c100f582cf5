"""Streamed text against the text of all tokens at once."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pydspark.errors import ArgumentError
from pydspark.text.bpe import BYTE_CHARS
from pydspark.text.detokenizer import Detokenizer
from pydspark.text.tokenizer import Tokenizer
from pydspark.text.vocab import Vocab

pytest_plugins = ["real_vocab"]


def _pieces(tokenizer: Tokenizer, ids: list[int], *, special: bool = False) -> list[str]:
    detokenizer = Detokenizer(tokenizer, special=special)
    return [*(detokenizer.add(token_id) for token_id in ids), detokenizer.finish()]


@pytest.mark.parametrize(
    ("ids", "pieces"),
    [
        ([9008, 99, 247], ["", "", "\U0001f999", ""]),
        ([9008, 99], ["", "", "\ufffd"]),
        ([72790, 117, 9008, 99, 247], ["", "\U0001f639", "", "", "\U0001f999", ""]),
        ([9008, 9419], ["", "\ufffdHello", ""]),
        ([], [""]),
    ],
)
def test_characters_are_held_until_complete(ids: list[int], pieces: list[str], qwen_tokenizer: Tokenizer) -> None:
    assert _pieces(qwen_tokenizer, ids) == pieces


@pytest.mark.parametrize(("special", "text"), [(False, "Hello<think>"), (True, "<|im_start|>Hello<think><|im_end|>")])
def test_control_tokens_show_only_when_asked_for(special: bool, text: str, qwen_tokenizer: Tokenizer) -> None:
    assert "".join(_pieces(qwen_tokenizer, [248045, 9419, 248068, 248046], special=special)) == text


@settings(max_examples=300, deadline=None)
@given(ids=st.lists(st.one_of(st.integers(0, 248_319), st.integers(0, 255)), max_size=60), special=st.booleans())
def test_pieces_join_to_the_whole_text(ids: list[int], special: bool, qwen_tokenizer: Tokenizer) -> None:
    whole = qwen_tokenizer.decode(ids, special=special).decode("utf-8", "replace")
    assert "".join(_pieces(qwen_tokenizer, ids, special=special)) == whole


@settings(max_examples=500, deadline=None)
@given(ids=st.lists(st.sampled_from([*b"\xf0\x9f\xa6\x99\xed\xa0\x80\xc0\xe2\x82\xaca", 0xFF]), max_size=16))
def test_invalid_bytes_are_replaced_as_in_the_whole_text(ids: list[int]) -> None:
    tokenizer = Tokenizer(
        Vocab.from_metadata(
            {
                "tokenizer.ggml.model": "gpt2",
                "tokenizer.ggml.pre": "qwen35",
                "tokenizer.ggml.tokens": BYTE_CHARS,
                "tokenizer.ggml.token_type": [1] * 256,
                "tokenizer.ggml.merges": [],
            }
        )
    )
    assert "".join(_pieces(tokenizer, ids)) == bytes(ids).decode("utf-8", "replace")


def test_unknown_ids_are_refused(qwen_tokenizer: Tokenizer) -> None:
    with pytest.raises(ArgumentError, match="no token 248320"):
        Detokenizer(qwen_tokenizer).add(248_320)
