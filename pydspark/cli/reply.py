"""Generates one reply and shows it as it comes."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydspark import chat_results
from pydspark.chat import chat_events
from pydspark.cli.interrupt import Interrupt
from pydspark.cli.report import count_text
from pydspark.cli.terminal import Output, Terminal, without_controls
from pydspark.engine import Engine
from pydspark.errors import Cancelled
from pydspark.generate import Done, Event, Token
from pydspark.params import SamplingParams
from pydspark.prompts import ChatPrompt
from pydspark.records import Stats
from pydspark.text.chat_parts import Content, Part, Reasoning

log = logging.getLogger("pydspark.cli")


class Generation:
    """The events of one reply, while Ctrl-C stops it instead of the program.

    Args:
        engine: generates.
        prompt: of a chat or of plain text.
        params: how to generate.
        terminal: shows the progress of the prompt, and the speed where ``show_speed`` allows it.
        show_speed: the text does not go to the same screen, so a live line cannot get in its way.

    Attributes:
        engine: generates.
        interrupted: Ctrl-C was pressed before the end.
        n_tokens: generated so far.
    """

    def __init__(
        self, engine: Engine, prompt: ChatPrompt, params: SamplingParams, terminal: Terminal, show_speed: bool
    ) -> None:
        self.engine = engine
        self._prompt = prompt
        self._params = params
        self._terminal = terminal
        self._show_speed = show_speed
        self._began: float | None = None  # when the first token came
        self.interrupted = False
        self.n_tokens = 0

    def events(self) -> Iterator[Event]:
        """The events, not in parts yet. They end without Done after Ctrl-C."""
        with Interrupt() as interrupt:

            def show_prompt(fraction: float) -> bool:
                self._terminal.progress("reading the prompt", fraction)
                return not interrupt.pressed

            prompt = self._prompt
            stream = self.engine.events(prompt.tokens, self._params, show_prompt, prompt.boundaries)
            try:
                for event in stream:
                    if isinstance(event, Token):
                        self._count()
                    elif isinstance(event, Done) or not self._show_speed:
                        self._terminal.clear_live()
                    yield event
                    if interrupt.pressed and not isinstance(event, Done):
                        self.interrupted = True
                        break
            except Cancelled:
                if not interrupt.pressed:
                    raise
                self.interrupted = True
            finally:
                self._terminal.clear_live()

    def say_interrupted(self) -> None:
        """Tells how far it came."""
        self._terminal.say(f"stopped after {count_text(self.n_tokens, 'token')}")

    def _count(self) -> None:
        self.n_tokens += 1
        if self._began is None:
            self._began = time.monotonic()
        elif self._show_speed:
            speed = (self.n_tokens - 1) / max(time.monotonic() - self._began, 1e-9)
            self._terminal.live(f"{count_text(self.n_tokens, 'token')}, {speed:.1f} t/s")


@dataclass(frozen=True)
class Reply:
    """What was generated. ``done`` is None when Ctrl-C stopped it."""

    message: Mapping[str, Any]
    done: Done | None


def show_reply(engine: Engine, prompt: ChatPrompt, params: SamplingParams, terminal: Terminal, output: Output) -> Reply:
    """Generates a reply, writes it to ``output`` piece by piece, and a summary to ``terminal``.

    Reasoning is written, dimmed, only where a person reads it.
    """
    generation = Generation(engine, prompt, params, terminal, show_speed=output.is_file)
    parser = prompt.parser()
    parts: list[Part] = []
    done = None

    def show(part: Part) -> None:
        if isinstance(part, Content):
            if parts and isinstance(parts[-1], Reasoning) and output.is_terminal:
                output.end_line()
                output.write("\n")
            output.write(part.text)
        elif isinstance(part, Reasoning) and output.is_terminal:
            output.write_styled(terminal.style(without_controls(part.text), "dim"))
        parts.append(part)

    for event in chat_events(generation.events(), parser):
        if isinstance(event, Done):
            done = event
        elif not isinstance(event, Token):
            show(event)
    if done is None:
        for part in parser.finish():
            show(part)
    output.end_line()
    if done is None:
        generation.say_interrupted()
    else:
        log.info("seed %d", done.seed)
        terminal.say(summary(done, engine.n_ctx, params.max_tokens))
        if not terminal.quiet and done.stats.draft_rounds:
            terminal.say(draft_summary(done.stats, engine.plain_step_ms()))
        elif not terminal.quiet and done.stats.reasons[0]:
            terminal.say("drafts: none, for here they would cost more time than they save")
    return Reply(chat_results.message(parts), done)


def summary(done: Done, n_ctx: int, max_tokens: int | None) -> str:
    """Counts and speeds in one line."""
    usage, stats = done.usage, done.stats
    reused = f" ({usage.cached_tokens} kept from before)" if usage.cached_tokens else ""
    prompt = f"prompt {usage.prompt_tokens} tokens{reused}{_speed(stats.prompt_n, stats.prompt_ms)}"
    answer = f"answer {usage.completion_tokens} tokens{_speed(stats.predicted_n, stats.predicted_ms)}"
    context = f"context {usage.prompt_tokens + usage.completion_tokens} of {n_ctx}"
    line = f"{prompt} | {answer} | {context}"
    if done.finish_reason == "length":
        limited = max_tokens is not None and usage.completion_tokens >= max_tokens >= 0
        line += f" | -n {max_tokens} reached" if limited else " | context full"
    return line


def draft_summary(stats: Stats, plain_step_ms: float | None) -> str:
    """What drafting brought, in one line.

    Args:
        stats: of a generation that drafted.
        plain_step_ms: how long the model takes for one token alone; None = not known. The first token of an answer
            takes no step of its own: it comes with the prompt.
    """
    shares = [accepted / n for accepted, n in zip(stats.accepted_at, stats.drafted_at, strict=True)]
    by_position = " ".join(f"{share:.0%}" for share in shares) or "nothing was sure enough"
    line = f"drafts: accept_len {stats.accept_len:.2f} | accepted by position {by_position}"
    if not plain_step_ms or stats.predicted_n < 2 or stats.predicted_ms <= 0:
        return line
    plain_ms = (stats.predicted_n - 1) * plain_step_ms
    speeds = (stats.predicted_n / ms * 1e3 for ms in (stats.predicted_ms, plain_ms))
    drafted, plain = (f"{speed:.1f} t/s" for speed in speeds)
    ratio = plain_ms / stats.predicted_ms
    return f"{line} | {drafted}, plain about {plain} (from steps of one token timed just now): {ratio:.2f}x"


def _speed(n: int, ms: float) -> str:
    return f", {n / ms * 1e3:.1f} t/s" if n and ms > 0 else ""
