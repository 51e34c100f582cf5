"""Calls as llama-cpp-python has them: what cannot be done is refused, never ignored."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from pydspark.errors import UnsupportedError
from pydspark.params import nearest

_P = ParamSpec("_P")
_R = TypeVar("_R")

# Keywords that can ask for something pydspark does not do: the values that do not (None never does), and what to do
# instead.
_UNSUPPORTED: dict[str, tuple[tuple[Any, ...], str]] = {
    "split_mode": ((1,), "pydspark uses one device"),
    "main_gpu": ((0,), "pydspark uses one device"),
    "tensor_split": ((), "pydspark uses one device"),
    "rope_scaling_type": ((-1,), "the model file decides"),
    "pooling_type": ((-1,), "embeddings are not available"),
    "attention_type": ((-1,), "the model file decides"),
    "rope_freq_base": ((0.0,), "the model file decides; kv_overrides can change it"),
    "rope_freq_scale": ((0.0,), "the model file decides; kv_overrides can change it"),
    "yarn_ext_factor": ((-1.0,), "the model file decides"),
    "yarn_attn_factor": ((1.0,), "the model file decides"),
    "yarn_beta_fast": ((32.0,), "the model file decides"),
    "yarn_beta_slow": ((1.0,), "the model file decides"),
    "yarn_orig_ctx": ((0,), "the model file decides"),
    "embedding": ((False,), "embeddings are not available"),
    "offload_kqv": ((True,), "the cache is kept where the layers are"),
    "op_offload": ((), "operations run where their weights are"),
    "swa_full": ((), "no supported model has a sliding window"),
    "no_perf": ((False,), "times are always taken"),
    "lora_base": ((), "adapters are not available; merge them into the model file"),
    "lora_scale": ((1.0,), "adapters are not available; merge them into the model file"),
    "lora_path": ((), "adapters are not available; merge them into the model file"),
    "numa": ((False,), "use numactl"),
    "chat_handler": ((), "the chat template of the model file is used"),
    "tokenizer": ((), "the tokenizer of the model file is used"),
    "spm_infill": ((False,), "filling in the middle is not available"),
    "chat_format": (("chat_template.default",), "the chat template of the model file is used"),
    "suffix": ((), "filling in the middle is not available"),
    "typical_p": ((1.0,), "use top_p or min_p"),
    "tfs_z": ((1.0,), "use top_p or min_p"),
    "mirostat_mode": ((0,), "use top_p or min_p"),
    "mirostat_tau": ((5.0,), "use top_p or min_p"),
    "mirostat_eta": ((0.1,), "use top_p or min_p"),
    "reset": ((True,), "what is already evaluated of the prompt is kept by itself"),
    "additional_files": ((), "the parts of a split model are fetched by themselves"),
    "penalize_nl": ((True,), "every token is penalized alike; use logit_bias"),
    "logits_processor": ((), "use logit_bias or the penalties"),
    "stopping_criteria": ((), "stop reading the stream"),
    "functions": ((), "use tools"),
    "function_call": ((), "use tool_choice"),
    "local_dir_use_symlinks": (("auto",), "the cache of Hugging Face is used as it is"),
}


def compatible(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Makes a method with llama-cpp-python's signature refuse what it cannot do, before it runs.

    The method raises TypeError for an unknown keyword, naming the closest one that it has, and UnsupportedError for a
    known keyword whose value asks for something pydspark does not do.
    """
    signature = inspect.signature(function)
    takes_any = any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())

    @functools.wraps(function)
    def checked_call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        for name in kwargs:
            if name not in signature.parameters and not takes_any:
                close = nearest(name, signature.parameters)
                hint = f"; did you mean {close!r}?" if close else ""
                raise TypeError(f"{function.__qualname__}() has no keyword argument {name!r}{hint}")
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            if name in _UNSUPPORTED and value is not None and value not in _UNSUPPORTED[name][0]:
                raise UnsupportedError(f"{name}={value!r} is not supported: {_UNSUPPORTED[name][1]}")
        return function(*args, **kwargs)

    return checked_call
