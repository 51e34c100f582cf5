"""Token ids against llama.cpp and Hugging Face, round trips, special tokens, work on hostile input."""

from __future__ import annotations

import json
import time
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import normalizers, pre_tokenizers

from pydspark.errors import ArgumentError
from pydspark.text.bpe import BYTE_CHARS, SPLIT_PATTERNS
from pydspark.text.tokenizer import Tokenizer
from pydspark.text.vocab import Vocab

pytest_plugins = ["real_vocab"]

SAMPLES = json.loads((Path(__file__).parents[1] / "data/tokenize.json").read_text())
QWEN35_PUBLISHED = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SMOLLM_PUBLISHED = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
TRICKY_TEXT = st.text(st.sampled_from("aZ'sSlL09½ \t\n\r\x0b\x85\u00a0\u2003\u0301é한<|>.!#"), max_size=24)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: repr(sample["text"])[:20])
def test_ids_equal_those_of_other_implementations(
    sample: dict[str, object], qwen_tokenizer: Tokenizer, qwen_tokenizer_as_is: Tokenizer, smollm_tokenizer: Tokenizer
) -> None:
    text = str(sample["text"])
    assert qwen_tokenizer.encode(text, special=True) == sample["qwen35_hf"]
    assert qwen_tokenizer_as_is.encode(text, special=True) == sample["qwen35_llamacpp"]
    assert smollm_tokenizer.encode(text, special=True) == sample["smollm_llamacpp"]


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("Hello", [9419]),
        (" Hello", [21251]),
        ("  Hello", [220, 21251]),
        ("\n\nHello", [271, 9419]),
        ("12345", [16, 17, 18, 19, 20]),
        ("3.14159", [18, 13, 16, 19, 16, 20, 24]),
        ("नमस्ते", [58069, 84237, 150104, 153348]),
        ("\U0001f999", [9008, 99, 247]),
        ("\U0001f639", [72790, 117]),
    ],
)
def test_qwen_ids_of_short_texts(text: str, ids: list[int], qwen_tokenizer: Tokenizer) -> None:
    assert qwen_tokenizer.encode(text) == ids
    assert qwen_tokenizer.decode(ids).decode() == text


@pytest.mark.parametrize(
    ("text", "plain", "whole"),
    [("<|im_end|>", [27, 91, 316, 6018, 91, 29], 248046), ("<|endoftext|>", [27, 91, 8426, 703, 419, 91, 29], 248044)],
)
def test_control_tokens_only_when_asked_for(text: str, plain: list[int], whole: int, qwen_tokenizer: Tokenizer) -> None:
    assert qwen_tokenizer.encode(text) == plain
    assert qwen_tokenizer.encode(text, special=True) == [whole]


def test_user_defined_tokens_are_found_in_every_text(qwen_tokenizer: Tokenizer) -> None:
    for special in (False, True):
        assert qwen_tokenizer.encode("a</think>b<tool_call>", special=special) == [64, 248069, 65, 248058]


@pytest.mark.parametrize("text", ["", " ", "a", " a", "  a", "\n a", "a ", "\t\n \t", "\r\n\ta", "\x00", "e\u0301"])
def test_no_blank_is_added_or_lost(text: str, qwen_tokenizer_as_is: Tokenizer, smollm_tokenizer: Tokenizer) -> None:
    for tokenizer in (qwen_tokenizer_as_is, smollm_tokenizer):
        assert tokenizer.decode(tokenizer.encode(text)).decode() == text


def test_blank_after_a_control_token_stays(qwen_tokenizer: Tokenizer) -> None:
    assert qwen_tokenizer.decode([248045, 21251]) == b" Hello"
    assert qwen_tokenizer.decode([248045, 21251], special=True) == b"<|im_start|> Hello"


def test_padding_decodes_to_nothing_and_unknown_ids_are_refused(qwen_tokenizer: Tokenizer) -> None:
    assert qwen_tokenizer.decode([248077, 248319], special=True) == b""
    for token_id in (-1, 248320):
        with pytest.raises(ArgumentError, match=f"no token {token_id};.*0 to 248319"):
            qwen_tokenizer.decode([9419, token_id])


def test_text_of_a_token_for_display(qwen_tokenizer: Tokenizer) -> None:
    assert [qwen_tokenizer.token_text(i) for i in (21251, 248046, 248068, 9008)] == [
        " Hello",
        "<|im_end|>",
        "<think>",
        "\ufffd",
    ]


@settings(max_examples=200, deadline=None)
@given(data=st.one_of(st.binary(max_size=40), st.text(max_size=40).map(lambda text: text.encode("utf-8", "replace"))))
def test_any_bytes_come_back(data: bytes, qwen_tokenizer_as_is: Tokenizer, smollm_tokenizer: Tokenizer) -> None:
    assert qwen_tokenizer_as_is.decode(qwen_tokenizer_as_is.encode(data)) == data
    kept = bytes(byte for byte in data if byte not in smollm_tokenizer.missing_bytes)
    assert smollm_tokenizer.decode(smollm_tokenizer.encode(data)) == kept


@settings(max_examples=100, deadline=None)
@given(text=st.text(max_size=40))
def test_normalized_text_comes_back_in_nfc(text: str, qwen_tokenizer: Tokenizer) -> None:
    decoded = qwen_tokenizer.decode(qwen_tokenizer.encode(text)).decode()
    # Compared decomposed, since Python's tables may be older than the tokenizer's.
    assert unicodedata.normalize("NFD", decoded) == unicodedata.normalize("NFD", text)
    assert qwen_tokenizer.encode(decoded) == qwen_tokenizer.encode(text)


def test_normalization_is_on_for_qwen_only(qwen_tokenizer: Tokenizer, smollm_tokenizer: Tokenizer) -> None:
    assert qwen_tokenizer.decode(qwen_tokenizer.encode("e\u0301<think>e\u0301")).decode() == "é<think>é"
    assert smollm_tokenizer.decode(smollm_tokenizer.encode("e\u0301")).decode() == "e\u0301"


def test_lone_surrogates_become_replacement_characters(qwen_tokenizer: Tokenizer) -> None:
    assert qwen_tokenizer.encode("a\ud83db\udc80") == qwen_tokenizer.encode("a\ufffdb\ufffd")


def test_smollm_names_the_bytes_it_lacks(qwen_tokenizer: Tokenizer, smollm_tokenizer: Tokenizer) -> None:
    assert qwen_tokenizer.missing_bytes == frozenset()
    assert len(smollm_tokenizer.missing_bytes) == 21
    assert {0x04, 0xC0, 0xFF} <= smollm_tokenizer.missing_bytes
    assert smollm_tokenizer.encode("a\x04b") == smollm_tokenizer.encode("a") + smollm_tokenizer.encode("b")


def _split(patterns: list[str], text: str) -> list[str]:
    steps = [pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated") for pattern in patterns]
    return [piece for piece, _ in pre_tokenizers.Sequence(steps).pre_tokenize_str(text)]


@settings(max_examples=500, deadline=None)
@given(text=TRICKY_TEXT)
def test_possessive_patterns_split_like_the_published_ones(text: str) -> None:
    assert _split(SPLIT_PATTERNS["qwen35"], text) == _split([QWEN35_PUBLISHED], text)
    qwen2_published = QWEN35_PUBLISHED.replace(r"[\p{L}\p{M}]", r"\p{L}").replace(r"\p{M}", "")
    assert _split(SPLIT_PATTERNS["qwen2"], text) == _split([qwen2_published], text)
    assert _split(SPLIT_PATTERNS["smollm"], text) == _split([r"\p{N}", SMOLLM_PUBLISHED], text)


def _small_vocab(tokens: list[str], merges: list[str], **keys: object) -> Vocab:
    metadata = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [1] * len(tokens),
        "tokenizer.ggml.merges": merges,
    }
    return Vocab.from_metadata(metadata | {f"tokenizer.ggml.{key}": value for key, value in keys.items()})


def test_pieces_that_are_no_tokens_are_spelled_in_bytes() -> None:
    tokenizer = Tokenizer(_small_vocab([*BYTE_CHARS, "abc"], ["a b", "ab c", "x y"]))
    assert tokenizer.encode("abc") == [256]
    assert tokenizer.encode("ab") == [ord("a"), ord("b")]
    assert tokenizer.decode(tokenizer.encode("xyabxy")) == b"xyabxy"


def test_a_token_that_merges_cannot_reach_is_not_used() -> None:
    tokenizer = Tokenizer(_small_vocab([*BYTE_CHARS, "ab", "abc"], ["a b"]))
    assert tokenizer.encode("abc") == [256, ord("c")]


def test_of_equal_merges_the_first_counts() -> None:
    tokenizer = Tokenizer(_small_vocab([*BYTE_CHARS, "ab", "bc"], ["a b", "b c", "a b"]))
    assert tokenizer.encode("abc") == [256, ord("c")]


def test_bos_only_where_the_model_asks_for_it(smollm_tokenizer: Tokenizer) -> None:
    assert smollm_tokenizer.encode("a", add_bos=True) == smollm_tokenizer.encode("a")
    asking = Tokenizer(_small_vocab([*BYTE_CHARS, "<s>"], [], bos_token_id=256, add_bos_token=True))
    assert asking.encode("a", add_bos=True) == [256, ord("a")]
    assert asking.encode("a") == [ord("a")]
    assert asking.encode_rendered("a") == [256, ord("a")]


def _control_vocab(texts: list[str]) -> Vocab:
    types = [1] * len(BYTE_CHARS) + [3] * len(texts)
    return _small_vocab([*BYTE_CHARS, *texts], [], token_type=types)


def test_longer_special_tokens_are_found_first() -> None:
    tokenizer = Tokenizer(_control_vocab(["<a", "<a>", "b<a>"]))
    assert tokenizer.encode("b<a><a><a", special=True) == [258, 257, 256]


def test_a_rendered_prompt_never_yields_a_control_token_of_one_character() -> None:
    tokenizer = Tokenizer(_control_vocab(["#", "<s>"]))
    assert tokenizer.encode("#<s>", special=True) == [256, 257]
    assert tokenizer.encode_rendered("#<s>") == [ord("#"), 257]


@pytest.mark.parametrize("begin", ["", "<s>"])
def test_how_many_tokens_a_beginning_has_for_certain(begin: str) -> None:
    tokens = [*BYTE_CHARS, "<s>", "<e>"]
    types = [1] * len(BYTE_CHARS) + [3, 3]
    vocab = _small_vocab(tokens, [], token_type=types, bos_token_id=256, add_bos_token=True)
    rendered = f"{begin}ab<e>c<e>"
    texts = ["", "ab", "ab<e", "ab<e>", "ab<e>c", "ab<e>c<e>"]
    ids, counts = Tokenizer(vocab).encode_rendered_at(rendered, [len(begin + text) for text in texts])
    assert ids == [256, ord("a"), ord("b"), 257, ord("c"), 257]
    least = 1 if begin else 0
    assert counts == [least, least, least, 4, 4, 6]


def test_merges_cannot_make_a_control_token() -> None:
    tokenizer = Tokenizer(_small_vocab([*BYTE_CHARS, "<s", "<s>"], ["< s", "<s >"], token_type=[1] * 257 + [3]))
    assert tokenizer.encode("<s>") == list(b"<s>")


def _cpu_seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


@pytest.mark.parametrize("unit", ["a", " ", "<", "\n", "\u0301", "<think>"], ids=repr)
def test_work_grows_linearly_on_repetitive_text(unit: str, qwen_tokenizer: Tokenizer) -> None:
    small = _cpu_seconds(lambda: qwen_tokenizer.encode(unit * 20_000))
    large = _cpu_seconds(lambda: qwen_tokenizer.encode(unit * 200_000))
    assert large < 40 * (small + 0.01)  # quadratic work would be 100 times as much


def test_a_megabyte_of_one_letter_round_trips(qwen_tokenizer: Tokenizer) -> None:
    text = b"a" * 1_000_000
    assert qwen_tokenizer.decode(qwen_tokenizer.encode(text)) == text


def test_a_run_of_blanks_past_the_backtracking_limit_is_split() -> None:
    replace = normalizers.Replace(tokenizers.Regex(SPLIT_PATTERNS["qwen35"][0]), "|")
    assert replace.normalize_str(" " * 10_500_000 + "x") == "||"


def test_building_for_a_quarter_million_tokens_is_fast(qwen_metadata: dict[str, object]) -> None:
    assert _cpu_seconds(lambda: Tokenizer(Vocab.from_metadata(qwen_metadata))) < 5
