"""The flags of ``dspark-server``: llama-server's names, from the parameter tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pydspark.cli.flags import (
    DRAFTING,
    MODEL,
    OUTPUT,
    RUNNING,
    SAMPLING,
    UNSUPPORTED,
    Command,
    Flag,
    json_object,
    parse_number,
    table_flags,
)
from pydspark.errors import ArgumentError
from pydspark.params import ChatParams
from pydspark.server.settings import ServerParams


def _texts(spelling: str, text: str) -> tuple[str, ...]:
    """Texts that are separated by commas."""
    parts = tuple(part.strip() for part in text.split(",") if part.strip())
    if not parts:
        raise ArgumentError(f"{spelling} is empty; it takes texts that are separated by commas")
    return parts


_LISTS: Mapping[str, str] = {"api_key": "KEY", "cors_origins": "ORIGIN", "allowed_hosts": "NAME"}
_TEXTS: Mapping[str, str] = {"host": "HOST", "api_key_file": "FILE", "alias": "NAME"}


def _server_flag(flag: Flag) -> Flag:
    if flag.dest in _LISTS:
        default = ",".join(getattr(ServerParams, flag.dest)) or "none"
        return replace(flag, metavar=f"{_LISTS[flag.dest]}[,...]", convert=_texts, default=default)
    return replace(flag, metavar=_TEXTS.get(flag.dest, flag.metavar))


def _level(spelling: str, text: str) -> int:
    return int(parse_number(spelling, text, int))


_SERVER = [_server_flag(flag) for flag in table_flags(ServerParams)]

_CHAT = [
    *table_flags(ChatParams),
    Flag(
        "chat_template_kwargs", ("--chat-template-kwargs",),
        'variables of the chat template as JSON, such as {"enable_thinking": false}',
        metavar="JSON", env="LLAMA_ARG_CHAT_TEMPLATE_KWARGS", convert=json_object,
    ),
    Flag(
        "chat_template_file", ("--chat-template-file",), "a Jinja file in place of the model's chat template",
        metavar="FILE", env="LLAMA_ARG_CHAT_TEMPLATE_FILE",
    ),
]  # fmt: skip

_OUTPUT = [
    *(flag for flag in OUTPUT if flag.dest != "json"),
    Flag(
        "verbosity", ("-lv", "--verbosity"), "how much is logged: 0 errors, 2 warnings, 3 requests, 4 everything",
        metavar="N", default="2", env="LLAMA_ARG_LOG_VERBOSITY", convert=_level,
    ),
]  # fmt: skip

# What llama-server does only when told, and this server always.
_ALWAYS = [
    Flag("jinja", ("--jinja",), "chat templates are always Jinja"),
    Flag("cont_batching", ("-cb", "--cont-batching"), "requests always wait in line"),
]

_OTHERS: dict[str, str] = {
    **dict.fromkeys(("--no-jinja",), "chat templates are always Jinja"),
    **dict.fromkeys(("-nocb", "--no-cont-batching"), "requests always wait in line"),
    **dict.fromkeys(("--embedding", "--embeddings", "--pooling", "--rerank", "--reranking"), "text is all it makes"),
    **dict.fromkeys(("--mmproj-url", "--image"), "this server reads text only"),
    **dict.fromkeys(("--ssl-key-file", "--ssl-cert-file"), "put a proxy that speaks TLS before it"),
    **dict.fromkeys(("--path", "--api-prefix"), "put a proxy before it"),
    **dict.fromkeys(("--models-dir", "--models-max", "--models-preset"), "there is one model to a server"),
    **dict.fromkeys(("--slot-save-path", "--slot-prompt-similarity"), "there is one slot"),
    **dict.fromkeys(("-ot", "--override-tensor", "-cmoe", "--cpu-moe", "-ncmoe", "--n-cpu-moe"), "it uses one device"),
    **dict.fromkeys(("-dev", "--device", "--list-devices", "--rpc"), "pydspark info shows the devices"),
    **dict.fromkeys(("--numa", "--poll", "--prio", "-C", "--cpu-mask"), "use taskset, nice or numactl"),
    **dict.fromkeys(("--chat-template",), "use --chat-template-file"),
    **dict.fromkeys(("-hff", "--hf-file", "-hft", "--hf-token"), "use -hf user/repo:quant, and HF_TOKEN"),
    **dict.fromkeys(("--reasoning-budget",), "use --reasoning off"),
    **dict.fromkeys(("--tools", "--mcp", "--agent"), "this server calls no tools"),
    **dict.fromkeys(("--sleep-idle-seconds",), "the model stays loaded"),
}

SERVER = Command(
    name="dspark-server",
    summary="serve a model over HTTP, as llama-server, OpenAI and Anthropic do",
    usage="dspark-server (-m MODEL | --demo) [flags]",
    groups={
        "Model": MODEL,
        "Server": _SERVER,
        "Chat": _CHAT,
        "Sampling, for requests that do not say (what the model file recommends comes before these defaults)": SAMPLING,
        "Drafting (the same text, faster: a small model proposes, the model checks)": DRAFTING,
        "Context, memory and speed": RUNNING,
        "Messages": _OUTPUT,
        "Taken for llama-server's sake": _ALWAYS,
    },
    examples=(
        "dspark-server --demo",
        "dspark-server -m model.gguf -md drafter.gguf --port 8080",
        "dspark-server -hf user/repo:Q4_K_M -c 16384 --api-key secret --metrics",
        'curl http://127.0.0.1:8080/v1/chat/completions -d \'{"messages": [{"role": "user", "content": "Hi"}]}\'',
    ),
    unsupported={**UNSUPPORTED, **_OTHERS},
)
