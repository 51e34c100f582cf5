"""What ``pydspark info`` knows, as plain values for JSON. Sizes are in bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pydspark import __version__, _native
from pydspark._native import Gguf
from pydspark._native.loader import ABI_VERSION, library_files
from pydspark.cpu import default_threads
from pydspark.errors import OutOfMemoryError, UnsupportedError
from pydspark.params import ModelParams
from pydspark.records import MetadataValue
from pydspark.sampling_defaults import model_sampling
from pydspark.text.vocab import Vocab

_SPECIAL_IDS = ("bos_id", "eos_id", "eot_id", "eom_id", "unk_id", "pad_id", "mask_id")


def system_facts(params: ModelParams) -> dict[str, Any]:
    """Versions, files, devices and threads."""
    options = [option.partition("=") for option in _native.ggml_build_options().split()]
    core = find_spec("pydspark._native._core")
    threads = _positive(params.n_threads) or default_threads()
    return {
        "version": __version__,
        "core_interface": ABI_VERSION,
        "core_file": core.origin if core else None,
        "ggml": {
            "version": _native.ggml_version(),
            "built_with": _native.ggml_build_version(),
            "options": {name: value for name, _, value in options},
            "libraries": loaded_libraries(),
        },
        "devices": [asdict(device) for device in _native.devices()],
        "threads": {"answer": threads, "prompt": _positive(params.n_threads_batch) or threads},
    }


def _positive(threads: int | None) -> int | None:
    return threads if threads is not None and threads > 0 else None


def loaded_libraries(maps: Path = Path("/proc/self/maps")) -> list[str]:
    """The ggml libraries of this process; where the system does not tell, those that are installed.

    Args:
        maps: Linux's list of the files that this process has mapped.
    """
    try:
        lines = maps.read_text().splitlines()
    except OSError:
        return [str(file) for file in library_files()]
    paths = {line.split(maxsplit=5)[-1] for line in lines}
    return sorted(path for path in paths if Path(path).name.startswith("libggml"))


def model_facts(path: Path, params: ModelParams) -> dict[str, Any]:
    """What is in a model file, and what it takes to run it.

    What cannot be told of a model that pydspark does not support is None, and ``unsupported`` says why.

    Raises:
        ModelFileError: the file is damaged or not a model.
    """
    gguf = Gguf(path)
    try:
        metadata = gguf.metadata()
        problems: list[str] = []
        return {
            "name": metadata.get("general.name"),
            "files": [{"path": file, "size": Path(file).stat().st_size} for file in gguf.files],
            "gguf_version": gguf.version,
            **tensor_facts(gguf),
            "architecture": metadata.get("general.architecture"),
            "shape": _shape(gguf, problems),
            "vocabulary": _vocabulary(metadata, problems),
            "sampling": model_sampling(metadata),
            "memory": memory_facts(gguf, params, problems),
            "unsupported": list(dict.fromkeys(problems)),
        }
    finally:
        gguf.close()


def tensor_facts(gguf: Gguf) -> dict[str, Any]:
    """How many tensors there are, and how many bytes of each type."""
    tensors = gguf.tensors()
    counts = Counter(tensor.type_name for tensor in tensors)
    sizes = {name: sum(t.n_bytes for t in tensors if t.type_name == name) for name in counts}
    return {
        "n_tensors": len(tensors),
        "tensor_types": [{"type": name, "tensors": n, "size": sizes[name]} for name, n in counts.most_common()],
    }


def _shape(gguf: Gguf, problems: list[str]) -> dict[str, Any] | None:
    try:
        facts = asdict(gguf.describe())
    except UnsupportedError as error:
        problems.append(str(error))
        return None
    del facts["architecture"]  # stands beside it
    return facts


def _vocabulary(metadata: Mapping[str, MetadataValue], problems: list[str]) -> dict[str, Any] | None:
    try:
        vocab = Vocab.from_metadata(metadata)
    except UnsupportedError as error:
        problems.append(str(error))
        return None
    ids = {name.removesuffix("_id"): getattr(vocab, name) for name in _SPECIAL_IDS}
    return {
        "n_tokens": vocab.n_vocab,
        "pre_tokenizer": metadata["tokenizer.ggml.pre"],
        "special_tokens": {name: _token(vocab, id) for name, id in ids.items() if id is not None},
        "end_of_generation": [_token(vocab, id) for id in sorted(vocab.eog_ids)],
        "adds_bos": vocab.add_bos,
        "chat_templates": sorted(vocab.chat_templates),
    }


def _token(vocab: Vocab, id: int) -> dict[str, Any]:
    return {"id": id, "text": vocab.tokens[id]}


def memory_facts(
    gguf: Gguf, params: ModelParams, problems: list[str], draft: Gguf | None = None
) -> dict[str, Any] | None:
    """What running a model takes, with a drafter or without; None after adding to ``problems`` why it cannot."""
    try:
        return asdict(gguf.memory_plan(params, draft))
    except UnsupportedError as error:
        problems.append(str(error))
    except OutOfMemoryError as error:
        problems.append(f"does not fit: {error}")
    return None
