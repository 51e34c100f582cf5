"""What a drafter is trained for: closeness to the target (KL, then acceptance) and calibrated confidence."""

import torch
import torch.nn.functional as F


def compare(z, columns, p):
    """Draft logits z [n, ids] against the target's likeliest tokens: their columns in z (-1: not there) and
    probabilities p, both [n, top]; everything else counts as one bucket.  -> KL (+ entropy), acceptance 1 - L1/2."""
    there = columns >= 0
    q = torch.where(there, z.gather(1, columns.clamp(min=0)) - torch.logsumexp(z, -1)[:, None], torch.tensor(-30.0))
    p = torch.where(there, p, torch.zeros(()))
    pt, qt = 1 - p.sum(-1), (1 - q.exp().sum(-1)).clamp(min=1e-6)
    kl = -(p * q).sum(-1) - pt * qt.log()
    acc = 1 - 0.5 * ((p - q.exp()).abs().sum(-1) + (pt - qt).abs())
    return kl, acc


def objective(kl, acc, confidence, weights, mix):
    """-> the loss, and its parts (KL, L1, BCE); ``mix`` is the share of KL, the rest goes to L1."""
    w = weights / weights.sum()
    l_kl, l_l1 = (kl * w).sum(), 2 * ((1 - acc) * w).sum()
    target = acc.detach().clamp(0, 1)
    bce = (F.binary_cross_entropy_with_logits(confidence, target, reduction="none") * w).sum()
    return mix * l_kl + (1 - mix) * 3 * l_l1 + 0.3 * bce, (l_kl, l_l1, bce)
