"""A loaded model with its one session, shared safely by threads."""

from __future__ import annotations

import os
import secrets
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydspark._native import Gguf, Model, Session, drain_log
from pydspark.errors import Cancelled, UnsupportedError
from pydspark.generate import Done, Event, generate
from pydspark.params import (
    RANDOM_SEED,
    ModelParams,
    SamplingParams,
    check_token_ids,
    model_sampling,
    sampling_from,
)
from pydspark.prompts import Prompts
from pydspark.records import Progress, Request
from pydspark.text.detokenizer import Detokenizer
from pydspark.text.stop import StopMatcher
from pydspark.turns import Turns


@dataclass
class _Parts:
    """Native objects in the order in which one needs the other."""

    gguf: Gguf
    model: Model | None = None
    session: Session | None = None

    def cancel(self) -> None:
        if self.session is not None:
            self.session.cancel()

    def free(self) -> None:
        for part in (self.session, self.model, self.gguf):
            if part is not None:
                part.close()


def _close(turns: Turns, parts: _Parts) -> None:
    turns.close()
    parts.free()
    drain_log()


class Engine:
    """A model file, its weights and one session.

    Args:
        path: a GGUF file.
        params: how to load and run it.
        overrides: metadata to replace or add.
        vocab_only: read the metadata and no weights.
        progress: told the fraction loaded; may stop loading.

    Attributes:
        metadata: of the file.
        info: sizes of the model.
        n_ctx: tokens that the context holds.
        prompts: the text side.
        last_done: the last event of the last generation that ended.

    Raises:
        ModelFileError, UnsupportedError, OutOfMemoryError: it cannot be loaded; nothing stays behind.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        params: ModelParams,
        overrides: Mapping[str, bool | int | float | str] | None = None,
        vocab_only: bool = False,
        progress: Progress | None = None,
    ) -> None:
        self._parts = parts = _Parts(Gguf(path))
        self._turns = Turns(parts.cancel)
        # Runs when this object is dropped, and at interpreter exit before modules are taken apart.
        weakref.finalize(self, _close, self._turns, parts)
        try:
            for key, value in (overrides or {}).items():
                parts.gguf.override(key, value)
            self.metadata = parts.gguf.metadata()
            self.prompts = Prompts(self.metadata)
            self.info = parts.gguf.describe()
            self.n_ctx = params.n_ctx or self.info.n_ctx_train
            if not vocab_only:
                parts.model = Model(parts.gguf, params, progress)
                parts.session = Session(parts.model, params)
                self.n_ctx = parts.session.memory().n_ctx
        except BaseException:
            self.close()
            raise
        self.last_done: Done | None = None
        drain_log()

    def sampling(self, call: Mapping[str, Any]) -> SamplingParams:
        """Sampling parameters: values of the call, then those that the model file recommends, then the defaults."""
        return sampling_from(call, model_sampling(self.metadata))

    def events(
        self, tokens: Sequence[int], params: SamplingParams, progress: Progress | None = None
    ) -> Iterator[Event]:
        """Generates from a prompt; see ``generate``.

        The arguments are checked now. The work, and waiting for a turn, begins when the first event is asked for.

        Args:
            tokens: ids of the prompt.
            params: how to generate.
            progress: told the fraction of the prompt that is evaluated; a false result stops.

        Raises:
            ArgumentError: a token id that does not exist.
            ClosedError: the engine was closed, before or during the generation.
            Cancelled: the turn was taken away (see ``Turns``), or progress stopped the generation.
        """
        self.check_open()
        return self._run(self._request(tokens, params), progress)

    def _request(self, tokens: Sequence[int], params: SamplingParams) -> Request:
        vocab = self.prompts.vocab
        check_token_ids("prompt", tokens, vocab.n_vocab)
        check_token_ids("logit_bias", params.logit_bias, vocab.n_vocab)
        check_token_ids("stop_token_ids", params.stop_token_ids, vocab.n_vocab)
        ends = frozenset() if params.ignore_eos else vocab.eog_ids
        never = vocab.eog_ids if params.ignore_eos else frozenset()
        return Request(
            tokens=tokens,
            sampling=params,
            seed=_seed(params.seed),
            stop_ids=tuple(sorted(ends.union(params.stop_token_ids))),
            bias={**params.logit_bias, **dict.fromkeys(never, float("-inf"))},
        )

    def _run(self, request: Request, progress: Progress | None) -> Iterator[Event]:
        with self._turns.turn() as turn:
            decoder = Detokenizer(self.prompts.tokenizer)
            events = generate(self._session(), request, decoder, StopMatcher(request.sampling.stop), progress)
            while True:
                try:
                    with self._turns.step(turn):
                        event = next(events, None)
                except Cancelled:
                    self.check_open()  # closing is why it was cancelled
                    raise
                if event is None:
                    break
                if isinstance(event, Done):
                    self.last_done = event
                yield event
        drain_log()

    def reset(self) -> None:
        """Forgets the sequence that the session holds."""
        with self._turns.turn() as turn, self._turns.step(turn):
            self._session().reset()

    def _session(self) -> Session:
        if self._parts.session is None:
            raise UnsupportedError("the model was opened with vocab_only=True and cannot generate")
        return self._parts.session

    def check_open(self) -> None:
        """Raises ClosedError after ``close``."""
        self._turns.check_open()

    def close(self) -> None:
        """Stops a running generation and frees everything. May be called more than once, from any thread."""
        _close(self._turns, self._parts)


def _seed(wanted: int | None) -> int:
    """The seed to use: the wanted one, or a fresh one."""
    return secrets.randbelow(RANDOM_SEED) if wanted is None or wanted in (-1, RANDOM_SEED) else wanted
