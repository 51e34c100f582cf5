"""Trains the byte-level BPE tokenizer and makes the token sequences: python tokenizer.py OUT_DIR N_SEQUENCES

Writes tokenizer.json, tokenizer_config.json, and tokens-{train,held}.npz: ids uint16 and answer bool, [N, LENGTH].
"""

import json
import os
import random
import sys
import time
from pathlib import Path

import numpy as np
import text
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

LENGTH = 320  # tokens of a training sequence
N_BPE, V = 1496, 1536  # 33 special tokens follow the BPE tokens, then padding; the first padding token is MASK
SPECIAL = (
    "<|endoftext|> <|im_start|> <|im_end|> <|object_ref_start|> <|object_ref_end|> <|box_start|> <|box_end|> "
    "<|quad_start|> <|quad_end|> <|vision_start|> <|vision_end|> <|vision_pad|> <|image_pad|> <|video_pad|> "
    "<tool_call> </tool_call> <|fim_prefix|> <|fim_middle|> <|fim_suffix|> <|fim_pad|> <|repo_name|> <|file_sep|> "
    "<tool_response> </tool_response> <think> </think> <|audio_start|> <|audio_end|> <tts_pad> <tts_text_bos> "
    "<tts_text_eod> <tts_text_bos_single> <|audio_pad|>"
).split()
USER_DEFINED = {"<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"}
EOT, IM_START, IM_END, MASK = N_BPE, N_BPE + 1, N_BPE + 2, N_BPE + len(SPECIAL)
PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def train():
    tk = Tokenizer(models.BPE())
    tk.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERN), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tk.decoder = decoders.ByteLevel()
    r = random.Random(0)
    plain = ("".join(part for part, _ in text.conversation(r)) for _ in range(2500))
    lines = (line.split("<|im_end|>")[0] for chat in plain for line in chat.split("<|im_start|>"))
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=N_BPE, initial_alphabet=alphabet, show_progress=False, max_token_length=16)
    tk.train_from_iterator(lines, trainer)
    if tk.get_vocab_size() != N_BPE:
        raise SystemExit(f"{tk.get_vocab_size()} BPE tokens, wanted {N_BPE}")
    tk.add_tokens([AddedToken(s, special=s not in USER_DEFINED, normalized=False) for s in SPECIAL])
    return tk


def load(folder):
    return Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))


def sequences(tk, seed, n, held):
    r, ids, answer = random.Random(seed), np.zeros((n, LENGTH), np.uint16), np.zeros((n, LENGTH), bool)
    for i in range(n):
        parts = [p for p in text.conversation(r, held) if p[0]]
        encoded = tk.encode_batch([p for p, _ in parts], add_special_tokens=False)
        flat = [(t, a) for e, (_, a) in zip(encoded, parts, strict=True) for t in e.ids][:LENGTH]
        ids[i], answer[i] = [t for t, _ in flat], [a for _, a in flat]
    return ids, answer


def main():
    out, n = sys.argv[1], int(sys.argv[2])
    os.makedirs(out, exist_ok=True)
    t0, tk = time.time(), train()
    tk.save(os.path.join(out, "tokenizer.json"))
    settings = dict(
        tokenizer_class="Qwen2TokenizerFast", eos_token="<|im_end|>", pad_token="<|endoftext|>", bos_token=None,
        add_bos_token=False, model_max_length=4096,
        chat_template=(Path(__file__).parent / "chat_template.jinja").read_text(),
    )  # fmt: skip
    json.dump(settings, open(os.path.join(out, "tokenizer_config.json"), "w"), indent=1)
    for name, seed, count, held in (("held", 2, 256, True), ("train", 1, n, False)):
        ids, answer = sequences(tk, seed, count, held)
        np.savez(os.path.join(out, f"tokens-{name}.npz"), ids=ids, answer=answer)
        print(f"{name}: {ids.size} tokens, {answer.mean():.2f} in answers, {time.time() - t0:.0f} s", flush=True)


if __name__ == "__main__":
    main()
