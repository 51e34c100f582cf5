"""The target as a Hugging Face folder: byte-level BPE tokenizers in tokenizer.json."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from gguf import GGUFValueType, TokenType

from .checkpoint import load_weights, read_json
from .errors import ConvertError, Problem, ProblemsError
from .gguf_reader import GgufValue
from .target import MERGES, TOKEN_TYPES, TOKENS, Target
from .tensors import StoredTensor

_USE_GGUF = "give the target as a GGUF file instead"
# what tells the pre-tokenizers apart: a piece of their split pattern -> name in GGUF; first match wins
_PATTERNS = (
    (r"[\p{L}\p{M}]+|\p{N}|", "qwen35"),
    (r"\p{L}+|\p{N}|", "qwen2"),
    (r"\p{L}+|\p{N}{1,3}|", "llama-bpe"),
)
_SPECIAL = re.compile(r"<\|.*\|>")


def load_hf_target(folder: Path) -> Target:
    """Opens the folder; raises ConvertError or ProblemsError with what is missing."""
    whole = read_json(folder / "config.json")
    text = whole.get("text_config")
    config = {**whole, **text} if isinstance(text, dict) else whole
    if "target_layer_ids" in config or "dflash_config" in config or "speculators_model_type" in config:
        raise ConvertError(f"{folder} is a drafter; wanted the folder of the target it drafts for")
    problems: list[Problem] = []
    tensors = load_weights(folder, problems)
    if problems:
        raise ProblemsError(problems)
    embedding = _named(tensors, "embed_tokens.weight")
    output = _named(tensors, "lm_head.weight")
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    return Target(
        path=folder,
        name=folder.resolve().name,
        architecture=str(config.get("model_type", "unknown")),
        n_layer=_size(folder, config, "num_hidden_layers"),
        n_embd=_size(folder, config, "hidden_size"),
        tokenizer=_tokenizer(folder, config, embedding.n_rows if embedding is not None else 0),
        embedding=embedding,
        output=embedding if output is None else output,
        output_scale=1.0,
        sections=isinstance(rope, dict) and "mrope_section" in rope,
        files=tuple({tensor.path for tensor in tensors.values()}),
    )


def _named(tensors: dict[str, StoredTensor], name: str) -> StoredTensor | None:
    for prefix in ("", "language_model.", "language_model.model."):
        if prefix + name in tensors:
            return tensors[prefix + name]
    return None


def _size(folder: Path, config: dict[str, Any], key: str) -> int:
    value = config.get(key)
    if not isinstance(value, int) or value < 1:
        raise ConvertError(f"{folder / 'config.json'}: {key} is {value!r}, wanted a size")
    return value


def read_vocabulary(folder: Path) -> tuple[dict[int, str], dict[int, bool]]:
    """(text by id, special flag by id of the added tokens) of tokenizer.json."""
    path = folder / "tokenizer.json"
    tokenizer = read_json(path)
    model = tokenizer.get("model")
    if not isinstance(model, dict) or model.get("type") != "BPE" or not isinstance(model.get("vocab"), dict):
        raise ConvertError(f"{path} is not a BPE tokenizer; {_USE_GGUF}")
    texts = {int(number): str(text) for text, number in model["vocab"].items()}
    special = {}
    for added in tokenizer.get("added_tokens") or []:
        texts[int(added["id"])] = str(added["content"])
        special[int(added["id"])] = bool(added.get("special")) or bool(_SPECIAL.fullmatch(added["content"]))
    return texts, special


def _tokenizer(folder: Path, config: dict[str, Any], n_rows: int) -> dict[str, GgufValue]:
    texts, special = read_vocabulary(folder)
    count = max(max(texts) + 1, n_rows, int(config.get("vocab_size") or 0))
    tokens = [texts.get(i, f"[PAD{i}]").encode("utf-8") for i in range(count)]
    types = [int(TokenType.NORMAL if i in texts else TokenType.UNUSED) for i in range(count)]
    for i, is_special in special.items():
        types[i] = int(TokenType.CONTROL if is_special else TokenType.USER_DEFINED)
    tokenizer = read_json(folder / "tokenizer.json")
    merges = tokenizer["model"].get("merges") or []
    joined = [(" ".join(merge) if isinstance(merge, list) else str(merge)).encode("utf-8") for merge in merges]
    string, array = GGUFValueType.STRING, GGUFValueType.ARRAY
    values = {
        "tokenizer.ggml.model": GgufValue("gpt2", string),
        "tokenizer.ggml.pre": GgufValue(_pre_tokenizer(folder, tokenizer), string),
        TOKENS: GgufValue(tokens, array, string),
        TOKEN_TYPES: GgufValue(types, array, GGUFValueType.INT32),
        MERGES: GgufValue(joined, array, string),
    }
    ids = {text: i for i, text in texts.items()}
    for key, number in _special_ids(folder, config, ids).items():
        values[f"tokenizer.ggml.{key}_token_id"] = GgufValue(number, GGUFValueType.UINT32)
    values["tokenizer.ggml.add_bos_token"] = GgufValue(
        _settings(folder).get("add_bos_token") is True, GGUFValueType.BOOL
    )
    return values


def _settings(folder: Path) -> dict[str, Any]:
    path = folder / "tokenizer_config.json"
    return read_json(path) if path.exists() else {}


def _special_ids(folder: Path, config: dict[str, Any], ids: dict[str, int]) -> dict[str, int]:
    settings, found = _settings(folder), {}
    for key, name in (("bos", "bos"), ("eos", "eos"), ("pad", "padding"), ("unk", "unknown")):
        text = settings.get(f"{key}_token")
        text = text.get("content") if isinstance(text, dict) else text
        number = (
            ids.get(text, config.get(f"{key}_token_id")) if isinstance(text, str) else config.get(f"{key}_token_id")
        )
        if isinstance(number, list) and number:
            number = number[0]
        if isinstance(number, int):
            found[name] = number
    return found


def _pre_tokenizer(folder: Path, tokenizer: dict[str, Any]) -> str:
    """GGUF's name of the pre-tokenizer; an unknown one is refused, since a guess would give other ids."""
    section = tokenizer.get("pre_tokenizer") or {}
    steps = section.get("pretokenizers", [section]) if isinstance(section, dict) else []
    kinds = [step.get("type") for step in steps]
    for step in steps:
        pattern = step.get("pattern") or {}
        regex = pattern.get("Regex", "") if isinstance(pattern, dict) else ""
        for piece, name in _PATTERNS:
            if piece in regex:
                return name
    if kinds == ["Digits", "ByteLevel"] and steps[0].get("individual_digits") is True:
        return "smollm"
    if kinds == ["ByteLevel"]:
        return "gpt-2"
    raise ConvertError(f"{folder / 'tokenizer.json'}: its pre-tokenizer is not known here; {_USE_GGUF}")
