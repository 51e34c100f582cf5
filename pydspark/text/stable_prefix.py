"""How much of a rendered chat later chats will have in common with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pydspark.errors import ArgumentError

Message = Mapping[str, object]
Render = Callable[[Sequence[Message]], str]
"""Messages to the prompt for the assistant's next turn."""

_ANSWER: Message = {"role": "assistant", "content": "!", "reasoning_content": "."}


def stable_boundaries(render: Render, messages: Sequence[Message]) -> list[int]:
    """Ends of the beginnings that a rendered chat shares with chats that are likely to come.

    Templates may write a turn in another way once others follow it; many drop the reasoning of earlier answers, for
    example. So the ends are measured: the chats to come are rendered and compared. They are another one with the same
    instructions and tools, the same with another last question, and the same with an answer and the next question.

    Args:
        render: a chat template with all variables but the messages.
        messages: normalized messages.

    Returns:
        Different numbers of characters of ``render(messages)``, ascending. A chat to come that the template refuses
        has none.
    """
    prompt = render(messages)
    first = 1 if messages[0]["role"] == "system" else 0
    last = max((i for i, message in enumerate(messages) if message["role"] == "user"), default=first)
    chats_to_come = [
        [*messages[:first], _other_question(messages[first:])],
        [*messages[:last], _other_question(messages[last:])],
        [*messages, _ANSWER, _other_question([])],
    ]
    ends = {_n_shared(prompt, render, chat) for chat in chats_to_come}
    return sorted(ends - {0})


def _other_question(messages: Sequence[Message]) -> Message:
    """A question that begins in another way than the first one of the messages."""
    is_like_ours = bool(messages) and str(messages[0]["content"]).lstrip().startswith("?")
    return {"role": "user", "content": "!" if is_like_ours else "?"}


def _n_shared(prompt: str, render: Render, messages: Sequence[Message]) -> int:
    try:
        return common_prefix(prompt, render(messages))
    except ArgumentError:
        return 0


def common_prefix(one: str, other: str) -> int:
    """Number of characters that two texts begin with alike."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
