"""Model files as Python objects."""

from __future__ import annotations

from os import PathLike, fsencode
from typing import Any

from pydspark._native.core import check, ffi, lib, text_of
from pydspark._native.metadata import SCALAR_CODES, STRING, decode_numbers
from pydspark.cpu import default_threads
from pydspark.errors import ArgumentError
from pydspark.params import ROLLBACK_FORMS, ModelParams, uses_lookup
from pydspark.records import DraftInfo, MemoryLine, MemoryReport, MetadataValue, ModelInfo, TensorInfo

_MIB = 1 << 20
_NO_LIMIT = 1 << 62  # bytes


class Gguf:
    """A model file, or a whole split set when ``path`` is any file of it.

    Raises:
        ModelFileError: the file is missing, damaged or not a GGUF.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        out = ffi.new("pds_gguf **")
        error = ffi.new("pds_error *")
        check(lib.pds_gguf_open(fsencode(path), out, error), error)
        self._handle = ffi.gc(out[0], lib.pds_gguf_free)

    def close(self) -> None:
        """Unmaps the file. Must not be called while a model of it is alive."""
        ffi.release(self._handle)

    def metadata(self) -> dict[str, MetadataValue]:
        """All metadata as Python values. Text that is not UTF-8 has replacement characters."""
        kv = ffi.new("pds_gguf_kv *")
        error = ffi.new("pds_error *")
        values: dict[str, MetadataValue] = {}
        for index in range(lib.pds_gguf_n_kv(self._handle)):
            check(lib.pds_gguf_kv_get(self._handle, index, kv, error), error)
            key = bytes(ffi.buffer(kv.key, kv.key_size)).decode("utf-8", "replace")
            items = self._items(index, kv)
            values[key] = items if kv.type not in SCALAR_CODES and kv.type != STRING else items[0]
        return values

    def _items(self, index: int, kv: Any) -> Any:
        if kv.n == 0:
            return []
        if kv.item_type != STRING:
            return decode_numbers(bytes(ffi.buffer(kv.data, kv.n_bytes)), kv.item_type)
        error = ffi.new("pds_error *")
        offsets = ffi.new("int64_t[]", kv.n + 1)
        text = ffi.new("char[]", max(kv.n_bytes, 1))
        check(lib.pds_gguf_kv_strings(self._handle, index, offsets, text, error), error)
        data = bytes(ffi.buffer(text, kv.n_bytes))
        ends = ffi.unpack(offsets, kv.n + 1)
        return [data[a:b].decode("utf-8", "replace") for a, b in zip(ends, ends[1:], strict=False)]

    def tensors(self) -> list[TensorInfo]:
        """The tensors of all files, in order."""
        info = ffi.new("pds_gguf_tensor *")
        error = ffi.new("pds_error *")
        found = []
        for index in range(lib.pds_gguf_n_tensors(self._handle)):
            check(lib.pds_gguf_tensor_get(self._handle, index, info, error), error)
            shape = tuple(info.ne[0 : info.n_dims])
            found.append(TensorInfo(text_of(info.name), text_of(info.type_name), shape, info.n_bytes, info.file_index))
        return found

    @property
    def files(self) -> list[str]:
        """Paths of the files, in the order of the split."""
        count = lib.pds_gguf_n_files(self._handle)
        return [text_of(lib.pds_gguf_file_path(self._handle, index)) for index in range(count)]

    @property
    def version(self) -> int:
        """Version of the GGUF format."""
        return int(lib.pds_gguf_version(self._handle))

    def override(self, key: str, value: bool | int | float | str) -> None:
        """Replaces or adds a metadata value for this object; the file stays as it is.

        Raises:
            ArgumentError: a value of another type, or one that the key cannot have.
        """
        error = ffi.new("pds_error *")
        name = key.encode()
        if isinstance(value, bool):
            rc = lib.pds_gguf_override_bool(self._handle, name, int(value), error)
        elif isinstance(value, int):
            rc = lib.pds_gguf_override_int(self._handle, name, value, error)
        elif isinstance(value, float):
            rc = lib.pds_gguf_override_float(self._handle, name, value, error)
        elif isinstance(value, str):
            rc = lib.pds_gguf_override_string(self._handle, name, value.encode(), error)
        else:
            raise ArgumentError(f"metadata override {key!r} must be a bool, int, float or str, not {value!r}")
        check(rc, error)

    def describe(self) -> ModelInfo:
        """Sizes of the model, from its metadata alone.

        Raises:
            UnsupportedError: an architecture that pydspark does not know.
        """
        info = ffi.new("pds_model_info *")
        error = ffi.new("pds_error *")
        check(lib.pds_model_describe(self._handle, info, error), error)
        numbers = {name: int(getattr(info, name)) for name in ModelInfo.__dataclass_fields__ if name != "architecture"}
        return ModelInfo(architecture=text_of(info.architecture), **numbers)

    def describe_draft(self) -> DraftInfo:
        """What the file holds as a drafter.

        Raises:
            UnsupportedError: it is not a drafter.
        """
        info = ffi.new("pds_draft_info *")
        error = ffi.new("pds_error *")
        check(lib.pds_draft_describe(self._handle, info, error), error)
        values: dict[str, Any] = {name: getattr(info, name) for name in DraftInfo.__dataclass_fields__}
        for name in ("anchor_first", "has_markov_head", "has_confidence", "borrows_embedding", "borrows_head"):
            values[name] = bool(values[name])
        values["target_layers"] = tuple(info.target_layers[0 : info.n_target_layers])
        return DraftInfo(**values)

    def check_pair(self, draft: Gguf) -> None:
        """Raises PairingError, listing every reason, if the drafter was not made for this target."""
        error = ffi.new("pds_error *")
        check(lib.pds_pair_check(self._handle, draft._handle, error), error)

    def memory_plan(self, params: ModelParams, draft: Gguf | None = None) -> MemoryReport:
        """What loading the model, and a drafter, with these parameters would take, without loading anything."""
        report = ffi.new("pds_memory_report *")
        error = ffi.new("pds_error *")
        model, session = model_params(params), session_params(params)
        drafter = ffi.NULL if draft is None else draft._handle
        check(lib.pds_memory_plan(self._handle, drafter, model, session, report, error), error)
        return memory_report(report)


def model_params(params: ModelParams) -> Any:
    """The core's record of how to load a model."""
    names = ("n_gpu_layers", "use_mmap", "use_mlock", "repack", "draft_candidates")
    values = {name: int(getattr(params, name)) for name in names}
    values["draft_shortlist"] = -1 if params.draft_shortlist is None else params.draft_shortlist
    return ffi.new("pds_model_params *", values)


def session_params(params: ModelParams) -> Any:
    """The core's record of how to run it."""
    names = (
        "n_ctx",
        "n_batch",
        "n_ubatch",
        "type_k",
        "type_v",
        "type_k_draft",
        "type_v_draft",
        "flash_attn",
        "fused_experts",
    )
    values = {name: int(getattr(params, name)) for name in names}
    values["lookup_match"] = params.lookup_match if uses_lookup(params.spec_type) else 0
    values["rollback"] = ROLLBACK_FORMS.index(params.rollback)
    values["prompt_cache_bytes"] = params.cache_ram * _MIB if params.cache_ram >= 0 else _NO_LIMIT
    values["verify_exact"] = int(params.verify == "exact")
    values["n_threads"] = threads = _threads(params.n_threads) or default_threads()
    values["n_threads_batch"] = _threads(params.n_threads_batch) or threads
    return ffi.new("pds_session_params *", values)


def _threads(wanted: int | None) -> int | None:
    return wanted if wanted is not None and wanted > 0 else None


def memory_report(report: Any) -> MemoryReport:
    """A report of the core."""
    lines = tuple(
        MemoryLine(text_of(line.device), line.weights, line.mapped, line.kv, line.state, line.compute, line.free)
        for line in report.lines[0 : report.n_lines]
    )
    return MemoryReport(report.n_ctx, report.token_bytes, report.checkpoint_bytes, lines)
