"""The gated delta rule for training: delta.c as an autograd function (its plain twin is ``delta_rule`` in model.py)."""

import ctypes
import os
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import torch

STRIDE = 16  # as in delta.c


class Input(ctypes.Structure):
    _fields_ = [(n, ctypes.c_int) for n in ("batch", "T", "n_value", "n_key")]
    _fields_ += [(n, ctypes.c_void_p) for n in ("q", "k", "v", "beta", "decay")]


@cache
def kernel():
    source = Path(__file__).with_name("delta.c")
    library = Path(tempfile.gettempdir()) / f"tiny_pair_delta_{os.getuid()}.so"
    if not library.exists() or library.stat().st_mtime < source.stat().st_mtime:
        made = f"{library}.{os.getpid()}"
        flags = ["-Ofast", "-march=native", "-mprefer-vector-width=512", "-Wno-psabi", "-shared", "-fPIC"]
        subprocess.run(["gcc", *flags, str(source), "-o", made], check=True)
        os.replace(made, library)
    return ctypes.CDLL(str(library))


def pointers(*tensors):
    return [ctypes.c_void_p(t.data_ptr()) for t in tensors]


def describe(q, k, v, beta, decay):
    B, T, n_key, _ = q.shape
    return ctypes.byref(Input(B, T, v.shape[2], n_key, *pointers(q, k, v, beta, decay)))


class DeltaRule(torch.autograd.Function):
    @staticmethod
    def forward(ctx, *inputs):
        inputs = [t.contiguous() for t in inputs]
        B, T, n, S = inputs[2].shape
        out, kept = torch.empty_like(inputs[2]), torch.empty(B, n, -(-T // STRIDE), S, S)
        kernel().forward(describe(*inputs), *pointers(out, kept))
        ctx.save_for_backward(*inputs, kept)
        return out

    @staticmethod
    def backward(ctx, dout):
        *inputs, kept = ctx.saved_tensors
        dout, grads = dout.contiguous(), [torch.zeros_like(t) for t in inputs]
        kernel().backward(describe(*inputs), *pointers(kept, dout, *grads))
        return tuple(grads)


def delta_rule(q, k, v, beta, g):
    """q, k [B, T, n_key, 32]; v [B, T, n_value, 32]; beta, g (log decay) [B, T, n_value] -> [B, T, n_value, 32].

    The state starts at zero and is dropped."""
    return DeltaRule.apply(q * v.shape[-1] ** -0.5, k, v, beta, g.exp())
