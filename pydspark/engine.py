"""A loaded model with its one session, shared safely by threads."""

from __future__ import annotations

import math
import os
import secrets
import time
import weakref
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from pydspark._native import Draft, Gguf, Model, Session, drain_log
from pydspark.calibration import CalibrationFile, calibration_key
from pydspark.chat import ChatEvent, chat_events
from pydspark.drafting import Drafting
from pydspark.errors import ArgumentError, Cancelled, ClosedError, UnsupportedError
from pydspark.generate import Done, Event, Token, generate
from pydspark.params import (
    LOOKUP_TYPE,
    RANDOM_SEED,
    ChatParams,
    ModelParams,
    SamplingParams,
    check_token_ids,
    uses_lookup,
)
from pydspark.prompts import ChatPrompt, Prompts
from pydspark.records import MemoryReport, Progress, Request, Stats, TokenMask
from pydspark.sampling_defaults import model_sampling, sampling_from
from pydspark.text.detokenizer import Detokenizer
from pydspark.text.grammar import Grammar
from pydspark.text.stop import StopMatcher
from pydspark.turns import Turn, Turns, quiet_at_exit, watch_exit

_SAVE_EVERY_S = 10.0
_PLAIN_STEPS = 3  # an odd number, so that the median is one of them


@dataclass
class _Parts:
    """Native objects in the order in which one needs the other."""

    gguf: Gguf
    model: Model | None = None
    draft_gguf: Gguf | None = None
    draft: Draft | None = None
    session: Session | None = None

    def cancel(self) -> None:
        if self.session is not None:
            self.session.cancel()

    def free(self) -> None:
        for part in (self.session, self.draft, self.draft_gguf, self.model, self.gguf):
            if part is not None:
                part.close()


def _close(turns: Turns, parts: _Parts) -> None:
    turns.close()
    parts.free()
    drain_log()


class Engine:
    """A model file, its weights and one session, with a drafter or without.

    Args:
        path: a GGUF file.
        params: how to load and run it.
        overrides: metadata to replace or add; of the model, not of the drafter.
        vocab_only: read the metadata and no weights.
        progress: told the fraction loaded; may stop loading.
        draft: the GGUF file of a drafter.
        defaults: what later calls will ask of the drafter unless they say otherwise, to be checked before loading.

    Attributes:
        metadata: of the file.
        info: sizes of the model.
        n_ctx: tokens that the context holds.
        memory: what model, drafter and session take; None with ``vocab_only``.
        prompts: the text side.
        drafting: the drafter at work, or None.
        spec_type: where drafts come from, such as ``"draft-dspark,ngram"``; ``"none"`` for plain decoding.
        last_done: the last event of the last generation that ended.

    Raises:
        ModelFileError, UnsupportedError, OutOfMemoryError: it cannot be loaded; nothing stays behind.
        PairingError: the drafter was not made for the model.
        ArgumentError: ``defaults`` asks for what the drafter cannot do, or it is not of the kind ``params.spec_type``.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        params: ModelParams,
        overrides: Mapping[str, bool | int | float | str] | None = None,
        vocab_only: bool = False,
        progress: Progress | None = None,
        draft: str | os.PathLike[str] | None = None,
        defaults: SamplingParams | None = None,
    ) -> None:
        self._parts = parts = _Parts(Gguf(path))
        self._turns = Turns(parts.cancel)
        # Runs when this object is dropped, and at interpreter exit before modules are taken apart.
        weakref.finalize(self, _close, self._turns, parts)
        watch_exit()
        try:
            for key, value in (overrides or {}).items():
                parts.gguf.override(key, value)
            self.info = parts.gguf.describe()
            self.metadata = parts.gguf.metadata()
            self.prompts = Prompts(self.metadata)
            self.n_ctx = params.n_ctx or self.info.n_ctx_train
            self.drafting = None if draft is None else self._open_draft(draft, params.spec_type)
            self.spec_type = self._spec_type(params)
            if self.drafting is not None and defaults is not None:
                self.drafting.check(defaults)
            self.memory = None if vocab_only else self._load(params, progress)
            self._calibration = self._open_calibration(Path(path), params)
        except BaseException:
            self.close()
            raise
        self.last_done: Done | None = None
        self._saved_at = -math.inf  # by the monotonic clock
        drain_log()

    def _open_draft(self, path: str | os.PathLike[str], spec_type: str) -> Drafting:
        """Reads the metadata of a drafter, and checks that it fits."""
        self._parts.draft_gguf = gguf = Gguf(path)
        drafting = Drafting(gguf.describe_draft(), os.fspath(path), spec_type)
        self._parts.gguf.check_pair(gguf)
        return drafting

    def _spec_type(self, params: ModelParams) -> str:
        kinds = [] if self.drafting is None else [self.drafting.info.kind]
        return ",".join([*kinds, *([LOOKUP_TYPE] if uses_lookup(params.spec_type) else [])]) or "none"

    @property
    def speculates(self) -> bool:
        """Whether anything can be drafted, by a drafter or by lookup."""
        return self.spec_type != "none"

    def _load(self, params: ModelParams, progress: Progress | None) -> MemoryReport:
        """Loads the weights and makes the session."""
        parts = self._parts
        n_draft = 0 if self.drafting is None else self.drafting.info.n_bytes
        share = self.info.n_bytes / max(self.info.n_bytes + n_draft, 1)  # of what is loaded, the model's
        parts.model = Model(parts.gguf, params, _part_of(progress, 0.0, share))
        if parts.draft_gguf is not None:
            parts.draft = Draft(parts.draft_gguf, parts.model, params, _part_of(progress, share, 1.0))
        parts.session = Session(parts.model, params, parts.draft)
        memory = parts.session.memory()
        self.n_ctx = memory.n_ctx
        return memory

    def _open_calibration(self, path: Path, params: ModelParams) -> CalibrationFile | None:
        """The file of what was learnt of this pair, which the session begins with."""
        if self.memory is None or self.drafting is None or not params.calibration:
            return None
        file = CalibrationFile(calibration_key(path, Path(self.drafting.path), params))
        learnt = file.load()
        if learnt is not None:
            self._session().set_learnt(learnt)
        return file

    def sampling(self, call: Mapping[str, Any], settings: Mapping[str, Any] | None = None) -> SamplingParams:
        """Sampling parameters: values of the call, then the settings, then what the file recommends, then defaults."""
        return sampling_from(call, {**model_sampling(self.metadata), **(settings or {})})

    def chat_prompt(
        self,
        messages: object,
        tools: Sequence[object] | None = None,
        params: ChatParams | None = None,
        grammar: Grammar | None = None,
        tool_choice: object = None,
        parallel_tool_calls: bool = True,
    ) -> ChatPrompt:
        """The prompt for a chat, with boundaries where the model has a use for them; see ``Prompts.chat``."""
        needs_boundaries = self.memory is not None and self.memory.checkpoint_bytes > 0
        return self.prompts.chat(messages, tools, params, needs_boundaries, grammar, tool_choice, parallel_tool_calls)

    def chat_events(
        self,
        prompt: ChatPrompt,
        params: SamplingParams,
        progress: Progress | None = None,
        reuse_prefix: bool = True,
    ) -> Generator[ChatEvent, None, None]:
        """Answers a chat; see ``events`` and ``pydspark.chat``."""
        events = self.events(prompt.tokens, params, progress, prompt.boundaries, reuse_prefix, prompt.mask)
        return chat_events(events, prompt.parser())

    def events(
        self,
        tokens: Sequence[int],
        params: SamplingParams,
        progress: Progress | None = None,
        boundaries: tuple[int, ...] = (),
        reuse_prefix: bool = True,
        mask: TokenMask | None = None,
    ) -> Iterator[Event]:
        """Generates from a prompt; see ``generate``.

        The arguments are checked now. The work, and waiting for a turn, begins when the first event is asked for.

        Args:
            tokens: ids of the prompt.
            params: how to generate.
            progress: told the fraction of the prompt that is evaluated; a false result stops.
            boundaries, reuse_prefix, mask: see ``Request``.

        Raises:
            ArgumentError: a token id that does not exist, or something that the drafter cannot do.
            ClosedError: the engine was closed, before or during the generation.
            Cancelled: the turn was taken away (see ``Turns``), or progress stopped the generation.
        """
        self.check_open()
        if mask is not None and params.ignore_eos:
            raise ArgumentError("ignore_eos cannot be combined with a grammar: where it ends nothing else may follow")
        request = replace(self._request(tokens, params, boundaries), reuse_prefix=reuse_prefix, mask=mask)
        return self._run(request, progress)

    def _request(self, tokens: Sequence[int], params: SamplingParams, boundaries: tuple[int, ...]) -> Request:
        vocab = self.prompts.vocab
        check_token_ids("prompt", tokens, vocab.n_vocab)
        check_token_ids("logit_bias", params.logit_bias, vocab.n_vocab)
        check_token_ids("stop_token_ids", params.stop_token_ids, vocab.n_vocab)
        if self.drafting is not None:
            self.drafting.check(params)
        ends = frozenset() if params.ignore_eos else vocab.eog_ids
        never = vocab.eog_ids if params.ignore_eos else frozenset()
        return Request(
            tokens=tokens,
            sampling=params,
            seed=_seed(params.seed),
            stop_ids=tuple(sorted(ends.union(params.stop_token_ids))),
            bias={**params.logit_bias, **dict.fromkeys(never, float("-inf"))},
            boundaries=boundaries,
        )

    def _run(self, request: Request, progress: Progress | None) -> Iterator[Event]:
        with quiet_at_exit(), self._turns.turn() as turn:
            decoder = Detokenizer(self.prompts.tokenizer)
            events = generate(self._session(), request, decoder, StopMatcher(request.sampling.stop), progress)
            n_read = 0
            while (event := self._next(events, turn)) is not None:
                n_read += isinstance(event, Token)
                if isinstance(event, Done):
                    self._note(event)
                try:
                    yield event
                except GeneratorExit:
                    if not isinstance(event, Done):
                        self._cut(turn, len(request.tokens) + max(n_read - 1, 0))
                    raise
        drain_log()

    def _next(self, events: Iterator[Event], turn: Turn) -> Event | None:
        try:
            with self._turns.step(turn):
                return next(events, None)
        except Cancelled:
            self.check_open()  # closing is why it was cancelled
            raise

    def _note(self, done: Done) -> None:
        self.last_done = done
        if self.drafting is not None:
            self.drafting.note(done.stats)
        if self._calibration is not None and time.monotonic() >= self._saved_at + _SAVE_EVERY_S:
            self._calibration.save(self._session().learnt())
            self._saved_at = time.monotonic()

    def _cut(self, turn: Turn, n: int) -> None:
        """Forgets what a stream that is not read on has generated ahead of its reader."""
        with suppress(Cancelled, ClosedError), self._turns.step(turn):  # a turn that was taken away has no say
            self._session().cut(n)

    def reset(self) -> None:
        """Forgets the sequence that the session holds."""
        with self._turns.turn() as turn, self._turns.step(turn):
            self._session().reset()

    def plain_step_ms(self) -> float | None:
        """Milliseconds that the model takes for one token alone, after what the session holds; None = no room for it.

        Measured with a few tokens that are forgotten again. What a drafter adds to each token of the model is part of
        it, the drawing of the token is not.
        """
        with self._turns.turn() as turn, self._turns.step(turn):
            session = self._session()
            if session.n_past >= self.n_ctx:
                return None
            session.measure(1)  # may have to build the graph
            return median(session.measure(1, _PLAIN_STEPS))

    def stats(self) -> Stats:
        """Counts and times so far of the generation that runs, for the thread that reads its events."""
        return self._session().stats()

    def _session(self) -> Session:
        if self._parts.session is None:
            raise UnsupportedError("the model was opened with vocab_only=True and cannot generate")
        return self._parts.session

    def check_open(self) -> None:
        """Raises ClosedError after ``close``."""
        with quiet_at_exit():
            self._turns.check_open()

    def close(self) -> None:
        """Stops a running generation and frees everything. May be called more than once, from any thread."""
        _close(self._turns, self._parts)


def _part_of(progress: Progress | None, begin: float, end: float) -> Progress | None:
    """Progress of a part of the work, told as that of the whole."""
    return None if progress is None else lambda fraction: progress(begin + fraction * (end - begin))


def _seed(wanted: int | None) -> int:
    """The seed to use: the wanted one, or a fresh one."""
    return secrets.randbelow(RANDOM_SEED) if wanted is None or wanted in (-1, RANDOM_SEED) else wanted
