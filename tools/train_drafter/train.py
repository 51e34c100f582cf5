"""Trains the drafter on cached target features.

python train.py DATA OUT --seconds N [--init OUT_DIR] [--gossip DIR --rank R]
"""

import argparse
import dataclasses
import glob
import json
import math
import os
import time

import drafter
import numpy as np
import torch
from losses import compare, objective
from target import BLOCK, SHAPE, TAPS, D, Target, V

FIXED, NEG, TOPK = 4096, 512, 32  # always-scored tokens, random negatives, target entries per position


class Data:
    def __init__(self, folder):
        self.folder, self.shards, self.train, self.dev, self.mass = folder, {}, [], [], np.zeros(V)
        self.scan()

    def scan(self):
        for f in sorted(glob.glob(os.path.join(self.folder, "*.json"))):
            n = f[:-5]
            if n in self.shards:
                continue
            z = self.shards[n] = {
                k: np.load(f"{n}.{k}.npy", mmap_mode="r" if k == "taps" else None)
                for k in ("toks", "sampled", "taps", "tid", "tlp")
            }
            off = 0
            for d in json.load(open(f)):
                cand = np.nonzero(z["sampled"][off + 1 : off + d["n"]])[0]  # anchors: the next token was sampled
                if len(cand) > 4:
                    (self.dev if d["dev"] else self.train).append((n, off, d["n"], cand, d["cat"]))
                off += d["n"]
            use = np.repeat(z["sampled"][1:], 8)
            np.add.at(
                self.mass,
                z["tid"][:-1, :8].reshape(-1)[use],
                np.exp(z["tlp"][:-1, :8].astype(np.float32)).reshape(-1)[use],
            )
        w = np.array([len(s[3]) for s in self.train], float)
        self.w, self.fixed = w / w.sum(), torch.from_numpy(np.argsort(-self.mass, kind="stable")[:FIXED].copy())

    def batch(self, seqs, anchors, r):
        G, n = len(seqs), max(s[2] for s in seqs)
        ft = np.zeros((G, n, len(TAPS) * D), np.float32)
        tok, smp = np.zeros((G, n + BLOCK + 1), np.int64), np.zeros((G, n + BLOCK + 1), bool)
        tid, tlp = np.zeros((G, n + BLOCK, TOPK), np.int64), np.full((G, n + BLOCK, TOPK), -30, np.float32)
        anc, keep = np.zeros((G, anchors), np.int64), np.zeros((G, anchors), bool)
        for g, (s, off, m, cand, _) in enumerate(seqs):
            z = self.shards[s]
            ft[g, :m] = z["taps"][off : off + m].reshape(m, -1)
            tok[g, :m], smp[g, :m] = z["toks"][off : off + m], z["sampled"][off : off + m]
            tid[g, :m], tlp[g, :m] = z["tid"][off : off + m, :TOPK], z["tlp"][off : off + m, :TOPK]
            c = r.choice(cand, min(anchors, len(cand)), replace=False)
            anc[g, : len(c)], keep[g, : len(c)] = c, True
        idx, gi = anc[:, :, None] + np.arange(BLOCK), np.arange(G)[:, None, None]
        ok = np.cumprod(smp[gi, idx + 1] & keep[:, :, None], -1).astype(bool)
        t = torch.from_numpy
        return dict(
            ft=t(ft),
            anc=t(anc),
            anchor=t(np.take_along_axis(tok, anc, 1)),
            ok=t(ok),
            prev=t(tok[gi, idx]),
            label=t(tok[gi, idx + 1]),
            tid=t(tid[gi, idx]),
            tlp=t(tlp[gi, idx]),
            mask=t(np.arange(n) < anc[:, :, None]),
        )


def step(m, E, b, fixed, negatives):
    """-> for each supervised position: KL (+ entropy), acceptance 1 - L1/2 at T = 1, confidence logit; the mask.

    The softmax runs over frequent tokens, this batch's labels and likely tokens, and weighted random others.
    """
    n = b["ft"].shape[1]
    ctx = m.context(b["ft"], torch.arange(n).expand(len(b["ft"]), n))
    ok = b["ok"]
    h = m.block(E, b["anchor"], b["anc"], ctx, b["mask"])[ok]
    prev, tid, p = b["prev"][ok], b["tid"][ok], b["tlp"][ok].exp()
    ids = torch.unique(torch.cat([fixed, b["label"][ok], tid[:, :8].reshape(-1)]))
    inv = torch.full((V,), -1)
    inv[ids] = torch.arange(len(ids))
    bias = torch.zeros(len(ids) + negatives)
    if negatives:
        rest = torch.nonzero(inv < 0)[:, 0]
        bias[len(ids) :] = math.log(len(rest) / negatives)
        ids = torch.cat([ids, rest[torch.randint(len(rest), (negatives,))]])
    z = h @ E[ids].T + m.markov_head.markov_w1(prev) @ m.markov_head.markov_w2.weight[ids].T + bias
    k = inv[tid]
    kl, acc = compare(z, k, p)
    return kl, acc, m.confidence(h, prev), ok


@torch.no_grad()
def dev_check(m, E, data, k=24):
    r = np.random.default_rng(7)
    pick = [data.dev[i] for i in r.permutation(len(data.dev))[:k]]
    num, den, tau = torch.zeros(BLOCK), torch.zeros(BLOCK), []
    for i in range(0, len(pick), 4):
        _, acc, _, ok = step(m, E, data.batch(pick[i : i + 4], 16, r), data.fixed, 0)
        x = torch.zeros(ok.shape)
        x[ok] = acc
        num, den = num + x.sum((0, 1)), den + ok.sum((0, 1))
        tau.append(x.cumprod(-1).sum(-1)[ok[..., 0]])
    return torch.cat(tau).mean().item(), (num / den).tolist()


def gossip(m, a, first, seen=None):
    """Asynchronous averaging between workers: publish my weights, move halfway to every peer file that is new."""
    if seen is None:
        seen = {}
    ps, mine = [p for _, p in sorted(m.named_parameters())], os.path.join(a.gossip, f"w{a.rank}.pt")
    with torch.no_grad():
        for f in glob.glob(os.path.join(a.gossip, "w*.pt")):
            st = os.stat(f).st_mtime_ns
            if f != mine and seen.get(f) != st and time.time() - st / 1e9 < 120:
                seen[f] = st
                for p, q in zip(ps, torch.load(f), strict=False):
                    p.lerp_(q, 1.0 if a.rank and first else 0.5)
    torch.save([p.detach() for p in ps], mine + ".tmp")
    os.replace(mine + ".tmp", mine)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("data"), ap.add_argument("out"), ap.add_argument("--seconds", type=float, default=3600)
    (
        ap.add_argument("--threads", type=int, default=1),
        ap.add_argument("--init", default="", help="checkpoint folder; empty: warm start from the target"),
    )
    (
        ap.add_argument("--seqs", type=int, default=3),
        ap.add_argument("--anchors", type=int, default=24),
        ap.add_argument("--lr", type=float, default=2e-3),
    )
    (
        ap.add_argument("--layers", type=int, default=2),
        ap.add_argument("--gamma", type=float, default=3.0),
        ap.add_argument("--kl_until", type=float, default=0.25),
    )
    (
        ap.add_argument("--rank", type=int, default=0),
        ap.add_argument("--gossip", default="", help="folder in which workers average weights"),
    )
    ap.add_argument(
        "--start", type=float, default=0, help="epoch time at which the schedule began (workers that join later)"
    )
    a = ap.parse_args()
    torch.set_num_threads(a.threads), torch.manual_seed(a.rank)
    rng, data, T = np.random.default_rng(a.rank), Data(a.data), Target(0, 8)
    E, m = T.E, drafter.Drafter(dataclasses.replace(SHAPE, layers=a.layers))
    if a.init:
        m = drafter.load(a.init)
        if os.path.exists(os.path.join(a.init, "fp32.pt")):
            m.load_state_dict(torch.load(os.path.join(a.init, "fp32.pt")))
    else:
        z = data.shards[data.train[0][0]]["taps"][1:2000:7].astype(np.float32)
        m.warm_start(T, np.sqrt((z[np.abs(z).max((1, 2)) < 2000] ** 2).mean((0, 2))).tolist())
    del T
    named = [(n, p, "markov" in n or "confidence" in n) for n, p in m.named_parameters()]
    opt = torch.optim.AdamW(
        [
            dict(params=[p for n, p, h in named if not h and p.ndim == 2], lr=a.lr, weight_decay=0.01),
            dict(params=[p for n, p, h in named if h or p.ndim == 1], lr=3 * a.lr, weight_decay=0.0),
        ],
        betas=(0.9, 0.95),
    )
    if a.init and os.path.exists(os.path.join(a.init, "opt.pt")):
        opt.load_state_dict(torch.load(os.path.join(a.init, "opt.pt")))
    decay = torch.exp(-torch.arange(BLOCK).float() / a.gamma)
    if a.gossip:
        os.makedirs(a.gossip, exist_ok=True)
    t0, it, avg = a.start or time.time(), 0, np.zeros(3)
    check = scan = save = time.time() - t0
    while True:
        el = time.time() - t0
        u = el / a.seconds
        if not a.rank and (el > check or u >= 1):
            tau, pos = dev_check(m, E, data)
            by_position = " ".join(f"{x:.3f}" for x in pos)
            losses = f"kl/l1/bce {avg.round(3)}"
            print(f"{el:.0f}s it {it} {losses} dev accepted/round {tau:.3f} by position {by_position}", flush=True)
            check = el + max(a.seconds / 20, 60)
        if u >= 1:
            break
        if el > scan:
            data.scan()  # picks up shards that a running generator has finished
            scan = el + 60
        if not a.rank and el > save:
            drafter.save(m, a.out)
            save = el + 300
        if a.gossip and it % 8 == 0:
            gossip(m, a, it == 0)
        f = min(1, (it + 1) / 25) * (0.5 + 0.5 * math.cos(math.pi * u)) + 1e-3
        opt.param_groups[0]["lr"], opt.param_groups[1]["lr"] = a.lr * f, 3 * a.lr * f
        seqs = [data.train[i] for i in rng.choice(len(data.train), a.seqs, p=data.w, replace=False)]
        kl, acc, c, ok = step(m, E, data.batch(seqs, a.anchors, rng), data.fixed, NEG)
        mix = min(1, max(0.15, 1 - (u - a.kl_until) / 0.3))  # KL first, then mostly L1 (which is the acceptance itself)
        loss, parts = objective(kl, acc, c, decay.expand(ok.shape)[ok], mix)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        opt.step()
        it, v = it + 1, np.array([x.item() for x in parts])
        avg = v if it == 1 else 0.97 * avg + 0.03 * v
    if not a.rank:
        drafter.save(m, a.out)
        (
            torch.save(m.state_dict(), os.path.join(a.out, "fp32.pt")),
            torch.save(opt.state_dict(), os.path.join(a.out, "opt.pt")),
        )


if __name__ == "__main__":
    main()
