"""Reads config.json of every supported drafter family into one set of settings.

Families: DeepSpec (flat), DFlash and SpecForge (``dflash_config``), ``dspark_config`` or ``dspark_<key>``, and
speculators (``transformer_layer_config``). Layer numbers and block layout differ between them without any visible sign,
so nothing is guessed here: what is not said is reported.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .errors import Problem
from .settings import LAYOUT_ANCHOR_FIRST, LAYOUT_ONE_PLUS_N, MAX_BLOCK_SIZE, MAX_LAYERS, DraftSettings

_ARCHITECTURES = ("Qwen3DSparkModel", "DFlashDraftModel", "DSparkDraftModel", "DSparkSpeculator", "DFlashSpeculator")
_UPSTREAM = "ask for support, or use a drafter of a supported kind"
# copied from the target's config by training code, without meaning for the drafter
_LEAKED = ("partial_rotary_factor", "mrope_section", "attn_output_gate", "num_experts", "linear_num_key_heads")
# switches of other backbones: the value that means "off" in each
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "output_multiplier": (1, 1.0),
    "input_embedding_scale": (1, 1.0),
    "attention_value_scale": (1, 1.0),
    "final_logit_softcapping": (0, 0.0, False),
    "attention_sink_bias": (False,),
    "attention_bias": (False,),
    "causal": (False,),
    "rope_scaling": (),
    "rope_is_neox_style": (True,),
    "hidden_act": ("silu",),
    "conv_kernel_size": (),
    "selector_rank": (),
    "confidence_temperatures": (),
}


@dataclass(frozen=True)
class ReadConfig:
    """Result of reading a config.

    Attributes:
        settings: what it says.
        n_target_layers: layers of the target it was trained on, if told.
        n_target_embd: hidden size of that target, if told.
        notes: things worth printing that are no reason to refuse.
    """

    settings: DraftSettings
    n_target_layers: int | None
    n_target_embd: int | None
    notes: tuple[str, ...]


class _Keys:
    """Looks keys up and reports what is missing or has the wrong type."""

    def __init__(self, config: dict[str, Any], problems: list[Problem]) -> None:
        self.problems = problems
        nested = [config.get(name) for name in ("dspark_config", "dflash_config")]
        self.nested = [part for part in nested if isinstance(part, dict)]
        backbone = config.get("transformer_layer_config")
        self.root = {**config, **backbone} if isinstance(backbone, dict) else config
        self.is_speculators = "speculators_model_type" in config or isinstance(backbone, dict)

    def find(self, key: str) -> Any:
        """``dspark_<key>`` first, then the nested sections, then the root; None when nowhere."""
        places = [self.root.get(f"dspark_{key}"), *(part.get(key) for part in self.nested), self.root.get(key)]
        return next((value for value in places if value is not None), None)

    def report(self, key: str, seen: str, wanted: str, action: str = "correct config.json of the drafter") -> None:
        self.problems.append(Problem(key, seen, wanted, action))

    def integer(self, key: str, least: int, default: int | None = None, most: int = 2**31 - 1) -> int:
        value = self.find(key)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            self.report(key, "missing" if value is None else f"{value!r}", f"a whole number from {least} to {most}")
            return 0
        return value

    def number(self, key: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
            self.report(key, "missing" if value is None else f"{value!r}", "a number above 0")
            return 0.0
        return float(value)


def read_config(config: dict[str, Any], layout: str | None, problems: list[Problem]) -> ReadConfig:
    """Settings of a drafter from its config.json; every defect goes to ``problems``.

    Args:
        config: the JSON object.
        layout: ``anchor-first`` or ``1+n`` to overrule what the config says; None to require that it says it.
        problems: receives what is missing, wrong or not supported.
    """
    keys = _Keys(config, problems)
    _check_family(keys)
    n_embd = keys.integer("hidden_size", 1)
    n_head = keys.integer("num_attention_heads", 1)
    n_layer = keys.integer("num_hidden_layers", 1, most=MAX_LAYERS)
    n_vocab = keys.integer("vocab_size", 1)
    rank = keys.integer("markov_rank", 0, default=0)
    block_size = keys.integer("block_size", 2, most=MAX_BLOCK_SIZE)
    n_head_kv = keys.integer("num_key_value_heads", 1)
    if n_head_kv and n_head % n_head_kv:
        keys.report("num_attention_heads", f"{n_head}", f"a multiple of num_key_value_heads ({n_head_kv})")
    _check_markov_type(keys, rank)
    window, window_layers = _window(keys, n_layer)
    settings = DraftSettings(
        n_layer=n_layer,
        n_embd=n_embd,
        n_ff=keys.integer("intermediate_size", 1),
        n_head=n_head,
        n_head_kv=n_head_kv,
        head_dim=keys.integer("head_dim", 2, default=n_embd // n_head if n_head else 0),
        n_ctx=keys.integer("max_position_embeddings", 1),
        norm_eps=keys.number("rms_norm_eps", keys.find("rms_norm_eps")),
        rope_theta=keys.number("rope_theta", _rope_theta(keys)),
        n_vocab=n_vocab,
        n_vocab_draft=keys.integer("draft_vocab_size", 1, default=n_vocab),
        block_size=block_size,
        mask_token_id=keys.integer("mask_token_id", 0),
        target_layers=_target_layers(keys),
        markov_rank=rank,
        sample_from_anchor=_sample_from_anchor(keys, rank, block_size, layout),
        window=window,
        window_layers=window_layers,
        tied=keys.find("tie_word_embeddings") is True,
    )
    n_target_layers = keys.find("num_target_layers")
    n_target_embd = keys.find("target_hidden_size")
    return ReadConfig(
        settings,
        n_target_layers if isinstance(n_target_layers, int) else None,
        n_target_embd if isinstance(n_target_embd, int) else None,
        _notes(keys),
    )


def _check_family(keys: _Keys) -> None:
    names = keys.root.get("architectures") or []
    named = [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
    kind = keys.root.get("speculators_model_type")
    if kind not in (None, "dspark", "dflash"):
        keys.report("speculators_model_type", f"{kind!r}", "'dspark' or 'dflash'", _UPSTREAM)
    for name in named:
        if name not in _ARCHITECTURES:
            keys.report("architectures", name, f"one of {', '.join(_ARCHITECTURES)}", _UPSTREAM)
    if not named and kind is None:
        keys.report("architectures", "missing", f"one of {', '.join(_ARCHITECTURES)}")
    model_type = keys.root.get("model_type")
    if model_type not in (None, "qwen3", "dspark", "dflash", "speculator_model"):
        keys.report("model_type", f"{model_type!r}", "the backbone 'qwen3'", _UPSTREAM)
    for key, neutral in _NEUTRAL.items():
        value = keys.find(key)
        if isinstance(value, dict) and value.get("rope_type", value.get("type")) == "default":
            continue
        if value is not None and value not in neutral:
            wanted = f"{neutral[0]!r} or absent" if neutral else "absent or null"
            keys.report(key, f"{value!r}", f"{wanted}: this feature is not supported", _UPSTREAM)


def _check_markov_type(keys: _Keys, rank: int) -> None:
    kind = keys.find("markov_head_type")
    if rank and kind not in (None, "vanilla"):
        keys.report("markov_head_type", f"{kind!r}", "'vanilla'", "this kind of Markov head is not supported")


def _rope_theta(keys: _Keys) -> Any:
    rope = keys.root.get("rope_parameters")
    if isinstance(rope, dict):
        full = rope.get("full_attention")
        kind = rope.get("rope_type", "default")
        if kind != "default":
            keys.report("rope_parameters", f"rope_type {kind!r}", "'default'", _UPSTREAM)
        for part in (rope, full if isinstance(full, dict) else {}):
            if part.get("rope_theta") is not None:
                return part["rope_theta"]
    return keys.root.get("rope_theta")


def _target_layers(keys: _Keys) -> tuple[int, ...]:
    """Layer numbers in the output convention; -1 is the target's embedding output."""
    key = "aux_hidden_state_layer_ids" if keys.is_speculators else "target_layer_ids"
    ids = keys.find(key)
    if not isinstance(ids, list) or not ids or not all(isinstance(i, int) and not isinstance(i, bool) for i in ids):
        seen = "missing" if ids is None else f"{ids!r}"
        keys.report(key, seen, "a list of target layers; it cannot be guessed")
        return ()
    # speculators counts layer inputs: the input of layer L + 1 is the output of layer L
    return tuple(i - 1 for i in ids) if keys.is_speculators else tuple(ids)


def _sample_from_anchor(keys: _Keys, rank: int, block_size: int, layout: str | None) -> bool:
    if layout is not None:
        return layout == LAYOUT_ANCHOR_FIRST
    said = keys.find("sample_from_anchor")
    action = f"give --layout {LAYOUT_ANCHOR_FIRST} or --layout {LAYOUT_ONE_PLUS_N}, whichever it was trained with"
    if isinstance(said, bool):
        _cross_check(keys, said, block_size, action)
        return said
    if said is not None:
        keys.report("sample_from_anchor", f"{said!r}", "true or false")
    elif keys.is_speculators:
        keys.report("sample_from_anchor", "missing", "true or false: exporters disagree about the default", action)
    elif "dflash_config" in keys.root:
        if rank:
            keys.report(
                "sample_from_anchor", "missing in a DSpark drafter with 'dflash_config'", "true or false", action
            )
        return False
    return True


def _cross_check(keys: _Keys, said: bool, block_size: int, action: str) -> None:
    """speculators also stores how many tokens a block proposes, which follows from the layout."""
    section = keys.root.get("speculators_config")
    proposals = section.get("proposal_methods") if isinstance(section, dict) else None
    expected = block_size if said else block_size - 1
    for proposal in proposals if isinstance(proposals, list) else []:
        count = proposal.get("speculative_tokens") if isinstance(proposal, dict) else None
        if count in (block_size, block_size - 1) and count != expected and block_size:
            seen = f"{count}, but sample_from_anchor {str(said).lower()} with block_size {block_size}"
            keys.report("speculative_tokens", seen, f"{expected}", action)


def _window(keys: _Keys, n_layer: int) -> tuple[int, tuple[bool, ...]]:
    types = keys.root.get("layer_types")
    if types is None and keys.find("use_swa") is True:
        types = ["sliding_attention"] * n_layer
    if types is None:
        return 0, ()
    known = ("full_attention", "sliding_attention")
    if not isinstance(types, list) or len(types) != n_layer or any(kind not in known for kind in types):
        keys.report("layer_types", f"{types!r}", f"{n_layer} entries, each one of {', '.join(known)}")
        return 0, ()
    if "sliding_attention" not in types:
        return 0, ()
    if keys.is_speculators and keys.find("sliding_window_non_causal") is not True:
        wanted = "true: causal attention inside a block is not supported"
        keys.report("sliding_window_non_causal", f"{keys.find('sliding_window_non_causal')!r}", wanted, _UPSTREAM)
    width = keys.integer("swa_window_size" if keys.find("swa_window_size") is not None else "sliding_window", 1)
    return width, tuple(kind == "sliding_attention" for kind in types)


def _notes(keys: _Keys) -> tuple[str, ...]:
    rope = keys.root.get("rope_parameters")
    places = [keys.root, rope if isinstance(rope, dict) else {}]
    leaked = [key for key in _LEAKED if any(place.get(key) is not None for place in places)]
    if not leaked:
        return ()
    return (f"ignored, because they describe the target and not the drafter: {', '.join(leaked)}",)
