"""Everything the converter knows about a drafter, whichever kind of file it came from."""

from __future__ import annotations

from dataclasses import dataclass

# far above any drafter; a damaged number must not make the checks run for hours
MAX_LAYERS, MAX_BLOCK_SIZE = 512, 512

LAYOUT_ANCHOR_FIRST = "anchor-first"
LAYOUT_ONE_PLUS_N = "1+n"


@dataclass(frozen=True)
class DraftSettings:
    """Sizes and switches of a drafter. 0 stands for a size that was missing and has been reported.

    Attributes:
        n_layer, n_embd, n_ff, n_head, n_head_kv, head_dim: the backbone.
        n_ctx: positions it was trained for.
        norm_eps: epsilon of every RMS norm.
        rope_theta: base of the rotary frequencies, over the whole head.
        n_vocab: rows of the target's vocabulary, padding included.
        n_vocab_draft: rows of the head; smaller than ``n_vocab`` for a reduced vocabulary.
        block_size: input positions of one block.
        mask_token_id: input id of the positions after the anchor.
        target_layers: target layers whose output is the drafter's input, in concatenation order.
        markov_rank: 0 for DFlash, which has no Markov head.
        sample_from_anchor: slot i predicts position i + 1 (else position i, and slot 0 is not used).
        window: positions a sliding-window layer sees; 0 when there is no such layer.
        window_layers: for each layer, whether the window applies; empty when it never does.
        tied: the head is the drafter's own embedding.
    """

    n_layer: int
    n_embd: int
    n_ff: int
    n_head: int
    n_head_kv: int
    head_dim: int
    n_ctx: int
    norm_eps: float
    rope_theta: float
    n_vocab: int
    n_vocab_draft: int
    block_size: int
    mask_token_id: int
    target_layers: tuple[int, ...]
    markov_rank: int
    sample_from_anchor: bool
    window: int = 0
    window_layers: tuple[bool, ...] = ()
    tied: bool = False

    @property
    def kind(self) -> str:
        return "dspark" if self.markov_rank else "dflash"

    @property
    def layout(self) -> str:
        return LAYOUT_ANCHOR_FIRST if self.sample_from_anchor else LAYOUT_ONE_PLUS_N

    @property
    def n_slots(self) -> int:
        """Tokens one block can draft."""
        return self.block_size if self.sample_from_anchor else self.block_size - 1
