"""How the server listens and whom it serves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pydspark.errors import ArgumentError
from pydspark.params import INT32_MAX, Option, checked, options

LOOPBACK_ORIGINS = "localhost"


def _setting(default: Any, kind: type, help: str, *flags: str, env: str | None = None, **more: Any) -> Any:
    return field(default=default, metadata={"option": Option(kind, help, flags=flags, env=env, **more)})


@dataclass(frozen=True, kw_only=True)
class ServerParams:
    """Fields that are out of range raise ``ArgumentError``."""

    # fmt: off
    host: str = _setting(
        "127.0.0.1", str, "address to listen on; 0.0.0.0 = every one of this machine, for which an API key is wise",
        "--host", env="LLAMA_ARG_HOST",
    )
    port: int = _setting(8080, int, "port; 0 = any free one", "--port", env="LLAMA_ARG_PORT", low=0, high=65535)
    api_key: tuple[str, ...] = _setting(
        (), object, "keys that clients may use, separated by commas; none = no key is needed",
        "--api-key", env="LLAMA_API_KEY",
    )
    api_key_file: str | None = _setting(
        None, str, "a file of such keys, one a line; lines that begin with # are left out",
        "--api-key-file", env="LLAMA_ARG_API_KEY_FILE", optional=True,
    )
    alias: str | None = _setting(
        None, str, "name of the model in answers; not given = the file's without its ending",
        "-a", "--alias", env="LLAMA_ARG_ALIAS", optional=True,
    )
    cors_origins: tuple[str, ...] = _setting(
        (LOOPBACK_ORIGINS,), object,
        "web pages that may use the server, such as https://chat.example, separated by commas; localhost = those of "
        "this machine, * = all",
        "--cors-origins", env="LLAMA_ARG_CORS_ORIGINS",
    )
    allowed_hosts: tuple[str, ...] = _setting(
        (), object,
        "names under which the server may be addressed, beside localhost, this machine's name and addresses; "
        "separated by commas; * = any",
        "--allowed-hosts", env="DSPARK_ARG_ALLOWED_HOSTS",
    )
    queue_size: int = _setting(
        64, int, "requests that may wait in line; more are told to come back later",
        "--queue-size", env="DSPARK_ARG_QUEUE_SIZE", low=1, high=100_000,
    )
    max_body_mib: int = _setting(
        16, int, "most MiB of a request", "--max-body", env="DSPARK_ARG_MAX_BODY", low=1, high=1024,
    )
    timeout: int = _setting(
        3600, int, "seconds that a request may take, waiting included",
        "-to", "--timeout", env="LLAMA_ARG_TIMEOUT", low=1, high=INT32_MAX,
    )
    sse_ping_interval: int = _setting(
        30, int, "seconds of silence in a stream before a comment is sent, so that nobody closes it; -1 = none",
        "--sse-ping-interval", env="LLAMA_ARG_SSE_PING_INTERVAL", low=-1, high=INT32_MAX,
    )
    cache_prompt: bool = _setting(
        True, bool, "keep what the last prompt has in common with the next one",
        "--cache-prompt", env="LLAMA_ARG_CACHE_PROMPT",
    )
    metrics: bool = _setting(
        False, bool, "offer /metrics for Prometheus", "--metrics", env="LLAMA_ARG_ENDPOINT_METRICS",
    )
    slots: bool = _setting(
        True, bool, "offer /slots, which shows what is running", "--slots", env="LLAMA_ARG_ENDPOINT_SLOTS",
    )
    ui: bool = _setting(True, bool, "offer the web page at /", "--ui", "--webui", env="LLAMA_ARG_UI")
    warmup: bool = _setting(True, bool, "generate a token before the first request", "--warmup")
    parallel: int = _setting(
        1, int, "requests that run at the same time: always 1, the others wait in line",
        "-np", "--parallel", env="LLAMA_ARG_N_PARALLEL",
    )
    # fmt: on

    def __post_init__(self) -> None:
        for name, option in options(type(self)).items():
            object.__setattr__(self, name, checked(name, getattr(self, name), option))
        if self.parallel not in (1, -1):
            raise ArgumentError(f"parallel must be 1, not {self.parallel}: this server runs one request at a time")
        for name in ("api_key", "cors_origins", "allowed_hosts"):
            object.__setattr__(self, name, _texts(name, getattr(self, name)))


def _texts(name: str, values: Sequence[str]) -> tuple[str, ...]:
    if isinstance(values, str) or not all(isinstance(value, str) and value for value in values):
        raise ArgumentError(f"{name} must be a list of texts that are not empty, not {values!r}")
    return tuple(values)
