"""Gives layer 0 induction heads once the drafter has learned the basics: python graft.py DATA IN OUT

Query = identity of the anchor token, key = identity of a context token (read from the lowest tap), value = what
followed it, as far as the tapped features tell. All maps come from ridge regressions on cached features; training
goes on from there. Gradient descent from scratch needs far longer to find this; with it, copying (code, JSON,
lists) starts to work in minutes.
"""

import os
import sys

import drafter
import numpy as np
import torch
from drafter import rope
from target import HD, NQ, THETA, D, Target
from train import Data

NC, GROUPS = 32, (0, 1)  # code size; kv heads that become induction heads
DIMS = torch.tensor([d for i in range(31, 15, -1) for d in (i, i + 32)])  # slowest rotary pairs first


def ridge(X, Y, lam=1e-3):
    G = X.T @ X
    return torch.linalg.solve(G + lam * G.diagonal().mean() * torch.eye(len(G)), X.T @ Y).T  # [out, in]


def r2(X, Y, W):
    return 1 - ((Y - X @ W.T) ** 2).sum().item() / ((Y - Y.mean(0)) ** 2).sum().item()


data, rng, E, m = Data(sys.argv[1]), np.random.default_rng(0), Target(0, 8).E, drafter.load(sys.argv[2])
with torch.no_grad():
    pick, X, tok = [data.train[i] for i in rng.permutation(len(data.train))[:160]], [], []
    for s, off, n, _, _ in pick:
        X.append(torch.from_numpy(data.shards[s]["taps"][off + 1 : off + n - 1 : 2].astype(np.float32)).flatten(1))
        tok.append(torch.from_numpy(data.shards[s]["toks"][off + 1 : off + n - 1 : 2].astype(np.int64)))
    X, tok = torch.cat(X), torch.cat(tok)
    Ef = E[data.fixed[:3000]]  # token codes: whitened leading components of frequent embeddings
    _, S_, Vt = torch.linalg.svd(Ef - Ef.mean(0), full_matrices=False)
    code = (E - Ef.mean(0)) @ (Vt[:NC] / (S_[:NC, None] / len(Ef) ** 0.5)).T
    code = code / code.norm(dim=1, keepdim=True) * NC**0.5
    M = ridge(X[:, :D], code[tok])  # 1. carry the code through fc along directions it hardly uses
    ev, dirs = torch.linalg.eigh(torch.cov((X @ m.fc.weight.T).T))
    m.fc.weight[:, :D] += 1.5 * ev.clamp(min=0).sqrt().median() * dirs[:, :NC] @ M
    u, layer = m.hidden_norm(m.fc(X)), m.layers[0]  # 2. keys and queries of the chosen heads
    a0, xe = layer.self_attn, layer.input_layernorm(E[tok])
    Wk, Wq = ridge(u, code[tok]), ridge(xe, code[tok])
    print(f"r2: tap {r2(X[:, :D], code[tok], M):.3f} key {r2(u, code[tok], Wk):.3f} query {r2(xe, code[tok], Wq):.3f}")
    a0.q_norm.weight.fill_(1.6), a0.k_norm.weight.fill_(1.6)
    for g in GROUPS:
        a0.k_proj.weight[g * HD : (g + 1) * HD] = torch.zeros(HD, D).index_copy(0, DIMS, Wk)
        for h in range(3 * g, 3 * g + 3):
            a0.q_proj.weight[h * HD : (h + 1) * HD] = (torch.randn(HD, D) * 0.01).index_copy(
                0, DIMS, Wq + torch.randn_like(Wq) * Wq.std() * 0.1
            )
    seen, nxt = [], []  # 3. values: from what the head sees to the expected next embedding
    for s in pick[:120]:
        b = data.batch([s], 24, rng)
        ctx, pos = m.hidden_norm(m.fc(b["ft"])), torch.arange(b["ft"].shape[1])[None]
        q = a0.q_norm(a0.q_proj(layer.input_layernorm(E[b["anchor"][0]])).unflatten(-1, (NQ, HD)))
        q = rope(q, b["anc"][0], THETA)[:, 0]
        att = (q @ a0.kv(ctx, pos)[0][0, :, 0].T * HD**-0.5).masked_fill(~b["mask"][0], -1e30).softmax(-1)
        ok = b["ok"][0, :, 0] & (b["anc"][0] > 8)
        seen.append((att @ ctx[0])[ok])
        nxt.append((b["tlp"][0, :, 0].exp()[..., None] * E[b["tid"][0, :, 0]]).sum(1)[ok])
    seen, nxt = torch.cat(seen), torch.cat(nxt)
    R = ridge(seen, nxt - nxt.mean(0), 3e-2)
    basis = torch.linalg.svd(seen @ R.T, full_matrices=False)[2]
    gain = (
        30 / (seen @ R.T @ basis[: 2 * HD].T).pow(2).mean().sqrt()
    )  # large values, small output map: Adam can grow it
    for i, g in enumerate(GROUPS):
        a0.v_proj.weight[g * HD : (g + 1) * HD] = gain * basis[i * HD : (i + 1) * HD] @ R
        for h in range(3 * g, 3 * g + 3):
            a0.o_proj.weight[:, h * HD : (h + 1) * HD] = 20 / 3 / gain * basis[i * HD : (i + 1) * HD].T
drafter.save(m, sys.argv[3])
torch.save(m.state_dict(), os.path.join(sys.argv[3], "fp32.pt"))
