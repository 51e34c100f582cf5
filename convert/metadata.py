"""GGUF metadata of a drafter: written from settings and target, and read back into settings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

from gguf import GGUFValueType, LlamaFileType

from .errors import Problem
from .gguf_reader import GgufFile, GgufValue
from .settings import MAX_BLOCK_SIZE, MAX_LAYERS, DraftSettings
from .target import MASK_KEY, TOKEN_TYPES, TOKENS, Target, tokenizer_hash
from .tensors import Floats

_T = TypeVar("_T")

ARCHITECTURE = "dflash"  # for DFlash and DSpark alike; the Markov tensors make the difference
NOISE_KEY = "dspark.noise_embd"
HASH_KEY = "dspark.target.tokenizer_sha256"
DEPTH_KEY = "dspark.target.block_count"
FINGERPRINT = "dspark.fingerprint"
_FILE_TYPES = {
    "f32": LlamaFileType.ALL_F32,
    "f16": LlamaFileType.MOSTLY_F16,
    "bf16": LlamaFileType.MOSTLY_BF16,
    "q8_0": LlamaFileType.MOSTLY_Q8_0,
    "mixed": LlamaFileType.MOSTLY_Q8_0,
    "q4_0": LlamaFileType.MOSTLY_Q4_0,
}
_UNUSED_TYPE = 5
_U32, _I32, _F32 = GGUFValueType.UINT32, GGUFValueType.INT32, GGUFValueType.FLOAT32
_BOOL, _STRING, _ARRAY = GGUFValueType.BOOL, GGUFValueType.STRING, GGUFValueType.ARRAY

# field of DraftSettings -> key below "dflash." and its type
_SIZES = {
    "n_layer": "block_count",
    "n_ctx": "context_length",
    "n_embd": "embedding_length",
    "n_ff": "feed_forward_length",
    "n_head": "attention.head_count",
    "n_head_kv": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "block_size": "block_size",
}
_MOST = {"n_layer": MAX_LAYERS, "block_size": MAX_BLOCK_SIZE}
# switches of other drafter families: key below "dflash." -> values that mean "off"
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "attention.causal": (False,),
    "embedding_scale": (1.0,),
    "logit_scale": (1.0, 0.0),
    "final_logit_softcapping": (0.0,),
    "attention.value_scale": (1.0,),
    "hidden_act": ("silu",),
}


def drafter_metadata(
    settings: DraftSettings, target: Target, name: str, outtype: str, has_confidence: bool, mask_row: Floats | None
) -> dict[str, GgufValue]:
    """Every key of the file except the fingerprint."""
    values = {
        "general.architecture": GgufValue(ARCHITECTURE, _STRING),
        "general.type": GgufValue("model", _STRING),
        "general.name": GgufValue(name, _STRING),
        "general.file_type": GgufValue(int(_FILE_TYPES[outtype]), _U32),
        "general.quantization_version": GgufValue(2, _U32),
    }
    drafter: dict[str, GgufValue] = {key: GgufValue(getattr(settings, field), _U32) for field, key in _SIZES.items()}
    drafter["attention.value_length"] = GgufValue(settings.head_dim, _U32)
    drafter["attention.layer_norm_rms_epsilon"] = GgufValue(settings.norm_eps, _F32)
    drafter["rope.freq_base"] = GgufValue(settings.rope_theta, _F32)
    # stored as layer inputs: the output of layer L is the input of layer L + 1
    drafter["target_layers"] = GgufValue([i + 1 for i in settings.target_layers], _ARRAY, _I32)
    drafter["sample_from_anchor"] = GgufValue(settings.sample_from_anchor, _BOOL)
    drafter["has_confidence_head"] = GgufValue(has_confidence, _BOOL)
    drafter["attention.causal"] = GgufValue(False, _BOOL)
    if settings.window:
        drafter["attention.sliding_window"] = GgufValue(settings.window, _U32)
        drafter["attention.sliding_window_pattern"] = GgufValue(list(settings.window_layers), _ARRAY, _BOOL)
    if target.sections:
        # all in the first section: what a target with several position sections needs for plain text positions
        drafter["rope.dimension_sections"] = GgufValue([settings.head_dim // 2, 0, 0, 0], _ARRAY, _I32)
    values.update({f"{ARCHITECTURE}.{key}": value for key, value in drafter.items()})
    values.update(_tokenizer(settings, target))
    values["dspark.target.name"] = GgufValue(target.name, _STRING)
    values[DEPTH_KEY] = GgufValue(target.n_layer, _U32)
    values[HASH_KEY] = GgufValue(tokenizer_hash(target.tokenizer), _STRING)
    if mask_row is not None:
        values[NOISE_KEY] = GgufValue(mask_row.tolist(), _ARRAY, _F32)
    return values


def _tokenizer(settings: DraftSettings, target: Target) -> Iterator[tuple[str, GgufValue]]:
    """The target's vocabulary, cut or padded to the drafter's size: its length tells readers that size."""
    n_vocab, tokens, types = settings.n_vocab, target.tokens, target.token_types
    padding = range(len(tokens), n_vocab)
    for key, value in target.tokenizer.items():
        if key == TOKENS:
            yield key, GgufValue(tokens[:n_vocab] + [f"[PAD{i}]".encode() for i in padding], _ARRAY, _STRING)
        elif key == TOKEN_TYPES:
            yield key, GgufValue(types[:n_vocab] + [_UNUSED_TYPE] * len(padding), _ARRAY, _I32)
        elif isinstance(value.value, list) and len(value.value) == len(tokens):
            filler = b"" if value.item_type is _STRING else 0
            yield key, GgufValue(value.value[:n_vocab] + [filler] * len(padding), _ARRAY, value.item_type)
        elif key != MASK_KEY and value.value != []:
            yield key, value
    yield MASK_KEY, GgufValue(settings.mask_token_id, _U32)


def settings_from_gguf(file: GgufFile, problems: list[Problem]) -> DraftSettings:
    """Settings of a drafter file; what is missing or cannot be used goes to ``problems``."""
    keys = _Reader(file, problems)
    keys.check_family()
    tokens = keys.read(TOKENS, list, "the target's token list")
    w1, d2t = file.tensors.get("markov_w1.weight"), file.tensors.get("d2t")
    sizes: dict[str, Any] = {field: keys.size(f"{ARCHITECTURE}.{key}", field) for field, key in _SIZES.items()}
    window = file.get(f"{ARCHITECTURE}.attention.sliding_window", 0)
    pattern = file.get(f"{ARCHITECTURE}.attention.sliding_window_pattern", [])
    has_window = bool(window) and any(pattern)
    return DraftSettings(
        **sizes,
        norm_eps=keys.read(f"{ARCHITECTURE}.attention.layer_norm_rms_epsilon", float, "a number"),
        rope_theta=keys.read(f"{ARCHITECTURE}.rope.freq_base", float, "a number"),
        n_vocab=len(tokens),
        n_vocab_draft=len(tokens) if d2t is None else d2t.n_rows * d2t.row_len,
        mask_token_id=keys.read(MASK_KEY, int, "the id of the mask token"),
        target_layers=tuple(i - 1 for i in keys.read(f"{ARCHITECTURE}.target_layers", list, "a list of layer inputs")),
        markov_rank=0 if w1 is None else w1.row_len,
        # files that do not say are of the layout that their kind was first trained in
        sample_from_anchor=keys.read(f"{ARCHITECTURE}.sample_from_anchor", bool, "true or false", w1 is not None),
        window=window if has_window else 0,
        window_layers=tuple(bool(flag) for flag in pattern) if has_window else (),
    )


class _Reader:
    """Looks keys up and reports what is missing or has the wrong type."""

    def __init__(self, file: GgufFile, problems: list[Problem]) -> None:
        self.file, self.problems = file, problems

    def report(self, key: str, value: Any, wanted: str) -> None:
        seen = "missing" if value is None else f"{value!r}"
        self.problems.append(Problem(key, seen, wanted, "convert the checkpoint again"))

    def check_family(self) -> None:
        found = self.file.get("general.architecture")
        if found != ARCHITECTURE:
            self.report("general.architecture", found, f"{ARCHITECTURE!r}, a drafter")
        for key, neutral in _NEUTRAL.items():
            value = self.file.get(f"{ARCHITECTURE}.{key}")
            if value is not None and value not in neutral:
                wanted = f"{neutral[0]!r} or absent: this feature is not supported"
                self.report(f"{ARCHITECTURE}.{key}", value, wanted)

    def size(self, key: str, field: str) -> int:
        most = _MOST.get(field, 2**31 - 1)
        value = self.read(key, int, f"a size up to {most}")
        if value > most:
            self.report(key, value, f"a size up to {most}")
        return value if value <= most else 0

    def read(self, key: str, kind: type[_T], wanted: str, default: _T | None = None) -> _T:
        value = self.file.get(key, default)
        if isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
            return value
        self.report(key, value, wanted)
        return kind()
