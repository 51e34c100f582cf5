"""The trained tiny pair in tests/data: what its files say, and that they belong together.

``tiny-pair-prompts.json`` holds questions it was not trained on, ``tiny-pair-metrics.json`` what was measured when it
was trained.
"""

from __future__ import annotations

import json
import math
import runpy
from collections import Counter

import pytest
from pydspark.convert.gguf_reader import read_gguf
from running import DATA

from pydspark.text.chat_template import ChatTemplate
from pydspark.text.tokenizer import Tokenizer
from pydspark.text.vocab import Vocab

TARGET, DRAFTER = DATA / "tiny-qwen35moe-Q8_0.gguf", DATA / "dspark-tiny-qwen35moe-BF16.gguf"
CASES = json.loads((DATA / "tiny-pair-prompts.json").read_text())
METRICS = json.loads((DATA / "tiny-pair-metrics.json").read_text())
N_BPE, N_VOCAB = 1496, 1536


@pytest.fixture(scope="module")
def metadata():
    """The target's metadata as plain Python."""
    return {key: plain(value.value) for key, value in read_gguf(TARGET).metadata.items()}


@pytest.fixture(scope="module")
def tokenizer(metadata):
    return Tokenizer(Vocab.from_metadata(metadata))


def plain(value):
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value.decode() if isinstance(value, bytes) else value


@pytest.mark.parametrize(
    ("key", "value"),
    {
        "general.architecture": "qwen35moe",
        "general.sampling.top_k": 20,
        "qwen35moe.block_count": 8,
        "qwen35moe.embedding_length": 128,
        "qwen35moe.full_attention_interval": 4,
        "qwen35moe.attention.recurrent_layers": [True, True, True, False] * 2,
        "qwen35moe.attention.key_length": 64,
        "qwen35moe.rope.dimension_count": 16,
        "qwen35moe.rope.dimension_sections": [3, 3, 2, 0],
        "qwen35moe.expert_count": 16,
        "qwen35moe.expert_used_count": 4,
        "qwen35moe.ssm.conv_kernel": 4,
        "qwen35moe.ssm.state_size": 32,
        "qwen35moe.ssm.inner_size": 128,
        "tokenizer.ggml.pre": "qwen35",
        "tokenizer.ggml.eos_token_id": N_BPE + 2,
        "tokenizer.ggml.add_bos_token": False,
    }.items(),
)
def test_the_target_has_the_keys_of_a_real_one(metadata, key, value) -> None:
    assert metadata[key] == value


def test_the_vocabulary_is_laid_out_like_a_real_one(metadata) -> None:
    tokens, types = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    assert len(tokens) == len(types) == N_VOCAB
    assert tokens[N_BPE : N_BPE + 3] == ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    assert tokens[N_BPE + 33] == f"[PAD{N_BPE + 33}]"
    assert Counter(types) == {1: N_BPE, 3: 27, 4: 6, 5: N_VOCAB - N_BPE - 33}
    assert [types[tokens.index(name)] for name in ("<think>", "</tool_call>", "<|im_start|>")] == [4, 4, 3]


def test_matrices_are_quantized_and_routers_are_not() -> None:
    kinds = {name: tensor.kind.name for name, tensor in read_gguf(TARGET).tensors.items()}
    assert kinds["blk.0.ffn_gate_exps.weight"] == kinds["blk.3.attn_q.weight"] == kinds["output.weight"] == "Q8_0"
    assert kinds["blk.0.ffn_gate_inp.weight"] == kinds["blk.0.ssm_conv1d.weight"] == kinds["blk.0.ssm_a"] == "F32"


def test_the_pair_passes_the_converter_s_check(command) -> None:
    result = command("--check", DRAFTER, "--target", TARGET)
    assert result.code == 0, result.err
    assert "fingerprint: agrees" in result.out


def test_the_drafter_is_refused_for_another_target(command) -> None:
    assert command("--check", DRAFTER, "--target", DATA / "qwen35.gguf").code != 0


def test_the_drafter_borrows_embedding_and_head() -> None:
    file = read_gguf(DRAFTER)
    assert not {"token_embd.weight", "output.weight"} & set(file.tensors)
    assert file.get("dflash.block_size") == 8
    assert file.get("dflash.target_layers") == [2, 4, 6, 7]  # layer inputs
    assert file.get("tokenizer.ggml.mask_token_id") == N_BPE + 33


@pytest.mark.parametrize("case", CASES["prompts"], ids=lambda case: case["category"])
def test_prompts_are_rendered_and_tokenized_as_in_training(case, metadata, tokenizer) -> None:
    messages = [{"role": "user", "content": case["question"]}]
    rendered = ChatTemplate(metadata["tokenizer.chat_template"]).render(
        messages, tools=[CASES["tool"]] if case["tools"] else None, enable_thinking=case["thinking"]
    )
    assert tokenizer.encode(rendered, special=True) == case["prompt"]
    assert tokenizer.decode(case["answer"]).decode() == case["text"]


def test_prompts_were_held_out(monkeypatch) -> None:
    folder = DATA.parents[1] / "tools" / "train_drafter" / "tiny_pair"
    monkeypatch.syspath_prepend(str(folder))
    generator = runpy.run_path(str(folder / "text.py"))
    assert all(generator["held_out"](case["question"]) for case in CASES["prompts"])
    assert {case["category"] for case in CASES["prompts"]} == set(generator["CATEGORIES"])


@pytest.mark.parametrize("temperature", ["temperature_0", "temperature_1"])
def test_metrics_agree_with_themselves(temperature) -> None:
    measured = METRICS["pair"][temperature]
    for part in (measured["templated"], measured["free"], *measured["categories"].values()):
        assert all(math.isfinite(x) and 0 <= x <= 1 for x in part["accepted_at"])
        # the last round of an answer may end inside the block, so there is no bonus token in it
        assert part["accept_len"] == pytest.approx(1 + sum(part["accepted_at"]), abs=0.5)
    assert measured["templated"]["accept_len"] > 4
