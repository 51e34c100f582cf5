"""Plain records that cross between the core and Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from pydspark.params import SamplingParams

Progress = Callable[[float], bool]
"""Told the fraction done, in [0, 1]; a false result stops the call."""

MetadataValue = int | float | bool | str | list[int] | list[float] | list[bool] | list[str]


@dataclass(frozen=True)
class Device:
    """A device of ggml. Memory in bytes."""

    name: str
    description: str
    is_gpu: bool
    memory_free: int
    memory_total: int


@dataclass(frozen=True)
class TensorInfo:
    """A tensor of a model file. ``shape`` has the contiguous dimension first."""

    name: str
    type_name: str
    shape: tuple[int, ...]
    n_bytes: int
    file_index: int


@dataclass(frozen=True)
class ModelInfo:
    """Sizes of a model. ``n_vocab`` counts named tokens, ``n_vocab_rows`` the rows of its output."""

    architecture: str
    n_vocab: int
    n_vocab_rows: int
    n_embd: int
    n_layer: int
    n_recurrent: int
    n_head: int
    n_head_kv: int
    n_ctx_train: int
    n_params: int
    n_bytes: int


@dataclass(frozen=True)
class DraftInfo:
    """What a drafter file holds.

    ``target_layers`` are the target's layers whose outputs it reads. ``n_short_list`` counts the tokens that it lists
    to make drafts of, 0 without a list.
    """

    n_layer: int
    n_embd: int
    block_size: int
    n_slots: int
    mask_token_id: int
    anchor_first: bool
    has_markov_head: bool
    has_confidence: bool
    borrows_embedding: bool
    borrows_head: bool
    n_short_list: int
    target_layers: tuple[int, ...]
    n_bytes: int

    @property
    def kind(self) -> str:
        """``"draft-dspark"``, or ``"draft-dflash"`` for one without a Markov head."""
        return "draft-dspark" if self.has_markov_head else "draft-dflash"


@dataclass(frozen=True)
class MemoryLine:
    """Bytes on one device.

    Attributes:
        device: its name.
        weights: all weights.
        mapped: the part of ``weights`` that stays in the mapped file.
        kv: attention caches.
        state: state of recurrent layers, with what it takes to take rejected drafts back.
        compute: working memory of graphs.
        free: what is free now.
    """

    device: str
    weights: int
    mapped: int
    kv: int
    state: int
    compute: int
    free: int


@dataclass(frozen=True)
class MemoryReport:
    """Memory of a model with a context of ``n_ctx`` tokens.

    Attributes:
        n_ctx: tokens of context.
        token_bytes: of the caches, for each token of context.
        checkpoint_bytes: of a copy of the recurrent layers' state, besides its tokens' caches; 0 without such layers.
        lines: one for each device.
    """

    n_ctx: int
    token_bytes: int
    checkpoint_bytes: int
    lines: tuple[MemoryLine, ...]


class TokenMask(Protocol):
    """A rule for what may follow, such as a grammar (``text.grammar_mask.GrammarMask``)."""

    def allowed(self, n_tokens: int, last: Sequence[int], /) -> bytes:
        """One bit per token, as whole words of 32 bits: what may follow the first ``n_tokens`` tokens of an answer.

        ``last`` are the last of these, and all that may differ from the call before.
        """
        ...


@dataclass(frozen=True)
class Request:
    """One generation, ready for the core: every choice is made.

    Attributes:
        tokens: the whole prompt.
        sampling: how to draw; its seed, bias and stop fields are replaced by the ones here.
        seed: the seed to use.
        stop_ids: token ids that end generation.
        bias: added to the scores of token ids; -inf bans.
        reuse_prefix: keep what the session holds of the same beginning.
        boundaries: numbers of prompt tokens, ascending, after which later prompts may go on differently. Models whose
            state cannot be cut everywhere keep copies there. Empty: one before the last token.
        mask: says which tokens may follow; None = any.
    """

    tokens: Sequence[int]
    sampling: SamplingParams
    seed: int
    stop_ids: tuple[int, ...] = ()
    bias: Mapping[int, float] | None = None
    reuse_prefix: bool = True
    boundaries: tuple[int, ...] = ()
    mask: TokenMask | None = None


DEPTH_REASONS = ("parked", "probed", "cost", "confidence", "whole")
"""What decided how many drafts a round verified (``PDS_DEPTH_*``): drafting did not pay; a try whether it pays by now;
the next draft was worth less than its time, or trusted less than ``draft_conf_min``; all that could be drafted."""


class Finish(IntEnum):
    """Why a step was the last one (``PDS_FINISH_*``)."""

    NONE = 0
    STOP_ID = 1
    LENGTH = 2
    CONTEXT = 3


@dataclass(frozen=True)
class Step:
    """Tokens of one round.

    ``logprobs`` and ``tops`` are empty unless they were asked for. ``n_by_drafter`` drafts were the drafter's; accepted
    ones behind them were copied from earlier text.
    """

    tokens: tuple[int, ...]
    finish: Finish
    stop_id: int | None
    logprobs: tuple[float, ...]
    tops: tuple[tuple[tuple[int, float], ...], ...]
    n_by_drafter: int = 0


@dataclass(frozen=True)
class Stats:
    """Counts and milliseconds of the running or last generation.

    ``draft_n`` counts drafted tokens that were verified, ``drafted_at`` and ``accepted_at`` by position in the block;
    ``lookup_rounds``, ``lookup_drafted_at`` and ``lookup_accepted_at`` are the shares of lookup in ``draft_rounds`` and
    these.
    ``saved_ms`` is what drafts have saved over plain steps; negative: lost. ``depths`` counts rounds by the number of
    drafts they verified, ``reasons`` by what decided that number (``DEPTH_REASONS``).
    """

    prompt_n: int
    cache_n: int
    prompt_ms: float
    predicted_n: int
    predicted_ms: float
    host_ms: float
    n_rounds: int
    draft_rounds: int = 0
    draft_n: int = 0
    draft_n_accepted: int = 0
    draft_ms: float = 0.0
    verify_ms: float = 0.0
    drafted_at: tuple[int, ...] = ()
    accepted_at: tuple[int, ...] = ()
    lookup_rounds: int = 0
    lookup_drafted_at: tuple[int, ...] = ()
    lookup_accepted_at: tuple[int, ...] = ()
    saved_ms: float = 0.0
    depths: tuple[int, ...] = ()
    reasons: tuple[int, ...] = (0,) * len(DEPTH_REASONS)

    @property
    def accept_rate(self) -> float:
        """Accepted tokens per drafted one; 0 without any."""
        return self.draft_n_accepted / self.draft_n if self.draft_n else 0.0

    @property
    def accept_len(self) -> float:
        """Tokens per round that drafted, the target's own included; 1 without any such round."""
        return 1.0 + (self.draft_n_accepted / self.draft_rounds if self.draft_rounds else 0.0)


LEARNT_KINDS = ("greedy", "drawn", "certain", "coupled")
"""How tokens are drafted and judged, each with a reliability of its own (``PDS_LEARNT_*``)."""


@dataclass(frozen=True)
class LearntCost:
    """Batches of one size: how many count, their mean milliseconds and mean tokens of context."""

    n_rows: int
    weight: float
    ms: float
    depth: float


@dataclass(frozen=True)
class LearntCosts:
    """Batches of all sizes, and the sums that give the slope with depth (``pds_learnt_costs``)."""

    rows: tuple[LearntCost, ...] = ()
    depth_var: float = 0.0
    depth_cov: float = 0.0


@dataclass(frozen=True)
class LearntBin:
    """Verified tokens of a slot whose confidence was alike.

    Attributes:
        kind: one of ``LEARNT_KINDS``.
        slot: position in the block.
        index: of the bin, by the confidence's logit.
        weight: tokens that count.
        logits, labels: sums of their confidences' logits and of their probabilities of acceptance.
    """

    kind: str
    slot: int
    index: int
    weight: float
    logits: float
    labels: float


@dataclass(frozen=True)
class Learnt:
    """What a session has learnt of the costs of batches and of the drafter's reliability."""

    verify: LearntCosts = LearntCosts()
    draft: LearntCosts = LearntCosts()
    bins: tuple[LearntBin, ...] = ()


class SessionLike(Protocol):
    """What generating needs of a session."""

    def start(self, request: Request, progress: Progress | None = None) -> None: ...

    def step(self) -> Step: ...

    def cut(self, n: int) -> None: ...

    def stats(self) -> Stats: ...
