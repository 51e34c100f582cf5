"""A model's vocabulary, read and checked from the metadata of its file."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeVar

from pydspark.errors import ModelFileError, UnsupportedError

_T = TypeVar("_T")

_PREFIX = "tokenizer.ggml."
_TEMPLATE_KEY = "tokenizer.chat_template"

# Name in the file -> rule that splits text before merging.
_PRE_NAMES = {
    "smollm": "smollm",
    "qwen2": "qwen2",
    "deepseek-r1-qwen": "qwen2",
    "megrez": "qwen2",
    "qwen35": "qwen35",
}

# Texts that end a turn or a document by convention; files do not always name all of theirs by key.
_END_TEXTS = frozenset(
    {
        "<|endoftext|>",
        "<|end_of_text|>",
        "<|im_end|>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<|end|>",
        "<|return|>",
        "<|call|>",
        "<end_of_turn>",
        "<end_of_utterance>",
        "<EOT>",
        "_<EOT>",
        "[EOT]",
        "[EOS]",
        "<eos>",
        "</s>",
    }
)
# Markers of code infilling that also end a generation: padding, next repository, next file.
_FIM_END_TEXTS = frozenset({"<|fim_pad|>", "<|repo_name|>", "<|fim_repo|>", "<reponame>", "<|file_sep|>"})
# Tags that a model writes for its reader, not for the machinery around it; some files call them control tokens.
_TAG_TEXTS = frozenset({"<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"})
_END_KEYS = ("eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep")


class TokenType(IntEnum):
    """Kinds of token, numbered as in ``tokenizer.ggml.token_type``."""

    UNDEFINED = 0
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


CONTROL_TYPES = frozenset({TokenType.CONTROL, TokenType.UNKNOWN})  # tokens that ordinary text must not become


@dataclass(frozen=True)
class Vocab:
    """Tokens, merges and special ids of one model. Ids are positions in ``tokens``.

    Attributes:
        tokens: text of each token; byte-level alphabet for normal tokens, literal for the others.
        types: ``TokenType`` of each token.
        merges: ``"left right"``; the earlier, the sooner applied.
        pre: rule that splits text before merging: ``smollm``, ``qwen2`` or ``qwen35``.
        bos_id: first token of a sequence, only where the file names one (so for the other ids).
        add_bos: whether the model wants ``bos_id`` before every text.
        add_eos: whether the model wants ``eos_id`` after every text.
        eog_ids: tokens that end a generation.
        chat_templates: Jinja sources by name; the main one is called ``default``.
    """

    tokens: list[str]
    types: list[int]
    merges: list[str]
    pre: str
    bos_id: int | None
    eos_id: int | None
    eot_id: int | None
    eom_id: int | None
    unk_id: int | None
    pad_id: int | None
    mask_id: int | None
    add_bos: bool
    add_eos: bool
    eog_ids: frozenset[int]
    chat_templates: dict[str, str]

    @property
    def n_vocab(self) -> int:
        """Number of tokens, padding included."""
        return len(self.tokens)

    @staticmethod
    def from_metadata(metadata: Mapping[str, object]) -> Vocab:
        """Reads the ``tokenizer.*`` keys of a GGUF file.

        Args:
            metadata: values by key, as plain Python (int, float, bool, str, list).

        Raises:
            ModelFileError: a key is missing or holds something else than it should.
            UnsupportedError: a tokenizer other than byte-level BPE, or an unknown pre-tokenizer.
        """
        pre = _read_pre(metadata)
        tokens = _read_list(metadata, "tokens", str)
        types = _read_types(metadata, len(tokens))

        def read_id(name: str) -> int | None:
            return _read_id(metadata, name, len(tokens))

        bos_id, eos_id = read_id("bos"), read_id("eos")
        add_bos = _read_flag(metadata, "add_bos_token", needs=bos_id, needed_key="bos_token_id")
        add_eos = _read_flag(metadata, "add_eos_token", needs=eos_id, needed_key="eos_token_id")
        eog_ids = _end_ids(tokens, types, [read_id(name) for name in _END_KEYS])
        for token_id in eog_ids:
            # An end marker that counts as ordinary text would let any text close a turn.
            if types[token_id] == TokenType.USER_DEFINED:
                types[token_id] = TokenType.CONTROL
        for token_id, text in enumerate(tokens):
            if text in _TAG_TEXTS and types[token_id] == TokenType.CONTROL and token_id not in eog_ids:
                types[token_id] = TokenType.USER_DEFINED
        return Vocab(
            tokens=tokens,
            types=types,
            merges=_read_list(metadata, "merges", str),
            pre=pre,
            bos_id=bos_id,
            eos_id=eos_id,
            eot_id=read_id("eot"),
            eom_id=read_id("eom"),
            unk_id=read_id("unknown"),
            pad_id=read_id("padding"),
            mask_id=read_id("mask"),
            add_bos=add_bos,
            add_eos=add_eos,
            eog_ids=eog_ids,
            chat_templates=_read_templates(metadata),
        )

    def ids_by_text(self, kinds: Collection[int]) -> dict[str, int]:
        """Non-empty texts of the tokens of these types, longest first, with their ids."""
        found = {
            text: token_id
            for token_id, (text, kind) in enumerate(zip(self.tokens, self.types, strict=True))
            if kind in kinds and text
        }
        return dict(sorted(found.items(), key=lambda item: -len(item[0])))


def _read_pre(metadata: Mapping[str, object]) -> str:
    model = _read(metadata, _PREFIX + "model", str)
    if model != "gpt2":
        raise UnsupportedError(f"tokenizer model {model!r} is not supported; supported: 'gpt2' (byte-level BPE)")
    pre = _read(metadata, _PREFIX + "pre", str)
    if pre not in _PRE_NAMES:
        names = ", ".join(map(repr, _PRE_NAMES))
        raise UnsupportedError(f"pre-tokenizer {pre!r} ({_PREFIX}pre) is not supported; supported: {names}")
    return _PRE_NAMES[pre]


def _read(metadata: Mapping[str, object], key: str, kind: type[_T]) -> _T:
    if key not in metadata:
        raise ModelFileError(f"the model file has no {key}, which the tokenizer needs")
    value = metadata[key]
    # bool is an int to Python, but no id and no type number.
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ModelFileError(f"{key} should be {kind.__name__}, but is {type(value).__name__}")
    return value


def _read_list(metadata: Mapping[str, object], name: str, kind: type[_T]) -> list[_T]:
    key = _PREFIX + name
    values = _read(metadata, key, list)
    for i, value in enumerate(values):
        if type(value) is not kind:
            raise ModelFileError(f"{key}[{i}] should be {kind.__name__}, but is {type(value).__name__}")
    return list(values)


def _read_types(metadata: Mapping[str, object], n_vocab: int) -> list[int]:
    types = _read_list(metadata, "token_type", int)
    if n_vocab == 0 or len(types) != n_vocab:
        raise ModelFileError(f"{_PREFIX}token_type has {len(types)} entries for {n_vocab} tokens")
    for wrong in set(types).difference(TokenType):
        raise ModelFileError(f"{_PREFIX}token_type holds {wrong}; known types are 0 to 6")
    return types


def _read_id(metadata: Mapping[str, object], name: str, n_vocab: int) -> int | None:
    key = f"{_PREFIX}{name}_token_id"
    if key not in metadata:
        return None
    token_id = _read(metadata, key, int)
    if not 0 <= token_id < n_vocab:
        raise ModelFileError(f"{key} is {token_id}, but the vocabulary has ids 0 to {n_vocab - 1}")
    return token_id


def _read_flag(metadata: Mapping[str, object], name: str, *, needs: int | None, needed_key: str) -> bool:
    key = _PREFIX + name
    wanted = key in metadata and _read(metadata, key, bool)
    if wanted and needs is None:
        raise ModelFileError(f"{key} is true, but {_PREFIX}{needed_key} is missing; add the id or set {key} to false")
    return wanted


def _end_ids(tokens: list[str], types: list[int], by_key: list[int | None]) -> frozenset[int]:
    texts = _END_TEXTS | _FIM_END_TEXTS
    # A normal token with such a text is a piece of ordinary text, for example of an HTML page.
    by_text = (i for i, text in enumerate(tokens) if text in texts and types[i] != TokenType.NORMAL)
    return frozenset(by_text).union(token_id for token_id in by_key if token_id is not None)


def _read_templates(metadata: Mapping[str, object]) -> dict[str, str]:
    names = {_TEMPLATE_KEY: "default"}
    names |= {key: key[len(_TEMPLATE_KEY) + 1 :] for key in metadata if key.startswith(_TEMPLATE_KEY + ".")}
    return {name: _read(metadata, key, str) for key, name in names.items() if key in metadata}
