"""An assistant's text to reasoning, content and tool calls, while it comes."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from dataclasses import replace
from itertools import groupby

from pydspark.text.chat_parts import CallArguments, CallEnd, CallStart, Content, Part, Reasoning, TextPart
from pydspark.text.tag_reader import Reading, TagReader
from pydspark.text.tool_arguments import Tools, dump, parse_call

THINK, END_THINK = "<think>", "</think>"
CALL, END_CALL = "<tool_call>", "</tool_call>"
FUNCTION, END_FUNCTION = "<function=", "</function>"
PARAMETER, END_PARAMETER = "<parameter=", "</parameter>"

_LINE = re.compile(r"[^<\n]+")
_ANYTHING = re.compile(r".+", re.DOTALL)


def new_call_id() -> str:
    """A fresh id of a tool call."""
    return f"call_{uuid.uuid4().hex[:24]}"


class ChatParser(TagReader):
    """Splits the text of one answer into parts.

    Reasoning is what stands in ``<think>`` before the answer, without the blanks around it. Tool calls are
    ``<tool_call>`` blocks with ``<function=NAME>`` and ``<parameter=KEY>`` inside, or with a JSON object that has
    ``name`` and ``arguments``. Values of parameters become JSON as the tools' schemas say; strings are passed on while
    they come. A value ends where another parameter or the end of the function follows, so tags may stand in it. A block
    that turns out to be no call is content. Blanks around calls are dropped.

    However the text is cut into pieces, the parts are the same when those of a kind in a row are joined.

    Args:
        in_reasoning: the prompt has already opened ``<think>``.
        finds_reasoning: the answer may open it.
        keeps_reasoning: reasoning and its tags are content.
        tools: what can be called; None = calls are content.
        new_id: makes the ids of calls.

    Attributes:
        in_reasoning: what comes next is reasoning.
        has_calls: there was a call, and the last one is complete.
    """

    def __init__(
        self,
        *,
        in_reasoning: bool = False,
        finds_reasoning: bool = True,
        keeps_reasoning: bool = False,
        tools: Tools | None = None,
        new_id: Callable[[], str] = new_call_id,
    ) -> None:
        super().__init__()
        self.in_reasoning = in_reasoning
        self.has_calls = False
        self._finds_reasoning = finds_reasoning
        self._keeps_reasoning = keeps_reasoning
        self._tools = tools
        self._new_id = new_id
        self._n_calls = 0
        self._has_content = False
        self._is_after_call = False
        self._parts: list[Part] = []

    def add(self, text: str) -> list[Part]:
        """The parts that are certain with this piece of text."""
        self._feed(text)
        return self._take()

    def finish(self) -> list[Part]:
        """The parts that were held back, at the end of the text."""
        self._feed("", is_last=True)
        return self._take()

    def _take(self) -> list[Part]:
        parts, self._parts = self._parts, []
        return _joined(parts)

    def _content(self, text: str) -> None:
        if text:
            self._has_content, self._is_after_call = True, False
            self._parts.append(Content(text))

    def _read(self) -> Reading[None]:
        blanks = yield from self._read_reasoning()
        if self._tools is not None:
            yield from self._read_answer(self._tools, blanks)
            return
        self._content(blanks)
        while text := self._run(_ANYTHING) or (yield from self._char()):
            self._content(text)

    # ---- reasoning ----

    def _read_reasoning(self) -> Reading[str]:
        """Returns blanks that belong to the content."""
        if not self.in_reasoning:
            blanks = (yield from self._blanks()) if self._finds_reasoning else ""
            if not self._finds_reasoning or not (yield from self._tag(THINK)):
                return blanks
            self.in_reasoning = True
            self._content(blanks + THINK if self._keeps_reasoning else "")
        if self._keeps_reasoning:
            blanks, is_closed = yield from self._text_until(END_THINK, self._content)
            self._content(blanks + END_THINK if is_closed else blanks)
        else:
            yield from self._blanks()
            yield from self._text_until(END_THINK, lambda text: self._parts.append(Reasoning(text)))
        self.in_reasoning = False
        if not self._keeps_reasoning:
            yield from self._blanks()
        return ""

    # ---- content and calls ----

    def _read_answer(self, tools: Tools, blanks: str) -> Reading[None]:
        while True:
            blanks, is_call = yield from self._text_until(CALL, self._content, blanks)
            if not is_call:
                break
            self._hold()
            if not (yield from self._read_call(tools)):
                self._content(blanks + CALL + self._release())
            blanks = yield from self._blanks()
            blanks = blanks if self._has_content else ""
        self._content("" if self._is_after_call else blanks)

    def _read_call(self, tools: Tools) -> Reading[bool]:
        """Reads what follows ``<tool_call>``. Returns False if it is no call."""
        yield from self._blanks()
        if (yield from self._tag("{")):
            return (yield from self._read_json_call())
        name = yield from self._named_tag(FUNCTION)
        if not name:
            return False
        yield from self._blanks()
        key = yield from self._named_tag(PARAMETER)
        tag = PARAMETER if key else (yield from self._tag(END_FUNCTION, END_CALL))
        if not tag:
            return False
        self._release()
        self._start_call(name)
        opening = "{"
        while tag == PARAMETER:
            self._arguments(f"{opening}{dump(key)}: ")
            tag, key = yield from self._read_argument(tools, name, key)
            opening = ", "
        if tag:
            self._arguments("{}" if opening == "{" else "}")
            self._end_call()
        if tag == END_FUNCTION:
            blanks = yield from self._blanks()
            if not (yield from self._tag(END_CALL)):
                self._unread(blanks)
        return True

    def _read_json_call(self) -> Reading[bool]:
        texts = ["{"]
        yield from self._text_until(END_CALL, texts.append)
        call = parse_call("".join(texts))
        if call is None:
            return False
        self._release()
        self._start_call(call[0])
        self._arguments(call[1])
        self._end_call()
        return True

    def _read_argument(self, tools: Tools, name: str, key: str) -> Reading[tuple[str, str]]:
        """Passes a value on. Returns the tag that follows it, and its key; empty where the text ends before."""
        if tools.is_text(name, key):
            self._arguments('"')
            tag, next_key = yield from self._read_value(lambda text: self._arguments(dump(text)[1:-1]))
            self._arguments('"' if tag else "")
        else:
            texts: list[str] = []
            tag, next_key = yield from self._read_value(texts.append)
            text = "".join(texts)
            self._arguments(tools.to_json(name, key, text) if tag else text)
        return tag, next_key

    def _read_value(self, write: Callable[[str], None]) -> Reading[tuple[str, str]]:
        newline = ""  # held back: the last one is not part of the value, and neither is the first
        first = yield from self._char()
        if first != "\n":
            self._unread(first)
        while True:
            text = self._run(_LINE) or (yield from self._char())
            if not text:
                write(newline)
                return "", ""
            if text == "\n":
                write(newline)
                newline = text
                continue
            if text == "<":
                self._unread(text)
                if (yield from self._tag(END_PARAMETER)):
                    end = yield from self._read_end_of_value()
                    if end is not None:
                        return end
                    text = END_PARAMETER
                else:
                    text = yield from self._char()
            write(newline + text)
            newline = ""

    def _read_end_of_value(self) -> Reading[tuple[str, str] | None]:
        """What follows ``</parameter>``: a tag and its key, or None if this does not end the value."""
        blanks = yield from self._blanks()
        key = yield from self._named_tag(PARAMETER)
        tag = PARAMETER if key else (yield from self._tag(END_FUNCTION, END_CALL))
        if tag:
            return tag, key
        char = yield from self._char()
        if not char:
            return "", ""
        self._unread(blanks + char)
        return None

    def _start_call(self, name: str) -> None:
        self._parts.append(CallStart(self._n_calls, self._new_id(), name))
        self._n_calls += 1
        self.has_calls = False

    def _arguments(self, text: str) -> None:
        if text:
            self._parts.append(CallArguments(self._n_calls - 1, text))

    def _end_call(self) -> None:
        self._parts.append(CallEnd(self._n_calls - 1))
        self.has_calls = self._is_after_call = True


def _joined(parts: list[Part]) -> list[Part]:
    """Pieces of one kind in a row become one."""
    joined: list[Part] = []
    for _, group in groupby(parts, type):
        first, *rest = group
        if isinstance(first, TextPart):
            text = "".join(part.text for part in (first, *rest) if isinstance(part, TextPart))
            joined.append(replace(first, text=text))
        else:
            joined += [first, *rest]
    return joined
