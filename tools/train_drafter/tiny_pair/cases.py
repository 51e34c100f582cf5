"""Held-out questions and reference values for tests: python cases.py TARGET.gguf DATA PROMPTS.json VALUES.npz

PROMPTS.json: questions of every category with the ids of the rendered prompt and of the greedy answer (float32 weights
as stored in the file, activations not rounded).  VALUES.npz: ids of one chat, outputs of the tapped layers, and the
likeliest next tokens with their logits.
"""

import json
import random
import sys

import numpy as np
import text
import torch
from gguf_target import load_target
from model import L
from sample import Slot, generate
from shape import SHAPE
from tokenizer import load

TOP, LENGTH = 20, 96


def prompts(m, tk, r):
    kinds = [(c, False) for c in text.CATEGORIES for _ in range(2)] + [("json", True), ("math", True)]
    slots = []
    for category, thinking in kinds:
        _, question, _, _ = text.turn(r, category, held=True)
        tools = category == "tool"
        ids = tk.encode(text.prompt(question, thinking, tools=tools), add_special_tokens=False).ids
        slot = Slot.of(ids, category)
        slot.case = dict(category=category, question=question, thinking=thinking, tools=tools, prompt=ids)
        slots.append(slot)
    list(generate(m, [lambda s=s: s for s in slots], 20))
    return [dict(s.case, answer=s.ids[s.start :], text=tk.decode(s.ids[s.start :])) for s in slots]


@torch.inference_mode()
def main():
    torch.set_num_threads(1)
    m, tk = load_target(sys.argv[1]), load(sys.argv[2])
    cases = prompts(m, tk, random.Random(21))
    json.dump(dict(tool=text.TOOL, prompts=cases), open(sys.argv[3], "w"), indent=1)
    ids = np.concatenate([c["prompt"] + c["answer"] for c in cases if c["category"] in ("code", "story")])[:LENGTH]
    h, taps = m(torch.from_numpy(ids)[None], taps=tuple(range(L)))
    logits, top = m.logits(h)[0].topk(TOP)
    np.savez_compressed(
        sys.argv[4], ids=ids.astype(np.int32), taps=np.array(SHAPE.taps, np.int32), top_logits=logits.numpy(),
        top_ids=top.numpy().astype(np.int32), **{f"out{i}": taps[0, :, i].numpy() for i in SHAPE.taps},
    )  # fmt: skip
    for c in cases:
        print(c["category"], "|", c["question"][:60].replace("\n", "/"), "|", c["text"][:90].replace("\n", "/"))


if __name__ == "__main__":
    main()
