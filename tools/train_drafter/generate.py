"""Batched on-policy generation that keeps the target's hidden states: python generate.py OUT_DIR SECONDS SEED [slots]

Every slot is one chat.  Prompt tokens are fed one by one in the same batch as sampled tokens (continuous batching), so
one pass gives text, tapped hidden states and top-64 log-probabilities.  Prompts of the held-out split are skipped.
"""

import json
import os
import random
import sys
import time

import numpy as np
import prompts
import torch
from target import EOT, IM_END, TAPS, D, Target, tokenizer

TOPK = 64
out_dir, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
B, S = int(sys.argv[4]) if len(sys.argv) > 4 else 128, 640
torch.set_num_threads(1), torch.manual_seed(seed)
os.makedirs(out_dir, exist_ok=True)
rnd, tk, T = random.Random(seed), tokenizer(), Target(B, S)
HEAD = tk.encode("\n<|im_start|>assistant\n").ids
buf = dict(
    toks=np.zeros((B, S), np.uint16),
    sampled=np.zeros((B, S), bool),
    taps=np.zeros((B, S, len(TAPS), D), np.float16),
    tid=np.zeros((B, S, TOPK), np.uint16),
    tlp=np.zeros((B, S, TOPK), np.float16),
)
toks, pos, slots, done, shard, n_tok, t0 = buf["toks"], np.zeros(B, np.int64), [None] * B, [], 0, 0, time.time()


def start(b):
    while True:
        cat, text = prompts.sample(rnd)
        if not text or not prompts.held_out(text):
            break
    u = rnd.random()
    ids = tk.encode(
        prompts.chat(text) if u < 0.75 else prompts.chat(text, None if u < 0.9 else rnd.choice(prompts.SYSTEMS))
    ).ids
    slots[b] = dict(
        cat=cat,
        n=len(ids),
        fed=len(ids),
        user=not text,
        temp=rnd.choice([0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]),
        limit=rnd.choices([96, 192, 320, 500], [3, 5, 3, 1])[0],
    )
    toks[b, : len(ids)], buf["sampled"][b], pos[b] = ids, False, 0


def flush():
    global shard
    if done:
        name = os.path.join(out_dir, f"s{seed:03d}_{shard:04d}")
        for k in buf:
            np.save(f"{name}.{k}.npy", np.concatenate([d[1][k] for d in done]))
        json.dump([dict(d[0], dev=shard == 1) for d in done], open(name + ".json.tmp", "w"))  # shard 1: running check
        os.replace(name + ".json.tmp", name + ".json")  # the index appears last
        done.clear()
        shard += 1


def looping(x):
    return len(x) >= 64 and any((x[-48:] == x[-48 - p : -p]).all() for p in range(1, 16))


for b in range(B):
    start(b)
ar = np.arange(B)
while time.time() - t0 < seconds:
    h, tp = T.forward(toks[ar, pos].astype(np.int64), ar, pos)
    buf["taps"][ar, pos] = tp.half().numpy()
    rows = np.nonzero([pos[b] + 1 == slots[b]["fed"] for b in range(B)])[0]  # slots whose prompt is used up
    if len(rows):
        lg = h[torch.from_numpy(rows)] @ T.E.T
        lp, ix = lg.topk(TOPK)
        lp = lp - lg.logsumexp(-1, keepdim=True)
        temp = torch.tensor([0.9 if slots[b]["user"] else slots[b]["temp"] for b in rows])[:, None]
        pick = ix.gather(1, torch.multinomial(torch.softmax(lp / temp, -1), 1))[:, 0].numpy()
        buf["tid"][rows, pos[rows]], buf["tlp"][rows, pos[rows]] = ix.numpy().astype(np.uint16), lp.half().numpy()
    pos += 1
    for j, b in enumerate(rows):
        s, t, p = slots[b], int(pick[j]), int(pos[b])
        new = p - s["n"]
        if s["user"] and (t in (IM_END, EOT) or new > 100):  # close the user turn, open the answer
            toks[b, p], buf["sampled"][b, p] = IM_END, t == IM_END
            toks[b, p + 1 : p + 1 + len(HEAD)] = HEAD
            s.update(fed=p + 1 + len(HEAD), user=False, n=p + 1 + len(HEAD))
            continue
        toks[b, p], buf["sampled"][b, p], s["fed"] = t, True, p + 1
        if (
            t in (IM_END, EOT)
            or new + 1 >= s["limit"]
            or p + 2 + len(HEAD) >= S
            or (new % 8 == 0 and looping(toks[b, s["n"] : p + 1]))
        ):
            n = p + 1  # the last token has no features yet
            if buf["sampled"][b, :n].sum() >= 6:
                done.append((dict(cat=s["cat"], temp=s["temp"], n=n), {k: v[b, :n].copy() for k, v in buf.items()}))
                n_tok += int(buf["sampled"][b, :n].sum())
            start(b)
    if len(done) >= 96:
        flush()
        print(f"{time.time() - t0:.0f}s shards {shard} tokens {n_tok} {n_tok / (time.time() - t0):.0f}/s", flush=True)
flush()
