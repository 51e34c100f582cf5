"""The conversion from end to end: open, check, plan, write, verify."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gguf import GGUFValueType
from numpy.typing import NDArray

from . import check
from .checkpoint import Checkpoint, load_checkpoint
from .config import ReadConfig, read_config
from .errors import ConvertError, Problem, ProblemsError
from .gguf_reader import GgufFile, GgufValue
from .hf_target import read_vocabulary
from .mapping import CONFIDENCE, DRAFT_TO_TARGET, EMBEDDING, OUTPUT
from .metadata import FINGERPRINT, drafter_metadata
from .plan import Plan, plan_items
from .reference import Fingerprint, fingerprint, gguf_names
from .settings import DraftSettings
from .share import Sharing, decide
from .shortlist import KEY as SHORT_LIST_KEY
from .shortlist import check_short_list, read_short_list
from .target import Target
from .tensors import StoredTensor
from .verify import verify_file
from .writer import write

# largest relative distance between the fingerprints of checkpoint and file, by what storing does to the values
_LOSSLESS_DISTANCE = 1e-6
_DISTANCE = {"f32": 1e-6, "f16": 0.02, "bf16": 0.05, "q8_0": 0.1, "mixed": 0.1, "q4_0": 0.8}


@dataclass(frozen=True)
class Options:
    """Choices of the user.

    Attributes:
        outtype: one of ``mapping.OUTTYPES``.
        share: one of ``share.POLICIES``.
        layout: ``anchor-first`` or ``1+n``; None to take it from the config.
        name: ``general.name`` of the file; None to derive it from the target.
        shortlist: see ``read_short_list``; None for the whole vocabulary.
    """

    outtype: str = "bf16"
    share: str = "auto"
    layout: str | None = None
    name: str | None = None
    shortlist: str | None = None


@dataclass(frozen=True)
class Prepared:
    """A conversion that passed every check.

    Attributes:
        plan: what to write.
        expected: the fingerprint of the checkpoint.
        distance: how far the fingerprint of the file may be from it.
        inputs: every file that is read.
    """

    plan: Plan
    expected: Fingerprint
    distance: float
    inputs: set[Path]


def prepare(folder: Path, target: Target, options: Options, quiet: bool) -> Prepared:
    """Runs every check and plans the file; writes nothing. ``quiet`` hides the progress of the slow checks.

    Raises:
        ProblemsError: the pair cannot be converted; all reasons are listed.
    """
    checkpoint = load_checkpoint(folder)
    problems: list[Problem] = []
    config = read_config(checkpoint.config, options.layout, problems)
    settings, tensors = config.settings, checkpoint.tensors
    problems += _check_pair(checkpoint, config, target)
    sharing, draft_ids = Sharing(), None
    if not problems:
        sharing = decide(settings, tensors, target, options.share, quiet, problems)
        draft_ids = _draft_ids(settings, tensors, problems)
    short_list = None
    if options.shortlist is not None and not problems:
        short_list = read_short_list(options.shortlist, settings.n_vocab)
        problems += check_short_list(short_list, f"--shortlist {options.shortlist}", settings, target)
    if problems:
        raise ProblemsError(problems)
    items = plan_items(settings, tensors, target, sharing, options.outtype, draft_ids)
    problems += check.check_values(items, quiet)
    if problems:
        raise ProblemsError(problems)
    name = options.name or f"{settings.kind} drafter for {target.name}"
    has_confidence = CONFIDENCE.source in tensors
    metadata = drafter_metadata(settings, target, name, options.outtype, has_confidence, sharing.mask_row)
    expected = fingerprint(settings, _with_sharing(tensors, sharing), draft_ids)
    metadata.update(_fingerprint_metadata(expected))
    if short_list is not None:
        metadata[SHORT_LIST_KEY] = GgufValue(short_list, GGUFValueType.ARRAY, GGUFValueType.INT32)
    lossless = all(item.source.kind is item.kind or item.kind.name == "F32" for item in items)
    notes = [*_setting_notes(checkpoint, config, target, has_confidence), *sharing.notes]
    inputs = {tensor.path for tensor in tensors.values()} | set(target.files) | {folder / "config.json"}
    distance = _LOSSLESS_DISTANCE if lossless else _DISTANCE[options.outtype]
    return Prepared(Plan(settings, items, metadata, notes), expected, distance, inputs)


def run(prepared: Prepared, outfile: Path, force: bool, quiet: bool) -> None:
    """Writes the planned file and proves that it is right before it gets its name."""

    def verify(path: Path) -> None:
        file = verify_file(prepared.plan, path, quiet)
        distance = prepared.expected.distance(fingerprint_of_file(file, prepared.plan.settings))
        if not distance <= prepared.distance:
            raise ConvertError(
                f"the written file computes something else than the checkpoint (relative difference {distance:.3g}, "
                f"allowed {prepared.distance:.3g}); please report this"
            )

    write(prepared.plan, outfile, force, quiet, verify)


def fingerprint_of_file(file: GgufFile, settings: DraftSettings) -> Fingerprint:
    """The fingerprint computed from a drafter file."""
    names = gguf_names(settings.n_layer)
    tensors = {source: file.tensors[name] for source, name in names.items() if name in file.tensors}
    d2t = file.tensors.get(DRAFT_TO_TARGET.name)
    return fingerprint(settings, tensors, None if d2t is None else d2t.integers())


def _check_pair(checkpoint: Checkpoint, config: ReadConfig, target: Target) -> list[Problem]:
    settings = config.settings
    problems = check.check_layers(settings, config.n_target_layers, target)
    problems += check.check_mask(settings, target)
    problems += check.check_vocabulary(settings, target)
    problems += check.check_tensors(settings, config.n_target_embd, target, checkpoint.tensors, "source")
    if (checkpoint.folder / "tokenizer.json").exists():
        texts, _ = read_vocabulary(checkpoint.folder)
        ours = [texts.get(i, f"[PAD{i}]").encode() for i in range(max(texts, default=-1) + 1)]
        problems += check.check_tokens(ours, target, "tokenizer.json")
    return problems


def _draft_ids(
    settings: DraftSettings, tensors: dict[str, StoredTensor], problems: list[Problem]
) -> NDArray[np.int64] | None:
    """Target id of each draft row. Checkpoints store its distance from the row number, GGUF files the id itself."""
    if DRAFT_TO_TARGET.source not in tensors:
        return None
    offsets = tensors[DRAFT_TO_TARGET.source].integers()
    ids = offsets + np.arange(len(offsets))
    problems += check.check_draft_ids(ids.tolist(), settings)
    return ids


def _with_sharing(tensors: dict[str, StoredTensor], sharing: Sharing) -> dict[str, StoredTensor]:
    kept = {EMBEDDING.source: sharing.embedding, OUTPUT.source: sharing.output}
    changed = {name: tensor for name, tensor in tensors.items() if name not in kept}
    return {**changed, **{name: tensor for name, tensor in kept.items() if tensor is not None}}


def _fingerprint_metadata(found: Fingerprint) -> dict[str, GgufValue]:
    array, f32 = GGUFValueType.ARRAY, GGUFValueType.FLOAT32
    values = {
        "version": GgufValue(1, GGUFValueType.UINT32),
        "hidden": GgufValue(found.hidden.tolist(), array, f32),
        "logits": GgufValue(found.logits.tolist(), array, f32),
        "ids": GgufValue(list(found.ids), array, GGUFValueType.INT32),
    }
    if len(found.confidence):
        values["confidence"] = GgufValue(found.confidence.tolist(), array, f32)
    return {f"{FINGERPRINT}.{key}": value for key, value in values.items()}


def stored_fingerprint(file: GgufFile) -> Fingerprint | None:
    """The fingerprint in the metadata; None when there is none of this version."""
    if file.get(f"{FINGERPRINT}.version") != 1:
        return None
    parts = [
        np.array(file.get(f"{FINGERPRINT}.{key}", []), dtype=np.float32) for key in ("hidden", "logits", "confidence")
    ]
    return Fingerprint(parts[0], parts[1], parts[2], tuple(file.get(f"{FINGERPRINT}.ids", ())))


def _setting_notes(checkpoint: Checkpoint, config: ReadConfig, target: Target, has_confidence: bool) -> list[str]:
    settings, notes = config.settings, list(config.notes)
    if settings.block_size > 16:
        notes.append(f"block_size {settings.block_size} is unusually large")
    if -1 in settings.target_layers:
        notes.append("target layer -1 is the target's embedding output, which is unusual")
    if settings.kind == "dflash" and settings.sample_from_anchor:
        notes.append("DFlash drafter with an anchor-first block: llama.cpp reads every DFlash drafter as 1+n")
    if not has_confidence:
        said = checkpoint.config.get("enable_confidence_head") is True
        notes.append("no confidence head" + (", although the config announces one" if said else ""))
    tokens = target.tokens
    if settings.mask_token_id < len(tokens):
        notes.append(f"mask token: {tokens[settings.mask_token_id].decode('utf-8', 'replace')}")
    return notes
