"""Trains the drafter: python train_pair.py TARGET.gguf FEATURES.npz OUT_DIR --seconds N

Writes config.json and model.safetensors (BF16, DeepSpec names) without embedding and head: the target's are used.
N counts seconds of CPU time. Goes on from OUT_DIR/state.pt if that exists.
"""

import argparse
import os
import time

import drafter
import numpy as np
import torch
from gguf_target import load_target
from losses import compare, objective
from muon import Mixed
from shape import SHAPE

BLOCK = SHAPE.block


class Data:
    def __init__(self, path, held=48):
        z = np.load(path)
        self.z = {k: torch.from_numpy(z[k].astype(np.int64) if k in ("ids", "tid") else z[k]) for k in z.files}
        order = np.random.default_rng(1).permutation(len(z["ids"]))
        self.held, self.train = order[:held], order[held:]

    def batch(self, rows, anchors, generator):
        """Random anchors (the token after each may be drafted) in the sequences ``rows``; G of them, A anchors each."""
        z = {k: v[rows] for k, v in self.z.items()}
        G, n = z["ids"].shape
        weight = z["wanted"][:, 1:].float() + 1e-6
        anc = torch.multinomial(weight, anchors, replacement=False, generator=generator)
        at = anc[..., None] + torch.arange(BLOCK + 1)
        inside, at, row = at < n, at.clamp(max=n - 1), torch.arange(G)[:, None, None]
        ids, wanted = z["ids"][row, at], z["wanted"][row, at] & inside
        return dict(
            taps=z["taps"].float().flatten(2), anc=anc, anchor=ids[..., 0], prev=ids[..., :-1],
            ok=wanted[..., 1:].long().cumprod(-1).bool(), tid=z["tid"][row, at[..., :-1]],
            p=z["tlp"][row, at[..., :-1]].float().exp(), mask=torch.arange(n) < anc[..., None],
        )  # fmt: skip


def scores(m, embedding, head, b):
    """-> KL, acceptance at T = 1, confidence logit of every supervised slot; the mask of those [G, A, BLOCK]."""
    G, n, _ = b["taps"].shape
    ok, ctx = b["ok"], m.context(b["taps"], torch.arange(n).expand(G, n))
    h = m.block(embedding, b["anchor"], b["anc"], ctx, b["mask"])[ok]
    prev = b["prev"][ok]
    z = h @ head.T + m.markov_head.markov_w2(m.markov_head.markov_w1(prev))
    return *compare(z, b["tid"][ok], b["p"][ok]), m.confidence(h, prev), ok


@torch.no_grad()
def check(m, embedding, head, data):
    g, num, den, lengths = torch.Generator().manual_seed(7), torch.zeros(BLOCK), torch.zeros(BLOCK), []
    for i in range(0, len(data.held), 16):
        _, acc, _, ok = scores(m, embedding, head, data.batch(data.held[i : i + 16], 24, g))
        x = torch.zeros(ok.shape)
        x[ok] = acc
        num, den = num + x.sum((0, 1)), den + ok.sum((0, 1))
        lengths.append(x.cumprod(-1).sum(-1)[ok[..., 0]])
    return torch.cat(lengths).mean().item(), (num / den).tolist()


def start(embedding):
    m = drafter.Drafter(SHAPE)
    with torch.no_grad():
        for name, p in m.named_parameters():
            if p.ndim == 2 and "markov" not in name and "confidence" not in name:
                p.normal_(std=p.shape[1] ** -0.5)
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                p.mul_(0.5)
        m.norm.weight.fill_(1.0)
        m.markov_head.markov_w1.weight.normal_(std=1.0)
        m.markov_head.markov_w2.weight.zero_()
        m.confidence_head.proj.weight.zero_()
    return m


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("target"), ap.add_argument("features"), ap.add_argument("out")
    ap.add_argument("--seconds", type=float, default=1500), ap.add_argument("--batch", type=int, default=12)
    ap.add_argument("--anchors", type=int, default=48), ap.add_argument("--lr", type=float, default=0.02)
    ap.add_argument("--adam_lr", type=float, default=4e-3), ap.add_argument("--gamma", type=float, default=4.0)
    a = ap.parse_args()
    torch.set_num_threads(1), torch.manual_seed(0)
    target, data = load_target(a.target), Data(a.features)
    embedding, head = target["token_embd.weight"].detach(), target["output.weight"].detach()
    m, state = start(embedding), os.path.join(a.out, "state.pt")
    opt, step, spent, avg = Mixed(dict(m.named_parameters()), a.lr, a.adam_lr), 0, 0.0, np.zeros(3)
    if os.path.exists(state):
        s = torch.load(state)
        m.load_state_dict(s["model"]), opt.load_state_dict(s["opt"])
        step, spent = s["step"], s["spent"]
    g, decay = torch.Generator().manual_seed(step), torch.exp(-torch.arange(BLOCK) / a.gamma)
    t0, due = time.process_time() - spent, spent
    while True:
        used = time.process_time() - t0
        u = min(1.0, used / a.seconds)
        if used >= due or u == 1.0:
            due = used + 60
            length, by_slot = check(m, embedding, head, data)
            shown = " ".join(f"{x:.3f}" for x in by_slot)
            print(f"{used:.0f}s step {step} kl/l1/bce {avg.round(3)} accepted {length:.3f} by slot {shown}", flush=True)
            drafter.save(m, a.out)
            torch.save(dict(model=m.state_dict(), opt=opt.state_dict(), step=step, spent=used), state)
        if u == 1.0:
            break
        rows = data.train[torch.randint(len(data.train), (a.batch,), generator=g).numpy()]
        b = data.batch(rows, a.anchors, g)
        kl, acc, confidence, ok = scores(m, embedding, head, b)
        mix = min(1.0, max(0.15, 1 - (u - 0.3) / 0.3))  # KL first, then mostly L1, which is the acceptance itself
        loss, parts = objective(kl, acc, confidence, decay.expand(ok.shape)[ok], mix)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        opt.step(min(1, (step + 1) / 30) * (1.0 if u < 0.4 else 0.02 + 0.98 * (1 - u) / 0.6))
        step += 1
        avg += (np.array([x.item() for x in parts]) - avg) * max(0.03, 1 / step)


if __name__ == "__main__":
    main()
