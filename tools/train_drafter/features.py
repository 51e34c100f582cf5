"""Rebuild the feature shards of a stored corpus: python features.py corpus.npz OUT_DIR"""

import json
import os
import sys

import numpy as np
from target import Target

TOPK, z, out = 64, np.load(sys.argv[1], allow_pickle=False), sys.argv[2]
os.makedirs(out, exist_ok=True)
T, starts = Target(32, 768), np.concatenate([[0], np.cumsum(z["n"])])
for s in range(0, len(z["n"]), 32):
    ids = range(s, min(s + 32, len(z["n"])))
    tok = z["toks"][starts[s] : starts[ids[-1] + 1]]
    slot = np.concatenate([np.full(z["n"][i], i - s) for i in ids])
    pos = np.concatenate([np.arange(z["n"][i]) for i in ids])
    tid, tlp, taps = np.zeros((len(tok), TOPK), np.uint16), np.zeros((len(tok), TOPK), np.float16), []
    h, tp = T.forward(tok.astype(np.int64), slot, pos)
    for a in range(0, len(tok), 512):
        lg = h[a : a + 512] @ T.E.T
        lp, ix = lg.topk(TOPK)
        tid[a : a + 512], tlp[a : a + 512] = (
            ix.numpy().astype(np.uint16),
            (lp - lg.logsumexp(-1, keepdim=True)).half().numpy(),
        )
    name = os.path.join(out, f"c{s // 32:05d}")
    dev = z["dev"][s : ids[-1] + 1]
    for k, v in dict(
        toks=tok, sampled=z["sampled"][starts[s] : starts[ids[-1] + 1]], taps=tp.half().numpy(), tid=tid, tlp=tlp
    ).items():
        np.save(f"{name}.{k}.npy", v)
    json.dump(
        [dict(cat=str(z["cat"][i]), temp=float(z["temp"][i]), n=int(z["n"][i]), dev=bool(z["dev"][i])) for i in ids],
        open(name + ".json", "w"),
    )
