"""What a caller wants of a drafter, what it allows, and whether it helps."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from typing import Any

from pydspark.errors import ArgumentError, UnsupportedError
from pydspark.params import SamplingParams
from pydspark.records import DraftInfo, Stats

log = logging.getLogger("pydspark")

DRAFTING = ("draft_schedule", "n_draft_max", "draft_conf_min", "draft_sampling", "draft_accept")
"""The fields of ``SamplingParams`` about drafting."""
_SPECULATIVE_KEYS = {"n_max": "n_draft_max", "conf_min": "draft_conf_min", "schedule": "draft_schedule"}
# A drafter of another model is hardly ever right about the first token of a block. The later ones say little: a weak
# drafter that fits gets few of them.
_FLOOR = 0.05  # accepted share of first tokens below which a pair is probably wrong
_ENOUGH = 64  # first tokens that show it


def drafting_options(speculative: bool | Mapping[str, Any] | None, call: Mapping[str, Any]) -> dict[str, Any]:
    """The drafting fields of ``SamplingParams`` that one call gives.

    Args:
        speculative: False = no drafting; a mapping gives ``n_max``, ``conf_min`` and ``schedule``, other names of
            ``n_draft_max``, ``draft_conf_min`` and ``draft_schedule``; True and None give nothing.
        call: fields of ``DRAFTING`` that the caller gave; None = not given.

    Raises:
        ArgumentError: ``speculative`` is something else, or says a thing a second time.
    """
    given = {name: value for name, value in call.items() if value is not None}
    if speculative is False:
        wanted: dict[str, Any] = {"n_draft_max": 0}
    elif isinstance(speculative, Mapping):
        wanted = {_speculative_field(key): value for key, value in speculative.items() if value is not None}
    elif speculative is None or speculative is True:
        wanted = {}
    else:
        raise ArgumentError(
            f"speculative must be True, False or a mapping of {_names(_SPECULATIVE_KEYS)}, not {speculative!r}"
        )
    if twice := given.keys() & wanted.keys():
        raise ArgumentError(f"{' and '.join(sorted(twice))} is given twice: by its name and by speculative")
    return {**given, **wanted}


def _names(keys: Iterable[str]) -> str:
    *most, last = keys
    return f"{', '.join(most)} and {last}"


def _speculative_field(key: Any) -> str:
    if key not in _SPECULATIVE_KEYS:
        raise ArgumentError(f"speculative has no {key!r}; it takes {_names(_SPECULATIVE_KEYS)}")
    return _SPECULATIVE_KEYS[key]


def one_draft(draft: str | os.PathLike[str] | None, draft_model: object) -> str | os.PathLike[str] | None:
    """The drafter of a constructor, under whichever of its two names it was given.

    Raises:
        ArgumentError: both are given.
        UnsupportedError: ``draft_model`` is no file.
    """
    if draft_model is None:
        return draft
    if not isinstance(draft_model, (str, os.PathLike)):
        raise UnsupportedError(f"draft_model={draft_model!r} is not supported: give the file of a drafter as draft=")
    if draft is not None:
        raise ArgumentError("give one of draft and draft_model")
    return draft_model


class Drafting:
    """A drafter at work.

    Args:
        info: what its file holds.
        path: the file, for messages.
        spec_type: the kind that it should be, or ``"auto"``.

    Attributes:
        info: what its file holds.
        path: the file.

    Raises:
        ArgumentError: it is of another kind.
    """

    def __init__(self, info: DraftInfo, path: str, spec_type: str) -> None:
        if spec_type not in ("auto", info.kind):
            raise ArgumentError(f"spec_type is {spec_type!r}, but {path} is a drafter of the kind {info.kind!r}")
        self.info = info
        self.path = path
        self._clamped: set[int] = set()  # numbers of drafts that have been said to be too many
        self._n_first = 0
        self._n_first_accepted = 0
        self._has_warned = False

    def check(self, params: SamplingParams) -> None:
        """Checks what a generation wants of the drafter. Too many tokens per round are clamped, which is logged once.

        Raises:
            ArgumentError: a confidence is asked for that the drafter does not tell, or a threshold without a value.
        """
        if params.draft_conf_min > 0 and params.n_draft_max != 0 and not self.info.has_confidence:
            raise ArgumentError(
                f"draft_conf_min is {params.draft_conf_min:g}, but the drafter {self.path} has no confidence head; "
                "leave it at 0"
            )
        if params.draft_schedule == "threshold" and params.draft_conf_min == 0 and params.n_draft_max != 0:
            raise ArgumentError("draft_schedule is threshold, which needs a draft_conf_min above 0, such as 0.6")
        wanted, most = params.n_draft_max or 0, self.info.n_slots
        if wanted > most and wanted not in self._clamped:
            self._clamped.add(wanted)
            log.warning("n_draft_max is %d, but this drafter proposes at most %d tokens; %d it is", wanted, most, most)

    def note(self, stats: Stats) -> None:
        """Takes in the counts of a generation. Warns once when hardly any draft has been accepted so far."""
        self._n_first += sum(stats.drafted_at[:1])
        self._n_first_accepted += sum(stats.accepted_at[:1])
        is_low = self._n_first >= _ENOUGH and self._n_first_accepted < _FLOOR * self._n_first
        if is_low and not self._has_warned:
            self._has_warned = True
            log.warning(
                "of %d drafts only %d had a first token that was accepted: %s was probably not trained for this model, "
                "and drafting costs time; pydspark info --pair compares the two",
                self._n_first, self._n_first_accepted, self.path,
            )  # fmt: skip
