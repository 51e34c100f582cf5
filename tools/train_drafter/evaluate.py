"""Lossless speculative decoding on held-out prompts: python evaluate.py DRAFTER OUT.json --temp 0 [--per 6] [--new 80]

Real rounds, no shortcut: the drafter proposes BLOCK tokens (its own chain), the target scores them, exact acceptance
(T = 0: equality with the argmax; T > 0: ratio rule with residual resampling), caches roll back.
"""

import argparse
import json
import random
import time

import drafter
import numpy as np
import prompts
import torch
from target import BLOCK, EOT, HD, IM_END, NK, TAPS, D, Target, tokenizer

ap = argparse.ArgumentParser()
ap.add_argument("drafter"), ap.add_argument("out")
ap.add_argument("--temp", type=float, default=0), ap.add_argument("--per", type=int, default=6)
(
    ap.add_argument("--new", type=int, default=80),
    ap.add_argument("--cats", default="code,json,repeat,qa,story,list,math,explain,rewrite,translate"),
)
ap.add_argument("--ext", nargs="*", default=[], help="JSONL files with a 'turns' list: prompts from elsewhere")
ap.add_argument("--seed", type=int, default=5), ap.add_argument("--threads", type=int, default=1)
ap.add_argument("--batch", type=int, default=32)
a = ap.parse_args()
torch.set_num_threads(a.threads), torch.manual_seed(a.seed)
r, tk, S = random.Random(a.seed), tokenizer(), 640
todo, seen = [], set()
for c in filter(None, a.cats.split(",")):
    n = 0
    while n < a.per:
        _, text = prompts.sample(r, c)
        if (not text) or (prompts.held_out(text) and text not in seen):
            n += 1
            seen.add(text)
            todo.append((c, tk.encode(prompts.chat(text)).ids))
for f in a.ext:
    rows = [json.loads(line)["turns"][0] for line in open(f)]
    rows = [x for x in rows if len(x) < 900]
    todo += [("ext:" + f.split("/")[-1].split(".")[0], tk.encode(prompts.chat(x)).ids) for x in r.sample(rows, a.per)]
r.shuffle(todo)
m = drafter.load(a.drafter).eval()
T = Target(a.batch, S)
E, w1, w2 = T.E, m.markov_head.markov_w1.weight.detach(), m.markov_head.markov_w2.weight.detach()
CK = [torch.zeros(a.batch, S, NK, HD) for _ in m.layers]
CV = [torch.zeros(a.batch, S, NK, HD) for _ in m.layers]
stat, conf, samples = {}, [], []


def probs(z):
    return torch.softmax(z / a.temp, -1)


def inject(taps, slot, pos):
    for il, (k, v) in enumerate(m.context(taps.flatten(1), torch.as_tensor(pos))):
        CK[il][slot, pos], CV[il][slot, pos] = k, v


@torch.inference_mode()
def run(batch):
    G = len(batch)
    slot = np.concatenate([[g] * len(p) for g, (_, p) in enumerate(batch)])
    pos = np.concatenate([np.arange(len(p)) for _, p in batch])
    h, taps = T.forward(np.concatenate([p for _, p in batch]), slot, pos)
    inject(taps, slot, pos)
    n = np.array([len(p) for _, p in batch])  # committed positions with features; the anchor sits at n
    z = h[torch.from_numpy(n.cumsum() - 1)] @ E.T
    anchor = (z.argmax(-1) if a.temp == 0 else torch.multinomial(probs(z), 1)[:, 0]).numpy()
    out, live = [[int(t)] for t in anchor], np.arange(G)
    live = live[anchor != IM_END]
    while len(live):
        A, p0 = torch.from_numpy(anchor[live]), n[live]
        mx = int(p0.max())
        hid = m.block(
            E,
            A[:, None],
            torch.from_numpy(p0)[:, None],
            [(CK[il][live, :mx], CV[il][live, :mx]) for il in range(len(CK))],
            (torch.arange(mx) < torch.from_numpy(p0)[:, None])[:, None],
        )[:, 0]
        base, prev, ds, qs, cs = hid @ E.T, A, [], [], []
        for i in range(BLOCK):
            cs.append(torch.sigmoid(m.confidence(hid[:, i], prev)))
            z = base[:, i] + w1[prev] @ w2.T
            if a.temp == 0:
                prev = z.argmax(-1)
            else:
                qs.append(probs(z))
                prev = torch.multinomial(qs[-1], 1)[:, 0]
            ds.append(prev)
        d = torch.stack(ds, 1).numpy()
        rows = np.concatenate([A.numpy()[:, None], d], 1)
        ppos = p0[:, None] + np.arange(BLOCK + 1)
        h, taps = T.forward(rows.ravel(), np.repeat(live, BLOCK + 1), ppos.ravel())
        z = (h @ E.T).view(len(live), BLOCK + 1, -1)
        taps = taps.view(len(live), BLOCK + 1, len(TAPS), D)
        nxt = []
        for j, g in enumerate(live):
            st = stat.setdefault(batch[g][0], dict(rounds=0, tokens=0, reach=[0] * BLOCK, acc=[0] * BLOCK))
            k, t = 0, None
            while k < BLOCK and t is None:
                if a.temp == 0:
                    best = int(z[j, k].argmax())
                    ok, res = best == d[j, k], best
                else:
                    p, q = probs(z[j, k]), qs[k][j]
                    ok = float(torch.rand(())) * float(q[d[j, k]]) < float(p[d[j, k]])
                    if not ok:
                        res = int(torch.multinomial((p - q).clamp(min=0), 1))
                st["reach"][k] += 1
                st["acc"][k] += int(ok)
                conf.append((k, float(cs[k][j]), int(ok)))
                if ok:
                    k += 1
                else:
                    t = res
            if t is None:
                t = int(z[j, k].argmax()) if a.temp == 0 else int(torch.multinomial(probs(z[j, k]), 1))
            new = d[j, :k].tolist() + [t]
            if IM_END in new:
                new = new[: new.index(IM_END) + 1]
            st["rounds"] += 1
            st["tokens"] += len(new)
            out[g] += new
            inject(taps[j, : k + 1], np.full(k + 1, g), p0[j] + np.arange(k + 1))
            n[g], anchor[g] = p0[j] + k + 1, t
            if IM_END not in new and EOT not in new and len(out[g]) < a.new and n[g] + BLOCK + 2 < S:
                nxt.append(g)
        live = np.array(nxt, int)
    for g, (c, p) in enumerate(batch):
        samples.append(
            dict(
                cat=c, prompt=tk.decode(p, skip_special_tokens=False), text=tk.decode(out[g], skip_special_tokens=False)
            )
        )


t0 = time.time()
for i in range(0, len(todo), a.batch):
    run(todo[i : i + a.batch])
    print(
        f"{time.time() - t0:.0f}s {i + a.batch}/{len(todo)}",
        {c: round(s["tokens"] / s["rounds"], 2) for c, s in stat.items()},
        flush=True,
    )


def ece(x, bins=10):
    x = np.array(x)
    b = np.minimum((x[:, 1] * bins).astype(int), bins - 1)
    return float(
        sum(abs(x[b == i, 1].mean() - x[b == i, 2].mean()) * (b == i).mean() for i in range(bins) if (b == i).any())
    )


tot = dict(rounds=0, tokens=0, reach=np.zeros(BLOCK, int), acc=np.zeros(BLOCK, int))
for c, s in stat.items():
    if not c.startswith("ext:"):
        for k in tot:
            tot[k] = tot[k] + (np.array(s[k]) if k in ("reach", "acc") else s[k])


def fmt(s):
    return dict(
        rounds=int(s["rounds"]),
        tokens=int(s["tokens"]),
        tokens_per_round=round(s["tokens"] / s["rounds"], 3),
        accept_given_reached=[round(x / y, 3) if y else None for x, y in zip(s["acc"], s["reach"], strict=False)],
        accepted_at=[round(x / s["rounds"], 3) for x in s["acc"]],
    )


cf = np.array(conf)
bins = []
for i in range(10):
    s = cf[(cf[:, 1] >= i / 10) & (cf[:, 1] < (i + 1) / 10 + (i == 9))]
    if len(s):
        bins.append(
            dict(
                range=[i / 10, (i + 1) / 10],
                n=len(s),
                mean_conf=round(s[:, 1].mean(), 3),
                accepted=round(s[:, 2].mean(), 3),
            )
        )
auc = None
pos, neg = np.sort(cf[cf[:, 2] == 1, 1]), np.sort(cf[cf[:, 2] == 0, 1])
if len(pos) and len(neg):
    auc = float(((np.searchsorted(neg, pos, "left") + np.searchsorted(neg, pos, "right")) / 2).mean() / len(neg))
json.dump(
    dict(
        temp=a.temp,
        block=BLOCK,
        prompts=len(todo),
        new_tokens=a.new,
        overall=fmt(tot),
        categories={c: fmt(s) for c, s in sorted(stat.items())},
        confidence=dict(
            n=len(cf),
            ece=round(ece(cf), 4),
            auc=auc and round(auc, 4),
            mean_conf=round(cf[:, 1].mean(), 4),
            accepted=round(cf[:, 2].mean(), 4),
            per_position=[
                dict(mean_conf=round(cf[cf[:, 0] == k, 1].mean(), 3), accepted=round(cf[cf[:, 0] == k, 2].mean(), 3))
                for k in range(BLOCK)
                if (cf[:, 0] == k).any()
            ],
            bins=bins,
        ),
        samples=samples[:20],
        raw=[[k, round(c, 4), o] for k, c, o in conf],
    ),
    open(a.out, "w"),
    indent=1,
)
