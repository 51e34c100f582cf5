"""The DSpark drafter (DeepSpec's dense Qwen3 form) with a block-parallel training forward and DeepSpec tensor names."""

import json
import os
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass(frozen=True)
class Shape:
    """Sizes of a drafter and what it must know of its target; ``taps`` are target layers, counted by their outputs."""

    d: int  # hidden size, the target's too
    ff: int
    n_q: int
    n_kv: int
    head: int
    vocab: int
    rank: int  # of the Markov head
    taps: tuple
    mask_id: int
    theta: float
    eps: float
    target_layers: int
    eos_id: int
    pad_id: int
    context: int
    bos_id: int | None = None
    layers: int = 2
    block: int = 8


def linear(i, o, bias=False):
    m = nn.Linear(i, o, bias=bias)
    nn.init.normal_(m.weight, std=0.02)
    return m


class Norm(nn.Module):
    def __init__(self, n, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(n)), eps

    def forward(self, x):
        return F.rms_norm(x, x.shape[-1:], self.weight, self.eps)


def rope(x, pos, theta):
    """x [..., heads, head], pos [...]"""
    n = x.shape[-1]
    a = pos[..., None, None].float() * theta ** (-torch.arange(0, n, 2).float() / n)
    c, s, u, v = a.cos(), a.sin(), x[..., : n // 2], x[..., n // 2 :]
    return torch.cat([u * c - v * s, v * c + u * s], -1)


class Attention(nn.Module):
    def __init__(self, z):
        super().__init__()
        self.z = z
        self.q_proj, self.o_proj = linear(z.d, z.n_q * z.head), linear(z.n_q * z.head, z.d)
        self.k_proj, self.v_proj = linear(z.d, z.n_kv * z.head), linear(z.d, z.n_kv * z.head)
        self.q_norm, self.k_norm = Norm(z.head, z.eps), Norm(z.head, z.eps)

    def kv(self, x, pos):
        z = self.z
        k = rope(self.k_norm(self.k_proj(x).unflatten(-1, (z.n_kv, z.head))), pos, z.theta)
        return k, self.v_proj(x).unflatten(-1, (z.n_kv, z.head))

    def forward(self, x, pos, ck, cv, mask):
        """x [G, A, T, d] blocks; ck, cv [G, n, n_kv, head] context; mask [G, A, n], True = visible."""
        G, A, T, _ = x.shape
        z = self.z
        NK, HD, r = z.n_kv, z.head, z.n_q // z.n_kv
        q = rope(self.q_norm(self.q_proj(x).unflatten(-1, (z.n_q, HD))), pos, z.theta)
        q = q.view(G, A, T, NK, r, HD).permute(0, 3, 1, 4, 2, 5) * HD**-0.5  # G NK A r T HD
        k, v = (t.permute(0, 3, 1, 2, 4) for t in self.kv(x, pos))  # G NK A T HD
        ck, cv = ck.transpose(1, 2), cv.transpose(1, 2)  # G NK n HD
        s1 = (q.reshape(G, NK, A * r * T, HD) @ ck.transpose(-1, -2)).view(G, NK, A, r * T, -1)
        s1 = s1.masked_fill(~mask[:, None, :, None], -1e30)
        s2 = q.reshape(G, NK, A, r * T, HD) @ k.transpose(-1, -2)
        p = torch.softmax(torch.cat([s1, s2], -1), -1)
        n = ck.shape[2]
        o = (p[..., :n].reshape(G, NK, A * r * T, n) @ cv).view(G, NK, A, r * T, HD) + p[..., n:] @ v
        o = o.view(G, NK, A, r, T, HD).permute(0, 2, 4, 1, 3, 5).reshape(G, A, T, z.n_q * HD)
        return self.o_proj(o)


class MLP(nn.Module):
    def __init__(self, z):
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = linear(z.d, z.ff), linear(z.d, z.ff), linear(z.ff, z.d)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, z):
        super().__init__()
        self.self_attn, self.mlp = Attention(z), MLP(z)
        self.input_layernorm, self.post_attention_layernorm = Norm(z.d, z.eps), Norm(z.d, z.eps)


class Drafter(nn.Module):
    def __init__(self, z):
        super().__init__()
        self.z = z
        self.layers = nn.ModuleList(Layer(z) for _ in range(z.layers))
        self.fc, self.hidden_norm, self.norm = linear(len(z.taps) * z.d, z.d), Norm(z.d, z.eps), Norm(z.d, z.eps)
        self.markov_head = nn.Module()
        self.markov_head.markov_w1, self.markov_head.markov_w2 = nn.Embedding(z.vocab, z.rank), linear(z.rank, z.vocab)
        self.confidence_head = nn.Module()
        self.confidence_head.proj = linear(z.d + z.rank, 1, bias=True)

    @torch.no_grad()
    def warm_start(self, T, rms):
        """Layers from the target's last ones, features from the last tap, Markov rows from a PCA of the embedding."""
        z, n, D = self.z, len(self.layers), self.z.d
        for i, layer in enumerate(self.layers):
            w, a = T.W[z.target_layers - n + i], layer.self_attn
            q, k, v = w["qkv"].split([z.n_q * z.head, z.n_kv * z.head, z.n_kv * z.head])
            for m, t in (
                (a.q_proj, q),
                (a.k_proj, k),
                (a.v_proj, v),
                (a.o_proj, w["o"]),
                (layer.mlp.gate_proj, w["gu"][: z.ff]),
                (layer.mlp.up_proj, w["gu"][z.ff :]),
                (layer.mlp.down_proj, w["d"]),
                (layer.input_layernorm, w["n1"]),
                (layer.post_attention_layernorm, w["n2"]),
            ):
                m.weight.copy_(t)
            a.q_norm.weight.fill_(1.5), a.k_norm.weight.fill_(1.5)
        self.norm.weight.copy_(0.35 * T.norm)  # softer logits: an unscaled warm start is confidently wrong
        self.hidden_norm.weight.copy_(T.W[29]["n1"])
        for j, s in enumerate(rms):
            self.fc.weight[:, j * D : (j + 1) * D] = torch.randn(D, D) * (0.1 * rms[-1] / s) / D**0.5
        self.fc.weight[:, -D:] += torch.eye(D)
        _, _, pc = torch.pca_lowrank(T.E, z.rank, niter=4)
        rows = (T.E - T.E.mean(0)) @ pc
        self.markov_head.markov_w1.weight.copy_(rows / rows.std())
        self.markov_head.markov_w2.weight.zero_()

    def context(self, feats, pos):
        h = self.hidden_norm(self.fc(feats))
        return [layer.self_attn.kv(h, pos) for layer in self.layers]

    def block(self, E, anchors, pos, ctx, mask):
        """anchors, pos [G, A] (token id, position) -> hidden [G, A, block, d]"""
        ids = torch.full((*anchors.shape, self.z.block), self.z.mask_id)
        ids[..., 0] = anchors
        x, p = E[ids], pos[..., None] + torch.arange(self.z.block)
        for layer, (k, v) in zip(self.layers, ctx, strict=False):
            x = x + layer.self_attn(layer.input_layernorm(x), p, k, v, mask)
            x = x + layer.mlp(layer.post_attention_layernorm(x))
        return self.norm(x)

    def confidence(self, hid, prev):
        return self.confidence_head.proj(torch.cat([hid, self.markov_head.markov_w1(prev)], -1))[..., 0]


def config(z):
    return dict(
        architectures=["Qwen3DSparkModel"],
        model_type="qwen3",
        vocab_size=z.vocab,
        hidden_size=z.d,
        intermediate_size=z.ff,
        num_hidden_layers=z.layers,
        num_attention_heads=z.n_q,
        num_key_value_heads=z.n_kv,
        head_dim=z.head,
        hidden_act="silu",
        rms_norm_eps=z.eps,
        rope_theta=z.theta,
        rope_scaling=None,
        max_position_embeddings=z.context,
        attention_bias=False,
        attention_dropout=0.0,
        initializer_range=0.02,
        layer_types=["full_attention"] * z.layers,
        sliding_window=None,
        use_sliding_window=False,
        tie_word_embeddings=False,
        bos_token_id=z.bos_id,
        eos_token_id=z.eos_id,
        pad_token_id=z.pad_id,
        torch_dtype="bfloat16",
        num_target_layers=z.target_layers,
        block_size=z.block,
        mask_token_id=z.mask_id,
        target_layer_ids=list(z.taps),
        num_anchors=32,
        markov_rank=z.rank,
        markov_head_type="vanilla",
        enable_confidence_head=True,
        confidence_head_with_markov=True,
    )


def shape(c):
    """The Shape that ``config`` wrote."""
    return Shape(
        d=c["hidden_size"],
        ff=c["intermediate_size"],
        n_q=c["num_attention_heads"],
        n_kv=c["num_key_value_heads"],
        head=c["head_dim"],
        vocab=c["vocab_size"],
        rank=c["markov_rank"],
        taps=tuple(c["target_layer_ids"]),
        mask_id=c["mask_token_id"],
        theta=c["rope_theta"],
        eps=c["rms_norm_eps"],
        target_layers=c["num_target_layers"],
        bos_id=c["bos_token_id"],
        eos_id=c["eos_token_id"],
        pad_id=c["pad_token_id"],
        context=c["max_position_embeddings"],
        layers=c["num_hidden_layers"],
        block=c["block_size"],
    )


def save(model, folder):
    from safetensors.torch import save_file

    os.makedirs(folder, exist_ok=True)
    save_file(
        {k: v.detach().to(torch.bfloat16).contiguous() for k, v in model.state_dict().items()},
        os.path.join(folder, "model.safetensors"),
        metadata={"format": "pt"},
    )
    json.dump(config(model.z), open(os.path.join(folder, "config.json"), "w"), indent=1)


def load(folder):
    from safetensors.torch import load_file

    m = Drafter(shape(json.load(open(os.path.join(folder, "config.json")))))
    m.load_state_dict(
        {
            k: v.float()
            for k, v in load_file(os.path.join(folder, "model.safetensors")).items()
            if k not in ("embed_tokens.weight", "lm_head.weight")
        }
    )
    return m
