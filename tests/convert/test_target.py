"""The target as a GGUF file or as a folder, and everything that is no target."""

from __future__ import annotations

import json

import pytest
from pydspark.convert.errors import ConvertError
from pydspark.convert.gguf_reader import read_gguf
from pydspark.convert.target import load_target, tokenizer_hash
from tiny import drafters
from tiny.drafters import make_drafter, save_drafter, save_safetensors, target_rows, vocabulary, write_target

QWEN2 = r"(?i:'s|'t)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN35 = QWEN2.replace(r"\p{L}+|", r"[\p{L}\p{M}]+|", 1)
LLAMA = QWEN2.replace(r"\p{N}|", r"\p{N}{1,3}|", 1)


def split(pattern):
    steps = [{"type": "Split", "pattern": {"Regex": pattern}}, {"type": "ByteLevel"}]
    return {"type": "Sequence", "pretokenizers": steps}


DIGITS = {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, {"type": "ByteLevel"}]}


def write_folder(folder, pre_tokenizer=None, tied=False, nested=False):
    """The same target as ``write_target``, in Hugging Face's form."""
    folder.mkdir()
    texts, _ = vocabulary()
    added = [{"id": i, "content": texts[i], "special": True} for i in range(256, 259)]
    tokenizer = {
        "model": {
            "type": "BPE",
            "vocab": {text: i for i, text in enumerate(texts[:256])},
            "merges": [["a", "b"], "c d"],
        },
        "added_tokens": added,
        "pre_tokenizer": pre_tokenizer or split(QWEN2),
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|endoftext|>"}))
    config = {"model_type": "qwen3", "num_hidden_layers": 6, "hidden_size": 64, "vocab_size": drafters.N_VOCAB}
    (folder / "config.json").write_text(json.dumps({"text_config": config} if nested else config))
    embedding, head = target_rows()
    prefix = "model.language_model." if nested else "model."
    weights = {f"{prefix}embed_tokens.weight": embedding} | ({} if tied else {"lm_head.weight": head})
    save_safetensors(folder / "model.safetensors", weights)
    return folder


@pytest.mark.parametrize("nested", [False, True])
def test_folder_and_file_of_one_target_give_the_same_drafter(command, tmp_path, target, nested):
    folder = save_drafter(tmp_path / "checkpoint", make_drafter(with_copies=True))
    hf = write_folder(tmp_path / "tiny target", nested=nested)
    assert command(folder, "--target", target, "--outfile", "a.gguf").code == 0
    assert command(folder, "--target", hf, "--outfile", "b.gguf").code == 0
    a, b = read_gguf(tmp_path / "a.gguf"), read_gguf(tmp_path / "b.gguf")
    assert {key: value.value for key, value in a.metadata.items()} == {k: v.value for k, v in b.metadata.items()}
    assert a.tensors.keys() == b.tensors.keys() and "output.weight" not in a.tensors


@pytest.mark.parametrize(
    ("pre_tokenizer", "name"),
    [(split(QWEN2), "qwen2"), (split(QWEN35), "qwen35"), (split(LLAMA), "llama-bpe"), (DIGITS, "smollm")],
    ids=["qwen2", "qwen35", "llama-bpe", "smollm"],
)
def test_pre_tokenizer_is_recognised(tmp_path, pre_tokenizer, name):
    tokenizer = load_target(write_folder(tmp_path / "hf", pre_tokenizer)).tokenizer
    assert tokenizer["tokenizer.ggml.pre"].value == name


@pytest.mark.parametrize("pre_tokenizer", [split("[a-z]+"), {"type": "Whitespace"}])
def test_unknown_pre_tokenizer_is_refused(tmp_path, pre_tokenizer):
    with pytest.raises(ConvertError, match="pre-tokenizer is not known here; give the target as a GGUF file"):
        load_target(write_folder(tmp_path / "hf", pre_tokenizer))


def test_tied_folder_shares_its_embedding(tmp_path):
    target = load_target(write_folder(tmp_path / "hf", tied=True))
    assert target.tied and target.output is target.embedding


def test_incomplete_folder_is_refused(tmp_path):
    folder = write_folder(tmp_path / "hf")
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ConvertError, match=r"tokenizer.json cannot be read"):
        load_target(folder)


def test_drafter_in_place_of_the_target(tmp_path, target, command):
    folder = save_drafter(tmp_path / "checkpoint", make_drafter())
    with pytest.raises(ConvertError, match="is a drafter; wanted the folder of the target"):
        load_target(folder)
    assert command(folder, "--target", target, "--outfile", "drafter.gguf").code == 0
    with pytest.raises(ConvertError, match="is a drafter \\(architecture 'dflash'\\)"):
        load_target(tmp_path / "drafter.gguf")


def test_missing_target_names_the_argument(command, tmp_path):
    folder = save_drafter(tmp_path / "checkpoint", make_drafter())
    result = command(folder)
    assert result.code == 2 and "--target is missing: a drafter has no tokenizer" in result.err
    result = command(folder, "--target", tmp_path / "nowhere.gguf")
    assert result.code == 1 and "nowhere.gguf does not exist" in result.err


@pytest.mark.parametrize("key", ["tokenizer.ggml.tokens", "tokenizer.ggml.token_type", "qwen3.block_count"])
def test_target_without_an_essential_key(target, key):
    data = target.read_bytes()
    target.write_bytes(data.replace(key.encode(), key[:-1].encode() + b"X", 1))
    with pytest.raises(ConvertError, match="has no token list|has no token types|block_count is None"):
        load_target(target)


def test_tokenizer_hash_ignores_padding_but_not_texts(tmp_path):
    long = load_target(write_target(tmp_path / "a.gguf"))
    short = load_target(write_target(tmp_path / "b.gguf", n_rows=262))
    assert tokenizer_hash(long.tokenizer) == tokenizer_hash(short.tokenizer)
    texts = vocabulary()[0]
    texts[3], texts[4] = texts[4], texts[3]
    other = load_target(write_target(tmp_path / "c.gguf", texts=texts))
    assert tokenizer_hash(long.tokenizer) != tokenizer_hash(other.tokenizer)
