"""``/completion``, llama-server's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pydspark.chat_results import token_logprobs
from pydspark.generate import Done, Text, Token
from pydspark.params import SamplingParams
from pydspark.results import Shape
from pydspark.server.errors import HttpError, bad_field
from pydspark.server.extras import Extras, progress_object
from pydspark.server.fields import Fields
from pydspark.server.form_fields import FORM
from pydspark.server.job import Ask, PromptProgress, Told
from pydspark.server.openai_chat import ask_of
from pydspark.server.openai_text import is_token, one_prompt, plain_event
from pydspark.server.reply import frame
from pydspark.server.sampling_fields import top_logprobs
from pydspark.server.service import Service
from pydspark.text.tokenizer import Tokenizer

KNOWN = frozenset({
    "prompt", "stream", "n_probs", "cache_prompt", "timings_per_token", "return_progress", "return_tokens",
    "response_fields", "plain_speed", "sse_ping_interval", "speculative", *FORM,
})  # fmt: skip


class CompletionRoutes:
    """Text completions in llama-server's form."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def routes(self) -> list[Route]:
        """The routes."""
        paths = ("/completion", "/completions")
        return [Route(path, self.create, methods=["POST"]) for path in paths]

    async def create(self, request: Request) -> Response:
        """Continues a prompt."""
        service = self._service
        fields = await service.read(request, KNOWN)
        stream = fields.flag("stream")
        only = response_fields(fields)
        ask = await service.in_thread(lambda: self._ask(fields))
        answer = NativeFormat(ask, service.shape("cmpl", ask), prompt_text(fields), fields.flag("return_tokens"), only)
        return service.reply(request, fields, ask, answer, stream)

    def _ask(self, fields: Fields) -> Ask:
        n_top = top_logprobs(fields, "n_probs")
        params = self._service.sampling_params(fields, logprobs=n_top > 0, top_logprobs=n_top)
        prompts = self._service.engine.prompts
        tokens = prompts.encode(mixed_prompt(fields, prompts.tokenizer))
        return ask_of(self._service, fields, prompt=self._service.text_prompt(fields, tokens), params=params)


def mixed_prompt(fields: Fields, tokenizer: Tokenizer) -> str | list[int]:
    """The prompt: a text, token ids, or a list in which both take turns."""
    prompt = fields.get("prompt")
    if not isinstance(prompt, list) or not any(isinstance(item, str) for item in prompt):
        return one_prompt(fields)
    if len(prompt) > 1 and all(isinstance(item, str) for item in prompt):
        raise HttpError(400, f"prompt has {len(prompt)} prompts; this server takes one at a time", "prompt")
    tokens: list[int] = []
    for i, item in enumerate(prompt):
        if isinstance(item, str):
            tokens += tokenizer.encode(item, special=True, add_bos=i == 0)
        elif is_token(item):
            tokens.append(item)
        else:
            raise bad_field(f"prompt[{i}]", "a text or a token id", item)
    return tokens


def prompt_text(fields: Fields) -> str:
    """The prompt as far as it was given as text."""
    prompt = fields.get("prompt")
    return prompt if isinstance(prompt, str) else ""


def response_fields(fields: Fields) -> list[str] | None:
    """Which fields of the answer are wanted; None = all."""
    names = fields.array("response_fields")
    if names is not None and not all(isinstance(name, str) for name in names):
        raise fields.error("response_fields", "a list of texts")
    return names


class NativeFormat:
    """Answers in llama-server's form.

    Args:
        ask: what was asked.
        shape: for log-probabilities.
        prompt: text of the prompt.
        wants_tokens: tell the ids of the tokens.
        only: fields of the answer that are wanted; None = all.
    """

    def __init__(self, ask: Ask, shape: Shape, prompt: str, wants_tokens: bool, only: list[str] | None) -> None:
        self._ask = ask
        self._shape = shape
        self._prompt = prompt
        self._wants_tokens = wants_tokens
        self._only = only
        self._extras = Extras(wants_tokens)
        self._tokens: list[Token] = []  # since the last chunk
        self._n_tokens = 0

    def whole(self, items: Sequence[Told]) -> dict[str, Any]:
        """The final answer."""
        texts: list[str] = []
        for item in items:
            self._extras.note(item)
            event = plain_event(item)
            if isinstance(event, Token):
                self._tokens.append(event)
            elif isinstance(event, Text):
                texts.append(event.text)
            elif event is not None:
                return self._final("".join(texts), event)
        raise RuntimeError("the events ended without Done")

    def frames(self, item: Told) -> Iterator[str]:
        """Parts of the answer, and at the end all that is known of it."""
        self._extras.note(item)
        event = plain_event(item)
        if isinstance(item, PromptProgress):
            yield frame({**self._partial(""), "prompt_progress": progress_object(item)})
        elif isinstance(event, Token):
            self._tokens.append(event)
            self._n_tokens += 1
        elif isinstance(event, Text):
            yield frame({**self._partial(event.text), **self._take_tokens(), **self._extras.take()})
        elif event is not None:
            yield frame(self._final("", event))

    def error_frame(self, error: Mapping[str, Any]) -> str:
        """The error object."""
        return frame(error)

    def _partial(self, text: str) -> dict[str, Any]:
        return {
            "index": 0,
            "content": text,
            "tokens": [],
            "stop": False,
            "id_slot": 0,
            "tokens_predicted": self._n_tokens,
            "tokens_evaluated": len(self._ask.prompt.tokens),
        }

    def _take_tokens(self) -> dict[str, Any]:
        tokens, self._tokens = self._tokens, []
        probabilities = {"completion_probabilities": token_logprobs(tokens, self._shape)}
        return probabilities if self._shape.logprobs else {}

    def _final(self, text: str, done: Done) -> dict[str, Any]:
        stats = done.stats
        answer = {
            "index": 0,
            "content": text,
            "tokens": [],
            "id_slot": 0,
            "stop": True,
            "model": self._shape.model,
            "tokens_predicted": done.usage.completion_tokens,
            "tokens_evaluated": len(self._ask.prompt.tokens),
            "generation_settings": generation_settings(self._ask.params, done.seed),
            "prompt": self._prompt,
            "has_new_line": "\n" in text,
            "truncated": False,
            "stop_type": stop_type(done),
            "stopping_word": done.stop or "",
            "tokens_cached": stats.cache_n + stats.prompt_n + stats.predicted_n,
            **self._take_tokens(),
            **self._extras.take(),
            "timings": self._extras.timings(done),
        }
        return answer if self._only is None else pick(answer, self._only)


def stop_type(done: Done) -> str:
    """Why an answer ended, in llama-server's words."""
    if done.stop is not None:
        return "word"
    return "limit" if done.finish_reason == "length" else "eos"


def generation_settings(params: SamplingParams, seed: int | None) -> dict[str, Any]:
    """Settings of a generation, with llama-server's names."""
    settings = asdict(params)
    limit = settings.pop("max_tokens")
    bias = [[token, value] for token, value in settings.pop("logit_bias").items() if value > float("-inf")]
    banned = [token for token, value in params.logit_bias.items() if value == float("-inf")]
    return {
        **settings,
        "seed": seed,
        "n_predict": -1 if limit is None else limit,
        "max_tokens": -1 if limit is None else limit,
        "logit_bias": bias + [[token, False] for token in banned],
        "n_probs": settings.pop("top_logprobs"),
    }


def pick(answer: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Some fields of an answer. ``a/b`` takes field b out of the object a."""
    picked: dict[str, Any] = {}
    for name in names:
        value: Any = answer
        for part in name.split("/"):
            value = value.get(part) if isinstance(value, Mapping) else None
        if value is not None:
            picked[name.split("/")[-1]] = value
    return picked
