"""Errors of the converter. A refusal carries every problem found, not only the first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """One reason to refuse.

    Attributes:
        subject: the setting, tensor or file concerned.
        seen: what was found there.
        wanted: what would be right.
        action: what the user can do.
    """

    subject: str
    seen: str
    wanted: str
    action: str

    def text(self) -> str:
        return f"{self.subject}: {self.seen}\n     wanted: {self.wanted}\n     to do:  {self.action}"


class ConvertError(Exception):
    """An expected failure; its text is complete, so no traceback is shown.

    Attributes:
        exit_code: exit status of the process.
    """

    exit_code = 1


class UsageError(ConvertError):
    """The command line cannot be carried out as it stands."""

    exit_code = 2


class ProblemsError(ConvertError):
    """The input was refused.

    Attributes:
        problems: all reasons, in the order they were found.
    """

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        count = "1 problem" if len(self.problems) == 1 else f"{len(self.problems)} problems"
        listed = "\n".join(f"  {i}. {problem.text()}" for i, problem in enumerate(self.problems, start=1))
        super().__init__(f"{count} found, nothing was written\n{listed}")
