"""A small qwen35moe in torch: three gated delta-net layers to one of gated attention, experts, a shared expert.

Parameters carry their GGUF names and layout (``blk.0.attn_qkv.weight`` …), so export is a copy.  Norm weights are plain
multipliers, ``ssm_a`` is trained as its logarithm ``ssm_a_log``.  Value head h reads key head h mod N_KEY.
"""

import delta
import torch
import torch.nn as nn
import torch.nn.functional as F
from tokenizer import V

D, L, EPS, INTERVAL = 128, 8, 1e-6, 4  # hidden size, layers, norm epsilon, every 4th layer is attention
H, HK, HD, N_ROT, THETA = 4, 2, 64, 16, 1e7  # query and KV heads, head size, rotated dimensions, rotary base
S, N_KEY, N_VALUE, CONV = 32, 2, 4, 4  # delta net: head size, key and value heads, taps of the convolution
N_EXPERT, TOP_K, FF = 16, 4, 32  # experts, experts used, size of an expert and of the shared one
C = (2 * N_KEY + N_VALUE) * S
CHUNK = 32


def is_recurrent(layer):
    return (layer + 1) % INTERVAL != 0


def rms(x, w):
    return F.rms_norm(x, x.shape[-1:], w, EPS)


def glu(x, gate, up):
    return F.silu(x @ gate.T) * (x @ up.T)


def rope(x, pos):
    """x [B, T, heads, HD], pos [T]: half-split pairs of the first N_ROT dimensions."""
    angle = pos[:, None, None] * THETA ** (-torch.arange(0, N_ROT, 2) / N_ROT)
    c, s, u, v = angle.cos(), angle.sin(), x[..., : N_ROT // 2], x[..., N_ROT // 2 : N_ROT]
    return torch.cat([u * c - v * s, v * c + u * s, x[..., N_ROT:]], -1)


def delta_rule(q, k, v, beta, g, state):
    """Gated delta rule by chunks. q, k, v [B, T, heads, S]; beta, g (log decay) [B, T, heads]; state [B, heads, S, S].

    Within a chunk the written values u solve (I + A) u = beta (v - decay state k), A strictly lower triangular.
    """
    B, T, n, _ = q.shape
    pad = -T % CHUNK
    cut = lambda x: F.pad(x.transpose(1, 2).reshape(B, n, T, -1), (0, 0, 0, pad)).unflatten(2, (-1, CHUNK))  # noqa: E731
    q, k, v, beta, g = cut(q) * S**-0.5, cut(k), cut(v), cut(beta[..., None]), cut(g[..., None])[..., 0].cumsum(-1)
    low = torch.ones(CHUNK, CHUNK, dtype=torch.bool).tril()
    decay = (g[..., :, None] - g[..., None, :]).masked_fill(~low, -1e30).exp()
    A = (beta * (k @ k.mT) * decay).tril(-1)
    rhs = torch.cat([beta * v, beta * g[..., None].exp() * k], -1)
    u0, w = torch.linalg.solve_triangular(A, rhs, upper=False, unitriangular=True).split(S, -1)
    qk, q, k = (q @ k.mT) * decay, q * g[..., None].exp(), k * (g[..., -1:] - g)[..., None].exp()
    out, last = [], g[..., -1].exp()[..., None, None]
    for c in range(q.shape[2]):
        u = u0[:, :, c] - w[:, :, c] @ state.mT
        out.append(q[:, :, c] @ state.mT + qk[:, :, c] @ u)
        state = state * last[:, :, c] + u.mT @ k[:, :, c]
    return torch.stack(out, 2).flatten(2, 3)[:, :, :T].transpose(1, 2), state


class Weights(nn.Module):
    """A flat table of parameters by GGUF name."""

    def __init__(self):
        super().__init__()
        self.table = nn.ParameterDict()

    def add(self, name, *shape, std=None, fill=None):
        x = torch.full(shape, fill) if fill is not None else torch.randn(shape) * (std or shape[-1] ** -0.5)
        self.table[name.replace(".", ":")] = nn.Parameter(x)

    def __getitem__(self, name):
        return self.table[name.replace(".", ":")]

    def named(self):
        return {k.replace(":", "."): p for k, p in self.table.items()}


class Target(Weights):
    def __init__(self, fused=False):
        """fused: whole sequences go through delta.c."""
        super().__init__()
        self.fused = fused
        deep = (2 * L) ** -0.5
        self.add("token_embd.weight", V, D, std=0.5)
        self.add("output.weight", V, D, std=0.02)
        self.add("output_norm.weight", D, fill=1.0)
        for i in range(L):
            b = f"blk.{i}."
            self.add(b + "attn_norm.weight", D, fill=1.0)
            self.add(b + "post_attention_norm.weight", D, fill=1.0)
            if is_recurrent(i):
                self.add(b + "attn_qkv.weight", C, D)
                self.add(b + "attn_gate.weight", N_VALUE * S, D)
                self.add(b + "ssm_conv1d.weight", C, CONV, std=0.3)
                self.add(b + "ssm_alpha.weight", N_VALUE, D)
                self.add(b + "ssm_beta.weight", N_VALUE, D)
                self.add(b + "ssm_dt.bias", N_VALUE, fill=-3.0)
                self.add(b + "ssm_a_log", N_VALUE, std=0.5)
                self.add(b + "ssm_norm.weight", S, fill=1.0)
                self.add(b + "ssm_out.weight", D, N_VALUE * S, std=deep * D**-0.5)
            else:
                self.add(b + "attn_q.weight", 2 * H * HD, D)
                self.add(b + "attn_k.weight", HK * HD, D)
                self.add(b + "attn_v.weight", HK * HD, D)
                self.add(b + "attn_q_norm.weight", HD, fill=1.3)
                self.add(b + "attn_k_norm.weight", HD, fill=1.3)
                self.add(b + "attn_output.weight", D, H * HD, std=deep * (H * HD) ** -0.5)
            self.add(b + "ffn_gate_inp.weight", N_EXPERT, D, std=0.03)
            self.add(b + "ffn_gate_inp_shexp.weight", 1, D)
            for kind, experts in (("exps", (N_EXPERT,)), ("shexp", ())):
                self.add(b + f"ffn_gate_{kind}.weight", *experts, FF, D)
                self.add(b + f"ffn_up_{kind}.weight", *experts, FF, D)
                self.add(b + f"ffn_down_{kind}.weight", *experts, D, FF, std=deep * FF**-0.5)

    def mix(self, i, x, cache, pos):
        return (self.delta_net if is_recurrent(i) else self.attention)(f"blk.{i}.", i, x, cache, pos)

    def attention(self, b, i, x, cache, pos):
        B, T, _ = x.shape
        q, gate = (x @ self[b + "attn_q.weight"].T).view(B, T, H, 2, HD).unbind(3)
        k, v = ((x @ self[b + f"attn_{n}.weight"].T).view(B, T, HK, HD) for n in "kv")
        q = rope(rms(q, self[b + "attn_q_norm.weight"]), pos).transpose(1, 2)
        k, v = rope(rms(k, self[b + "attn_k_norm.weight"]), pos).transpose(1, 2), v.transpose(1, 2)
        if cache is not None:
            if i in cache:
                k, v = torch.cat([cache[i][0], k], 2), torch.cat([cache[i][1], v], 2)
            cache[i] = k, v
        o = F.scaled_dot_product_attention(q, k, v, is_causal=T > 1, enable_gqa=True).transpose(1, 2)
        return (o * gate.sigmoid()).reshape(B, T, H * HD) @ self[b + "attn_output.weight"].T

    def delta_net(self, b, i, x, cache, pos):
        B, T, _ = x.shape
        u = (x @ self[b + "attn_qkv.weight"].T).mT
        past, state = u.new_zeros(B, C, CONV - 1), u.new_zeros(B, N_VALUE, S, S)
        if cache is not None and i in cache:
            past, state = cache[i]
        u = torch.cat([past, u], -1)
        y = F.silu(F.conv1d(u, self[b + "ssm_conv1d.weight"][:, None], groups=C)).mT
        q, k, v = y.split([N_KEY * S, N_KEY * S, N_VALUE * S], -1)
        q, k, v = self.unit(q.view(B, T, N_KEY, S)), self.unit(k.view(B, T, N_KEY, S)), v.view(B, T, N_VALUE, S)
        beta = (x @ self[b + "ssm_beta.weight"].T).sigmoid()
        g = -self[b + "ssm_a_log"].exp() * F.softplus(x @ self[b + "ssm_alpha.weight"].T + self[b + "ssm_dt.bias"])
        if cache is None and self.fused:
            o = delta.delta_rule(q, k, v, beta, g)
        else:
            q, k = (t.repeat(1, 1, N_VALUE // N_KEY, 1) for t in (q, k))
            o, state = delta_rule(q, k, v, beta, g, state)
        if cache is not None:
            cache[i] = u[..., -(CONV - 1) :], state
        z = (x @ self[b + "attn_gate.weight"].T).view(B, T, N_VALUE, S)
        return (rms(o, self[b + "ssm_norm.weight"]) * F.silu(z)).flatten(2) @ self[b + "ssm_out.weight"].T

    @staticmethod
    def unit(x):
        return x * torch.rsqrt((x * x).sum(-1, keepdim=True) + EPS)

    def experts(self, i, x, loads):
        """x [N, D]. Rows are sorted by expert, so each expert is one small matrix product."""
        b = f"blk.{i}."
        p = (x @ self[b + "ffn_gate_inp.weight"].T).softmax(-1)
        w, ids = p.topk(TOP_K, -1)
        w = w / w.sum(-1, keepdim=True)
        order = ids.flatten().argsort()
        counts = torch.bincount(ids.flatten(), minlength=N_EXPERT)
        if loads is not None:
            loads.append((counts.float() / ids.numel(), p.mean(0)))
        gate, up, down = (self[b + f"ffn_{k}_exps.weight"].unbind(0) for k in ("gate", "up", "down"))
        source, counts = order // TOP_K, counts.tolist()
        rows, ws = x.index_select(0, source).split(counts), w.flatten()[order, None].split(counts)
        y = torch.cat([(glu(r, gate[e], up[e]) * ws[e]) @ down[e].T for e, r in enumerate(rows)])
        y = torch.zeros_like(x).index_add(0, source, y)
        shared = glu(x, self[b + "ffn_gate_shexp.weight"], self[b + "ffn_up_shexp.weight"])
        gated = (x @ self[b + "ffn_gate_inp_shexp.weight"].T).sigmoid()
        return y + gated * (shared @ self[b + "ffn_down_shexp.weight"].T)

    def forward(self, ids, cache=None, start=0, taps=(), loads=None):
        """ids [B, T] -> final normed hidden [B, T, D], outputs of the layers in ``taps`` [B, T, len(taps), D]."""
        x, kept = self["token_embd.weight"][ids], []
        pos = torch.arange(start, start + ids.shape[1])
        for i in range(L):
            x = x + self.mix(i, rms(x, self[f"blk.{i}.attn_norm.weight"]), cache, pos)
            y = rms(x, self[f"blk.{i}.post_attention_norm.weight"])
            x = x + self.experts(i, y.flatten(0, 1), loads).view_as(x)
            if i in taps:
                kept.append(x)
        return rms(x, self["output_norm.weight"]), torch.stack(kept, 2) if kept else None

    def logits(self, hidden):
        return hidden @ self["output.weight"].T
