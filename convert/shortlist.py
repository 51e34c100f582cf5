"""The short list: which tokens drafts are made of, where a head over the whole vocabulary would cost too much."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .errors import Problem, UsageError
from .settings import DraftSettings
from .target import Target

KEY = "dspark.shortlist"
_WANTED = "a number of tokens, or a text file with a token id on each line and perhaps how often it occurs"


def read_short_list(given: str, n_vocab: int) -> list[int]:
    """Token ids, those of most use first; not checked.

    Args:
        given: a number n, for the n lowest ids, which byte-pair vocabularies give to what was most frequent in the text
            that they were made from; or a file: an id on each line, or an id and a count. Text behind ``#`` is ignored.
        n_vocab: ids that there are.

    Raises:
        UsageError: it is neither.
    """
    if given.isascii() and given.isdigit():
        if not 0 < int(given) <= n_vocab:
            raise UsageError(f"--shortlist {given}: give 1 to {n_vocab} tokens, the size of the vocabulary")
        return list(range(int(given)))
    try:
        lines = Path(given).expanduser().read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--shortlist {given}: cannot be read ({error}); give {_WANTED}") from error
    return _ids(given, [line.partition("#")[0].split() for line in lines])


def _ids(path: str, rows: Sequence[Sequence[str]]) -> list[int]:
    counted: list[tuple[int, int]] = []  # id, how often
    for number, row in enumerate(rows, start=1):
        if not row:
            continue
        if len(row) > 2 or not all(word.isascii() and word.isdigit() for word in row):
            raise UsageError(f"--shortlist {path}: line {number} is {' '.join(row)[:40]!r}; give {_WANTED}")
        counted.append((int(row[0]), int(row[1]) if len(row) == 2 else 0))
    return [token for token, _ in sorted(counted, key=lambda pair: -pair[1])]


def check_short_list(ids: Sequence[int], subject: str, settings: DraftSettings, target: Target) -> list[Problem]:
    """Reasons why a short list cannot be used.

    Args:
        subject: what to call it.
    """
    action, n_rows = "make the list again, for this target's tokenizer", min(settings.n_vocab, target.n_rows)
    problems = []
    outside = [token for token in ids if not 0 <= token < n_rows]
    if not ids:
        problems.append(Problem(subject, "no ids", "at least one", action))
    if outside:
        seen = f"{len(outside)} ids outside of the vocabulary, first {outside[0]}"
        problems.append(Problem(subject, seen, f"ids from 0 to {n_rows - 1}", action))
    if n_twice := len(ids) - len(set(ids)):
        problems.append(Problem(subject, f"{n_twice} ids appear more than once", "each id once", action))
    if settings.n_vocab_draft < settings.n_vocab:
        seen = f"the drafter has a reduced vocabulary of {settings.n_vocab_draft} tokens already"
        problems.append(Problem(subject, seen, "a drafter for the whole vocabulary", "leave the short list out"))
    return problems
