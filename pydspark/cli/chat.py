"""A chat in the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TextIO

from pydspark.cli.flags import with_flags
from pydspark.cli.reply import show_reply
from pydspark.cli.terminal import Output, Terminal, is_terminal
from pydspark.engine import Engine
from pydspark.errors import ContextFullError
from pydspark.params import ChatParams, SamplingParams

_PROMPT = "> "
_HELP = "Type a message. /clear begins again; /exit or Ctrl-D leaves; Ctrl-C stops."


def chat_messages(system: str | None, *prompts: str) -> list[dict[str, str]]:
    """Messages of a chat: the system prompt if there is one, then the user's."""
    head = [] if system is None else [{"role": "system", "content": system}]
    return head + [{"role": "user", "content": prompt} for prompt in prompts]


class Chat:
    """Messages from a person, and the model's answers.

    Args:
        engine: generates.
        params: how to generate.
        terminal: for everything but the answers.
        output: for the answers.
        system: instructions for the whole chat, or None.
        chat_params: how a chat becomes a prompt; None = defaults.
    """

    def __init__(
        self,
        engine: Engine,
        params: SamplingParams,
        terminal: Terminal,
        output: Output,
        system: str | None = None,
        chat_params: ChatParams | None = None,
    ) -> None:
        self._engine = engine
        self._params = params
        self._terminal = terminal
        self._output = output
        self._chat_params = chat_params
        self._system = system
        self._messages: list[Mapping[str, Any]] = [*chat_messages(system)]

    def run(self, stdin: TextIO, first: str | None = None) -> int:
        """Talks until the input ends.

        Args:
            stdin: where messages come from, one a line.
            first: a message to begin with.
        """
        if is_terminal(stdin):
            self._terminal.say(_HELP)
            _enable_line_editing()
        if first is not None:
            self.answer(first)
        while (line := self._read(stdin)) is not None:
            if line == "/exit":
                break
            if line == "/clear":
                self._messages = [*chat_messages(self._system)]
                self._terminal.say("The chat begins again.")
            elif line.strip():
                self.answer(line)
        return 0

    def _read(self, stdin: TextIO) -> str | None:
        """The next line, or None at the end or on Ctrl-C."""
        if not is_terminal(stdin):
            line = stdin.readline()
            return line.rstrip("\r\n") if line else None
        try:
            # The prompt goes through input(), which must know it to redraw an edited line.
            return input(_PROMPT)
        except (EOFError, KeyboardInterrupt):
            self._terminal.say("")
            return None

    def answer(self, text: str) -> None:
        """Answers one message. A message that does not fit is taken back."""
        self._messages.append({"role": "user", "content": text})
        prompt = self._engine.chat_prompt(self._messages, params=self._chat_params)
        try:
            reply = show_reply(self._engine, prompt, self._params, self._terminal, self._output)
        except ContextFullError as error:
            self._messages.pop()
            self._terminal.error(f"{with_flags(str(error))}; /clear begins a new chat")
            return
        self._messages.append(reply.message)


def _enable_line_editing() -> None:
    try:
        import readline  # noqa: F401  # input() uses it once it is imported
    except ImportError:  # Python can be built without it
        return
