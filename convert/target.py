"""What the converter needs to know of the target: sizes, vocabulary, and where its embedding and head lie."""

from __future__ import annotations

import hashlib
import re
import struct
from dataclasses import dataclass
from pathlib import Path

from gguf import GGUFValueType, TokenType

from .errors import ConvertError
from .gguf_reader import GgufFile, GgufValue, read_gguf
from .tensors import StoredTensor

TOKENS = "tokenizer.ggml.tokens"
TOKEN_TYPES = "tokenizer.ggml.token_type"
MERGES = "tokenizer.ggml.merges"
MASK_KEY = "tokenizer.ggml.mask_token_id"
_EOG_KEYS = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id")
_EOG_TEXTS = (b"<|endoftext|>", b"<|im_end|>", b"<|end_of_text|>", b"<|eot_id|>", b"<|eom_id|>", b"</s>", b"<eos>")
_PADDING = re.compile(rb"\[PAD\d*\]")
_NO_TYPES = "has no token types"


@dataclass(frozen=True)
class Target:
    """A target model, from a GGUF file or a Hugging Face folder.

    Attributes:
        path: the file or folder.
        name: short name for files and messages.
        architecture: GGUF architecture, or ``model_type`` of the folder.
        n_layer: transformer layers, without layers for multi-token prediction.
        n_embd: hidden size.
        tokenizer: every ``tokenizer.ggml.*`` value.
        embedding: token embedding, if its number format can be read.
        output: output head; the embedding for a tied target.
        output_scale: factor of all values of ``output``.
        sections: whether its rotary embedding has several position sections.
        files: the files that make it up.
    """

    path: Path
    name: str
    architecture: str
    n_layer: int
    n_embd: int
    tokenizer: dict[str, GgufValue]
    embedding: StoredTensor | None
    output: StoredTensor | None
    output_scale: float
    sections: bool
    files: tuple[Path, ...]

    @property
    def tokens(self) -> list[bytes]:
        return list(self.tokenizer[TOKENS].value)

    @property
    def token_types(self) -> list[int]:
        return list(self.tokenizer[TOKEN_TYPES].value)

    @property
    def n_rows(self) -> int:
        """Rows of the embedding; the length of the token list when the embedding cannot be read."""
        return self.embedding.n_rows if self.embedding is not None else len(self.tokenizer[TOKENS].value)

    @property
    def tied(self) -> bool:
        return self.output is self.embedding

    def eog_ids(self) -> set[int]:
        """Ids that end a generation."""
        ids = {self.tokenizer[key].value for key in _EOG_KEYS if key in self.tokenizer}
        return ids | {i for i, text in enumerate(self.tokens) if text in _EOG_TEXTS}


def is_padding(text: bytes, kind: int) -> bool:
    """Whether an entry of the token list only fills it up."""
    return kind == TokenType.UNUSED or _PADDING.fullmatch(text) is not None


def n_real_tokens(tokens: list[bytes], types: list[int]) -> int:
    """Length of the list without the padding at its end."""
    count = len(tokens)
    while count and is_padding(tokens[count - 1], types[count - 1]):
        count -= 1
    return count


def tokenizer_hash(tokenizer: dict[str, GgufValue]) -> str:
    """SHA-256 over the real tokens and the merges, each as length (u32, little-endian) and bytes.

    Padding is left out, since exporters differ in how much of it they write.
    """
    tokens = tokenizer[TOKENS].value
    digest = hashlib.sha256()
    real = tokens[: n_real_tokens(tokens, tokenizer[TOKEN_TYPES].value)]
    for texts in (real, tokenizer[MERGES].value if MERGES in tokenizer else []):
        digest.update(b"".join(struct.pack("<I", len(text)) + text for text in texts))
        digest.update(b"\xff\xff\xff\xff")
    return digest.hexdigest()


def load_target(path: Path) -> Target:
    """Opens the target: a GGUF file (any part of a split set) or a Hugging Face folder.

    Raises:
        ConvertError: it does not exist, is damaged, is a drafter, or lacks a tokenizer.
    """
    if path.is_dir():
        from .hf_target import load_hf_target

        return load_hf_target(path)
    if not path.exists():
        raise ConvertError(f"target {path} does not exist; give the GGUF file or the folder of the target model")
    return target_from_gguf(read_gguf(path))


def target_from_gguf(file: GgufFile) -> Target:
    """The target in an opened GGUF file."""
    path, arch = file.path, file.get("general.architecture")
    if not isinstance(arch, str):
        raise ConvertError(f"{path}: general.architecture is missing, so it is not a language model")
    if arch in ("dflash", "dspark", "eagle3"):
        raise ConvertError(f"{path} is a drafter (architecture {arch!r}); wanted the target it drafts for")
    tokenizer = {key: value for key, value in file.metadata.items() if key.startswith("tokenizer.ggml.")}
    _check_tokenizer(path, tokenizer)
    embedding, output = file.tensors.get("token_embd.weight"), file.tensors.get("output.weight")
    tied = "output.weight" not in file.tensors and "output.weight" not in file.unknown
    scale = file.tensors.get("output.scale")
    name = file.get("general.name")
    return Target(
        path=path,
        name=name if isinstance(name, str) and name else path.stem,
        architecture=arch,
        n_layer=_size(file, f"{arch}.block_count") - file.get(f"{arch}.nextn_predict_layers", 0),
        n_embd=_size(file, f"{arch}.embedding_length"),
        tokenizer=tokenizer,
        embedding=embedding,
        output=embedding if tied else output,
        output_scale=float(scale.all_values().reshape(-1)[0]) if scale is not None and not tied else 1.0,
        sections=f"{arch}.rope.dimension_sections" in file.metadata,
        files=tuple({tensor.path for tensor in file.tensors.values()} | {path}),
    )


def _size(file: GgufFile, key: str) -> int:
    value = file.get(key)
    if not isinstance(value, int) or value < 1:
        raise ConvertError(f"{file.path}: {key} is {value!r}, wanted a size")
    return value


def _check_tokenizer(path: Path, tokenizer: dict[str, GgufValue]) -> None:
    tokens, types = tokenizer.get(TOKENS), tokenizer.get(TOKEN_TYPES)
    if tokens is None or not tokens.value or tokens.item_type is not GGUFValueType.STRING:
        raise ConvertError(f"{path} has no token list; the drafter takes its vocabulary from the target")
    if types is None or len(types.value) != len(tokens.value):
        seen = _NO_TYPES if types is None else f"has {len(types.value)} token types for {len(tokens.value)} tokens"
        raise ConvertError(f"{path} {seen}; wanted one type for each token")
