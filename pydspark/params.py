"""Parameters of models and of sampling: the one table behind the Python API, the command line and the documentation."""

from __future__ import annotations

import difflib
import math
import operator
from collections.abc import Iterable, Mapping
from dataclasses import InitVar, dataclass, field, fields
from typing import Any

from pydspark.errors import ArgumentError

INT32_MAX = 2**31 - 1
MAX_TOP_LOGPROBS = 20  # room in the core's step record
RANDOM_SEED = 0xFFFFFFFF  # in place of a seed: another one each time

VERIFY_MODES = ("exact", "fast")
ROLLBACK_FORMS = ("replay", "snapshots")
DRAFTER_TYPES = ("auto", "none", "draft-dspark", "draft-dflash")
LOOKUP_TYPE = "ngram"
SPEC_TYPES = (*DRAFTER_TYPES, LOOKUP_TYPE)
# numbers of PDS_DRAFT_* by name
DRAFT_SAMPLING = {"probabilistic": 0, "greedy": 1, "coupled": 2}
DRAFT_ACCEPT = ("block", "token")
# numbers of PDS_SCHEDULE_* by name
DRAFT_SCHEDULES = {"auto": 0, "threshold": 1, "fixed": 2}
REASONING_FORMATS = ("auto", "deepseek", "none")
DEFAULT_DRAFT_MAX = 3  # tokens per round of a fixed number
MAX_LOOKUP = 16  # tokens per round that the core can copy

# ggml type numbers that an attention cache can have
CACHE_TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "bf16": 30}


@dataclass(frozen=True)
class Option:
    """What is known about one parameter.

    Attributes:
        kind: ``int``, ``float``, ``bool``, ``str`` or ``object`` (checked by its own rule).
        help: one line for ``--help`` and the documentation.
        low, high: range, both ends included; None = open.
        clamp: a value outside of the range is moved to its nearest end; otherwise it is an error.
        optional: None is allowed.
        flags: spellings on the command line.
        env: name in the environment.
        choices: the only values of a ``str``.
        several: it takes more than one of the choices, with commas between them.
    """

    kind: type
    help: str
    low: float | None = None
    high: float | None = None
    clamp: bool = False
    optional: bool = False
    flags: tuple[str, ...] = ()
    env: str | None = None
    choices: Iterable[str] = ()
    several: bool = False


def _option(default: Any, kind: type, help: str, **more: Any) -> Any:
    return field(default=default, metadata={"option": Option(kind, help, **more)})


def options(cls: type) -> dict[str, Option]:
    """The options of a parameter class, by field name, in order."""
    return {f.name: f.metadata["option"] for f in fields(cls)}


def checked(name: str, value: Any, option: Option) -> Any:
    """``value`` as the option's kind, inside of its range.

    Raises:
        ArgumentError: wrong type, not finite, or out of a range that is not clamped.
    """
    if value is None and option.optional or option.kind is object:
        return value
    value = _converted(name, value, option.kind)
    if option.choices and not set(value.split(",") if option.several else [value]) <= set(option.choices):
        which = "one or more (a,b)" if option.several else "one"
        raise ArgumentError(f"{name} must be {which} of {', '.join(option.choices)}, not {value!r}")
    if option.kind in (bool, str):
        return value
    low = -math.inf if option.low is None else option.low
    high = math.inf if option.high is None else option.high
    if option.clamp:
        return option.kind(min(max(value, low), high))
    if not low <= value <= high:
        raise ArgumentError(f"{name} must be {_range_text(option)}, not {value!r}")
    return value


def _converted(name: str, value: Any, kind: type) -> Any:
    if kind in (bool, str):
        if not isinstance(value, kind):
            raise ArgumentError(f"{name} must be a {kind.__name__}, not {value!r}")
        return value
    if isinstance(value, (bool, str, bytes)):
        raise ArgumentError(f"{name} must be a number, not {value!r}")
    try:
        number = operator.index(value) if kind is int else float(value)
    except (TypeError, ValueError):
        what = "a whole number" if kind is int else "a number"
        raise ArgumentError(f"{name} must be {what}, not {value!r}") from None
    except OverflowError:
        raise ArgumentError(f"{name} is too large: {value!r}") from None
    if not math.isfinite(number):
        raise ArgumentError(f"{name} must be a finite number, not {value!r}")
    return number


def _range_text(option: Option) -> str:
    if option.high is None:
        return f"at least {option.low}"
    if option.low is None:
        return f"at most {option.high}"
    return f"between {option.low} and {option.high}"


def _check_fields(params: Any) -> None:
    for name, option in options(type(params)).items():
        object.__setattr__(params, name, checked(name, getattr(params, name), option))


@dataclass(frozen=True, kw_only=True)
class ModelParams:
    """How a model is loaded and run. Fields that are out of range raise ``ArgumentError``."""

    # fmt: off
    n_ctx: int = _option(
        8192, int, "tokens of context; 0 = the model's own",
        low=0, high=INT32_MAX, flags=("-c", "--ctx-size"), env="LLAMA_ARG_CTX_SIZE",
    )
    n_batch: int = _option(
        512, int, "prompt tokens between two checks for cancelling",
        low=1, high=INT32_MAX, flags=("-b", "--batch-size"), env="LLAMA_ARG_BATCH",
    )
    n_ubatch: int = _option(
        512, int, "prompt tokens evaluated at once",
        low=1, high=INT32_MAX, flags=("-ub", "--ubatch-size"), env="LLAMA_ARG_UBATCH",
    )
    n_threads: int | None = _option(
        None, int, "threads for generation; none, 0 or less = physical cores that this process may use",
        high=1024, optional=True, flags=("-t", "--threads"), env="LLAMA_ARG_THREADS",
    )
    n_threads_batch: int | None = _option(
        None, int, "threads for the prompt; none, 0 or less = as for generation",
        high=1024, optional=True, flags=("-tb", "--threads-batch"),
    )
    n_gpu_layers: int = _option(
        -1, int, "layers on the GPU; -1 = all that it can take",
        low=-1, high=INT32_MAX, flags=("-ngl", "--gpu-layers", "--n-gpu-layers"), env="LLAMA_ARG_N_GPU_LAYERS",
    )
    use_mmap: bool = _option(True, bool, "map the file instead of reading it", flags=("--mmap",), env="LLAMA_ARG_MMAP")
    use_mlock: bool = _option(
        False, bool, "keep the weights from being swapped out", flags=("--mlock",), env="LLAMA_ARG_MLOCK",
    )
    repack: bool = _option(
        True, bool, "rearrange weights where the CPU has a faster layout", flags=("--repack",), env="LLAMA_ARG_REPACK",
    )
    type_k: int | str | None = _option(
        None, object, "type of cached keys: " + ", ".join(CACHE_TYPES) + "; none = f16",
        flags=("-ctk", "--cache-type-k"), env="LLAMA_ARG_CACHE_TYPE_K",
    )
    type_v: int | str | None = _option(
        None, object, "type of cached values, as for keys",
        flags=("-ctv", "--cache-type-v"), env="LLAMA_ARG_CACHE_TYPE_V",
    )
    flash_attn: bool = _option(
        True, bool, "attention as one fused operation", flags=("-fa", "--flash-attn"), env="LLAMA_ARG_FLASH_ATTN",
    )
    fused_experts: bool = _option(
        True, bool, "routing to experts and adding up what they give as fused operations, for layers on the CPU",
        flags=("--fused-experts",), env="DSPARK_ARG_FUSED_EXPERTS",
    )
    spec_type: str = _option(
        "auto", str, "where drafts come from: a drafter of the kind that its file must have (auto = any, none = do not "
        "draft), or ngram: copied from earlier text, alone or with a drafter as in draft-dspark,ngram",
        choices=SPEC_TYPES, several=True, flags=("--spec-type",), env="LLAMA_ARG_SPEC_TYPE",
    )
    lookup_match: int = _option(
        3, int, "with ngram: tokens that must agree with earlier text before what followed it is copied",
        low=1, high=64, flags=("--spec-lookup-match",), env="DSPARK_ARG_SPEC_LOOKUP_MATCH",
    )
    verify: str = _option(
        "exact", str, "exact: drafted tokens are checked just as single tokens are computed; fast: by batch kernels",
        choices=VERIFY_MODES, flags=("--spec-verify",), env="DSPARK_ARG_SPEC_VERIFY",
    )
    rollback: str = _option(
        "replay", str, "how recurrent layers take rejected drafts back. replay: compute the accepted ones again; "
        "snapshots: keep a state for each, which takes more memory",
        choices=ROLLBACK_FORMS, flags=("--spec-rollback",), env="DSPARK_ARG_SPEC_ROLLBACK",
    )
    calibration: bool = _option(
        True, bool,
        "keep what drafting costs and how reliable the drafter is in the cache folder, for the next start",
        flags=("--spec-calibration",), env="DSPARK_ARG_SPEC_CALIBRATION",
    )
    cache_ram: int = _option(
        8192, int, "most MiB for copies of prompts' states, for models with recurrent layers; 0 = none, -1 = no limit",
        low=-1, high=INT32_MAX, flags=("-cram", "--cache-ram"), env="LLAMA_ARG_CACHE_RAM",
    )
    type_k_draft: int | str | None = _option(
        None, object, "type of the drafter's cached keys", flags=("-ctkd", "--cache-type-k-draft"),
        env="LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_K",
    )
    type_v_draft: int | str | None = _option(
        None, object, "type of the drafter's cached values", flags=("-ctvd", "--cache-type-v-draft"),
        env="LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_V",
    )
    draft_candidates: int = _option(
        64, int, "likeliest tokens that the drafter's Markov head chooses among, for each token of a draft; 0 = all",
        low=0, high=INT32_MAX, flags=("--spec-draft-candidates",), env="DSPARK_ARG_SPEC_DRAFT_CANDIDATES",
    )
    draft_shortlist: int | None = _option(
        None, int,
        "tokens that drafts are made of, the most frequent ones; not given = those that the drafter's file lists, "
        "or all; 0 = all",
        low=0, high=INT32_MAX, optional=True, flags=("--spec-draft-shortlist",),
        env="DSPARK_ARG_SPEC_DRAFT_SHORTLIST",
    )
    # fmt: on

    def __post_init__(self) -> None:
        _check_fields(self)
        drafter_type(self.spec_type)
        for name in ("type_k", "type_v", "type_k_draft", "type_v_draft"):
            object.__setattr__(self, name, cache_type(name, getattr(self, name)))


def drafter_type(spec_type: str) -> str:
    """The part of a ``spec_type`` that is about a drafter: one of ``DRAFTER_TYPES``.

    Raises:
        ArgumentError: it names more than one.
    """
    kinds = [kind for kind in spec_type.split(",") if kind != LOOKUP_TYPE]
    if len(kinds) > 1:
        raise ArgumentError(f"spec_type is {spec_type!r}: name one drafter at most, and {LOOKUP_TYPE} beside it")
    return kinds[0] if kinds else "none"


def uses_lookup(spec_type: str) -> bool:
    """Whether drafts are copied from earlier text."""
    return LOOKUP_TYPE in spec_type.split(",")


def cache_type(name: str, value: int | str | None) -> int:
    """The ggml type number for a name, a number or None (f16)."""
    if value is None:
        return CACHE_TYPES["f16"]
    if isinstance(value, str) and value.lower() in CACHE_TYPES:
        return CACHE_TYPES[value.lower()]
    if isinstance(value, int) and not isinstance(value, bool) and value in CACHE_TYPES.values():
        return value
    known = ", ".join(f"{text} ({number})" for text, number in CACHE_TYPES.items())
    raise ArgumentError(f"{name} must be one of {known}, not {value!r}")


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """How one answer is generated.

    Numbers that only choose how far a filter goes (temperature, top_k, top_p, min_p) are moved into their range; all
    others raise ``ArgumentError`` when out of it. ``max_new_tokens``, ``repetition_penalty`` and ``stop_strings`` are
    accepted as other names of ``max_tokens``, ``repeat_penalty`` and ``stop``.
    """

    # fmt: off
    max_tokens: int | None = _option(
        None, int, "most tokens to generate; none or negative = until the context ends",
        low=-1, high=2**62, clamp=True, optional=True,
        flags=("-n", "--predict", "--n-predict"), env="LLAMA_ARG_N_PREDICT",
    )
    temperature: float = _option(
        0.8, float, "randomness; 0 or less = always the likeliest token",
        low=0.0, high=1e9, clamp=True, flags=("--temp", "--temperature"), env="LLAMA_ARG_TEMPERATURE",
    )
    top_k: int = _option(
        40, int, "keep the k likeliest tokens; 0 or less = all",
        low=0, high=INT32_MAX, clamp=True, flags=("--top-k",), env="LLAMA_ARG_TOP_K",
    )
    top_p: float = _option(
        0.95, float, "keep the likeliest tokens up to this total probability; 1 = all, 0 = only the first",
        low=0.0, high=1.0, clamp=True, flags=("--top-p",), env="LLAMA_ARG_TOP_P",
    )
    min_p: float = _option(
        0.05, float, "drop tokens below this share of the likeliest one's probability; 0 = none",
        low=0.0, high=1.0, clamp=True, flags=("--min-p",), env="LLAMA_ARG_MIN_P",
    )
    repeat_penalty: float = _option(
        1.0, float, "divides the score of recent tokens; 1 = off",
        low=1e-3, high=1e3, flags=("--repeat-penalty",), env="LLAMA_ARG_REPEAT_PENALTY",
    )
    presence_penalty: float = _option(
        0.0, float, "taken off the score of recent tokens once",
        low=-100.0, high=100.0, flags=("--presence-penalty",), env="LLAMA_ARG_PRESENCE_PENALTY",
    )
    frequency_penalty: float = _option(
        0.0, float, "taken off the score of recent tokens for each time they occur",
        low=-100.0, high=100.0, flags=("--frequency-penalty",), env="LLAMA_ARG_FREQUENCY_PENALTY",
    )
    repeat_last_n: int = _option(
        64, int, "how many tokens count as recent; -1 = all, 0 = none",
        low=-1, high=INT32_MAX, flags=("--repeat-last-n",), env="LLAMA_ARG_REPEAT_LAST_N",
    )
    seed: int | None = _option(
        None, int, "same seed, same text; none, -1 or 4294967295 = another one each time",
        low=-1, high=2**64 - 1, optional=True, flags=("-s", "--seed"),
    )
    stop: tuple[str, ...] = _option((), object, "texts that end the answer; they are not part of it")
    stop_token_ids: tuple[int, ...] = _option((), object, "token ids that end the answer, beside the model's own")
    ignore_eos: bool = _option(False, bool, "never generate the model's own end tokens", flags=("--ignore-eos",))
    logit_bias: Mapping[int, float] = _option(
        (), object, "added to the scores of token ids, as {id: value} or [[id, value]]; false or -inf = never",
    )
    logprobs: bool = _option(False, bool, "report the log-probability of each token")
    top_logprobs: int = _option(
        0, int, "report that many likeliest tokens for each position", low=0, high=MAX_TOP_LOGPROBS,
    )
    draft_schedule: str = _option(
        "auto", str,
        "how deep rounds draft. auto: as deep as pays for itself here, down to not at all; threshold: up to the first "
        "token that is trusted too little; fixed: always equally deep",
        choices=DRAFT_SCHEDULES, flags=("--spec-draft-schedule",), env="DSPARK_ARG_SPEC_DRAFT_SCHEDULE",
    )
    n_draft_max: int | None = _option(
        None, int,
        "most tokens of the drafter per round; 0 = plain decoding; not given = the whole block, or 3 if always equally "
        "deep",
        low=0, high=INT32_MAX, optional=True, flags=("--spec-draft-n-max",), env="LLAMA_ARG_SPEC_DRAFT_N_MAX",
    )
    lookup_max: int = _option(
        MAX_LOOKUP, int, "with ngram: most tokens of a round of which some are copied; 0 = copy none",
        low=0, high=MAX_LOOKUP, flags=("--spec-lookup-n-max",), env="DSPARK_ARG_SPEC_LOOKUP_N_MAX",
    )
    draft_conf_min: float = _option(
        0.0, float, "draft up to the first token that the drafter trusts less than this; 0 = off",
        low=0.0, high=1.0, flags=("--spec-draft-conf-min", "--spec-draft-p-min", "--draft-p-min"),
        env="LLAMA_ARG_SPEC_DRAFT_P_MIN",
    )
    draft_sampling: str = _option(
        "coupled", str,
        "how drafts are drawn: coupled: with the noise of the text, so that a seed gives one text whatever is drafted; "
        "probabilistic: at random; greedy: the likeliest token",
        choices=DRAFT_SAMPLING, flags=("--spec-draft-sampling",), env="LLAMA_ARG_SPEC_DRAFT_SAMPLING",
    )
    draft_accept: str = _option(
        "block", str, "how drafts are accepted: whole blocks at once, or token by token; both are exact",
        choices=DRAFT_ACCEPT, flags=("--spec-draft-accept",), env="DSPARK_ARG_SPEC_DRAFT_ACCEPT",
    )
    # fmt: on
    max_new_tokens: InitVar[int | None] = None
    repetition_penalty: InitVar[float | None] = None
    stop_strings: InitVar[str | Iterable[str] | None] = None

    def __post_init__(
        self, max_new_tokens: int | None, repetition_penalty: float | None, stop_strings: str | Iterable[str] | None
    ) -> None:
        self._take_alias("max_tokens", "max_new_tokens", max_new_tokens)
        self._take_alias("repeat_penalty", "repetition_penalty", repetition_penalty)
        self._take_alias("stop", "stop_strings", stop_strings)
        _check_fields(self)
        object.__setattr__(self, "stop", stop_texts(self.stop))
        object.__setattr__(self, "stop_token_ids", tuple(_token_id("stop_token_ids", i) for i in self.stop_token_ids))
        object.__setattr__(self, "logit_bias", bias_map(self.logit_bias))

    def _take_alias(self, name: str, alias: str, value: Any) -> None:
        if value is None:
            return
        default = next(f.default for f in fields(self) if f.name == name)
        if getattr(self, name) != default:
            raise ArgumentError(f"{name} and {alias} mean the same; give one of them")
        object.__setattr__(self, name, value)


@dataclass(frozen=True, kw_only=True)
class ChatParams:
    """How a chat becomes a prompt, and an answer its parts. Values that cannot be used raise ``ArgumentError``."""

    # fmt: off
    enable_thinking: bool | None = _option(
        None, bool, "whether the model may reason before it answers; not given = as its template likes",
        optional=True, flags=("-rea", "--reasoning"), env="LLAMA_ARG_REASONING",
    )
    reasoning_format: str = _option(
        "auto", str, "auto, deepseek: reasoning goes into reasoning_content; none: it stays in the content",
        choices=REASONING_FORMATS, flags=("--reasoning-format",), env="LLAMA_ARG_THINK",
    )
    chat_template_kwargs: Mapping[str, Any] | None = _option(
        None, object, "further variables of the chat template, such as {\"preserve_thinking\": true}",
    )
    # fmt: on

    def __post_init__(self) -> None:
        _check_fields(self)
        given = self.chat_template_kwargs
        if given is not None and not (isinstance(given, Mapping) and all(isinstance(name, str) for name in given)):
            raise ArgumentError(f"chat_template_kwargs must be an object, not {given!r}")
        for name in ("messages", "tools"):
            if name in (given or {}):
                raise ArgumentError(f"chat_template_kwargs has {name!r}, which is an argument of its own")
        if self.enable_thinking is not None and given is not None and "enable_thinking" in given:
            raise ArgumentError("enable_thinking is given twice: by its name and in chat_template_kwargs")

    def variables(self) -> dict[str, Any]:
        """Variables of the chat template."""
        thinking = {} if self.enable_thinking is None else {"enable_thinking": self.enable_thinking}
        return {**(self.chat_template_kwargs or {}), **thinking}


def stop_texts(value: str | Iterable[str] | None) -> tuple[str, ...]:
    """Stop strings from a string, a list of strings or None."""
    texts = (value,) if isinstance(value, str) else tuple(value or ())
    for text in texts:
        if not isinstance(text, str) or not text:
            raise ArgumentError(f"stop must hold texts that are not empty, not {text!r}")
    return texts


def bias_map(value: Any) -> dict[int, float]:
    """Logit bias by token id, from ``{id: bias}`` (ids may be texts) or a list of ``[id, bias]`` pairs.

    A bias of ``False`` or -inf bans the token.

    Raises:
        ArgumentError: an id that is not a whole number, or a bias that is not a number.
    """
    pairs = value.items() if isinstance(value, Mapping) else value or ()
    try:
        pairs = [(token, bias) for token, bias in pairs]
    except (TypeError, ValueError):
        raise ArgumentError(f"logit_bias must be an object or a list of [id, bias] pairs, not {value!r}") from None
    return {_token_id("logit_bias", token): _bias(token, bias) for token, bias in pairs}


def _token_id(name: str, value: Any) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value)
    if isinstance(value, str):
        raise ArgumentError(f"{name} takes token ids, not the text {value!r}; tokenize() gives its ids")
    return int(checked(name, value, Option(int, "", low=0, high=INT32_MAX)))


def _bias(token: Any, value: Any) -> float:
    if value is False or value == -math.inf:
        return -math.inf
    return float(checked(f"logit_bias[{token}]", value, Option(float, "", low=-1e9, high=1e9, clamp=True)))


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that looks most like ``name``, or None."""
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return found[0] if found else None


def check_token_ids(name: str, ids: Iterable[int], n_vocab: int) -> None:
    """Raises ArgumentError for a token id that the vocabulary does not have."""
    for token in ids:
        if not 0 <= token < n_vocab:
            raise ArgumentError(f"{name}: token id {token} is not in the vocabulary (0 to {n_vocab - 1})")
