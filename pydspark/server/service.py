"""What all routes share: the model, its settings, and how a request becomes an answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from pydspark import __version__
from pydspark.engine import Engine
from pydspark.errors import ContextFullError
from pydspark.llama import Llama
from pydspark.params import SamplingParams
from pydspark.prompts import ChatPrompt
from pydspark.results import Shape, new_shape
from pydspark.server.access import given_key
from pydspark.server.body import read_object
from pydspark.server.errors import HttpError
from pydspark.server.fields import Fields
from pydspark.server.form_fields import form_of
from pydspark.server.job import Ask, Job
from pydspark.server.metrics import Metrics
from pydspark.server.reply import Format, Reply
from pydspark.server.sampling_fields import chat_params, ping_interval, refuse_unsupported, sampling_call, tell_unknown
from pydspark.server.settings import ServerParams
from pydspark.server.worker import Load, Worker

FINGERPRINT = f"pydspark-{__version__}"

_Result = TypeVar("_Result")


@dataclass
class Service:
    """A model that is served.

    Attributes:
        settings: of the server.
        load: opens the model.
        name: of the model, in answers.
        sampling: settings of ``SamplingParams`` that requests can replace.
        chat: settings of ``ChatParams`` likewise.
        hidden: folders that no answer shows.
        on_ready: called when the model is loaded, on the engine's thread.
        on_end: called when the engine has ended, likewise, with the error that ended it.
    """

    settings: ServerParams
    load: Load
    name: str
    sampling: Mapping[str, Any] = field(default_factory=dict)
    chat: Mapping[str, Any] = field(default_factory=dict)
    hidden: tuple[Path, ...] = ()
    on_ready: Callable[[Llama], None] = lambda model: None
    on_end: Callable[[BaseException | None], None] = lambda error: None

    def __post_init__(self) -> None:
        self.created = int(time.time())
        self.metrics = Metrics()
        self.worker = Worker(self.load, self.settings.queue_size, self.metrics, self.on_ready, self.on_end)

    @property
    def model(self) -> Llama:
        """The model, once it is loaded."""
        if self.worker.model is None:
            raise self.not_ready() or HttpError(503, "Loading model")
        return self.worker.model

    @property
    def engine(self) -> Engine:
        """What runs the model."""
        return self.model.engine

    def not_ready(self) -> HttpError | None:
        """Why no request can be served; None if they can."""
        if self.worker.model is not None:
            return None
        details = {"progress": round(self.worker.fraction, 3)}
        return HttpError(503, "Loading model", headers={"Retry-After": "1"}, details=details)

    # ---- from a request to what is to be done ----

    async def read(self, request: Request, known: frozenset[str]) -> Fields:
        """The fields of a request's body.

        Args:
            request: not read yet.
            known: the fields that its route looks at.
        """
        fields = Fields(await read_object(request, self.settings.max_body_mib << 20))
        refuse_unsupported(fields)
        tell_unknown(fields, known)
        return fields

    def sampling_params(self, fields: Fields, **call: Any) -> SamplingParams:
        """How to generate: by the request, then the server's settings, then the model file, then defaults."""
        asked = sampling_call(fields, self.engine.speculates)
        return self.engine.sampling({**asked, **call}, self.sampling)

    def chat_prompt(self, fields: Fields, messages: object, tools: list[Any] | None) -> ChatPrompt:
        """The prompt for a chat, with what its answer must look like."""
        choice = fields.get("tool_choice")
        called, choice = (None, None) if choice == "none" else (tools, choice)
        in_parallel = fields.flag("parallel_tool_calls", True)
        params = chat_params(fields, self.chat)
        return self.engine.chat_prompt(messages, called, params, form_of(fields), choice, in_parallel)

    def text_prompt(self, fields: Fields, tokens: list[int]) -> ChatPrompt:
        """The prompt for a text, likewise."""
        return ChatPrompt(tokens, mask=self.engine.prompts.mask(form_of(fields)))

    def chat_text(self, fields: Fields, messages: object, tools: list[Any] | None) -> str:
        """The prompt for a chat as text."""
        return self.engine.prompts.render(messages, tools, chat_params(fields, self.chat).variables())

    def reuses_prefix(self, fields: Fields) -> bool:
        """Whether what the session holds may be used."""
        return fields.flag("cache_prompt", True) and self.settings.cache_prompt

    async def in_thread(self, work: Callable[[], _Result]) -> _Result:
        """Does work that would hold up other requests."""
        return await asyncio.to_thread(work)

    def shape(self, prefix: str, ask: Ask, echo: str = "") -> Shape:
        """What the dictionaries of an answer share."""
        return new_shape(prefix, self.name, self.engine.prompts.piece, ask.params.logprobs, echo)

    def reply(self, request: Request, fields: Fields, ask: Ask, answer: Format, stream: bool) -> Response:
        """The answer to a request: waits in line, generates, and is sent while it comes if that is wanted.

        Raises:
            ContextFullError: the prompt does not fit.
            HttpError: too many are waiting.
        """
        self._check_length(ask)
        job = Job(ask, client_of(request, fields), self.engine)
        ping_s = ping_interval(fields, self.settings.sse_ping_interval)
        return Reply(self.worker, job, answer, stream, ping_s, self.settings.timeout, self.hidden)

    def _check_length(self, ask: Ask) -> None:
        n, n_ctx = len(ask.prompt.tokens), self.engine.n_ctx
        if n >= n_ctx:  # known now, so that it need not wait in line for it
            raise ContextFullError(
                f"the prompt has {n} tokens, and the context holds {n_ctx} together with the answer; shorten the "
                "prompt or start the server with a larger -c",
                n, n_ctx,
            )  # fmt: skip


def client_of(request: Request, fields: Fields) -> Hashable:
    """Who asks: programs and people that can be told apart take turns."""
    address = request.client.host if request.client else ""
    user = fields.get("user")
    return (
        address,
        given_key(request.headers),
        request.headers.get("user-agent", ""),
        user if isinstance(user, str) else "",
    )
