"""Sizes of the tiny drafter."""

from drafter import Shape
from model import EPS, D, L
from tokenizer import EOT, IM_END, MASK, V

SHAPE = Shape(
    d=D, ff=384, n_q=4, n_kv=2, head=64, vocab=V, rank=32, taps=(1, 3, 5, 6), mask_id=MASK, theta=1e5, eps=EPS,
    target_layers=L, bos_id=EOT, eos_id=IM_END, pad_id=EOT, context=4096, layers=2, block=8,
)  # fmt: skip
