"""The DSpark drafter (DeepSpec's dense Qwen3 form) with a block-parallel training forward and DeepSpec tensor names."""

import json
import os

import torch
import torch.nn as nn
import torch.nn.functional as F
from target import EPS, HD, MASK_ID, NK, NQ, TAPS, THETA, D, V

BLOCK, RANK, FF = 8, 64, 1536


def linear(i, o, bias=False):
    m = nn.Linear(i, o, bias=bias)
    nn.init.normal_(m.weight, std=0.02)
    return m


class Norm(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n))

    def forward(self, x):
        return F.rms_norm(x, x.shape[-1:], self.weight, EPS)


def rope(x, pos):
    """x [..., heads, HD], pos [...]"""
    a = pos[..., None, None].float() * THETA ** (-torch.arange(0, HD, 2).float() / HD)
    c, s, u, v = a.cos(), a.sin(), x[..., : HD // 2], x[..., HD // 2 :]
    return torch.cat([u * c - v * s, v * c + u * s], -1)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj = linear(D, NQ * HD), linear(D, NK * HD), linear(D, NK * HD)
        self.o_proj, self.q_norm, self.k_norm = linear(NQ * HD, D), Norm(HD), Norm(HD)

    def kv(self, x, pos):
        k = rope(self.k_norm(self.k_proj(x).unflatten(-1, (NK, HD))), pos)
        return k, self.v_proj(x).unflatten(-1, (NK, HD))

    def forward(self, x, pos, ck, cv, mask):
        """x [G, A, T, D] blocks; ck, cv [G, n, NK, HD] context; mask [G, A, n], True = visible."""
        G, A, T, _ = x.shape
        q = rope(self.q_norm(self.q_proj(x).unflatten(-1, (NQ, HD))), pos)
        q = q.view(G, A, T, NK, NQ // NK, HD).permute(0, 3, 1, 4, 2, 5) * HD**-0.5  # G NK A r T HD
        k, v = (t.permute(0, 3, 1, 2, 4) for t in self.kv(x, pos))  # G NK A T HD
        ck, cv = ck.transpose(1, 2), cv.transpose(1, 2)  # G NK n HD
        r = NQ // NK
        s1 = (q.reshape(G, NK, A * r * T, HD) @ ck.transpose(-1, -2)).view(G, NK, A, r * T, -1)
        s1 = s1.masked_fill(~mask[:, None, :, None], -1e30)
        s2 = q.reshape(G, NK, A, r * T, HD) @ k.transpose(-1, -2)
        p = torch.softmax(torch.cat([s1, s2], -1), -1)
        n = ck.shape[2]
        o = (p[..., :n].reshape(G, NK, A * r * T, n) @ cv).view(G, NK, A, r * T, HD) + p[..., n:] @ v
        o = o.view(G, NK, A, r, T, HD).permute(0, 2, 4, 1, 3, 5).reshape(G, A, T, NQ * HD)
        return self.o_proj(o)


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = linear(D, FF), linear(D, FF), linear(FF, D)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.self_attn, self.mlp = Attention(), MLP()
        self.input_layernorm, self.post_attention_layernorm = Norm(D), Norm(D)


class Drafter(nn.Module):
    def __init__(self, n_layers=2):
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(n_layers))
        self.fc, self.hidden_norm, self.norm = linear(len(TAPS) * D, D), Norm(D), Norm(D)
        self.markov_head = nn.Module()
        self.markov_head.markov_w1, self.markov_head.markov_w2 = nn.Embedding(V, RANK), linear(RANK, V)
        self.confidence_head = nn.Module()
        self.confidence_head.proj = linear(D + RANK, 1, bias=True)

    @torch.no_grad()
    def warm_start(self, T, rms):
        """Layers from the target's last ones, features from the last tap, Markov rows from a PCA of the embedding."""
        n = len(self.layers)
        for i, layer in enumerate(self.layers):
            w, a = T.W[30 - n + i], layer.self_attn
            q, k, v = w["qkv"].split([NQ * HD, NK * HD, NK * HD])
            for m, t in (
                (a.q_proj, q),
                (a.k_proj, k),
                (a.v_proj, v),
                (a.o_proj, w["o"]),
                (layer.mlp.gate_proj, w["gu"][:FF]),
                (layer.mlp.up_proj, w["gu"][FF:]),
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
        _, _, pc = torch.pca_lowrank(T.E, RANK, niter=4)
        z = (T.E - T.E.mean(0)) @ pc
        self.markov_head.markov_w1.weight.copy_(z / z.std())
        self.markov_head.markov_w2.weight.zero_()

    def context(self, feats, pos):
        h = self.hidden_norm(self.fc(feats))
        return [layer.self_attn.kv(h, pos) for layer in self.layers]

    def block(self, E, anchors, pos, ctx, mask):
        """anchors, pos [G, A] (token id, position) -> hidden [G, A, BLOCK, D]"""
        ids = torch.full((*anchors.shape, BLOCK), MASK_ID)
        ids[..., 0] = anchors
        x, p = E[ids], pos[..., None] + torch.arange(BLOCK)
        for layer, (k, v) in zip(self.layers, ctx, strict=False):
            x = x + layer.self_attn(layer.input_layernorm(x), p, k, v, mask)
            x = x + layer.mlp(layer.post_attention_layernorm(x))
        return self.norm(x)

    def confidence(self, hid, prev):
        return self.confidence_head.proj(torch.cat([hid, self.markov_head.markov_w1(prev)], -1))[..., 0]


def config(n_layers):
    return dict(
        architectures=["Qwen3DSparkModel"],
        model_type="qwen3",
        vocab_size=V,
        hidden_size=D,
        intermediate_size=FF,
        num_hidden_layers=n_layers,
        num_attention_heads=NQ,
        num_key_value_heads=NK,
        head_dim=HD,
        hidden_act="silu",
        rms_norm_eps=EPS,
        rope_theta=THETA,
        rope_scaling=None,
        max_position_embeddings=8192,
        attention_bias=False,
        attention_dropout=0.0,
        initializer_range=0.02,
        layer_types=["full_attention"] * n_layers,
        sliding_window=None,
        use_sliding_window=False,
        tie_word_embeddings=False,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=2,
        torch_dtype="bfloat16",
        num_target_layers=30,
        block_size=BLOCK,
        mask_token_id=MASK_ID,
        target_layer_ids=TAPS,
        num_anchors=32,
        markov_rank=RANK,
        markov_head_type="vanilla",
        enable_confidence_head=True,
        confidence_head_with_markov=True,
    )


def save(model, folder):
    from safetensors.torch import save_file

    os.makedirs(folder, exist_ok=True)
    save_file(
        {k: v.detach().to(torch.bfloat16).contiguous() for k, v in model.state_dict().items()},
        os.path.join(folder, "model.safetensors"),
        metadata={"format": "pt"},
    )
    json.dump(config(len(model.layers)), open(os.path.join(folder, "config.json"), "w"), indent=1)


def load(folder):
    from safetensors.torch import load_file

    m = Drafter(json.load(open(os.path.join(folder, "config.json")))["num_hidden_layers"])
    m.load_state_dict(
        {
            k: v.float()
            for k, v in load_file(os.path.join(folder, "model.safetensors")).items()
            if k not in ("embed_tokens.weight", "lm_head.weight")
        }
    )
    return m
