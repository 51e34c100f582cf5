"""Settings of drafting side by side: the same prompts, a round of each setting in turns."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

from pydspark._native import Draft, Gguf, Model, Session
from pydspark.errors import ArgumentError
from pydspark.params import ModelParams, SamplingParams, checked, options
from pydspark.prompts import Prompts
from pydspark.records import DEPTH_REASONS, Finish, Request

PROMPTS = Path(__file__).with_name("prompts.jsonl")
PLAIN = "plain"


@dataclass(frozen=True)
class Setting:
    """A way of drafting.

    Attributes:
        name: in tables.
        sampling, model: fields of ``SamplingParams`` and ``ModelParams`` that differ from the others' settings.
    """

    name: str
    sampling: Mapping[str, Any] = field(default_factory=dict)
    model: Mapping[str, Any] = field(default_factory=dict)


STANDARD = (
    Setting(PLAIN, {"n_draft_max": 0}),
    *(Setting(f"fixed {n}", {"draft_schedule": "fixed", "n_draft_max": n}) for n in (2, 3, 5, 8)),
    Setting("threshold", {"draft_schedule": "threshold", "draft_conf_min": 0.5}),
    Setting("auto", {"draft_schedule": "auto"}),
)


def every_depth(n_slots: int) -> tuple[Setting, ...]:
    """Plain decoding, every fixed depth and the automatic one."""
    fixed = [Setting(f"fixed {n}", {"draft_schedule": "fixed", "n_draft_max": n}) for n in range(1, n_slots + 1)]
    return (STANDARD[0], *fixed, STANDARD[-1])


def parse_acceptance(text: str) -> tuple[float, ...]:
    """Probabilities by slot from ``P,P,...``: each that of a draft if those before it are accepted.

    Raises:
        ArgumentError: no numbers in [0, 1].
    """
    try:
        found = tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise ArgumentError(f"acceptance is P,P,..., not {text!r}") from error
    if not all(0 <= p <= 1 for p in found):
        raise ArgumentError(f"acceptance is probabilities in 0 .. 1, not {text!r}")
    return found


def parse_setting(text: str) -> Setting:
    """A setting from ``NAME:field=value,...``. Commas inside of a value are written ``+``.

    Raises:
        ArgumentError: it is not of this form, or a field is not known.
    """
    name, colon, rest = text.partition(":")
    if not name or not colon:
        raise ArgumentError(f"a setting is NAME:field=value,..., not {text!r}")
    given: dict[type, dict[str, Any]] = {SamplingParams: {}, ModelParams: {}}
    for part in rest.split(",") if rest else []:
        key, equals, value = part.partition("=")
        kind = next((kind for kind in given if key in options(kind)), None)
        if kind is None or not equals:
            raise ArgumentError(f"setting {name!r} has no field of sampling or of a model in {part!r}")
        option = options(kind)[key]
        given[kind][key] = checked(key, _parsed(value, option.kind), option)
    return Setting(name, given[SamplingParams], given[ModelParams])


def _parsed(text: str, kind: type) -> Any:
    if kind is bool:
        return {"true": True, "false": False}.get(text.lower(), text)
    return text.replace("+", ",") if kind is str else json.loads(text) if text else text


@dataclass(frozen=True)
class Question:
    """A prompt of the benchmark."""

    id: str
    category: str
    tokens: list[int]


def questions(gguf: Gguf, per_category: int, file: Path = PROMPTS) -> list[Question]:
    """The first prompts of every category, as the model's chat template writes them if it has one.

    Raises:
        ArgumentError: the file is not one of prompts.
    """
    prompts = Prompts(gguf.metadata())
    seen: Counter[str] = Counter()
    found = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        try:
            entry = json.loads(line)
            name, category, text = str(entry["id"]), str(entry["category"]), str(entry["turns"][0])
        except (ValueError, LookupError, TypeError) as error:
            raise ArgumentError(f"{file}, line {number}: not a prompt with id, category and turns") from error
        seen[category] += 1
        if seen[category] <= per_category:
            found.append(Question(name, category, _encoded(prompts, text)))
    return found


def _encoded(prompts: Prompts, text: str) -> list[int]:
    if prompts.vocab.chat_templates:
        return prompts.chat([{"role": "user", "content": text}]).tokens
    return prompts.encode(text)


@dataclass(frozen=True)
class Run:
    """One answer with one setting. Milliseconds of generating, without the prompt.

    Attributes:
        wall_ms, cpu_ms: by the clock, and CPU time of this process.
        n_tokens: generated.
        n_rounds: checks of the model.
        n_accepted, drafted_at, accepted_at, depths, reasons, saved_ms: see ``pydspark.records.Stats``.
        host_ms: of ``wall_ms``, outside of graphs.
        text: the tokens.
    """

    wall_ms: float
    cpu_ms: float
    n_tokens: int
    n_rounds: int
    n_accepted: int
    drafted_at: tuple[int, ...]
    accepted_at: tuple[int, ...]
    depths: tuple[int, ...]
    reasons: Mapping[str, int]
    saved_ms: float
    host_ms: float
    text: tuple[int, ...]

    @property
    def accept_len(self) -> float:
        """Tokens of a round."""
        return self.n_tokens / max(self.n_rounds, 1)


class Side:
    """A setting with a session of its own, which learns from prompt to prompt as any session does.

    Args:
        setting: how to draft.
        session: nobody else's.
        sampling: of all settings.
    """

    def __init__(self, setting: Setting, session: Session, sampling: SamplingParams) -> None:
        self.setting = setting
        self.sampling = replace(sampling, **setting.sampling)
        self._session = session
        self._wall = self._cpu = 0.0
        self._text: list[int] = []

    def accept_by_chance(self, by_slot: Sequence[float]) -> None:
        """See ``Session.set_synthetic``."""
        self._session.set_synthetic(by_slot)

    def rounds(self, tokens: Sequence[int], ends: tuple[int, ...], seed: int) -> Iterator[None]:
        """Answers a prompt, a round for each item."""
        self._wall = self._cpu = 0.0
        self._text = []
        self._session.start(Request(tokens, self.sampling, seed, ends))
        finish = Finish.NONE
        while finish is Finish.NONE:
            wall, cpu = time.perf_counter(), time.process_time()
            step = self._session.step()
            self._cpu += time.process_time() - cpu
            self._wall += time.perf_counter() - wall
            self._text += step.tokens
            finish = step.finish
            yield

    def run(self) -> Run:
        """What the last answer took."""
        stats = self._session.stats()
        reasons = zip(DEPTH_REASONS, stats.reasons, strict=True)
        return Run(
            self._wall * 1e3, self._cpu * 1e3, stats.predicted_n, stats.n_rounds, stats.draft_n_accepted,
            stats.drafted_at, stats.accepted_at, stats.depths, {name: n for name, n in reasons if n}, stats.saved_ms,
            stats.host_ms, tuple(self._text),
        )  # fmt: skip


class Contest:
    """Answers questions with every setting at once.

    Args:
        gguf: the target.
        draft: the file of the drafter, or None.
        params, sampling: of all settings.
        settings: the first one is what the others are compared with.
        acceptance: of drafts, by chance instead of by the model's text; see ``Session.set_synthetic``.
    """

    def __init__(
        self,
        gguf: Gguf,
        draft: Gguf | None,
        params: ModelParams,
        sampling: SamplingParams,
        settings: Sequence[Setting] = STANDARD,
        acceptance: Sequence[float] = (),
    ) -> None:
        model = Model(gguf, params)
        drafters: dict[ModelParams, Draft] = {}  # settings that load it alike share it
        self.sides = []
        for setting in settings:
            own = replace(params, **setting.model)
            if draft is not None and setting.sampling.get("n_draft_max") != 0 and own not in drafters:
                drafters[own] = Draft(draft, model, own)
            drafter = None if setting.sampling.get("n_draft_max") == 0 else drafters.get(own)
            self.sides.append(Side(setting, Session(model, own, drafter), sampling))
        for side in self.sides:
            side.accept_by_chance(acceptance)
        self._ends = () if acceptance else tuple(sorted(Prompts(gguf.metadata()).vocab.eog_ids))

    def answer(self, question: Question, seed: int) -> dict[str, Run]:
        """One answer of each setting, by its name. Rounds take turns, and who begins changes with the seed.

        Raises:
            ContextFullError: the prompt does not fit.
        """
        first = seed % len(self.sides)
        order = self.sides[first:] + self.sides[:first]
        for _ in zip_longest(*(side.rounds(question.tokens, self._ends, seed) for side in order)):
            pass
        return {side.setting.name: side.run() for side in self.sides}


def run_json(run: Run) -> dict[str, Any]:
    """A run for machines, without its text."""
    values = {one.name: getattr(run, one.name) for one in fields(run) if one.name != "text"}
    return {**values, "accept_len": run.accept_len, "tokens_per_s": 1e3 * run.n_tokens / run.wall_ms}
