"""Trains the target: python train_target.py DATA OUT.pt --seconds N [--batch 4] [--lr 0.015]

N counts seconds of CPU time. Goes on from OUT.pt if that exists.  Answers count fully, questions a fifth.
"""

import argparse
import math
import os
import time

import numpy as np
import torch
import torch.nn.functional as F
from model import N_EXPERT, Target
from muon import Mixed


def load_tokens(folder, name):
    z = np.load(os.path.join(folder, f"tokens-{name}.npz"))
    return torch.from_numpy(z["ids"].astype(np.int64)), torch.from_numpy(z["answer"])


def losses(m, ids, answer, loads=None):
    """-> cross entropy of the answers, of the rest (nats per token)."""
    h, _ = m(ids[:, :-1], loads=loads)
    ce = F.cross_entropy(m.logits(h).flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
    a = answer[:, 1:].flatten()
    return ce[a].mean(), ce[~a].mean()


@torch.no_grad()
def held_out_loss(m, ids, answer):
    loads = []
    pairs = [losses(m, ids[i : i + 16], answer[i : i + 16], loads) for i in range(0, len(ids), 16)]
    share = torch.stack([c for c, _ in loads]).view(len(pairs), -1, N_EXPERT).mean(0)
    return *torch.tensor(pairs).mean(0).tolist(), share


def save(path, m, opt, step, spent, order):
    state = dict(model=m.state_dict(), opt=opt.state_dict(), step=step, spent=spent, order=order)
    torch.save(state, path + ".tmp")
    os.replace(path + ".tmp", path)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("data"), ap.add_argument("out"), ap.add_argument("--seconds", type=float, default=3300)
    ap.add_argument("--batch", type=int, default=4), ap.add_argument("--lr", type=float, default=0.015)
    ap.add_argument("--adam_lr", type=float, default=3e-3)
    ap.add_argument("--balance", type=float, default=0.03, help="weight of the load-balancing loss")
    a = ap.parse_args()
    torch.set_num_threads(1), torch.manual_seed(0)
    ids, answer = load_tokens(a.data, "train")
    held = [x[:24] for x in load_tokens(a.data, "held")]
    m = Target(fused=True)
    opt, step, spent, order, rng = Mixed(m.named(), a.lr, a.adam_lr), 0, 0.0, [], np.random.default_rng(0)
    if os.path.exists(a.out):
        s = torch.load(a.out)
        m.load_state_dict(s["model"]), opt.load_state_dict(s["opt"])
        step, spent, order = s["step"], s["spent"], s["order"]
        rng = np.random.default_rng(step)
    t0, check, avg = time.process_time() - spent, spent, None
    while (used := time.process_time() - t0) < a.seconds:
        if len(order) < a.batch:
            order = rng.permutation(len(ids)).tolist()
        pick, order = order[: a.batch], order[a.batch :]
        u = used / a.seconds
        factor = min(1, (step + 1) / 30) * (1.0 if u < 0.35 else 0.02 + 0.98 * (1 - u) / 0.65)
        loads = []
        ce, other = losses(m, ids[pick], answer[pick], loads)
        balance = torch.stack([N_EXPERT * (c * p).sum() for c, p in loads]).mean()
        (ce + 0.2 * other + a.balance * balance).backward()
        torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        opt.step(factor)
        step, v = step + 1, np.array([ce.item(), other.item(), balance.item()])
        avg = v if avg is None else 0.98 * avg + 0.02 * v
        if not math.isfinite(v[0]):
            raise SystemExit("the loss is not finite")
        if used >= check:
            check = used + 60
            save(a.out, m, opt, step, used, order)
            h, o, share = held_out_loss(m, *held)
            print(
                f"{used:.0f}s step {step} answers {avg[0]:.3f} rest {avg[1]:.3f} balance {avg[2]:.2f} "
                f"held {h:.3f} {o:.3f} least used expert {share.min():.3f}",
                flush=True,
            )
    save(a.out, m, opt, step, a.seconds, order)
    print("final held-out loss", held_out_loss(m, *load_tokens(a.data, "held"))[:2], "steps", step, flush=True)


if __name__ == "__main__":
    main()
