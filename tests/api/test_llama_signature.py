"""Names and defaults of llama-cpp-python 0.3.36, and where pydspark differs."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from pydspark import Llama
from pydspark.errors import ArgumentError, UnsupportedError
from pydspark.params import ModelParams, options

REQUIRED = inspect.Parameter.empty
SEED = 0xFFFFFFFF

CONSTRUCTOR: dict[str, Any] = {
    "model_path": REQUIRED, "n_gpu_layers": 0, "split_mode": 1, "main_gpu": 0, "tensor_split": None,
    "vocab_only": False, "use_mmap": True, "use_mlock": False, "kv_overrides": None, "seed": SEED, "n_ctx": 512,
    "n_batch": 512, "n_ubatch": 512, "n_threads": None, "n_threads_batch": None, "rope_scaling_type": -1,
    "pooling_type": -1, "attention_type": -1, "rope_freq_base": 0.0, "rope_freq_scale": 0.0, "yarn_ext_factor": -1.0,
    "yarn_attn_factor": 1.0, "yarn_beta_fast": 32.0, "yarn_beta_slow": 1.0, "yarn_orig_ctx": 0, "logits_all": False,
    "embedding": False, "offload_kqv": True, "flash_attn": False, "op_offload": None, "swa_full": None,
    "no_perf": False, "last_n_tokens_size": 64, "lora_base": None, "lora_scale": 1.0, "lora_path": None,
    "numa": False, "chat_format": None, "chat_handler": None, "draft_model": None, "tokenizer": None, "type_k": None,
    "type_v": None, "spm_infill": False, "verbose": True,
}  # fmt: skip
COMPLETION: dict[str, Any] = {
    "prompt": REQUIRED, "suffix": None, "max_tokens": 16, "temperature": 0.8, "top_p": 0.95, "min_p": 0.05,
    "typical_p": 1.0, "logprobs": None, "echo": False, "stop": [], "frequency_penalty": 0.0, "presence_penalty": 0.0,
    "repeat_penalty": 1.0, "top_k": 40, "stream": False, "seed": None, "tfs_z": 1.0, "mirostat_mode": 0,
    "mirostat_tau": 5.0, "mirostat_eta": 0.1, "model": None, "stopping_criteria": None, "logits_processor": None,
    "grammar": None, "logit_bias": None,
}  # fmt: skip
CHAT: dict[str, Any] = {
    "messages": REQUIRED, "functions": None, "function_call": None, "tools": None, "tool_choice": None,
    "temperature": 0.2, "top_p": 0.95, "top_k": 40, "min_p": 0.05, "typical_p": 1.0, "stream": False, "stop": [],
    "seed": None, "response_format": None, "max_tokens": None, "presence_penalty": 0.0, "frequency_penalty": 0.0,
    "repeat_penalty": 1.0, "tfs_z": 1.0, "mirostat_mode": 0, "mirostat_tau": 5.0, "mirostat_eta": 0.1, "model": None,
    "logits_processor": None, "grammar": None, "logit_bias": None, "logprobs": None, "top_logprobs": None,
}  # fmt: skip
GENERATE: dict[str, Any] = {
    "tokens": REQUIRED, "top_k": 40, "top_p": 0.95, "min_p": 0.05, "typical_p": 1.0, "temp": 0.8,
    "repeat_penalty": 1.0, "reset": True, "frequency_penalty": 0.0, "presence_penalty": 0.0, "tfs_z": 1.0,
    "mirostat_mode": 0, "mirostat_tau": 5.0, "mirostat_eta": 0.1, "penalize_nl": True, "logits_processor": None,
    "stopping_criteria": None, "grammar": None,
}  # fmt: skip
FROM_PRETRAINED: dict[str, Any] = {
    "repo_id": REQUIRED, "filename": REQUIRED, "additional_files": None, "local_dir": None,
    "local_dir_use_symlinks": "auto", "cache_dir": None,
}  # fmt: skip

DRAFTING = {"draft_schedule", "n_draft_max", "lookup_max", "draft_conf_min", "draft_sampling", "draft_accept"}
CHATTING = {"chat_template_kwargs", "enable_thinking", "reasoning_format"}

# Method, its parameters there, other defaults here (with the reason), parameters that only exist here.
METHODS: list[tuple[str, dict[str, Any], dict[str, Any], set[str]]] = [
    (
        "__init__",
        CONSTRUCTOR,
        {
            "model_path": None,  # model is another name for it
            "n_gpu_layers": -1,  # a GPU that is there is used
            "n_ctx": 8192,  # 512 cuts most chats
            "verbose": False,  # a library is quiet
            "flash_attn": True,  # the faster form
        },
        {
            "model",
            "draft",
            "repack",
            "fused_experts",
            "progress",
            "spec_type",
            "verify",
            "rollback",
            "cache_ram",
            "calibration",
            "lookup_match",
            "type_k_draft",
            "type_v_draft",
            "draft_candidates",
            "draft_shortlist",
            "sampling",
            *DRAFTING,
        },
    ),
    # a default that cannot be changed by accident
    ("create_completion", COMPLETION, {"stop": ()}, {"speculative", *DRAFTING}),
    ("__call__", COMPLETION, {"stop": ()}, {"speculative", *DRAFTING}),
    ("create_chat_completion", CHAT, {"stop": ()}, {*CHATTING, "speculative", *DRAFTING}),
    ("generate", GENERATE, {}, {"temperature"}),
    ("tokenize", {"text": REQUIRED, "add_bos": True, "special": False}, {}, set()),
    ("detokenize", {"tokens": REQUIRED, "prev_tokens": None, "special": False}, {}, set()),
    ("from_pretrained", FROM_PRETRAINED, {"filename": None}, {"draft_repo_id", "draft_filename", "kwargs"}),
    ("set_seed", {"seed": REQUIRED}, {}, set()),
    ("reset", {}, {}, set()),
    ("close", {}, {}, set()),
]


@pytest.mark.parametrize(("name", "theirs", "different", "ours"), METHODS, ids=[row[0] for row in METHODS])
def test_names_and_defaults_in_order(
    name: str, theirs: dict[str, Any], different: dict[str, Any], ours: set[str]
) -> None:
    found = {p.name: p.default for p in inspect.signature(getattr(Llama, name)).parameters.values() if p.name != "self"}
    assert list(found)[: len(theirs)] == list(theirs)
    assert set(found) - set(theirs) == ours
    assert {key: found[key] for key in theirs} == {**theirs, **different}
    assert all(theirs[key] != value for key, value in different.items())


@pytest.mark.parametrize("method", ["create_completion", "create_chat_completion", "__call__", "generate"])
def test_unknown_keyword_names_the_closest(llama: Llama, method: str) -> None:
    with pytest.raises(TypeError, match="'temprature'; did you mean 'temperature'"):
        getattr(llama, method)([], temprature=1)


def test_unknown_keyword_of_the_constructor() -> None:
    with pytest.raises(TypeError, match="'n_context'; did you mean 'n_ctx'"):
        Llama("x.gguf", n_context=5)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("embedding", True),
        ("lora_path", "a.gguf"),
        ("tensor_split", [0.5, 0.5]),
        ("rope_freq_base", 1e6),
        ("chat_format", "llama-2"),
    ],
)
def test_known_keyword_that_asks_for_something_is_refused(name: str, value: Any) -> None:
    with pytest.raises(UnsupportedError, match=name):
        Llama("x.gguf", **{name: value})


def test_exactly_one_name_for_the_file() -> None:
    for given in ({}, {"model_path": "a.gguf", "model": "a.gguf"}):
        with pytest.raises(ArgumentError, match="one of model_path and model"):
            Llama(**given)


def test_methods_for_embeddings_are_refused(llama: Llama) -> None:
    for method in (llama.embed, llama.create_embedding):
        with pytest.raises(UnsupportedError, match="embeddings"):
            method("text")


def test_the_constructor_takes_every_model_parameter() -> None:
    assert set(options(ModelParams)) <= set(inspect.signature(Llama.__init__).parameters)
