"""Reads the command line and the environment.

Python's argparse guesses too much for these flags: it takes ``-ngll 3`` as ``-n gll`` and a prompt that begins with a
dash as a flag. Here a flag is one of the known spellings or an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydspark.cli.flags import COMMANDS, Command, Flag
from pydspark.errors import ArgumentError
from pydspark.params import nearest, options

TRUE_WORDS = ("1", "true", "on", "enabled", "yes")
FALSE_WORDS = ("0", "false", "off", "disabled", "no")
_WITHOUT_COMMAND = {"-h": "help", "--help": "help", "--version": "version"}


@dataclass(frozen=True)
class Arguments:
    """What was asked for.

    Attributes:
        command: None when only help or the version was asked for.
        values: by ``Flag.dest``, from the command line, else from the environment; nothing else is in it.
        given: names of the values that the command line itself gave.
        positionals: arguments that are not flags.
    """

    command: Command | None
    values: Mapping[str, Any]
    given: frozenset[str]
    positionals: tuple[str, ...]

    def get(self, dest: str) -> Any:
        """A value, or None."""
        return self.values.get(dest)

    def of(self, cls: type) -> dict[str, Any]:
        """The values that are fields of a parameter class."""
        return {name: self.values[name] for name in options(cls) if name in self.values}


def parse(argv: Sequence[str], env: Mapping[str, str]) -> Arguments:
    """The arguments of ``pydspark``.

    Args:
        argv: without the program's name.
        env: environment variables.

    Raises:
        ArgumentError: an unknown command or flag (the message names the closest known one), or a wrong value.
    """
    if not argv:
        raise ArgumentError(f"name a command: {' or '.join(COMMANDS)}; pydspark -h says more")
    if argv[0] in _WITHOUT_COMMAND:
        return Arguments(None, {_WITHOUT_COMMAND[argv[0]]: True}, frozenset(), ())
    command = COMMANDS.get(argv[0])
    if command is None:
        close = nearest(argv[0], COMMANDS)
        hint = f"did you mean {close!r}?" if close else f"the commands are {' and '.join(COMMANDS)}"
        raise ArgumentError(f"there is no command {argv[0]!r}; {hint}")
    return parse_command(command, argv[1:], env)


def parse_command(command: Command, argv: Sequence[str], env: Mapping[str, str]) -> Arguments:
    """The arguments of one command, without its name; see ``parse``."""
    values, positionals = _Parser(command).parse(argv)
    return Arguments(command, {**from_env(command, env), **values}, frozenset(values), tuple(positionals))


class _Parser:
    """Goes through the arguments of one command from left to right."""

    def __init__(self, command: Command) -> None:
        self._on = {name: flag for flag in command.flags for name in flag.names}
        self._off = {name: flag for flag in command.flags for name in flag.negatives}
        self._unsupported = command.unsupported
        self._values: dict[str, Any] = {}

    def parse(self, argv: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
        positionals: list[str] = []
        waiting = list(reversed(argv))
        while waiting:
            word = waiting.pop()
            if word == "--":
                return self._values, positionals + waiting[::-1]
            if word.startswith("-") and word != "-":
                self._take(word, waiting)
            else:
                positionals.append(word)
        return self._values, positionals

    def _take(self, word: str, waiting: list[str]) -> None:
        """Reads one flag, and its value from ``waiting``, whose last item comes next."""
        name, equals, inline = word.partition("=") if word.startswith("--") else (word, "", "")
        if name in self._off and not equals:
            self._values[self._off[name].dest] = False
            return
        flag = self._on.get(name) or _unknown(name, [*self._on, *self._off], self._unsupported)
        if flag.metavar:
            text = inline if equals else self._next(name, flag, waiting)
            self._store(flag, flag.convert(name, text))
        elif equals or (waiting and waiting[-1] in flag.words):
            text = inline if equals else waiting.pop()
            if text != "auto" or "auto" not in flag.words:
                self._store(flag, truth(name, text))
        else:
            self._store(flag, True)

    def _store(self, flag: Flag, value: Any) -> None:
        self._values[flag.dest] = (*self._values.get(flag.dest, ()), value) if flag.repeatable else value

    def _next(self, name: str, flag: Flag, waiting: list[str]) -> str:
        if not waiting:
            raise ArgumentError(f"{name} needs a value: {name} {flag.metavar}")
        if waiting[-1] in self._on or waiting[-1] in self._off:
            raise ArgumentError(
                f"{name} needs a value, but the flag {waiting[-1]} follows; if that is the value, write "
                f"{flag.names[-1]}={waiting[-1]}"
            )
        return waiting.pop()


def _unknown(name: str, known: Sequence[str], unsupported: Mapping[str, str]) -> Flag:
    if name in unsupported:
        raise ArgumentError(f"{name} is not supported: {unsupported[name]}")
    begun = (spelling for spelling in known if name.startswith("--") and spelling.startswith(name))
    close = next(begun, None) or nearest(name, known)
    hint = f"did you mean {close}?" if close else "-h shows all flags; a prompt that begins with a dash goes after --"
    raise ArgumentError(f"unknown flag {name}; {hint}")


def truth(name: str, text: str) -> bool:
    """A yes or no in words."""
    word = text.lower()
    if word not in TRUE_WORDS + FALSE_WORDS:
        raise ArgumentError(f"{name} must be on or off, not {text!r}")
    return word in TRUE_WORDS


def env_names(flag: Flag) -> list[str]:
    """Names of a flag in the environment; the first one that is set counts."""
    if flag.env is None:
        return []
    ours = flag.env.replace("LLAMA_ARG_", "DSPARK_ARG_")
    return list(dict.fromkeys((ours, flag.env)))


def from_env(command: Command, env: Mapping[str, str]) -> dict[str, Any]:
    """The values that the environment gives. Empty variables count as not set."""
    values = {}
    for flag in command.flags:
        for name in env_names(flag):
            off = name.replace("_ARG_", "_ARG_NO_")
            if flag.negatives and env.get(off):
                values[flag.dest] = False
                break
            if env.get(name):
                values |= _env_value(flag, name, env[name])
                break
    return values


def _env_value(flag: Flag, name: str, text: str) -> dict[str, Any]:
    shown = f"{name} in the environment"
    if flag.metavar:
        return {flag.dest: flag.convert(shown, text)}
    if text == "auto" and "auto" in flag.words:
        return {}
    return {flag.dest: truth(shown, text)}
