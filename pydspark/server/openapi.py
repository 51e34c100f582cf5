"""The description of the HTTP interface for programs: OpenAPI, from the tables of parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from pydspark import __version__
from pydspark.params import Option, SamplingParams, options
from pydspark.server.sampling_fields import MAX_TOKENS, SAMPLING

Schema = dict[str, Any]

_KINDS = {int: "integer", float: "number", bool: "boolean", str: "string"}
_ANY_OBJECT: Schema = {"type": "object", "additionalProperties": True}
_TEXT: Schema = {"type": "string"}
_FLAG: Schema = {"type": "boolean"}
_TOKENS: Schema = {"type": "array", "items": {"type": "integer", "minimum": 0}}
_MESSAGES: Schema = {
    "type": "array",
    "minItems": 1,
    "items": {
        "type": "object",
        "required": ["role", "content"],
        "properties": {
            "role": {"enum": ["system", "developer", "user", "assistant", "tool"]},
            "content": {"anyOf": [_TEXT, {"type": "array", "items": {"$ref": "#/components/schemas/TextPart"}}]},
        },
    },
}
_SCHEMAS: Mapping[str, Schema] = {
    "TextPart": {
        "type": "object",
        "required": ["type", "text"],
        "properties": {"type": {"enum": ["text"]}, "text": _TEXT},
    },
    "Error": {
        "type": "object",
        "required": ["error"],
        "properties": {
            "error": {
                "type": "object",
                "required": ["code", "message", "type"],
                "properties": {"code": {"type": "integer"}, "message": _TEXT, "type": _TEXT, "param": _TEXT},
            }
        },
    },
    "Speculative": {
        "description": "false = without drafts",
        "anyOf": [
            _FLAG,
            {
                "type": "object",
                "properties": {
                    "n_max": {"type": "integer", "minimum": 0},
                    "conf_min": {"type": "number", "minimum": 0, "maximum": 1},
                },
                "additionalProperties": False,
            },
        ],
    },
}

_STREAMED: Mapping[str, Schema] = {
    "stream": _FLAG,
    "cache_prompt": {**_FLAG, "default": True},
    "speculative": {"$ref": "#/components/schemas/Speculative"},
    "sse_ping_interval": {"type": "integer", "minimum": -1},
    "plain_speed": {**_FLAG, "description": "measure at the end how long a token takes without drafts"},
}
_TOLD: Mapping[str, Schema] = {
    **_STREAMED,
    "timings_per_token": _FLAG,
    "return_progress": _FLAG,
    "return_tokens": _FLAG,
}
_CHAT: Mapping[str, Schema] = {
    "messages": _MESSAGES,
    "tools": {"type": "array", "items": _ANY_OBJECT},
    "tool_choice": {"anyOf": [{"enum": ["auto", "none", "required"]}, _ANY_OBJECT]},
    "parallel_tool_calls": {**_FLAG, "description": "a demanded call may be several; true if not said"},
    "chat_template_kwargs": _ANY_OBJECT,
    "enable_thinking": _FLAG,
    "reasoning_format": {"enum": ["auto", "deepseek", "none"]},
    "reasoning_effort": _TEXT,
    "add_generation_prompt": _FLAG,
}
_FORM: Mapping[str, Schema] = {
    "response_format": {
        "type": "object",
        "properties": {
            "type": {"enum": ["text", "json_object", "json_schema"]},
            "json_schema": {"type": "object", "properties": {"schema": _ANY_OBJECT}},
        },
    },
    "json_schema": {**_ANY_OBJECT, "description": "a JSON schema that the answer follows"},
    "grammar": {**_TEXT, "description": "a grammar in GBNF or in Lark's form that the answer follows"},
}
_INPUT: Schema = {"anyOf": [_TEXT, {"type": "array", "items": _ANY_OBJECT}]}
_PROMPT: Schema = {"anyOf": [_TEXT, _TOKENS]}
_COUNTED: Schema = {"type": "integer", "minimum": 0, "maximum": 20}


def sampling_schemas() -> dict[str, Schema]:
    """Schemas of the fields that say how to generate."""
    table = options(SamplingParams)
    schemas = {name: _schema(table[name]) for name in SAMPLING}
    schemas["stop"]["anyOf"] = [{**_TEXT, "minLength": 1}, {"type": "array", "items": {**_TEXT, "minLength": 1}}]
    schemas["logit_bias"]["type"] = "object"
    schemas["logit_bias"]["additionalProperties"] = {"type": "number"}
    limit = _schema(table["max_tokens"])
    return {**schemas, **dict.fromkeys(MAX_TOKENS, limit)}


def _schema(option: Option) -> Schema:
    schema: Schema = {"description": option.help}
    if option.kind in _KINDS:
        schema["type"] = _KINDS[option.kind]
    if option.low is not None and not option.clamp:
        schema["minimum"] = option.low
    if option.high is not None and not option.clamp:
        schema["maximum"] = option.high
    return schema


def _post(summary: str, properties: Mapping[str, Schema], *required: str) -> Schema:
    body: Schema = {"type": "object", "properties": dict(properties)}
    if required:
        body["required"] = list(required)
    return {
        "post": {
            "summary": summary,
            "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
            "responses": _responses(),
        }
    }


def _get(summary: str, kind: str = "application/json") -> Schema:
    return {"get": {"summary": summary, "responses": _responses(kind)}}


def _responses(kind: str = "application/json") -> Schema:
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    answer: Schema = {kind: {}, "text/event-stream": {}} if kind == "application/json" else {kind: {}}
    return {
        "200": {"description": "the answer, or a stream of it", "content": answer},
        **{str(status): {"description": "an error", "content": error} for status in (400, 401, 403, 413, 503)},
    }


def document() -> dict[str, Any]:
    """The OpenAPI document."""
    sampling = sampling_schemas()
    logprobs = {"logprobs": _FLAG, "top_logprobs": _COUNTED}
    usage = {"stream_options": {"type": "object", "properties": {"include_usage": _FLAG}}}
    own = {"max_tokens": sampling["max_tokens"], "temperature": sampling["temperature"], "top_p": sampling["top_p"]}
    native = {
        "prompt": _PROMPT,
        "n_probs": _COUNTED,
        "response_fields": {"type": "array", "items": _TEXT},
        **sampling,
        **_FORM,
        **_TOLD,
    }
    messages = {
        **own,
        "messages": _MESSAGES,
        "system": _TEXT,
        "top_k": sampling["top_k"],
        "stop_sequences": {"type": "array", "items": {**_TEXT, "minLength": 1}},
        "tools": {"type": "array", "items": _ANY_OBJECT},
        "tool_choice": {
            "type": "object",
            "properties": {"type": {"enum": ["auto", "none", "any", "tool"]}, "disable_parallel_tool_use": _FLAG},
        },
        **_STREAMED,
    }
    responses = {
        "input": _INPUT,
        "instructions": _TEXT,
        "max_output_tokens": {"type": "integer", "minimum": 1, "maximum": 2**31 - 1},
        "temperature": sampling["temperature"],
        "top_p": sampling["top_p"],
        "tools": {"type": "array", "items": _ANY_OBJECT},
        "tool_choice": _CHAT["tool_choice"],
        "parallel_tool_calls": _CHAT["parallel_tool_calls"],
        "text": {"type": "object", "properties": {"format": _FORM["response_format"]}},
        **_STREAMED,
    }
    chat = {**_CHAT, **sampling, **_FORM, **logprobs, **usage, **_TOLD}
    text = {"prompt": _PROMPT, "echo": _FLAG, "logprobs": _COUNTED, **sampling, **_FORM, **usage, **_TOLD}
    paths = {
        "/health": _get("Whether the model is loaded"),
        "/v1/models": _get("The one model there is"),
        "/props": _get("Settings, and the chat template"),
        "/slots": _get("What is running"),
        "/metrics": _get("Counters for Prometheus", "text/plain"),
        "/tokenize": _post(
            "Text to tokens",
            {"content": _TEXT, "add_special": _FLAG, "parse_special": _FLAG, "with_pieces": _FLAG},
        ),
        "/detokenize": _post("Tokens to text", {"tokens": _TOKENS}),
        "/apply-template": _post("The text of a chat's prompt", _CHAT, "messages"),
        "/completion": _post("Continue a prompt, as llama-server does", native, "prompt"),
        "/v1/completions": _post("Continue a prompt, as OpenAI does", text, "prompt"),
        "/v1/chat/completions": _post("Answer a chat", chat, "messages"),
        "/v1/chat/completions/input_tokens": _post("Count the tokens of a chat", _CHAT, "messages"),
        "/v1/responses": _post("Answer an input", responses, "input"),
        "/v1/responses/input_tokens": _post("Count the tokens of an input", responses, "input"),
        "/v1/messages": _post("Answer a chat, as Anthropic does", messages, "messages"),
        "/v1/messages/count_tokens": _post("Count the tokens of a chat", messages, "messages"),
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "dspark-server", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": dict(_SCHEMAS),
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "header": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
            },
        },
        "security": [{}, {"bearer": []}, {"header": []}],
    }


class OpenApiRoutes:
    """Publishes the description."""

    def routes(self) -> list[Route]:
        """The routes."""
        return [Route("/openapi.json", self.show)]

    async def show(self, request: Request) -> Response:
        """The document."""
        return JSONResponse(document())
