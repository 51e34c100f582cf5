"""One token a slot: the target of model.py with a K/V cache and delta-net states per slot, for generation."""

import torch
import torch.nn.functional as F
from model import CONV, HD, HK, INTERVAL, N_KEY, N_VALUE, C, H, L, S, is_recurrent, rms, rope
from tokenizer import V


class Stepper:
    def __init__(self, target, slots, length):
        self.m, n_att = target, L // INTERVAL
        self.k, self.v = torch.zeros(2, n_att, slots, HK, length, HD)
        self.conv = torch.zeros(L, slots, CONV, C)
        self.state = torch.zeros(L, slots, N_VALUE, S, S)
        self.length, self.rows = length, torch.arange(slots)

    def reset(self, slot):
        """Forgets the text of one slot (the K/V rows are hidden by position)."""
        self.conv[:, slot], self.state[:, slot] = 0, 0

    @torch.inference_mode()
    def __call__(self, ids, pos):
        """ids, pos [slots] -> logits [slots, V] of the next token."""
        m = self.m
        x = m["token_embd.weight"][ids]
        for i in range(L):
            mix = self.delta_net if is_recurrent(i) else self.attention
            x = x + mix(f"blk.{i}.", i, rms(x, m[f"blk.{i}.attn_norm.weight"]), pos)
            x = x + m.experts(i, rms(x, m[f"blk.{i}.post_attention_norm.weight"]), None)
        return m.logits(rms(x, m["output_norm.weight"])).view(-1, V)

    def attention(self, b, i, x, pos):
        m, j, n = self.m, i // INTERVAL, int(pos.max()) + 1
        q, gate = (x @ m[b + "attn_q.weight"].T).view(-1, H, 2, HD).unbind(2)
        k, v = ((x @ m[b + f"attn_{t}.weight"].T).view(-1, HK, HD) for t in "kv")
        q, k = rope(rms(q, m[b + "attn_q_norm.weight"]), pos), rope(rms(k, m[b + "attn_k_norm.weight"]), pos)
        self.k[j, self.rows, :, pos], self.v[j, self.rows, :, pos] = k, v
        scores = q.view(-1, HK, H // HK, HD) @ self.k[j, :, :, :n].mT * HD**-0.5
        hidden = torch.arange(n) > pos[:, None]
        p = scores.masked_fill(hidden[:, None, None], -1e30).softmax(-1)
        o = (p @ self.v[j, :, :, :n]).reshape(-1, H, HD) * gate.sigmoid()
        return o.flatten(1) @ m[b + "attn_output.weight"].T

    def delta_net(self, b, i, x, pos):
        m = self.m
        window = self.conv[i] = torch.cat([self.conv[i][:, 1:], (x @ m[b + "attn_qkv.weight"].T)[:, None]], 1)
        y = F.silu((window * m[b + "ssm_conv1d.weight"].T).sum(1))
        q, k, v = y.split([N_KEY * S, N_KEY * S, N_VALUE * S], -1)
        q, k = (m.unit(t.view(-1, N_KEY, S)).repeat(1, N_VALUE // N_KEY, 1)[..., None] for t in (q, k))
        beta = (x @ m[b + "ssm_beta.weight"].T).sigmoid()[..., None]
        g = -m[b + "ssm_a_log"].exp() * F.softplus(x @ m[b + "ssm_alpha.weight"].T + m[b + "ssm_dt.bias"])
        M = self.state[i].mul_(g.exp()[..., None, None])
        M += (beta * (v.view(-1, N_VALUE, S) - (M @ k)[..., 0]))[..., None] * k.mT
        o = (M @ q)[..., 0] * S**-0.5
        z = (x @ m[b + "attn_gate.weight"].T).view(-1, N_VALUE, S)
        return (rms(o, m[b + "ssm_norm.weight"]) * F.silu(z)).flatten(1) @ m[b + "ssm_out.weight"].T
