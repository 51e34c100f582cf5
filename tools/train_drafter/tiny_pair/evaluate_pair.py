"""Speculative rounds on held-out questions: python evaluate_pair.py TARGET.gguf DRAFTER METRICS.json T0.npz T1.npz

The files hold answers that the target gave without a drafter, at temperature 0 and 1 (sample.py --held).  Rounds are
replayed along them.  Exact at temperature 0; at 1 the ratio rule is read backwards: a drafted token x ~ q that is
accepted with min(1, p/q), else replaced, leaves a token y ~ p of which a share min(1, q(y)/p(y)) was accepted.
"""

import json
import sys

import drafter
import numpy as np
import torch
from gguf_target import load_target
from shape import SHAPE
from tokenizer import IM_END

BLOCK = SHAPE.block
TEMPLATED = ("code", "json", "table", "repeat", "math", "facts", "tool")


class Answers:
    """Answers with what the target knew at every position; rows of ``z`` go through in batches."""

    def __init__(self, m, z, rows):
        ids = torch.from_numpy(z["ids"][rows].astype(np.int64))
        h, self.taps = m(ids, taps=SHAPE.taps)
        self.p = m.logits(h).softmax(-1)  # row t: the token at t + 1
        self.ids, self.n = ids, z["n"][rows]
        self.start = z["sampled"][rows].argmax(1)  # the first sampled token is the first anchor


def slots(d, embedding, head, a, live, anchor):
    """One block for each sequence of ``live``: draft probabilities [rows, BLOCK, V] (tokens of the answer as previous
    tokens), confidences [rows, BLOCK], and the answer's tokens [rows, BLOCK] (-1 behind its end)."""
    at = anchor[:, None] + np.arange(BLOCK + 1)
    inside, at = at < a.n[live][:, None], np.minimum(at, a.ids.shape[1] - 1)
    ids = a.ids[torch.from_numpy(live)[:, None], torch.from_numpy(at)]
    n = int(anchor.max())
    context = d.context(a.taps[live, :n].flatten(2), torch.arange(n).expand(len(live), n))
    pos = torch.from_numpy(anchor)[:, None]
    hid = d.block(embedding, ids[:, :1], pos, context, (torch.arange(n) < pos)[:, None])[:, 0]
    prev = ids[:, :-1]
    q = (hid @ head.T + d.markov_head.markov_w2(d.markov_head.markov_w1(prev))).softmax(-1)
    wanted = torch.where(torch.from_numpy(inside[:, 1:]), ids[:, 1:], -1)
    return q, d.confidence(hid, prev).sigmoid(), wanted


def walk(d, embedding, head, a, category, greedy, stats, confidences):
    live, anchor = np.arange(len(a.n)), a.start.copy()
    while len(live := live[anchor[live] + 1 < a.n[live]]):
        q, conf, wanted = slots(d, embedding, head, a, live, anchor[live])
        for j, row in enumerate(live):
            s, k = stats.setdefault(category[row], dict(rounds=0, tokens=0, reach=[0] * BLOCK, acc=[0] * BLOCK)), 0
            while k < BLOCK and (y := int(wanted[j, k])) >= 0:
                p = float(a.p[row, anchor[row] + k, y])
                ok = int(q[j, k].argmax()) == y if greedy else float(torch.rand(())) * p < float(q[j, k, y])
                s["reach"][k] += 1
                s["acc"][k] += int(ok)
                confidences.append((k, float(conf[j, k]), int(ok)))
                if not ok:
                    break
                k += 1
            new = min(k + 1, int(a.n[row] - 1 - anchor[row]))
            s["rounds"] += 1
            s["tokens"] += new
            anchor[row] += new


def summary(stats, names):
    rows = [stats[n] for n in names if n in stats]
    rounds, tokens = sum(s["rounds"] for s in rows), sum(s["tokens"] for s in rows)
    reach, acc = (np.sum([s[k] for s in rows], 0) for k in ("reach", "acc"))
    return dict(
        rounds=rounds,
        accept_len=round(tokens / rounds, 3),
        accept_given_reached=[round(x, 3) for x in (acc / np.maximum(reach, 1)).tolist()],
        accepted_at=[round(x, 3) for x in (acc / rounds).tolist()],
    )


def calibration(confidences, bins=10):
    k, c, ok = np.array(confidences).T
    b = np.minimum((c * bins).astype(int), bins - 1)
    used = [b == i for i in range(bins) if (b == i).any()]
    return dict(
        n=len(c),
        mean=round(float(c.mean()), 4),
        accepted=round(float(ok.mean()), 4),
        ece=round(float(sum(abs(c[u].mean() - ok[u].mean()) * u.mean() for u in used)), 4),
        by_slot=[[round(float(x[k == i].mean()), 3) for x in (c, ok)] for i in range(BLOCK) if (k == i).any()],
    )


@torch.inference_mode()
def main():
    torch.set_num_threads(1), torch.manual_seed(11)
    m, d = load_target(sys.argv[1]), drafter.load(sys.argv[2]).eval()
    embedding, head = m["token_embd.weight"], m["output.weight"]
    result = {}
    for name, path in (("temperature_0", sys.argv[4]), ("temperature_1", sys.argv[5])):
        z, stats, confidences = np.load(path), {}, []
        for i in range(0, len(z["ids"]), 32):
            rows = slice(i, i + 32)
            answers = Answers(m, z, rows)
            walk(d, embedding, head, answers, z["category"][rows], name == "temperature_0", stats, confidences)
        kinds = [str(c) for c in dict.fromkeys(z["category"])]
        free = [c for c in kinds if c not in TEMPLATED]
        finished = float(np.mean([row[n - 1] == IM_END for row, n in zip(z["ids"], z["n"], strict=True)]))
        result[name] = dict(
            answers=len(z["n"]),
            answers_with_an_end=round(finished, 3),
            templated=summary(stats, TEMPLATED),
            free=summary(stats, free),
            categories={c: summary(stats, [c]) for c in sorted(kinds)},
            confidence=calibration(confidences),
        )
    json.dump(result, open(sys.argv[3], "w"), indent=1)
    for name, r in result.items():
        lengths = {c: s["accept_len"] for c, s in r["categories"].items()}
        print(name, r["templated"]["accept_len"], r["free"]["accept_len"], lengths, r["confidence"])


if __name__ == "__main__":
    main()
