"""Vocabulary from metadata: what is read, what is refused."""

from __future__ import annotations

import pytest

from pydspark.errors import ModelFileError, UnsupportedError
from pydspark.text.vocab import TokenType, Vocab

pytest_plugins = ["real_vocab"]

GOOD: dict[str, object] = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "qwen2",
    "tokenizer.ggml.tokens": ["a", "b", "ab", "<|im_end|>", "<think>", "</s>", "[PAD6]"],
    "tokenizer.ggml.token_type": [1, 1, 1, 3, 4, 1, 5],
    "tokenizer.ggml.merges": ["a b"],
}


def _with(name: str, value: object) -> dict[str, object]:
    return GOOD | {f"tokenizer.ggml.{name}": value}


def test_qwen_vocabulary(qwen_vocab: Vocab) -> None:
    assert (qwen_vocab.n_vocab, qwen_vocab.pre) == (248_320, "qwen35")
    assert (qwen_vocab.bos_id, qwen_vocab.eos_id, qwen_vocab.pad_id) == (None, 248_046, 248_044)
    assert qwen_vocab.eog_ids == {248_044, 248_046, 248_063, 248_064, 248_065}
    assert not qwen_vocab.add_bos
    assert set(qwen_vocab.chat_templates) == {"default"}


def test_smollm_vocabulary(smollm_vocab: Vocab) -> None:
    assert (smollm_vocab.n_vocab, smollm_vocab.pre) == (49_152, "smollm")
    assert (smollm_vocab.bos_id, smollm_vocab.eos_id, smollm_vocab.unk_id, smollm_vocab.pad_id) == (1, 2, 0, 2)
    assert smollm_vocab.eog_ids == {0, 2, 4}
    assert not smollm_vocab.add_bos


def test_ids_that_are_not_in_the_file_are_none() -> None:
    vocab = Vocab.from_metadata(GOOD)
    named = (vocab.bos_id, vocab.eos_id, vocab.eot_id, vocab.eom_id, vocab.unk_id, vocab.pad_id, vocab.mask_id)
    assert named == (None,) * 7
    assert (vocab.add_bos, vocab.add_eos) == (False, False)


@pytest.mark.parametrize("name", ["eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep"])
def test_ids_named_as_an_end_end_a_generation(name: str) -> None:
    assert Vocab.from_metadata(_with(f"{name}_token_id", 2)).eog_ids == {2, 3}


def test_end_texts_count_only_for_special_tokens() -> None:
    assert Vocab.from_metadata(GOOD).eog_ids == {3}
    assert Vocab.from_metadata(_with("token_type", [1, 1, 1, 3, 4, 3, 5])).eog_ids == {3, 5}


def test_an_end_token_listed_as_user_defined_is_a_control_token() -> None:
    vocab = Vocab.from_metadata(_with("token_type", [1, 1, 1, 4, 4, 1, 5]))
    assert vocab.types[3:5] == [TokenType.CONTROL, TokenType.USER_DEFINED]


def test_a_tag_listed_as_control_token_is_text() -> None:
    vocab = Vocab.from_metadata(_with("token_type", [1, 1, 1, 3, 3, 1, 5]))
    assert vocab.types[3:5] == [TokenType.CONTROL, TokenType.USER_DEFINED]
    ends = {**_with("token_type", [1, 1, 1, 3, 3, 1, 5]), "tokenizer.ggml.eot_token_id": 4}
    assert Vocab.from_metadata(ends).types[4] == TokenType.CONTROL


def test_the_metadata_is_left_as_it_was() -> None:
    types = [1, 1, 1, 4, 4, 1, 5]
    Vocab.from_metadata(_with("token_type", types))
    assert types == [1, 1, 1, 4, 4, 1, 5]


def test_chat_templates_by_name() -> None:
    templates = {"tokenizer.chat_template": "main", "tokenizer.chat_template.tool_use": "tools"}
    assert Vocab.from_metadata(GOOD | templates).chat_templates == {"default": "main", "tool_use": "tools"}
    assert Vocab.from_metadata(GOOD).chat_templates == {}


@pytest.mark.parametrize("alias", ["qwen2", "deepseek-r1-qwen", "megrez"])
def test_names_of_the_qwen2_rule(alias: str) -> None:
    assert Vocab.from_metadata(_with("pre", alias)).pre == "qwen2"


@pytest.mark.parametrize("name", ["model", "pre", "tokens", "token_type", "merges"])
def test_a_missing_key_is_named(name: str) -> None:
    metadata = {key: value for key, value in GOOD.items() if key != f"tokenizer.ggml.{name}"}
    with pytest.raises(ModelFileError, match=rf"no tokenizer\.ggml\.{name},"):
        Vocab.from_metadata(metadata)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("tokens", "abc", "tokens should be list, but is str"),
        ("tokens", [], "token_type has 7 entries for 0 tokens"),
        ("tokens", ["a", 1, "b", "c", "d", "e", "f"], r"tokens\[1\] should be str, but is int"),
        ("token_type", [1, 1], "token_type has 2 entries for 7 tokens"),
        ("token_type", [1, 1, 1, 3, 4, 1, 9], "token_type holds 9"),
        ("token_type", [1, 1, 1, 3, 4, 1, True], r"token_type\[6\] should be int, but is bool"),
        ("merges", [3], r"merges\[0\] should be str, but is int"),
        ("eos_token_id", 7, "eos_token_id is 7, but the vocabulary has ids 0 to 6"),
        ("eos_token_id", -1, "eos_token_id is -1"),
        ("eos_token_id", "2", "eos_token_id should be int, but is str"),
        ("eos_token_id", True, "eos_token_id should be int, but is bool"),
        ("add_bos_token", 1, "add_bos_token should be bool, but is int"),
        ("add_bos_token", True, "add_bos_token is true, but .*bos_token_id is missing"),
        ("add_eos_token", True, "add_eos_token is true, but .*eos_token_id is missing"),
    ],
)
def test_a_wrong_value_is_named(name: str, value: object, words: str) -> None:
    with pytest.raises(ModelFileError, match=words):
        Vocab.from_metadata(_with(name, value))


def test_a_chat_template_that_is_no_text_is_refused() -> None:
    with pytest.raises(ModelFileError, match="chat_template should be str"):
        Vocab.from_metadata(GOOD | {"tokenizer.chat_template": ["a"]})


@pytest.mark.parametrize(
    ("name", "value", "supported"), [("pre", "qwen99", "'smollm', 'qwen2'.*'qwen35'"), ("model", "llama", "'gpt2'")]
)
def test_unknown_kinds_are_refused_with_what_is_supported(name: str, value: str, supported: str) -> None:
    with pytest.raises(UnsupportedError, match=f"'{value}'.*supported: {supported}"):
        Vocab.from_metadata(_with(name, value))
