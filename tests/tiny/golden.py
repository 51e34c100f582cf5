"""What goes with the golden models in ``tests/data``: drafters, and a model with a vocabulary of full size."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from .models import finish_file
from .pairs import TinyDraft, add_value, draft_settings, draft_weights

MASK_TOKEN_ID = 504  # the first padding token of the golden vocabulary
N_VOCAB_REAL, N_NAMED_REAL = 248_320, 248_077


def write_golden_draft(path: Path, target: Path) -> Path:
    """Writes a random drafter for a golden model."""
    metadata, draft = _metadata(target), TinyDraft()
    tokens = metadata["tokenizer.ggml.tokens"]
    embedding = next(t.data for t in gguf.GGUFReader(target).tensors if t.name == "token_embd.weight")
    writer = gguf.GGUFWriter(path, "dflash")
    writer.add_token_list(tokens)
    writer.add_token_types(metadata["tokenizer.ggml.token_type"])
    for key, value in draft_settings(draft, MASK_TOKEN_ID).items():
        add_value(writer, key, value)
    for name, weights in draft_weights(
        draft, {"token_embd.weight": embedding}, len(tokens), np.random.default_rng(3)
    ).items():
        writer.add_tensor(name, weights)
    finish_file(writer)
    return path


def write_real_vocabulary_model(path: Path, golden: Path) -> Path:
    """Writes the golden model again with a vocabulary of 248,320.

    Its weights are random streams that are named after the tensors of the checkpoint, so all layers stay as they are.
    """
    writer = gguf.GGUFWriter(path, _metadata(golden)["general.architecture"])
    n_named = N_NAMED_REAL
    texts = [f"t{i}" for i in range(n_named)] + [f"[PAD{i}]" for i in range(n_named, N_VOCAB_REAL)]
    for key, value in _metadata(golden).items():
        if not key.startswith(("tokenizer.", "general.", "GGUF.")):
            add_value(writer, key, value)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(texts)
    writer.add_token_types([1] * n_named + [5] * (N_VOCAB_REAL - n_named))
    for tensor in gguf.GGUFReader(golden).tensors:
        writer.add_tensor(tensor.name, _table(tensor.name, tensor.data))
    finish_file(writer)
    return path


def _table(name: str, values: NDArray[Any]) -> NDArray[Any]:
    if name == "token_embd.weight":
        return _stream("model.embed_tokens.weight", values.shape[1], 1.0)
    if name == "output.weight":
        return _stream("lm_head.weight", values.shape[1], 1.3 / np.sqrt(values.shape[1]))
    return values


def _stream(name: str, width: int, gain: float) -> NDArray[np.float32]:
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    return (gain * rng.standard_normal((N_VOCAB_REAL, width))).astype(np.float32)


def _metadata(path: Path) -> dict[str, Any]:
    return {key: field.contents() for key, field in gguf.GGUFReader(path).fields.items()}
