"""Refuses what would give a wrong or useless file. Every check adds to the list; none stops at the first finding."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from gguf import GGMLQuantizationType, TokenType

from .encode import unfit_value
from .errors import Problem
from .mapping import (
    CONFIDENCE,
    DRAFT_TO_TARGET,
    DROPPED,
    MARKOV_W1,
    QUANTIZED,
    Need,
    Role,
    Rule,
    rules,
    sizes,
)
from .plan import PlanItem
from .progress import Progress
from .settings import DraftSettings
from .target import Target, n_real_tokens
from .tensors import StoredTensor

_OTHER_TARGET = "give the target that this drafter was trained for"
_BAD_COPY = "download the checkpoint again, or ask its author"
_FLOATS = (GGMLQuantizationType.F32, GGMLQuantizationType.F16, GGMLQuantizationType.BF16)
_MANY = 12


def check_layers(settings: DraftSettings, n_target_layers: int | None, target: Target) -> list[Problem]:
    """Target layers against the depth of the target."""
    problems, layers = [], settings.target_layers
    if n_target_layers is not None and n_target_layers != target.n_layer:
        seen = f"trained for a target of {n_target_layers} layers, {target.name} has {target.n_layer}"
        problems.append(Problem("num_target_layers", seen, "the same depth", _OTHER_TARGET))
    if any(b <= a for a, b in zip(layers, layers[1:], strict=False)):
        wanted = "strictly increasing layer numbers"
        problems.append(Problem("target_layer_ids", f"{list(layers)}", wanted, "correct config.json of the drafter"))
    outside = [i for i in layers if not -1 <= i <= target.n_layer - 2]
    if outside:
        # the last layer's output is normalised by some frameworks and not by others, so nothing can rely on it
        wanted = f"each from -1 (the embedding) to {target.n_layer - 2} (the last layer but one of {target.name})"
        problems.append(Problem("target_layer_ids", f"{outside} in {list(layers)}", wanted, _OTHER_TARGET))
    return problems


def check_mask(settings: DraftSettings, target: Target) -> list[Problem]:
    """The mask id is a row of the vocabulary that no text produces."""
    mask, tokens, types = settings.mask_token_id, target.tokens, target.token_types
    if settings.n_vocab and mask >= settings.n_vocab:
        wanted = f"below the vocabulary size {settings.n_vocab}"
        return [Problem("mask_token_id", f"{mask}", wanted, "correct config.json of the drafter")]
    if mask >= len(tokens):
        return []
    seen = f"{mask} is {tokens[mask].decode('utf-8', 'replace')!r} in the target"
    wanted = "an unused, padding or dedicated mask token"
    if mask in target.eog_ids():
        return [Problem("mask_token_id", f"{seen}, which ends generation", wanted, _OTHER_TARGET)]
    reserved = types[mask] in (TokenType.UNUSED, TokenType.CONTROL) or b"mask" in tokens[mask].lower()
    if reserved or tokens[mask].startswith(b"[PAD"):
        return []
    return [Problem("mask_token_id", f"{seen}, an ordinary token", wanted, _OTHER_TARGET)]


def check_vocabulary(settings: DraftSettings, target: Target) -> list[Problem]:
    """The drafter's vocabulary is the target's, apart from padding."""
    problems = []
    real = n_real_tokens(target.tokens, target.token_types)
    if settings.n_vocab and settings.n_vocab < real:
        seen = f"{settings.n_vocab}, but the target has {real} tokens without padding"
        problems.append(Problem("vocab_size", seen, f"at least {real}", _OTHER_TARGET))
    if settings.n_vocab_draft > settings.n_vocab:
        seen = f"{settings.n_vocab_draft}, above the vocabulary size {settings.n_vocab}"
        problems.append(Problem("draft_vocab_size", seen, f"at most {settings.n_vocab}", _BAD_COPY))
    return problems


def check_tokens(ours: Sequence[bytes], target: Target, whose: str) -> list[Problem]:
    """Token texts that came with the drafter against those of the target, byte for byte."""
    theirs = target.tokens
    real = n_real_tokens(theirs, target.token_types)
    differing = [i for i in range(min(len(ours), real)) if ours[i] != theirs[i]]
    problems = []
    if differing:
        i = differing[0]
        seen = f"{len(differing)} token texts differ, first id {i}: {ours[i]!r} here, {theirs[i]!r} in the target"
        problems.append(Problem(whose, seen, "the target's tokens", _OTHER_TARGET))
    if len(ours) < real:
        seen = f"{len(ours)} tokens, the target has {real} without padding"
        problems.append(Problem(whose, seen, "the target's tokens", _OTHER_TARGET))
    return problems


def check_tensors(
    settings: DraftSettings, n_target_embd: int | None, target: Target, tensors: dict[str, StoredTensor], side: str
) -> list[Problem]:
    """Every tensor is there, has its shape, and none is left over.

    Args:
        n_target_embd: hidden size the config names for the target, if it does.
        side: ``source`` when ``tensors`` has checkpoint names, ``name`` when it has GGUF names.
    """
    problems = []
    if n_target_embd is not None and n_target_embd != target.n_embd:
        seen = f"{n_target_embd}, but {target.name} has {target.n_embd}"
        problems.append(Problem("target_hidden_size", seen, "equal", _OTHER_TARGET))
    known, dims = set(DROPPED), sizes(settings, target.n_embd)
    for rule in rules(settings.n_layer):
        name = getattr(rule, side)
        needed = _is_needed(rule, settings)
        if needed is None:
            continue
        known.add(name)
        if name not in tensors:
            if needed:
                problems.append(Problem(name, "missing", f"shape {_shape(rule, dims)}", _BAD_COPY))
            continue
        problems += _check_one(rule, name, tensors[name], dims, settings)
    # without the number of layers, which has been reported, their tensors cannot be told from others
    leftover = sorted(tensors.keys() - known) if settings.n_layer else []
    for name in leftover[:_MANY]:
        seen = f"unexpected tensor of shape {list(tensors[name].shape)}"
        problems.append(Problem(name, seen, "only tensors of a Qwen3 DSpark or DFlash drafter", _leftover_action(name)))
    if len(leftover) > _MANY:
        seen = f"{len(leftover) - _MANY} more unexpected tensors"
        problems.append(Problem(leftover[_MANY], seen, "none left over", _BAD_COPY))
    return problems


def _is_needed(rule: Rule, settings: DraftSettings) -> bool | None:
    """Whether the tensor must be there; None when it must not."""
    if rule.need is Need.MARKOV:
        return True if settings.markov_rank else None
    if rule.need is Need.REDUCED:
        return True if 0 < settings.n_vocab_draft < settings.n_vocab else None
    return rule.need is Need.ALWAYS


def _shape(rule: Rule, dims: dict[str, int]) -> list[str]:
    return [str(dims.get(dim) or dim) for dim in rule.dims]


def _check_one(
    rule: Rule, name: str, tensor: StoredTensor, dims: dict[str, int], settings: DraftSettings
) -> list[Problem]:
    allowed = {
        dim: (settings.n_embd, settings.n_embd + settings.markov_rank) if dim == "conf_in" else (dims[dim],)
        for dim in rule.dims
    }
    fits = len(tensor.shape) == len(rule.dims) and all(
        0 in allowed[dim] or size in allowed[dim] for size, dim in zip(tensor.shape, rule.dims, strict=True)
    )
    problems = []
    if not fits:
        wanted = " x ".join(" or ".join(str(size) for size in dict.fromkeys(allowed[dim])) for dim in rule.dims)
        action = _OTHER_TARGET if "features" in rule.dims else _BAD_COPY
        seen = f"shape {' x '.join(map(str, tensor.shape))}"
        problems.append(Problem(name, seen, f"{wanted} ({', '.join(rule.dims)})", action))
    kinds = (GGMLQuantizationType.I64, GGMLQuantizationType.I32) if rule.role is Role.IDS else _FLOATS
    if tensor.kind not in kinds and not (rule.role is not Role.IDS and tensor.kind in QUANTIZED):
        wanted = " or ".join(kind.name for kind in kinds)
        problems.append(Problem(name, f"stored as {tensor.kind.name}", wanted, _BAD_COPY))
    return problems


def _leftover_action(name: str) -> str:
    if name.startswith(("candidate_selector.", "selector_")):
        return "this is a DFlash2 drafter, which is not supported"
    if name.startswith("mtp."):
        return "this is a drafter embedded in a DeepSeek model, which is not supported"
    if name.startswith(("markov_head.gate_proj.", "markov_head.joint_proj.")):
        return "this Markov head is not of the supported kind 'vanilla'"
    if name.startswith(("markov_", DRAFT_TO_TARGET.source, CONFIDENCE.source, MARKOV_W1.source)):
        return "the config says that the drafter has no such part; correct config.json"
    return _BAD_COPY


def check_values(items: Sequence[PlanItem], quiet: bool) -> list[Problem]:
    """Every value can be stored in the format planned for it."""
    problems = []
    progress = Progress("checking", sum(item.source.n_bytes for item in items), quiet)
    for item in items:
        unfit = None if item.ids is not None else unfit_value(item.source, item.kind)
        if unfit is not None and math.isfinite(unfit):
            wanted, action = f"values that fit in {item.kind.name}", "use --outtype bf16"
            problems.append(Problem(item.source.name, f"holds the value {unfit:.6g}", wanted, action))
        elif unfit is not None:
            problems.append(Problem(item.source.name, f"holds the value {unfit}", "finite numbers", _BAD_COPY))
        progress.add(item.source.n_bytes)
    progress.close()
    return problems


def check_draft_ids(ids: Sequence[int], settings: DraftSettings) -> list[Problem]:
    """Target ids of the draft vocabulary: each in range, none twice."""
    array = np.asarray(ids, dtype=np.int64)
    problems = []
    outside = np.flatnonzero((array < 0) | (array >= settings.n_vocab))
    if len(outside):
        row = int(outside[0])
        seen = f"{len(outside)} ids outside, first in row {row}: {int(array[row])}"
        problems.append(Problem("d2t", seen, f"target ids from 0 to {settings.n_vocab - 1}", _BAD_COPY))
    n_twice = len(array) - len(np.unique(array))
    if n_twice:
        wanted = "each target id once (checkpoints store offsets from the row number, GGUF files the ids themselves)"
        problems.append(Problem("d2t", f"{n_twice} target ids appear more than once", wanted, _BAD_COPY))
    return problems
