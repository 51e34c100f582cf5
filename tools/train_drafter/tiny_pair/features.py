"""What the drafter learns from: python features.py TARGET.gguf OUT.npz SEQUENCES.npz:COUNT [...]

Runs the target over whole sequences and keeps, for every token: the tapped layer outputs (fp16), the TOP likeliest next
tokens and their log-probabilities, and whether the token may be drafted (it was sampled, or belongs to an answer).
"""

import sys

import numpy as np
import torch
from gguf_target import load_target
from shape import SHAPE

TOP = 32


@torch.inference_mode()
def features(m, ids):
    """ids [B, T] -> taps [B, T, len(taps), d], tid and tlp [B, T, TOP]."""
    h, taps = m(ids, taps=SHAPE.taps)
    lp, tid = m.logits(h).log_softmax(-1).topk(TOP)
    return taps, tid, lp


def sequences(spec):
    path, _, count = spec.partition(":")
    z, n = np.load(path), int(count) if count else None
    length = z["n"][:n] if "n" in z else np.full(len(z["ids"][:n]), z["ids"].shape[1])
    return z["ids"][:n], (z["sampled"] if "sampled" in z else z["answer"])[:n], length


def main():
    torch.set_num_threads(1)
    m, parts = load_target(sys.argv[1]), [sequences(s) for s in sys.argv[3:]]
    ids, wanted, n = (np.concatenate([p[k] for p in parts]) for k in range(3))
    out = dict(
        ids=ids, wanted=wanted & (np.arange(ids.shape[1]) < n[:, None]), n=n,
        taps=np.zeros((*ids.shape, len(SHAPE.taps), SHAPE.d), np.float16),
        tid=np.zeros((*ids.shape, TOP), np.uint16), tlp=np.zeros((*ids.shape, TOP), np.float16),
    )  # fmt: skip
    for i in range(0, len(ids), 8):
        rows = features(m, torch.from_numpy(ids[i : i + 8].astype(np.int64)))
        for key, x in zip(("taps", "tid", "tlp"), rows, strict=True):
            out[key][i : i + 8] = x.numpy().astype(out[key].dtype)
        if i % 400 == 0:
            print(f"{i} of {len(ids)} sequences", flush=True)
    np.savez(sys.argv[2], **out)


if __name__ == "__main__":
    main()
