"""How long the second question of a chat waits for its first token, when the first one's prompt is still held."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, replace
from typing import Any

from pydspark._native import Gguf, Model, Session
from pydspark.params import ModelParams, SamplingParams
from pydspark.records import Finish, Request

N_QUESTION, N_ANSWER, N_REWRITTEN = 24, 16, 12
_SAMPLING = SamplingParams(temperature=0.0, max_tokens=N_ANSWER)


@dataclass(frozen=True)
class SecondTurn:
    """One chat of two turns.

    Attributes:
        n_prompt: tokens of the second prompt.
        n_held: of them, those that needed no evaluation.
        cold_ms: until the first token in a session that holds nothing.
        warm_ms: the same after the first turn.
        same_text: whether both sessions gave the same tokens.
    """

    n_prompt: int
    n_held: int
    cold_ms: float
    warm_ms: float
    same_text: bool


def measure_second_turn(gguf: Gguf, params: ModelParams, n_system: int) -> SecondTurn:
    """Asks two questions below the same ``n_system`` tokens. The first answer comes back in other words, as templates
    write it that drop its reasoning."""
    draw = random.Random(0)
    vocab = gguf.describe().n_vocab

    def tokens(n: int) -> list[int]:
        return [draw.randrange(vocab) for _ in range(n)]

    first = tokens(n_system) + tokens(N_QUESTION)
    second = first + tokens(N_REWRITTEN) + tokens(N_QUESTION)
    ends = (n_system, len(first))
    model = Model(gguf, params)
    params = replace(params, n_ctx=len(second) + N_ANSWER)
    warm = Session(model, params)
    _answer(warm, first, ends)
    warm_ms, warm_text = _answer(warm, second, ends)
    n_held = warm.stats().cache_n
    warm.close()
    cold_ms, cold_text = _answer(Session(model, params), second, ends)
    return SecondTurn(len(second), n_held, cold_ms, warm_ms, warm_text == cold_text)


def _answer(session: Session, prompt: list[int], ends: tuple[int, ...]) -> tuple[float, list[int]]:
    """(milliseconds until the first token, all tokens)"""
    started = time.perf_counter()
    session.start(Request(prompt, _SAMPLING, seed=0, boundaries=ends))
    step = session.step()
    first_ms = (time.perf_counter() - started) * 1e3
    text = list(step.tokens)
    while step.finish is Finish.NONE:
        step = session.step()
        text += step.tokens
    return first_ms, text


def second_turn_text(found: SecondTurn) -> str:
    """A table for people."""
    return (
        "| prompt tokens | held | first token, cold | after the first turn | ratio | same text |\n"
        "| ---: | ---: | ---: | ---: | ---: | --- |\n"
        f"| {found.n_prompt} | {found.n_held} | {found.cold_ms:.1f} ms | {found.warm_ms:.1f} ms "
        f"| {found.warm_ms / found.cold_ms:.4f} | {'yes' if found.same_text else 'NO'} |"
    )


def second_turn_json(found: SecondTurn) -> dict[str, Any]:
    """The same for machines."""
    return {name: getattr(found, name) for name in SecondTurn.__dataclass_fields__}
