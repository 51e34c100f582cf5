"""The fingerprint: right numbers, and different ones for every way a conversion can be wrong."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from pydspark.convert import mapping
from pydspark.convert.checkpoint import load_checkpoint
from pydspark.convert.config import read_config
from pydspark.convert.convert import fingerprint_of_file, stored_fingerprint
from pydspark.convert.gguf_reader import read_gguf
from pydspark.convert.reference import CONTEXTS, FIRST_POSITION, fingerprint, probe_values
from tiny import drafters
from tiny.drafters import make_drafter, save_drafter


@pytest.fixture
def opened(tmp_path):
    checkpoint = load_checkpoint(save_drafter(tmp_path / "reference", make_drafter()))
    return read_config(checkpoint.config, None, []).settings, checkpoint.tensors


def test_probe_values_are_reproducible():
    values = probe_values(4, 1)
    expected = [splitmix64((1 << 32) + i) for i in range(4)]
    np.testing.assert_array_equal(values, [(word >> 40) / 2**23 - 1 for word in expected])
    assert abs(probe_values(10000, 2).mean()) < 0.05


def splitmix64(state: int) -> int:
    mask = (1 << 64) - 1
    z = (state + 1) * 0x9E3779B97F4A7C15 & mask
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & mask
    z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
    return z ^ z >> 31


def plain_hidden(weights, n_context, anchor_row, mask_row):
    """Final hidden states of one block, token by token and head by head."""
    eps, theta, hd, block = np.float32(1e-6), 10000.0, drafters.HEAD_DIM, drafters.BLOCK_SIZE

    def norm(x, w):
        return x / np.sqrt((x * x).mean() + eps) * w

    def rotate(x, position):
        out = x.copy()
        for i in range(hd // 2):
            angle = position * theta ** (-2 * i / hd)
            a, b = x[i], x[i + hd // 2]
            out[i] = a * np.cos(angle) - b * np.sin(angle)
            out[i + hd // 2] = b * np.cos(angle) + a * np.sin(angle)
        return out

    def heads(x, name, count):
        return (weights[name].astype(np.float64) @ x).reshape(count, hd)

    width = weights["fc.weight"].shape[1]
    features = probe_values(max(CONTEXTS) * width, 1).reshape(-1, width)[:n_context]
    context = [norm(weights["fc.weight"].astype(np.float64) @ row, weights["hidden_norm.weight"]) for row in features]
    x = [anchor_row] + [mask_row] * (block - 1)
    for il in range(drafters.N_LAYER):
        p = f"layers.{il}."
        inputs = context + [norm(row, weights[p + "input_layernorm.weight"]) for row in x]
        keys, values = [], []
        for j, row in enumerate(inputs):
            k = heads(row, p + "self_attn.k_proj.weight", drafters.N_HEAD_KV)
            k = [rotate(norm(head, weights[p + "self_attn.k_norm.weight"]), FIRST_POSITION + j) for head in k]
            keys.append(k)
            values.append(heads(row, p + "self_attn.v_proj.weight", drafters.N_HEAD_KV))
        out = []
        for i, row in enumerate(x):
            q = heads(inputs[n_context + i], p + "self_attn.q_proj.weight", drafters.N_HEAD)
            mixed = []
            for h in range(drafters.N_HEAD):
                query = rotate(norm(q[h], weights[p + "self_attn.q_norm.weight"]), FIRST_POSITION + n_context + i)
                g = h // (drafters.N_HEAD // drafters.N_HEAD_KV)
                scores = np.array([query @ k[g] for k in keys]) / np.sqrt(hd)
                share = np.exp(scores - scores.max())
                mixed.append(sum(s * v[g] for s, v in zip(share / share.sum(), values, strict=True)))
            row = row + weights[p + "self_attn.o_proj.weight"] @ np.concatenate(mixed)
            h = norm(row, weights[p + "post_attention_layernorm.weight"])
            gate, up = weights[p + "mlp.gate_proj.weight"] @ h, weights[p + "mlp.up_proj.weight"] @ h
            out.append(row + weights[p + "mlp.down_proj.weight"] @ (gate / (1 + np.exp(-gate)) * up))
        x = out
    return np.array([norm(row, weights["norm.weight"]) for row in x])


def test_arithmetic_agrees_with_a_plain_loop(opened):
    settings, tensors = opened
    weights = {name: array.astype(np.float64) for name, array in make_drafter().weights.items()}
    found = fingerprint(settings, tensors, None)
    rows = probe_values((len(CONTEXTS) + 1) * settings.n_embd, 6).reshape(-1, settings.n_embd)
    columns = [int((value + 1) / 2 * settings.n_embd) for value in probe_values(8, 5)]
    hidden = [plain_hidden(weights, count, rows[b], rows[-1]) for b, count in enumerate(CONTEXTS)]
    np.testing.assert_allclose(found.hidden.reshape(3, 4, 8), np.array(hidden)[:, :, columns], atol=1e-6)
    previous = [int((value + 1) / 2 * settings.n_vocab) for value in probe_values(12, 3)]
    markov = weights["markov_head.markov_w1.weight"][previous]
    inputs = np.concatenate([np.concatenate(hidden), markov], axis=1)
    expected = inputs @ weights["confidence_head.proj.weight"][0] + weights["confidence_head.proj.bias"]
    np.testing.assert_allclose(found.confidence, expected, atol=1e-6)
    head = probe_values(8 * settings.n_embd, 7).reshape(8, -1) * 0.05
    logits = np.concatenate(hidden) @ head.T + markov @ weights["markov_head.markov_w2.weight"][list(found.ids)].T
    np.testing.assert_allclose(found.logits.reshape(12, 8), logits, atol=1e-6)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("layers.0.mlp.gate_proj.weight", "layers.0.mlp.up_proj.weight"),
        ("layers.0.self_attn.k_proj.weight", "layers.0.self_attn.v_proj.weight"),
        ("layers.0.self_attn.q_proj.weight", "layers.0.self_attn.o_proj.weight"),
        ("layers.0.self_attn.q_norm.weight", "layers.0.self_attn.k_norm.weight"),
        ("layers.0.mlp.up_proj.weight", "layers.1.mlp.up_proj.weight"),
        ("norm.weight", "hidden_norm.weight"),
        ("markov_head.markov_w1.weight", "markov_head.markov_w2.weight"),
    ],
)
def test_swapped_tensors_show(opened, a, b):
    settings, tensors = opened
    swapped = {**tensors, a: tensors[b], b: tensors[a]}
    assert fingerprint(settings, tensors, None).distance(fingerprint(settings, swapped, None)) > 0.1


@pytest.mark.parametrize(
    "change",
    [
        {"rope_theta": 1e6},
        {"sample_from_anchor": False},
        {"block_size": 5},
        {"window": 4, "window_layers": (True, True)},
    ],
)
def test_wrong_settings_show(opened, change):
    settings, tensors = opened
    changed = fingerprint(replace(settings, **change), tensors, None)
    assert fingerprint(settings, tensors, None).distance(changed) > 0.1


def test_wrong_target_ids_show(opened):
    settings, tensors = opened
    ids = np.arange(drafters.N_VOCAB)
    plain = fingerprint(settings, tensors, ids)
    assert plain.distance(fingerprint(settings, tensors, ids)) == 0
    assert plain.distance(fingerprint(settings, tensors, np.roll(ids, 1))) == float("inf")


@pytest.mark.parametrize("outtype", ["bf16", "f16", "f32", "q8_0", "mixed"])
def test_stored_fingerprint_is_that_of_the_checkpoint(convert, opened, outtype):
    settings, tensors = opened
    file = read_gguf(convert(make_drafter(), "--outtype", outtype))
    stored = stored_fingerprint(file)
    assert stored is not None
    assert fingerprint(settings, tensors, None).distance(stored) == 0
    distance = stored.distance(fingerprint_of_file(file, settings))
    assert distance < (0.1 if outtype in ("q8_0", "mixed") else 1e-3)


def test_wrong_mapping_cannot_pass(command, target, tmp_path, monkeypatch):
    """Two names exchanged in the table: every byte is copied faithfully to the wrong place."""
    names = {"ffn_gate": "ffn_up", "ffn_up": "ffn_gate"}
    wrong = tuple(replace(rule, name=names.get(rule.name, rule.name)) for rule in mapping._LAYER)
    monkeypatch.setattr(mapping, "_LAYER", wrong)
    folder = save_drafter(tmp_path / "checkpoint", make_drafter())
    result = command(folder, "--target", target, "--outfile", "out.gguf")
    assert result.code == 1 and "computes something else than the checkpoint" in result.err
    assert not (tmp_path / "out.gguf").exists()
