"""Keeps control tokens out of text that did not come from the chat template.

Content is protected before a template sees it: a sentinel is put into every text that spells a special token. In the
rendered prompt only the template's own markers are whole. The sentinels go once the prompt is cut at those markers and
before anything else looks at the text, so they change no other token.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from pydspark.errors import ArgumentError
from pydspark.text.vocab import CONTROL_TYPES, TokenType, Vocab

# A noncharacter: neither whitespace nor escaped in JSON, and not for interchange. Text that has it all the same gets it
# doubled; a sentinel is never doubled, because it stands between two characters of a token.
SENTINEL = "\ufdd0"
_SENTINELS = re.compile(f"{SENTINEL}({SENTINEL}?)")

_MAX_DEPTH = 64  # of nested tools and arguments
_ASSISTANT_TEXTS = ("content", "reasoning_content")


def unprotect(text: str) -> str:
    """Takes the sentinels out of a piece of a rendered prompt."""
    return _SENTINELS.sub(r"\1", text) if SENTINEL in text else text


class Protector:
    """Protects what goes into a chat template. Made once per vocabulary.

    A template that writes the beginning of a marker itself and takes the rest from content is beyond its reach.
    """

    def __init__(self, vocab: Vocab) -> None:
        control = vocab.ids_by_text(CONTROL_TYPES)
        user_defined = vocab.ids_by_text({TokenType.USER_DEFINED})
        self._break_control = _Breaker(control)
        self._break_all = _Breaker([*control, *user_defined])

    def protect(self, text: str, *, keep_user_defined: bool = False) -> str:
        """The text with every special token in it broken, also one that would only begin at its end.

        Args:
            text: text of a message or of a tool.
            keep_user_defined: leave user-defined tokens (such as ``</think>``) whole, for what the model itself wrote.
        """
        return (self._break_control if keep_user_defined else self._break_all)(text)

    def protect_value(self, value: object) -> object:
        """A copy of nested lists and mappings in which every string, keys included, is protected.

        Raises:
            ArgumentError: nested too deeply.
        """
        return self._protect_value(value, _MAX_DEPTH)

    def protect_messages(self, messages: Sequence[Mapping[str, object]]) -> list[dict[str, object]]:
        """Copies of normalized messages, protected but for their roles.

        Assistant content and reasoning keep user-defined tokens, since templates look for them there.

        Raises:
            ArgumentError: nested too deeply.
        """
        return [
            {key: self._protect_field(message["role"], key, value) for key, value in message.items()}
            for message in messages
        ]

    def _protect_field(self, role: object, key: str, value: object) -> object:
        if key == "role":
            return value
        if role == "assistant" and key in _ASSISTANT_TEXTS and isinstance(value, str):
            return self.protect(value, keep_user_defined=True)
        return self.protect_value(value)

    def _protect_value(self, value: object, depth: int) -> object:
        if isinstance(value, str):
            return self.protect(value)
        if not isinstance(value, (Mapping, list, tuple)):
            return value
        if depth == 0:
            raise ArgumentError(f"messages and tools may be nested {_MAX_DEPTH} levels deep, not deeper")
        if isinstance(value, Mapping):
            return {
                self.protect(key) if isinstance(key, str) else key: self._protect_value(item, depth - 1)
                for key, item in value.items()
            }
        return [self._protect_value(item, depth - 1) for item in value]


class _Breaker:
    """Puts a sentinel after the first character of every occurrence of some texts."""

    def __init__(self, texts: Iterable[str]) -> None:
        breakable = [text for text in texts if len(text) > 1]
        self._longest = max(map(len, breakable), default=0)
        self._prefixes = {text[:n] for text in breakable for n in range(1, len(text))}
        tails: dict[str, list[str]] = {}
        for text in breakable:
            tails.setdefault(text[0], []).append(re.escape(text[1:]))
        # Only the first character is consumed, so that occurrences that overlap are all found.
        branches = (f"{re.escape(head)}(?={'|'.join(rest)})" for head, rest in tails.items())
        self._pattern = re.compile("|".join(branches) or "(?!)")

    def __call__(self, text: str) -> str:
        text = text.replace(SENTINEL, SENTINEL * 2)
        breaks = {match.end() for match in self._pattern.finditer(text)}
        # A token may begin here and end in what the template writes next, also after it strips blanks.
        end = len(text.rstrip())
        for stop in {end, len(text)}:
            starts = range(max(0, stop - self._longest), stop)
            breaks.update(start + 1 for start in starts if text[start:stop] in self._prefixes)
        if not breaks:
            return text
        edges = [0, *sorted(breaks), len(text)]
        return SENTINEL.join(text[start:stop] for start, stop in zip(edges, edges[1:], strict=False))
