"""Writes a model piece by piece: it appears whole under its name, or nothing does."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import gguf
import numpy as np
from pydspark.convert.progress import Progress
from pydspark.convert.writer import partial_file, remove_stale

from pydspark.text.bpe import BYTE_CHARS

from .target import MASK_ID, N_VOCAB
from .tensors import Tensor


def write_model(
    path: Path,
    arch: str,
    settings: Mapping[str, object],
    tensors: list[Tensor],
    n_vocab: int = N_VOCAB,
    force: bool = False,
) -> None:
    """Writes a file. ``settings`` are its metadata below ``<arch>.``.

    Raises:
        FileExistsError: it is there already, and ``force`` is not given.
        OSError: there is not enough space, or the system refused to write. What was there stays.
    """
    if path.exists() and not force:
        raise FileExistsError(f"{path} exists; --force replaces it")
    remove_stale(path)
    n_bytes = sum(tensor.n_bytes for tensor in tensors)
    free = shutil.disk_usage(path.parent).free
    if free < n_bytes:
        raise OSError(f"{path.parent} has {free:,} bytes free, the tensors of {path.name} need {n_bytes:,}")
    try:
        with partial_file(path) as partial:
            _write_header(partial, arch, settings, tensors, n_vocab)
            _write_data(partial, tensors, Progress(path.name, n_bytes))
            os.replace(partial, path)
    except OSError as error:
        raise OSError(f"{path} could not be written: {error.strerror}; nothing was left behind") from error


def _write_header(path: Path, arch: str, settings: Mapping[str, object], tensors: list[Tensor], n_vocab: int) -> None:
    writer = gguf.GGUFWriter(path, arch)
    writer.add_name(f"random {arch}")
    for key, value in settings.items():
        _add_setting(writer, f"{arch}.{key}", value)
    _add_vocabulary(writer, n_vocab)
    if arch == "dflash":
        writer.add_mask_token_id(min(MASK_ID, n_vocab - 1))
    for tensor in tensors:
        writer.add_tensor_info(tensor.name, tensor.shape[::-1], np.dtype(np.float32), tensor.n_bytes, tensor.kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()


def _add_setting(writer: gguf.GGUFWriter, key: str, value: object) -> None:
    match value:
        case bool():
            writer.add_bool(key, value)
        case int():
            writer.add_uint32(key, value)
        case float():
            writer.add_float32(key, value)
        case list():
            writer.add_array(key, value)


def _add_vocabulary(writer: gguf.GGUFWriter, n_vocab: int) -> None:
    """Bytes, one pair, names, two control tokens, and padding from the mask on."""
    n_named = min(MASK_ID, n_vocab - 1)
    texts = [*BYTE_CHARS, "th", *(f"t{i}" for i in range(257, n_named - 2)), "<|endoftext|>", "<|im_end|>"]
    texts += [f"[PAD{i}]" for i in range(n_named, n_vocab)]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen35")
    writer.add_token_list(texts)
    writer.add_token_types([1] * (n_named - 2) + [3, 3] + [5] * (n_vocab - n_named))
    writer.add_token_merges(["t h"])
    writer.add_eos_token_id(n_named - 1)
    writer.add_add_bos_token(False)


def _write_data(path: Path, tensors: list[Tensor], progress: Progress) -> None:
    with open(path, "r+b") as file:
        file.seek(0, os.SEEK_END)
        for tensor in tensors:
            file.write(bytes(-file.tell() % gguf.GGUF_DEFAULT_ALIGNMENT))
            for piece in tensor.pieces():
                file.write(piece)
                progress.add(piece.nbytes)
        file.write(bytes(-file.tell() % gguf.GGUF_DEFAULT_ALIGNMENT))
        file.flush()
        os.fsync(file.fileno())
    progress.close()
