"""Answers of the target to generated questions: python sample.py TARGET.gguf DATA OUT.npz --sequences N [--held]

Training text (default): chats of several turns, every answer sampled at its own temperature.
--held: one answer to each of N held-out questions of every category at --temp, for evaluation.
Writes ids uint16 [N, LENGTH], sampled bool [N, LENGTH], n [N], category [N].
"""

import argparse
import random
import time

import numpy as np
import text
import torch
from gguf_target import load_target
from step import Stepper
from tokenizer import EOT, IM_END, LENGTH, load

MAX_ANSWER = 140


class Slot:
    """One chat: tokens to feed, then sampled ones."""

    def __init__(self, tk, r, category=None, held=False, temp=None):
        self.tk, self.r, self.held, self.fixed_temp, self.single = tk, r, held, temp, category is not None
        self.tools = category == "tool" or (not self.single and r.random() < 0.12)
        self.ids, self.sampled, self.category = [], [], category
        self.ask(text.system_turn(r.choice(text.SYSTEMS) if r.random() < 0.3 else "", self.tools))

    @staticmethod
    def of(ids, category):
        """A chat that answers these ids once, greedily."""
        slot = object.__new__(Slot)
        slot.ids, slot.sampled, slot.category = list(ids), [False] * len(ids), category
        slot.single, slot.start, slot.temp = True, len(ids), 0
        return slot

    def ask(self, before):
        r = self.r
        while True:
            category, question, _, _ = text.turn(r, self.category, self.held)
            if self.tools or category != "tool":
                break
        thinking = not self.held and r.random() < 0.3
        new = self.tk.encode(before + text.prompt(question, thinking), add_special_tokens=False).ids
        self.ids += new
        self.sampled += [False] * len(new)
        self.start = len(self.ids)
        self.temp = self.fixed_temp if self.fixed_temp is not None else r.choice([0, 0.5, 0.8, 1.0, 1.0])

    def add(self, token):
        """Appends a sampled token; True when the chat is over."""
        self.ids.append(token)
        self.sampled.append(True)
        over = token in (IM_END, EOT) or len(self.ids) - self.start >= MAX_ANSWER
        if self.single:
            return over
        if over and len(self.ids) < LENGTH:
            self.ask("\n" if token == IM_END else "<|im_end|>\n")
        return len(self.ids) >= LENGTH


def choose(logits, temps):
    p = (logits / temps.clamp(min=1e-3)[:, None]).softmax(-1)
    return torch.where(temps == 0, logits.argmax(-1), torch.multinomial(p, 1)[:, 0]).tolist()


def generate(target, queue, slots):
    """Runs all chats of ``queue`` (a list of functions that make a Slot), ``slots`` at a time; yields finished ones."""
    step = Stepper(target, slots, LENGTH + 8)
    live, pos = [None] * slots, torch.zeros(slots, dtype=torch.long)
    while True:
        for b in range(slots):
            if live[b] is None and queue:
                live[b], pos[b] = queue.pop()(), 0
                step.reset(b)
        if not any(live):
            return
        ids = torch.tensor([s.ids[p] if s else 0 for s, p in zip(live, pos.tolist(), strict=True)])
        logits = step(ids, pos)
        pos += torch.tensor([s is not None for s in live])
        ready = [b for b in range(slots) if live[b] and pos[b] == len(live[b].ids)]
        if not ready:
            continue
        temps = torch.tensor([float(live[b].temp) for b in ready])
        for b, token in zip(ready, choose(logits[ready], temps), strict=True):
            if live[b].add(token):
                yield live[b]
                live[b], pos[b] = None, 0


def pack(chats):
    n = np.array([min(len(c.ids), LENGTH) for c in chats])
    ids, sampled = np.full((len(chats), LENGTH), EOT, np.uint16), np.zeros((len(chats), LENGTH), bool)
    for i, c in enumerate(chats):
        ids[i, : n[i]], sampled[i, : n[i]] = c.ids[: n[i]], c.sampled[: n[i]]
    return dict(ids=ids, sampled=sampled, n=n, category=np.array([c.category or "chat" for c in chats]))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("target"), ap.add_argument("data"), ap.add_argument("out")
    ap.add_argument("--sequences", type=int, default=1200), ap.add_argument("--slots", type=int, default=96)
    ap.add_argument("--held", action="store_true"), ap.add_argument("--temp", type=float, default=0)
    ap.add_argument("--seed", type=int, default=3)
    a = ap.parse_args()
    torch.set_num_threads(1), torch.manual_seed(a.seed)
    tk, r, t0 = load(a.data), random.Random(a.seed), time.time()
    kinds = list(text.CATEGORIES) if a.held else [None]
    queue = [lambda c=c: Slot(tk, r, c, a.held, a.temp if a.held else None) for _ in range(a.sequences) for c in kinds]
    chats = []
    for chat in generate(load_target(a.target), queue, a.slots):
        chats.append(chat)
        if len(chats) % 100 == 0:
            print(f"{time.time() - t0:.0f}s {len(chats)} chats", flush=True)
    np.savez(a.out, **pack(chats))


if __name__ == "__main__":
    main()
