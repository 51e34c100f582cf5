"""How good the target is: python report_target.py TARGET.gguf DATA OUT.json

Loss of held-out answers (nats per token) by category, and the share of tokens that each layer's experts get.
"""

import json
import random
import sys

import text
import torch
import torch.nn.functional as F
from gguf_target import load_target
from model import N_EXPERT, L
from tokenizer import EOT, load

COUNT = 40  # questions of each category


def batch(tk, r, category):
    """-> ids [COUNT, T], which of them are answer tokens."""
    rows = []
    for _ in range(COUNT):
        _, question, _, answer = text.turn(r, category, held=True)
        head = text.prompt(question, tools=category == "tool")
        a, b = (tk.encode(t, add_special_tokens=False).ids for t in (head, answer + "<|im_end|>"))
        rows.append((a + b, len(a)))
    length = max(len(ids) for ids, _ in rows)
    ids = torch.tensor([ids + [EOT] * (length - len(ids)) for ids, _ in rows])
    answer = torch.tensor([[n <= t < len(ids) for t in range(length)] for ids, n in rows])
    return ids, answer


@torch.inference_mode()
def main():
    torch.set_num_threads(1)
    m, tk, r = load_target(sys.argv[1]), load(sys.argv[2]), random.Random(9)
    loss, total, used = {}, [], torch.zeros(L, N_EXPERT)
    for category in text.CATEGORIES:
        (ids, answer), loads = batch(tk, r, category), []
        h, _ = m(ids[:, :-1], loads=loads)
        ce = F.cross_entropy(m.logits(h).flatten(0, 1), ids[:, 1:].flatten(), reduction="none").view(COUNT, -1)
        loss[category] = round(ce[answer[:, 1:]].mean().item(), 4)
        total.append(ce[answer[:, 1:]])
        used += torch.stack([share for share, _ in loads]) / len(text.CATEGORIES)
    result = dict(
        held_out_loss=round(torch.cat(total).mean().item(), 4),
        held_out_loss_by_category=loss,
        expert_share=dict(
            even=round(1 / N_EXPERT, 4),
            least=[round(x, 4) for x in used.min(1).values.tolist()],
            most=[round(x, 4) for x in used.max(1).values.tolist()],
        ),
    )
    json.dump(result, open(sys.argv[3], "w"), indent=1)
    print(result)


if __name__ == "__main__":
    main()
