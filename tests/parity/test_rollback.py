"""Hybrid models agree with reference results after rejected tokens, and with a vocabulary of full size."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from running import DATA, Running
from speculating import F32_CACHES, Speculating
from tiny.golden import write_golden_draft, write_real_vocabulary_model

N_PROMPT, N_RIGHT, N_BATCH = 12, 4, 9


@pytest.mark.parametrize("rollback", ["replay", "snapshots"])
@pytest.mark.parametrize(
    ("name", "golden", "atol"),
    [("qwen35", "qwen35", 0), ("qwen35moe", "qwen35moe", 0), ("qwen35moe-nvfp4", "qwen35moe-nvfp4-q8", 1e-3)],
)
def test_rejected_tokens_leave_no_traces(tmp_path: Path, name: str, golden: str, atol: float, rollback: str) -> None:
    with np.load(DATA / f"{golden}.npz") as arrays:
        ids, wanted = arrays["ids"].tolist(), arrays["logits"]
    target = DATA / f"{name}.gguf"
    draft = write_golden_draft(tmp_path / "draft.gguf", target)
    model = Speculating(target, draft, rollback=rollback, flash_attn=False, **F32_CACHES)
    model.read(ids[:N_PROMPT], "result_output")
    wrong = [(token + 17) % 400 for token in ids[N_PROMPT + N_RIGHT : N_PROMPT + N_BATCH]]
    model.read([*ids[N_PROMPT : N_PROMPT + N_RIGHT], *wrong], "result_output")
    model.session.cut(N_PROMPT + N_RIGHT)
    assert model.session.n_past == N_PROMPT + N_RIGHT
    (logits,) = model.read(ids[N_PROMPT + N_RIGHT :], "result_output")
    np.testing.assert_allclose(logits, wanted[N_PROMPT + N_RIGHT :], rtol=0, atol=atol or 1e-4 * wanted.std() + 2e-4)


def test_a_vocabulary_of_full_size(tmp_path: Path) -> None:
    with np.load(DATA / "qwen35moe-real.npz") as arrays:
        golden = dict(arrays)
    path = write_real_vocabulary_model(tmp_path / "real.gguf", DATA / "qwen35moe.gguf")
    model = Running(path, flash_attn=False, type_k="f32", type_v="f32")
    assert model.info.n_vocab_rows == 248_320
    logits = model.logits(golden["ids"].tolist())
    top = np.take_along_axis(logits, golden["top_ids"].astype(np.int64), axis=1)
    np.testing.assert_allclose(top, golden["top_logits"], rtol=0, atol=1e-4 * logits.std() + 2e-4)
    order = np.argsort(-logits, axis=1, kind="stable")[:, :20]
    assert np.array_equal(order[:, 0], golden["top_ids"][:, 0])
    np.testing.assert_allclose(logits.mean(1), golden["logit_mean"], rtol=0, atol=1e-4)
