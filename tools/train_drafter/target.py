"""SmolLM2-135M-Instruct from its GGUF file: tokenizer, fp32 weights and a batched incremental forward pass."""

import ctypes
import os
import subprocess
import tempfile

import numpy as np
import torch
import torch.nn.functional as F
from drafter import Shape
from gguf import GGUFReader
from gguf.quants import dequantize

GGUF = os.environ.get("SMOL_GGUF", "SmolLM2-135M-Instruct.Q4_1.gguf")
D, L, NQ, NK, HD, V, EPS, THETA = 576, 30, 9, 3, 64, 49152, 1e-5, 100000.0
TAPS = [1, 8, 15, 22, 28]  # outputs of these layers feed the drafter (28 is the last one llama.cpp can tap)
MASK_ID = 16  # <empty_output>: a special token that chat text never contains
IM_START, IM_END, EOT = 1, 2, 0
BLOCK = 8
SHAPE = Shape(
    d=D, ff=1536, n_q=NQ, n_kv=NK, head=HD, vocab=V, rank=64, taps=tuple(TAPS), mask_id=MASK_ID, theta=THETA, eps=EPS,
    target_layers=L, bos_id=1, eos_id=IM_END, pad_id=2, context=8192, block=BLOCK,
)  # fmt: skip


def tokenizer(path=GGUF):
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    f = GGUFReader(path).fields
    toks, merges = f["tokenizer.ggml.tokens"].contents(), f["tokenizer.ggml.merges"].contents()
    types = f["tokenizer.ggml.token_type"].contents()
    tk = Tokenizer(models.BPE({t: i for i, t in enumerate(toks)}, [tuple(m.split(" ")) for m in merges]))
    tk.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tk.decoder = decoders.ByteLevel()
    tk.add_special_tokens(
        [AddedToken(t, normalized=False, special=True) for t, y in zip(toks, types, strict=False) if y in (3, 4)]
    )
    return tk


def kernel():
    here = os.path.dirname(os.path.abspath(__file__))
    so = os.path.join(tempfile.gettempdir(), f"smol_attn_{os.getuid()}.so")
    src = os.path.join(here, "attn.c")
    if not os.path.exists(so) or os.path.getmtime(so) < os.path.getmtime(src):
        tmp = f"{so}.{os.getpid()}"
        subprocess.run(["gcc", "-Ofast", "-march=native", "-shared", "-fPIC", src, "-o", tmp, "-lm"], check=True)
        os.replace(tmp, so)
    return ctypes.CDLL(so).attn


class Target:
    def __init__(self, slots, S, path=GGUF):
        T = {t.name: t for t in GGUFReader(path).tensors}

        def w(name, heads=0):
            a = np.array(dequantize(T[name].data, T[name].tensor_type), dtype=np.float32)
            if heads:  # GGUF keeps rotary pairs interleaved; use half-split rows
                a = a.reshape(heads, HD // 2, 2, -1).swapaxes(1, 2).reshape(a.shape)
            return torch.from_numpy(np.ascontiguousarray(a))

        self.E, self.norm = w("token_embd.weight"), w("output_norm.weight")
        self.W = []
        for i in range(L):
            b = f"blk.{i}."
            self.W.append(
                dict(
                    qkv=torch.cat([w(b + "attn_q.weight", NQ), w(b + "attn_k.weight", NK), w(b + "attn_v.weight")]),
                    o=w(b + "attn_output.weight"),
                    gu=torch.cat([w(b + "ffn_gate.weight"), w(b + "ffn_up.weight")]),
                    d=w(b + "ffn_down.weight"),
                    n1=w(b + "attn_norm.weight"),
                    n2=w(b + "ffn_norm.weight"),
                )
            )
        self.S, self.kernel = S, kernel()
        self.K = torch.zeros(L, slots, NK, S, HD, dtype=torch.float16) if slots else None
        self.Vc = torch.zeros_like(self.K) if slots else None
        ang = torch.arange(S).double()[:, None] * THETA ** (-torch.arange(0, HD, 2).double() / HD)
        self.cs = torch.cat([ang.cos(), ang.sin()], 1).float().contiguous()

    @torch.inference_mode()
    def forward(self, ids, slot, pos):
        """ids, slot, pos: int arrays [R] -> (final normed hidden [R, D], taps [R, len(TAPS), D])."""
        R = len(ids)
        slot, pos = np.ascontiguousarray(slot, np.int32), np.ascontiguousarray(pos, np.int32)
        x, out, taps = self.E[torch.as_tensor(ids, dtype=torch.long)], torch.empty(R, NQ * HD), []

        def ptr(t):
            return ctypes.c_void_p(t.data_ptr() if torch.is_tensor(t) else t.ctypes.data)

        for i, w in enumerate(self.W):
            qkv = F.rms_norm(x, (D,), w["n1"], EPS) @ w["qkv"].T
            self.kernel(
                ptr(qkv), ptr(self.K[i]), ptr(self.Vc[i]), ptr(slot), ptr(pos), ptr(self.cs), ptr(out), R, self.S
            )
            x = x + out @ w["o"].T
            g, u = (F.rms_norm(x, (D,), w["n2"], EPS) @ w["gu"].T).chunk(2, -1)
            x = x + (F.silu(g) * u) @ w["d"].T
            if i in TAPS:
                taps.append(x)
        return F.rms_norm(x, (D,), self.norm, EPS), torch.stack(taps, 1)
