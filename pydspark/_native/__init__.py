"""The compiled core as Python objects. The only module that touches ``ffi`` and ``lib``.

Every call that can take long releases the GIL. Objects free their memory when they are dropped; a session keeps its
model alive, and a model its file.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike, fsencode
from typing import Any

from pydspark._native.loader import load_core
from pydspark._native.metadata import SCALAR_CODES, STRING, decode_numbers
from pydspark.cpu import default_threads
from pydspark.errors import ArgumentError, from_code
from pydspark.params import DEFAULT_DRAFT_MAX, DRAFT_SAMPLING, ModelParams, SamplingParams
from pydspark.records import (
    Device,
    DraftInfo,
    Finish,
    MemoryLine,
    MemoryReport,
    MetadataValue,
    ModelInfo,
    Progress,
    Request,
    Stats,
    Step,
    TensorInfo,
)

ffi, lib = load_core()

_LOG_LEVELS = {"D": logging.DEBUG, "I": logging.INFO, "W": logging.WARNING, "E": logging.ERROR}
_LOG_CHUNK = 1 << 16
_MAX_TOPS = 20


def _text(value: Any) -> str:
    return str(ffi.string(value).decode("utf-8", "replace"))


# ---- library ----


def ggml_version() -> str:
    """Version of the ggml that is loaded."""
    return _text(lib.pds_ggml_version())


def ggml_build_version() -> str:
    """Version of the ggml that the core was built with."""
    return _text(lib.pds_ggml_build_version())


def ggml_build_options() -> str:
    """Build options of that ggml, as ``NAME=VALUE`` words."""
    return _text(lib.pds_ggml_build_options()).strip()


def drain_log() -> None:
    """Hands waiting log lines of the core and of ggml to the logger ``pydspark.ggml``."""
    buffer = ffi.new("char[]", _LOG_CHUNK)
    logger = logging.getLogger("pydspark.ggml")
    while size := lib.pds_log_take(buffer, _LOG_CHUNK):
        for line in bytes(ffi.buffer(buffer, size)).decode("utf-8", "replace").splitlines():
            level, _, text = line.partition(" ")
            logger.log(_LOG_LEVELS.get(level, logging.INFO), "%s", text)


def devices() -> list[Device]:
    """The devices that ggml offers."""
    found = []
    error = ffi.new("pds_error *")
    for index in range(lib.pds_device_count()):
        info = ffi.new("pds_device_info *")
        check(lib.pds_device_get(index, info, error), error)
        found.append(
            Device(
                name=_text(info.name),
                description=_text(info.description),
                is_gpu=bool(info.is_gpu),
                memory_free=info.memory_free,
                memory_total=info.memory_total,
            )
        )
    return found


def check(rc: int, error: Any) -> None:
    """Raises the exception for a status code other than OK."""
    if rc != 0:
        drain_log()
        raise from_code(rc, _text(error.message), (error.values[0], error.values[1]))


# ---- progress and Ctrl-C ----


class _Call:
    """One native call under way on this thread: whom to tell, and what went wrong in telling."""

    def __init__(self, progress: Progress | None) -> None:
        self.progress = progress
        self.raised: BaseException | None = None


_calls = threading.local()


def _progress_failed(kind: Any, value: BaseException, traceback: Any) -> int:
    _calls.current.raised = value
    return 1


# An exception cannot pass through the core. A pending Ctrl-C may be raised even before the function's first line, so
# all of them are caught by onerror, which stops the call; _watched raises them again after it.
@ffi.def_extern(name="pds_python_progress", error=1, onerror=_progress_failed)  # type: ignore[untyped-decorator]
def _on_progress(_user: Any, fraction: float) -> int:
    progress = _calls.current.progress
    return 0 if progress is None or progress(fraction) else 1


@contextmanager
def _watched(progress: Progress | None) -> Iterator[None]:
    outer = getattr(_calls, "current", None)
    _calls.current = call = _Call(progress)
    try:
        yield
    finally:
        _calls.current = outer
        if call.raised is not None:
            raise call.raised


# ---- GGUF files ----


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
            found.append(TensorInfo(_text(info.name), _text(info.type_name), shape, info.n_bytes, info.file_index))
        return found

    @property
    def files(self) -> list[str]:
        """Paths of the files, in the order of the split."""
        count = lib.pds_gguf_n_files(self._handle)
        return [_text(lib.pds_gguf_file_path(self._handle, index)) for index in range(count)]

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
        return ModelInfo(architecture=_text(info.architecture), **numbers)

    def describe_draft(self) -> DraftInfo:
        """What the file holds as a drafter.

        Raises:
            UnsupportedError: it is not a drafter.
        """
        info = ffi.new("pds_draft_info *")
        error = ffi.new("pds_error *")
        check(lib.pds_draft_describe(self._handle, info, error), error)
        kinds = {name: bool if kind == "bool" else int for name, kind in DraftInfo.__annotations__.items()}
        values = {name: kind(getattr(info, name)) for name, kind in kinds.items() if name != "target_layers"}
        return DraftInfo(target_layers=tuple(info.target_layers[0 : info.n_target_layers]), **values)

    def check_pair(self, draft: Gguf) -> None:
        """Raises PairingError, listing every reason, if the drafter was not made for this target."""
        error = ffi.new("pds_error *")
        check(lib.pds_pair_check(self._handle, draft._handle, error), error)

    def memory_plan(self, params: ModelParams, draft: Gguf | None = None) -> MemoryReport:
        """What loading the model, and a drafter, with these parameters would take, without loading anything."""
        report = ffi.new("pds_memory_report *")
        error = ffi.new("pds_error *")
        model, session = _model_params(params), _session_params(params)
        drafter = ffi.NULL if draft is None else draft._handle
        check(lib.pds_memory_plan(self._handle, drafter, model, session, report, error), error)
        return _memory_report(report)


# ---- model and session ----


def _model_params(params: ModelParams) -> Any:
    names = ("n_gpu_layers", "use_mmap", "use_mlock", "repack")
    return ffi.new("pds_model_params *", {name: int(getattr(params, name)) for name in names})


def _session_params(params: ModelParams) -> Any:
    names = ("n_ctx", "n_batch", "n_ubatch", "type_k", "type_v", "type_k_draft", "type_v_draft", "flash_attn")
    values = {name: int(getattr(params, name)) for name in names}
    values["verify_exact"] = int(params.verify == "exact")
    values["n_threads"] = threads = _threads(params.n_threads) or default_threads()
    values["n_threads_batch"] = _threads(params.n_threads_batch) or threads
    return ffi.new("pds_session_params *", values)


def _threads(wanted: int | None) -> int | None:
    return wanted if wanted is not None and wanted > 0 else None


def _memory_report(report: Any) -> MemoryReport:
    lines = tuple(
        MemoryLine(_text(line.device), line.weights, line.mapped, line.kv, line.compute, line.free)
        for line in report.lines[0 : report.n_lines]
    )
    return MemoryReport(n_ctx=report.n_ctx, lines=lines)


class Model:
    """The weights of a model, ready to run.

    Args:
        gguf: the file.
        params: how to load it.
        progress: told the fraction loaded; may stop loading.

    Raises:
        UnsupportedError, ModelFileError, OutOfMemoryError: it cannot be loaded.
        Cancelled: progress stopped it.
    """

    def __init__(self, gguf: Gguf, params: ModelParams, progress: Progress | None = None) -> None:
        out = ffi.new("pds_model **")
        error = ffi.new("pds_error *")
        with _watched(progress):
            rc = lib.pds_model_load(gguf._handle, _model_params(params), lib.pds_python_progress, ffi.NULL, out, error)
            if rc == 0:
                self._handle = ffi.gc(out[0], lib.pds_model_free)
        check(rc, error)
        self._gguf = gguf

    def close(self) -> None:
        """Frees the weights. Must not be called while a session on it is alive."""
        ffi.release(self._handle)


class Draft:
    """A drafter for a loaded target.

    Args:
        gguf: the drafter's file.
        target: the model that it drafts for.
        params: how to load it.
        progress: told the fraction loaded; may stop loading.

    Raises:
        PairingError: it was not made for this target; the message lists every reason.
        UnsupportedError, ModelFileError, OutOfMemoryError: it cannot be loaded.
        Cancelled: progress stopped it.
    """

    def __init__(self, gguf: Gguf, target: Model, params: ModelParams, progress: Progress | None = None) -> None:
        out = ffi.new("pds_draft **")
        error = ffi.new("pds_error *")
        call = lib.pds_python_progress
        with _watched(progress):
            rc = lib.pds_draft_load(gguf._handle, target._handle, _model_params(params), call, ffi.NULL, out, error)
            if rc == 0:
                self._handle = ffi.gc(out[0], lib.pds_draft_free)
        check(rc, error)
        self._gguf = gguf

    def close(self) -> None:
        """Frees the weights. Must not be called while a session with it is alive."""
        ffi.release(self._handle)


class Session:
    """One sequence on a model, with a drafter or without. One thread at a time may use it; ``cancel`` may be called from any.

    Raises:
        OutOfMemoryError: the cache does not fit.
    """

    def __init__(self, model: Model, params: ModelParams, draft: Draft | None = None) -> None:
        out = ffi.new("pds_session **")
        error = ffi.new("pds_error *")
        drafter = ffi.NULL if draft is None else draft._handle
        check(lib.pds_session_new(model._handle, drafter, _session_params(params), out, error), error)
        self._handle = ffi.gc(out[0], lib.pds_session_free)
        self._model = model
        self._draft = draft
        self._step = ffi.new("pds_step *")
        self._wants_logprobs = False
        self._n_tops = 0

    def close(self) -> None:
        """Frees the cache."""
        ffi.release(self._handle)

    def memory(self) -> MemoryReport:
        """Memory that the model and this session take."""
        report = ffi.new("pds_memory_report *")
        lib.pds_session_memory(self._handle, report)
        return _memory_report(report)

    def start(self, request: Request, progress: Progress | None = None) -> None:
        """Evaluates the prompt.

        Raises:
            ContextFullError: the prompt does not fit.
            Cancelled: ``cancel`` or ``progress`` stopped it; the session can start again.
        """
        error = ffi.new("pds_error *")
        record, _kept_alive = _request(request)
        self._wants_logprobs = request.sampling.logprobs
        self._n_tops = request.sampling.top_logprobs if self._wants_logprobs else 0
        with _watched(progress):
            rc = lib.pds_session_start(self._handle, record, lib.pds_python_progress, ffi.NULL, error)
        check(rc, error)

    def step(self) -> Step:
        """Runs one round.

        Raises:
            Cancelled: ``cancel`` stopped it.
        """
        error = ffi.new("pds_error *")
        out = self._step
        check(lib.pds_session_step(self._handle, out, error), error)
        n = out.n_tokens
        return Step(
            tokens=tuple(out.tokens[0:n]),
            finish=Finish(out.finish),
            stop_id=out.stop_id if out.stop_id >= 0 else None,
            logprobs=tuple(out.logprob[0:n]) if self._wants_logprobs else (),
            tops=tuple(self._tops(i) for i in range(n)) if self._n_tops else (),
        )

    def _tops(self, i: int) -> tuple[tuple[int, float], ...]:
        at = slice(i * _MAX_TOPS, i * _MAX_TOPS + self._n_tops)
        pairs = zip(self._step.top_ids[at], self._step.top_logprob[at], strict=True)
        return tuple((token, logprob) for token, logprob in pairs if token >= 0)

    def stats(self) -> Stats:
        """Counts and times of the running or last generation."""
        out = ffi.new("pds_stats *")
        lib.pds_session_stats(self._handle, out)
        values = {name: getattr(out, name) for name in Stats.__dataclass_fields__}
        used = max((i + 1 for i, count in enumerate(out.drafted_at) if count), default=0)
        for name in ("drafted_at", "accepted_at"):
            values[name] = tuple(values[name][0:used])
        return Stats(**values)

    def cancel(self) -> None:
        """From any thread: the ``start`` or ``step`` that is running ends soon with Cancelled."""
        lib.pds_session_cancel(self._handle)

    def cut(self, n: int) -> None:
        """Keeps at most the first n tokens of the sequence and ends the request."""
        lib.pds_session_cut(self._handle, n)

    def reset(self) -> None:
        """Forgets the sequence."""
        lib.pds_session_reset(self._handle)

    @property
    def n_past(self) -> int:
        """Tokens whose state is held."""
        return int(lib.pds_session_n_past(self._handle))

    def inspect(self, tokens: Sequence[int], names: Sequence[str], sizes: Sequence[int]) -> list[list[float]]:
        """Appends tokens as one batch and returns tensors of the graph by name. For tests and tools.

        Args:
            tokens: ids to append.
            names: tensors, such as ``"l_out-2"`` or ``"result_output"``.
            sizes: elements of each.
        """
        error = ffi.new("pds_error *")
        taps = _Taps(names, sizes)
        check(lib.pds_session_inspect(self._handle, list(tokens), len(tokens), *taps.arguments, error), error)
        return taps.values()

    def inspect_draft(
        self, anchor: int, n: int, names: Sequence[str] = (), sizes: Sequence[int] = ()
    ) -> tuple[list[int], list[list[float]]]:
        """Drafts the n likeliest tokens after an anchor, and returns them with tensors of the graph by name.

        The sequence is not changed. For tests and tools.
        """
        error = ffi.new("pds_error *")
        taps = _Taps(names, sizes)
        ids = ffi.new("int32_t[]", max(n, 1))
        check(lib.pds_session_inspect_draft(self._handle, anchor, n, ids, *taps.arguments, error), error)
        return list(ids[0:n]), taps.values()

    def measure(self, n_tokens: int, n_repeats: int = 1) -> list[float]:
        """Milliseconds of a batch of ``n_tokens`` with logits for every row, once per repeat. For benchmarks.

        The tokens are forgotten afterwards. The first batch of a size also builds its graph.
        """
        error = ffi.new("pds_error *")
        ms = ffi.new("double[]", n_repeats)
        check(lib.pds_session_measure(self._handle, n_tokens, n_repeats, ms, error), error)
        return list(ms)


class _Taps:
    """Room for named tensors that the core copies out."""

    def __init__(self, names: Sequence[str], sizes: Sequence[int]) -> None:
        self._sizes = list(sizes)
        self._texts = [ffi.new("char[]", name.encode()) for name in names]
        self._outs = [ffi.new("float[]", size) for size in sizes]
        self.arguments = (self._texts, len(self._texts), self._outs, self._sizes)

    def values(self) -> list[list[float]]:
        return [ffi.unpack(out, size) for out, size in zip(self._outs, self._sizes, strict=True)]


def _request(request: Request) -> tuple[Any, list[Any]]:
    """The core's record of a request, and the arrays that it points to."""
    sampling = request.sampling
    bias: Mapping[int, float] = request.bias or {}
    arrays = [
        ffi.new("int32_t[]", list(request.tokens)),
        ffi.new("int32_t[]", list(request.stop_ids)),
        ffi.new("int32_t[]", list(bias)),
        ffi.new("float[]", list(bias.values())),
    ]
    names = ("temperature", "top_k", "top_p", "min_p", "repeat_penalty", "presence_penalty", "frequency_penalty")
    values = {name: getattr(sampling, name) for name in (*names, "repeat_last_n", "top_logprobs")}
    values |= dict(zip(("tokens", "stop_ids", "bias_ids", "bias_values"), arrays, strict=True))
    values |= {"n_tokens": len(request.tokens), "n_stop_ids": len(request.stop_ids), "n_bias": len(bias)}
    values["n_predict"] = -1 if sampling.max_tokens is None else sampling.max_tokens
    values |= {"seed": request.seed, "reuse_prefix": int(request.reuse_prefix), "logprobs": int(sampling.logprobs)}
    values["n_draft_max"] = _n_draft_max(sampling)
    values["draft_conf_min"] = sampling.draft_conf_min
    values["draft_sampling"] = DRAFT_SAMPLING[sampling.draft_sampling]
    values["block_verify"] = int(sampling.draft_accept == "block")
    return ffi.new("pds_request *", values), arrays


def _n_draft_max(sampling: SamplingParams) -> int:
    """-1 stands for the whole block: right when the drafter's confidence decides how much of it is verified."""
    if sampling.n_draft_max is None:
        return -1 if sampling.draft_conf_min > 0 else DEFAULT_DRAFT_MAX
    return sampling.n_draft_max
