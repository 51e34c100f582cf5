"""The small routes of llama-server: health, models, properties, slots, metrics, tokens."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from pydspark import __version__
from pydspark.params import SamplingParams, check_token_ids
from pydspark.server.errors import HttpError, bad_field
from pydspark.server.fields import Fields
from pydspark.server.metrics import CONTENT_TYPE
from pydspark.server.native_completion import generation_settings
from pydspark.server.openai_text import is_token
from pydspark.server.service import Service

BUILD = f"pydspark {__version__}"
# Routes of llama-server that clients try out, and what they would need.
NOT_SUPPORTED = {
    "/v1/embeddings": "embeddings are not available",
    "/embeddings": "embeddings are not available",
    "/embedding": "embeddings are not available",
    "/infill": "filling in the middle is not available",
    "/reranking": "reranking is not available",
    "/rerank": "reranking is not available",
    "/v1/rerank": "reranking is not available",
    "/v1/audio/transcriptions": "this server reads and writes text",
    "/lora-adapters": "adapters are not available",
}


class NativeRoutes:
    """What is known of the server and its model."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def routes(self) -> list[Route]:
        """The routes."""
        return [
            *(Route(path, self.health) for path in ("/health", "/v1/health")),
            *(Route(path, self.models) for path in ("/v1/models", "/models")),
            Route("/v1/models/{name:path}", self.one_model),
            Route("/props", self.props),
            Route("/slots", self.slots),
            Route("/metrics", self.metrics),
            Route("/tokenize", self.tokenize, methods=["POST"]),
            Route("/detokenize", self.detokenize, methods=["POST"]),
            *(Route(path, self.not_supported, methods=["GET", "POST"]) for path in NOT_SUPPORTED),
        ]

    async def health(self, request: Request) -> Response:
        """Whether requests can be served."""
        error = self._service.not_ready()
        if error is not None:
            raise error
        return JSONResponse({"status": "ok"})

    async def models(self, request: Request) -> Response:
        """The one model there is."""
        model = self._model()
        listed = {"name": model["id"], "model": model["id"], "type": "model", "capabilities": ["completion"]}
        return JSONResponse({"object": "list", "data": [model], "models": [listed]})

    async def one_model(self, request: Request) -> Response:
        """The model, by its name."""
        model = self._model()
        if request.path_params["name"] != model["id"]:
            raise HttpError(404, f"There is one model here, {model['id']}")
        return JSONResponse(model)

    def _model(self) -> dict[str, Any]:
        service = self._service
        engine = service.engine
        info, metadata = engine.info, engine.metadata
        return {
            "id": service.name,
            "aliases": [service.name],
            "tags": [],
            "object": "model",
            "architecture": {"input_modalities": ["text"], "output_modalities": ["text"]},
            "created": service.created,
            "owned_by": "pydspark",
            "meta": {
                "vocab_type": metadata.get("tokenizer.ggml.model"),
                "n_vocab": info.n_vocab,
                "n_ctx": engine.n_ctx,
                "n_ctx_train": info.n_ctx_train,
                "n_embd": info.n_embd,
                "n_params": info.n_params,
                "size": info.n_bytes,
                "ftype": metadata.get("general.file_type"),
            },
        }

    async def props(self, request: Request) -> Response:
        """Settings, and the chat template."""
        service = self._service
        engine, model = service.engine, service.model
        params = engine.sampling({}, service.sampling)
        prompts = engine.prompts
        draft = model.draft_path
        return JSONResponse(
            {
                "default_generation_settings": {
                    "params": generation_settings(params, params.seed),
                    "n_ctx": engine.n_ctx,
                },
                "total_slots": 1,
                "model_alias": service.name,
                "model_ftype": engine.metadata.get("general.file_type"),
                "model_path": file_name(model.model_path),
                "modalities": {"vision": False, "video": False, "audio": False},
                "endpoint_slots": service.settings.slots,
                "endpoint_props": False,
                "endpoint_metrics": service.settings.metrics,
                "chat_template": prompts.vocab.chat_templates.get("default", ""),
                "chat_template_caps": {},
                "bos_token": _text(prompts.piece, prompts.vocab.bos_id),
                "eos_token": _text(prompts.piece, prompts.vocab.eos_id),
                "build_info": BUILD,
                "is_sleeping": False,
                "draft_model_path": None if draft is None else file_name(draft),
                "speculative": self._speculative(params),
            }
        )

    def _speculative(self, params: SamplingParams) -> dict[str, Any] | None:
        engine = self._service.engine
        if not engine.speculates:
            return None
        return {
            "type": engine.spec_type,
            "n_max": params.n_draft_max,
            "conf_min": params.draft_conf_min,
            "block_size": 0 if engine.drafting is None else engine.drafting.info.n_slots,
            "lookup_max": params.lookup_max,
        }

    async def slots(self, request: Request) -> Response:
        """What is running."""
        service = self._service
        if not service.settings.slots:
            raise HttpError(501, "This server does not support slots endpoint. Start it with --slots")
        job = service.worker.running
        if job is not None and "fail_on_no_slot" in request.query_params:
            raise HttpError(503, "no slot available")
        engine = service.engine
        params = job.ask.params if job is not None else engine.sampling({}, service.sampling)
        n_decoded = 0 if job is None else job.n_decoded
        slot = {
            "id": 0,
            "id_task": -1 if job is None else id(job) % 2**31,
            "n_ctx": engine.n_ctx,
            "speculative": engine.speculates and params.n_draft_max != 0,
            "is_processing": job is not None,
            "n_prompt_tokens": 0 if job is None else len(job.ask.prompt.tokens),
            "n_prompt_tokens_processed": 0 if job is None else job.n_processed,
            "n_prompt_tokens_cache": 0 if job is None else job.n_cached,
            "params": generation_settings(params, params.seed),
            "next_token": [
                {
                    "has_next_token": job is not None,
                    "has_new_line": False,
                    "n_remain": -1 if params.max_tokens is None else max(params.max_tokens - n_decoded, 0),
                    "n_decoded": n_decoded,
                }
            ],
        }
        return JSONResponse([slot])

    async def metrics(self, request: Request) -> Response:
        """Counters for Prometheus."""
        service = self._service
        if not service.settings.metrics:
            raise HttpError(501, "This server does not support metrics endpoint. Start it with --metrics")
        text = service.metrics.text(int(service.worker.running is not None), service.worker.n_waiting)
        headers = {"Process-Start-Time-Unix": str(int(service.metrics.started))}
        return Response(text, headers=headers, media_type=CONTENT_TYPE)

    async def tokenize(self, request: Request) -> Response:
        """Text to tokens."""
        service = self._service
        fields = await service.read(request, frozenset({"content", "add_special", "parse_special", "with_pieces"}))
        with_pieces = fields.flag("with_pieces")
        tokens = await service.in_thread(lambda: self._tokens(fields))
        if not with_pieces:
            return JSONResponse({"tokens": tokens})
        return JSONResponse({"tokens": [{"id": token, "piece": self._piece(token)} for token in tokens]})

    def _tokens(self, fields: Fields) -> list[int]:
        encode = self._service.engine.prompts.tokenizer.encode
        special, add_bos = fields.flag("parse_special", True), fields.flag("add_special")
        content = fields.get("content", "")
        parts = content if isinstance(content, list) else [content]
        tokens: list[int] = []
        for i, part in enumerate(parts):
            if isinstance(part, str):
                tokens += encode(part, special=special, add_bos=add_bos and i == 0)
            elif is_token(part) and isinstance(content, list):
                tokens.append(part)
            else:
                raise bad_field("content", "a text or a list of texts and token ids", content)
        check_token_ids("content", tokens, self._service.engine.prompts.vocab.n_vocab)
        return tokens

    def _piece(self, token: int) -> str | list[int]:
        piece = self._service.engine.prompts.piece(token)
        try:
            return piece.decode()
        except UnicodeDecodeError:
            return list(piece)

    async def detokenize(self, request: Request) -> Response:
        """Tokens to text."""
        service = self._service
        fields = await service.read(request, frozenset({"tokens"}))
        tokens = fields.array("tokens") or []
        if not all(map(is_token, tokens)):
            raise fields.error("tokens", "a list of token ids")
        prompts = service.engine.prompts
        check_token_ids("tokens", tokens, prompts.vocab.n_vocab)
        data = await service.in_thread(lambda: prompts.tokenizer.decode(tokens, special=True))
        return JSONResponse({"content": data.decode("utf-8", "replace")})

    async def not_supported(self, request: Request) -> Response:
        """Routes that other servers have."""
        raise HttpError(501, f"Not supported: {NOT_SUPPORTED[request.url.path]}")


def file_name(path: str) -> str:
    """The name of a file without its folders."""
    return path.replace("\\", "/").rpartition("/")[2]


def _text(piece: Any, token: int | None) -> str:
    return "" if token is None else piece(token).decode("utf-8", "replace")
