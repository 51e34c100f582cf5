"""A sequence on a model, with a drafter or without."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from pydspark._native.core import check, ffi, lib, watched
from pydspark._native.gguf import memory_report, session_params
from pydspark._native.learnt import learnt_from, learnt_record
from pydspark._native.model import Draft, Model
from pydspark.cpu import usable_cpus
from pydspark.params import (
    DEFAULT_DRAFT_MAX,
    DRAFT_SAMPLING,
    DRAFT_SCHEDULES,
    ModelParams,
    SamplingParams,
)
from pydspark.records import Finish, Learnt, MemoryReport, Progress, Request, Stats, Step

log = logging.getLogger("pydspark")

_MAX_TOPS = 20

# kinds of work in a target's graph, in the order of PDS_STAGE_*
STAGES = ("embedding", "attention", "delta net", "feed-forward", "head", "features")


class Session:
    """One sequence on a model, with a drafter or without.

    One thread at a time may use it; ``cancel`` may be called from any.

    Raises:
        OutOfMemoryError: the cache does not fit.
    """

    def __init__(self, model: Model, params: ModelParams, draft: Draft | None = None) -> None:
        out = ffi.new("pds_session **")
        error = ffi.new("pds_error *")
        drafter = ffi.NULL if draft is None else draft._handle
        settings = session_params(params)
        check(lib.pds_session_new(model._handle, drafter, settings, out, error), error)
        _tell_threads(settings.n_threads, settings.n_threads_batch)
        self._handle = ffi.gc(out[0], lib.pds_session_free)
        self._model = model
        self._draft = draft
        self._step = ffi.new("pds_step *")
        self._wants_logprobs = False
        self._n_tops = 0
        self._mask: Any = None  # keeps what a request's masks come from alive

    def close(self) -> None:
        """Frees the cache."""
        ffi.release(self._handle)

    def memory(self) -> MemoryReport:
        """Memory that the model and this session take."""
        report = ffi.new("pds_memory_report *")
        lib.pds_session_memory(self._handle, report)
        return memory_report(report)

    def start(self, request: Request, progress: Progress | None = None) -> None:
        """Evaluates the prompt.

        Raises:
            ContextFullError: the prompt does not fit.
            Cancelled: ``cancel`` or ``progress`` stopped it; the session can start again.
        """
        error = ffi.new("pds_error *")
        record, _kept_alive = _request(request)
        self._mask = ffi.NULL if request.mask is None else ffi.new_handle(request.mask)
        if request.mask is not None:
            record.mask, record.mask_user = lib.pds_python_mask, self._mask
        self._wants_logprobs = request.sampling.logprobs
        self._n_tops = request.sampling.top_logprobs if self._wants_logprobs else 0
        with watched(progress):
            rc = lib.pds_session_start(self._handle, record, lib.pds_python_progress, ffi.NULL, error)
        check(rc, error)

    def step(self) -> Step:
        """Runs one round.

        Raises:
            Cancelled: ``cancel`` stopped it.
            Exception: what the request's masks raised.
        """
        error = ffi.new("pds_error *")
        out = self._step
        with watched(None):
            rc = lib.pds_session_step(self._handle, out, error)
        check(rc, error)
        n = out.n_tokens
        return Step(
            tokens=tuple(out.tokens[0:n]),
            finish=Finish(out.finish),
            stop_id=out.stop_id if out.stop_id >= 0 else None,
            n_by_drafter=out.n_by_drafter,
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
        used = _n_used(out.drafted_at)
        for name in ("drafted_at", "accepted_at", "lookup_drafted_at", "lookup_accepted_at"):
            values[name] = tuple(values[name][0:used])
        values["depths"] = tuple(out.depths[0 : _n_used(out.depths)])
        values["reasons"] = tuple(out.reasons)
        return Stats(**values)

    def learnt(self) -> Learnt:
        """What rounds have shown so far of costs and of the drafter's reliability."""
        out = ffi.new("pds_learnt *")
        lib.pds_session_learnt(self._handle, out)
        return learnt_from(out)

    def set_learnt(self, learnt: Learnt, frozen: bool = False) -> None:
        """Begins with what another session has learnt.

        Args:
            learnt: of the same files, settings and devices. Values that make no sense are left out.
            frozen: learn nothing more, so that depths depend on the text alone. For tests and benchmarks.
        """
        lib.pds_session_set_learnt(self._handle, learnt_record(learnt), frozen)

    def set_synthetic(self, by_slot: Sequence[float], seed: int = 0) -> None:
        """Accepts drafts by chance from the next request on. What is generated then means nothing. For benchmarks.

        Args:
            by_slot: probability of each slot's draft if those before it are accepted, in [0, 1]; the last one also
                holds for later slots. Empty: no more.
            seed: of the chance.

        Raises:
            ArgumentError: a probability is out of range.
        """
        error = ffi.new("pds_error *")
        check(lib.pds_session_set_synthetic(self._handle, list(by_slot), len(by_slot), seed, error), error)

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

    def measure_stages(self, n_tokens: int, n_repeats: int = 1) -> list[dict[str, float]]:
        """Milliseconds of CPU time of a batch by kind of work (``STAGES``), once per repeat. For benchmarks.

        The graph is run in pieces, which takes a little longer in all. The tokens are not appended.
        """
        error = ffi.new("pds_error *")
        out = ffi.new("double[]", n_repeats * len(STAGES))
        check(lib.pds_session_measure_stages(self._handle, n_tokens, n_repeats, out, error), error)
        values = list(out)
        rows = [values[i * len(STAGES) : (i + 1) * len(STAGES)] for i in range(n_repeats)]
        return [dict(zip(STAGES, row, strict=True)) for row in rows]


def _n_used(counts: Sequence[int]) -> int:
    return max((i + 1 for i, count in enumerate(counts) if count), default=0)


class _Taps:
    """Room for named tensors that the core copies out."""

    def __init__(self, names: Sequence[str], sizes: Sequence[int]) -> None:
        self._sizes = list(sizes)
        self._texts = [ffi.new("char[]", name.encode()) for name in names]
        self._outs = [ffi.new("float[]", size) for size in sizes]
        self.arguments = (self._texts, len(self._texts), self._outs, self._sizes)

    def values(self) -> list[list[float]]:
        return [ffi.unpack(out, size) for out, size in zip(self._outs, self._sizes, strict=True)]


def _tell_threads(n_threads: int, n_threads_batch: int) -> None:
    log.info("threads: %d for answers, %d for prompts", n_threads, n_threads_batch)
    most, n_cpus = max(n_threads, n_threads_batch), usable_cpus()
    if most > n_cpus:
        log.warning(
            "%d threads are too many for the CPUs that this process may use (%d): they take turns there, which "
            "can be many times slower; without n_threads a good number is chosen",
            most, n_cpus,
        )  # fmt: skip


def _request(request: Request) -> tuple[Any, list[Any]]:
    """The core's record of a request, and the arrays that it points to."""
    sampling = request.sampling
    bias: Mapping[int, float] = request.bias or {}
    arrays = [
        ffi.new("int32_t[]", list(request.tokens)),
        ffi.new("int32_t[]", list(request.stop_ids)),
        ffi.new("int32_t[]", list(bias)),
        ffi.new("float[]", list(bias.values())),
        ffi.new("int64_t[]", list(request.boundaries)),
    ]
    names = ("temperature", "top_k", "top_p", "min_p", "repeat_penalty", "presence_penalty", "frequency_penalty")
    values = {name: getattr(sampling, name) for name in (*names, "repeat_last_n", "top_logprobs")}
    values |= dict(zip(("tokens", "stop_ids", "bias_ids", "bias_values", "boundaries"), arrays, strict=True))
    values |= {"n_tokens": len(request.tokens), "n_stop_ids": len(request.stop_ids), "n_bias": len(bias)}
    values["n_boundaries"] = len(request.boundaries)
    values["n_predict"] = -1 if sampling.max_tokens is None else sampling.max_tokens
    values |= {"seed": request.seed, "reuse_prefix": int(request.reuse_prefix), "logprobs": int(sampling.logprobs)}
    values["n_draft_max"] = _n_draft_max(sampling)
    values["n_lookup_max"] = sampling.lookup_max
    values["draft_conf_min"] = sampling.draft_conf_min
    values["draft_sampling"] = DRAFT_SAMPLING[sampling.draft_sampling]
    values["draft_schedule"] = DRAFT_SCHEDULES[sampling.draft_schedule]
    values["block_verify"] = int(sampling.draft_accept == "block")
    return ffi.new("pds_request *", values), arrays


def _n_draft_max(sampling: SamplingParams) -> int:
    """-1 stands for the whole block: right when something else decides how much of it is verified."""
    if sampling.n_draft_max is None:
        return DEFAULT_DRAFT_MAX if sampling.draft_schedule == "fixed" and sampling.draft_conf_min == 0 else -1
    return sampling.n_draft_max
