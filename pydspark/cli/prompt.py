"""Where the prompt comes from."""

from __future__ import annotations

import os
from typing import TextIO

from pydspark.cli.args import Arguments
from pydspark.cli.terminal import is_terminal
from pydspark.errors import ArgumentError


def read_prompt(arguments: Arguments, stdin: TextIO) -> str | None:
    """The prompt from ``-p``, an argument without a flag, ``-f`` or standard input.

    Standard input is read only if it is asked for, or if nothing else gives a prompt. One newline at the end of a file
    or of standard input is dropped.

    Returns:
        The prompt, or None for a chat that begins without one.

    Raises:
        ArgumentError: no prompt or several, or not UTF-8.
        OSError: the file cannot be read.
    """
    positional = next(iter(arguments.positionals), None)
    given = {"-p": arguments.get("prompt"), "-f": arguments.get("file"), "a prompt without a flag": positional}
    sources = {name: text for name, text in given.items() if text is not None}
    if len(sources) > 1:
        raise ArgumentError(f"give one of {' and '.join(sources)}")
    name, text = next(iter(sources.items()), ("", None))
    if text is None and arguments.get("conversation"):
        return None
    if text is None and is_terminal(stdin):
        raise ArgumentError("give a prompt: -p TEXT or -f FILE, or -cnv to chat")
    if text is None or text == "-":
        return _without_newline(utf8(stdin.buffer.read(), "standard input"))
    if name == "-f":
        with open(text, "rb") as file:
            return _without_newline(utf8(file.read(), text))
    return _argument(text, "the prompt")


def read_system_prompt(arguments: Arguments) -> str | None:
    """The text of ``-sys``, or None.

    Raises:
        ArgumentError: not UTF-8.
    """
    text = arguments.get("system_prompt")
    return None if text is None else _argument(text, "the text of -sys")


def utf8(data: bytes, name: str) -> str:
    """Bytes as text.

    Raises:
        ArgumentError: not UTF-8; ``name`` says what is not.
    """
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ArgumentError(f"{name} is not UTF-8 text (byte 0x{data[error.start]:02x} at {error.start})") from None


def _argument(text: str, name: str) -> str:
    # Python has decoded the arguments as the locale says; fsencode gives back the bytes that were typed.
    return utf8(os.fsencode(text), name)


def _without_newline(text: str) -> str:
    return text.removesuffix("\n").removesuffix("\r")
