"""Decides whether the drafter's embedding and head are copies of the target's, and so need not be in the file.

Drafters are trained with frozen copies of both. Dropping them saves most of the file; doing so when they are no copies
would ruin every draft, so rows are compared first.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from gguf import TokenType

from .compare_rows import EXACT, Comparison, compare_rows, row_cosines
from .errors import Problem
from .mapping import EMBEDDING, OUTPUT
from .settings import DraftSettings
from .target import Target
from .tensors import Floats, StoredTensor

POLICIES = ("auto", "keep", "drop")
N_SAMPLES = 1024
_MASK_ROW_COSINE = 0.99
_USE_AUTO = "use --share auto"


@dataclass
class Sharing:
    """What to write.

    Attributes:
        embedding, output: tensors to write; None to take the target's when drafting.
        mask_row: the drafter's own mask row [n_embd], when only that one differs from the target's.
        notes: what was compared and decided.
    """

    embedding: StoredTensor | None = None
    output: StoredTensor | None = None
    mask_row: Floats | None = None
    notes: list[str] = field(default_factory=list)


def decide(
    settings: DraftSettings,
    tensors: dict[str, StoredTensor],
    target: Target,
    policy: str,
    quiet: bool,
    problems: list[Problem],
) -> Sharing:
    """Applies ``policy`` (one of ``POLICIES``) to the embedding and the head of a checkpoint."""
    decision = _Decision(settings, target, policy, quiet, problems)
    embedding, output = tensors.get(EMBEDDING.source), tensors.get(OUTPUT.source)
    if settings.n_vocab_draft < settings.n_vocab:
        decision.take_reduced(embedding, output)
    elif embedding is None and output is None:
        decision.borrow_both()
    else:
        decision.take_full(embedding, embedding if output is None and settings.tied else output)
    return decision.sharing


class _Decision:
    """Builds one ``Sharing``; reasons to refuse go to ``problems``."""

    def __init__(
        self, settings: DraftSettings, target: Target, policy: str, quiet: bool, problems: list[Problem]
    ) -> None:
        self.settings, self.target, self.policy = settings, target, policy
        self.quiet, self.problems = quiet, problems
        self.sharing = Sharing()

    def report(self, subject: str, seen: str, wanted: str, action: str) -> None:
        self.problems.append(Problem(subject, seen, wanted, action))

    def note(self, text: str) -> None:
        self.sharing.notes.append(text)

    def borrow_both(self) -> None:
        self.note("embedding and head: not in the checkpoint, taken from the target when drafting")
        self.check_borrowed()

    def take_full(self, embedding: StoredTensor | None, output: StoredTensor | None) -> None:
        """A head over the whole vocabulary: both stay or both go."""
        target = self.target
        results = [
            self.compare("embedding", embedding, target.embedding, 1.0),
            self.compare("head", output, target.output, target.output_scale),
        ]
        if not self.keeps(results):
            self.note("embedding and head: dropped, taken from the target when drafting")
            self.keep_mask_row(embedding)
            return
        # both or neither: other programs take the embedding as the head when only the embedding is there
        self.note("embedding and head: kept")
        self.sharing.embedding = self.complete(embedding, target.embedding, 1.0)
        self.sharing.output = self.complete(output, target.output, target.output_scale)

    def take_reduced(self, embedding: StoredTensor | None, output: StoredTensor | None) -> None:
        """A head over part of the vocabulary has no counterpart in the target, so it stays; the embedding may go."""
        if output is None:
            seen = f"missing, while the draft vocabulary has {self.settings.n_vocab_draft} of {self.settings.n_vocab}"
            action = "download the checkpoint again"
            self.report(OUTPUT.source, f"{seen} tokens", "a head over the draft vocabulary", action)
        self.sharing.output = output
        self.note("head: kept, it covers only part of the vocabulary")
        if embedding is None:
            self.check_borrowed()
        elif self.keeps([self.compare("embedding", embedding, self.target.embedding, 1.0)]):
            self.sharing.embedding = embedding
        else:
            self.keep_mask_row(embedding)

    def compare(self, what: str, ours: StoredTensor | None, theirs: StoredTensor | None, scale: float) -> Comparison:
        result = compare_rows(
            what, ours, theirs, scale, self.sample(), skip=self.settings.mask_token_id, quiet=self.quiet
        )
        self.note(result.text)
        return result

    def sample(self) -> list[int]:
        """Seeded choice of real tokens; rows of padding may be too small to survive quantization."""
        types, mask = self.target.token_types, self.settings.mask_token_id
        real = [i for i, kind in enumerate(types) if kind != TokenType.UNUSED and i != mask]
        if len(real) <= N_SAMPLES:
            return real
        return sorted(np.random.default_rng(0).choice(real, N_SAMPLES, replace=False).tolist())

    def keeps(self, results: list[Comparison]) -> bool:
        """Whether the tensors behind ``results`` go into the file."""
        copies = all(result.same for result in results)
        if self.policy == "drop" and not copies:
            seen = "; ".join(result.text for result in results)
            self.report("--share drop", seen, "rows equal to the target's", _USE_AUTO)
        lacks_mask_row = self.settings.mask_token_id >= self.target.n_rows
        return self.policy == "keep" or not copies or (self.policy == "auto" and lacks_mask_row)

    def complete(self, ours: StoredTensor | None, theirs: StoredTensor | None, scale: float) -> StoredTensor | None:
        """Ours, or else the target's, which must then have the shape that the drafter's would have."""
        if ours is not None:
            return ours
        wanted = (self.settings.n_vocab, self.settings.n_embd)
        if theirs is None or theirs.shape != wanted or scale != 1.0:
            seen = "one of them is missing in the checkpoint, and the target's cannot take its place"
            self.report("embedding and head", seen, f"both, of {wanted[0]} x {wanted[1]} values", _USE_AUTO)
        return theirs

    def check_borrowed(self) -> None:
        """The target's embedding can stand in for one that is not in the checkpoint."""
        settings, target = self.settings, self.target
        if self.policy == "keep":
            wanted = "a checkpoint with embed_tokens.weight"
            self.report("--share keep", "the checkpoint has no embedding", wanted, _USE_AUTO)
        if settings.n_embd != target.n_embd:
            seen = f"{settings.n_embd}, but {target.name} has {target.n_embd}, and the checkpoint has no embedding"
            self.report("hidden_size", seen, "equal to the target's", "give the target it was trained for")
        if settings.mask_token_id >= target.n_rows:
            seen = f"{settings.mask_token_id}, but the target's embedding has {target.n_rows} rows"
            action = "use a target file that kept its padding rows, or a checkpoint with its own embedding"
            self.report("mask_token_id", seen, "a row of the target's embedding", action)

    def keep_mask_row(self, embedding: StoredTensor | None) -> None:
        """Looks at the one row that was left out of the comparison."""
        theirs = self.target.embedding
        if embedding is None or theirs is None:
            self.check_borrowed()
            return
        mask = self.settings.mask_token_id
        own = embedding.take([mask])
        if mask < theirs.n_rows:
            row = theirs.take([mask])
            equal = np.array_equal(own, row) if theirs.kind in EXACT else row_cosines(own, row)[0] >= _MASK_ROW_COSINE
            if equal:
                self.note("mask row: equal to the target's")
                return
        self.sharing.mask_row = own[0]
        self.note("mask row: differs from the target's, kept in the metadata")
