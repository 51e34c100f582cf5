"""Opens a drafter checkpoint: config.json and safetensors files, single or sharded. Reads no weights."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gguf import GGMLQuantizationType
from safetensors import SafetensorError, safe_open

from .errors import ConvertError, Problem, ProblemsError
from .tensors import StoredTensor

INDEX_NAME = "model.safetensors.index.json"
_KINDS = {
    "F32": GGMLQuantizationType.F32,
    "F16": GGMLQuantizationType.F16,
    "BF16": GGMLQuantizationType.BF16,
    "I64": GGMLQuantizationType.I64,
    "I32": GGMLQuantizationType.I32,
    "BOOL": GGMLQuantizationType.I8,  # only its size matters: t2d is dropped
}
_AGAIN = "download the checkpoint again"


@dataclass(frozen=True)
class Checkpoint:
    """A drafter folder.

    Attributes:
        folder: where it lies.
        config: its config.json.
        tensors: every tensor by name, without the optional ``model.`` in front.
    """

    folder: Path
    config: dict[str, Any]
    tensors: dict[str, StoredTensor]


def load_checkpoint(folder: Path) -> Checkpoint:
    """Opens the folder.

    Raises:
        ConvertError: the folder or its config.json is missing or unreadable.
        ProblemsError: weight files are missing, damaged or contradict the index; all of it is listed.
    """
    if not folder.is_dir():
        raise ConvertError(f"{folder} is not a folder; wanted a drafter checkpoint (config.json and *.safetensors)")
    config = read_json(folder / "config.json")
    problems: list[Problem] = []
    tensors = load_weights(folder, problems)
    if problems:
        raise ProblemsError(problems)
    return Checkpoint(folder, config, tensors)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file."""
    try:
        loaded = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConvertError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise ConvertError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(loaded, dict):
        raise ConvertError(f"{path} holds a {type(loaded).__name__}, wanted a JSON object")
    return loaded


def load_weights(folder: Path, problems: list[Problem]) -> dict[str, StoredTensor]:
    """The tensors of all weight files of the folder; whatever is wrong with the files goes to ``problems``."""
    index_path = folder / INDEX_NAME
    if index_path.exists():
        found = _load_sharded(folder, read_json(index_path), problems)
    else:
        path = _single_file(folder, problems)
        found = {} if path is None else _open_safetensors(path, problems)
    tensors: dict[str, StoredTensor] = {}
    for name, tensor in found.items():
        plain = name.removeprefix("model.")
        if plain in tensors:
            problems.append(Problem(plain, "stored with and without 'model.' in front", "one of them", _AGAIN))
        tensors[plain] = tensor
    return tensors


def _single_file(folder: Path, problems: list[Problem]) -> Path | None:
    files = sorted(folder.glob("*.safetensors"))
    if folder / "model.safetensors" in files:
        return folder / "model.safetensors"
    if len(files) == 1:
        return files[0]
    if files:
        seen = f"{len(files)} safetensors files and no {INDEX_NAME}"
        problems.append(Problem(str(folder), seen, "model.safetensors, or shards with their index", _AGAIN))
    else:
        other = sorted(path.name for pattern in ("*.bin", "*.pt", "*.pth") for path in folder.glob(pattern))
        seen = f"no safetensors file (but {', '.join(other)})" if other else "no safetensors file"
        problems.append(Problem(str(folder), seen, "model.safetensors, or shards with their index", _AGAIN))
    return None


def _load_sharded(folder: Path, index: dict[str, Any], problems: list[Problem]) -> dict[str, StoredTensor]:
    weight_map = index.get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(name, str) for name in weight_map.values()):
        problems.append(Problem(INDEX_NAME, "no usable 'weight_map'", "tensor name -> file name", _AGAIN))
        return {}
    found: dict[str, StoredTensor] = {}
    for shard in sorted(set(weight_map.values())):
        wanted = {name for name, file in weight_map.items() if file == shard}
        if Path(shard).name != shard or shard in ("", ".", ".."):
            problems.append(Problem(INDEX_NAME, f"names the file {shard!r}", "a file name without a path", _AGAIN))
            continue
        if not (folder / shard).is_file():
            seen = f"missing, with {len(wanted)} tensors ({', '.join(sorted(wanted)[:3])}, ...)"
            problems.append(Problem(shard, seen, "every shard the index names", _AGAIN))
            continue
        n_problems = len(problems)
        opened = _open_safetensors(folder / shard, problems)
        if len(problems) > n_problems:
            continue
        for name in sorted(wanted - opened.keys()):
            problems.append(Problem(name, f"not in {shard}, where the index puts it", "index and shards agree", _AGAIN))
        for name in sorted(opened.keys() - wanted):
            seen = f"in {shard}, but the index says {weight_map.get(name, 'nothing about it')}"
            problems.append(Problem(name, seen, "index and shards agree", _AGAIN))
        found.update(opened)
    return found


def _open_safetensors(path: Path, problems: list[Problem]) -> dict[str, StoredTensor]:
    """Where each tensor of one file lies.

    The library checks the header (sizes, holes, overlaps, end of file). It cannot hand BF16 to numpy and does not tell
    offsets, so these are taken from the checked header and the values are read by ``StoredTensor``.
    """
    try:
        with safe_open(path, framework="numpy"):
            pass
    except (SafetensorError, OSError) as error:
        problems.append(Problem(path.name, _explain(path, error), "a complete safetensors file", _AGAIN))
        return {}
    with open(path, "rb") as file:
        (header_size,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(header_size))
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        kind = _KINDS.get(entry["dtype"])
        if kind is None:
            wanted = "BF16, F16 or F32"
            problems.append(Problem(name, f"stored as {entry['dtype']}", wanted, "use the unquantized checkpoint"))
            continue
        offset = 8 + header_size + entry["data_offsets"][0]
        tensors[name] = StoredTensor(name, path, offset, tuple(entry["shape"]), kind)
    return tensors


def _explain(path: Path, error: Exception) -> str:
    try:
        with open(path, "rb") as file:
            head = file.read(16)
        size = path.stat().st_size
    except OSError as read_error:
        return f"cannot be read: {read_error.strerror or read_error}"
    if head.startswith(b"version https"):
        return "a git-lfs pointer, not the weights"
    if head.startswith((b"PK", b"\x80")):
        return "a PyTorch archive with another name"
    if head[:1] == b"<" and head[8:9] != b"{":
        return "a web page, not the weights"
    if size == 0:
        return "empty"
    return f"incomplete or damaged ({error}; {size} bytes)"
