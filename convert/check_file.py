"""``dspark-convert --check``: is an existing drafter file whole, and does it belong to a target?"""

from __future__ import annotations

from pathlib import Path

from . import check
from .convert import fingerprint_of_file, stored_fingerprint
from .errors import Problem, ProblemsError
from .gguf_reader import GgufFile, read_gguf
from .mapping import CONFIDENCE, DRAFT_TO_TARGET, EMBEDDING, FEW_BITS, OUTPUT
from .metadata import DEPTH_KEY, HASH_KEY, NOISE_KEY, settings_from_gguf
from .settings import DraftSettings
from .shortlist import KEY as SHORT_LIST_KEY
from .shortlist import check_short_list
from .target import MERGES, TOKENS, Target, tokenizer_hash

_CONVERT = "convert the checkpoint again"
# the stored fingerprint is the checkpoint's; these are the largest distances that number formats cause
_DISTANCE, _DISTANCE_OF_FEW_BITS = 0.1, 0.8


def check_file(path: Path, target: Target) -> list[str]:
    """Checks a drafter file against a target.

    Returns:
        lines that describe what was found.

    Raises:
        ProblemsError: the file cannot be used with the target; all reasons are listed.
    """
    file = read_gguf(path)
    problems: list[Problem] = []
    settings = settings_from_gguf(file, problems)
    if file.get("general.architecture") != "dflash":
        raise ProblemsError(problems)
    for name, number in file.unknown.items():
        problems.append(Problem(name, f"number format {number} is not known", "a known format", _CONVERT))
    problems += check.check_layers(settings, None, target)
    problems += _check_depth(file, target)
    problems += check.check_mask(settings, target)
    problems += check.check_vocabulary(settings, target)
    problems += check.check_tensors(settings, None, target, file.tensors, "name")
    problems += check.check_tokens(file.get(TOKENS, []), target, TOKENS)
    problems += _check_merges(file, target)
    problems += _check_borrowed(file, settings, target)
    d2t = file.tensors.get(DRAFT_TO_TARGET.name)
    if d2t is not None:
        problems += check.check_draft_ids(d2t.integers().tolist(), settings)
    short_list = file.get(SHORT_LIST_KEY)
    if short_list is not None:
        problems += check_short_list(short_list, SHORT_LIST_KEY, settings, target)
    if problems:
        raise ProblemsError(problems)
    lines = _describe(file, settings, target)
    lines.append(_check_fingerprint(file, settings, problems))
    if problems:
        raise ProblemsError(problems)
    return lines


def _check_depth(file: GgufFile, target: Target) -> list[Problem]:
    stored = file.get(DEPTH_KEY, target.n_layer)  # files of other programs do not say
    if stored == target.n_layer:
        return []
    wanted = f"{target.n_layer}, the layers of {target.name}"
    return [Problem(DEPTH_KEY, f"{stored!r}", wanted, "give the target it was made for")]


def _check_merges(file: GgufFile, target: Target) -> list[Problem]:
    theirs = target.tokenizer.get(MERGES)
    problems = []
    if theirs is not None and file.get(MERGES, []) != theirs.value:
        problems.append(Problem(MERGES, "differ from the target's", "equal lists", _CONVERT))
    stored = file.get(HASH_KEY)
    if stored is not None and stored != tokenizer_hash(target.tokenizer):
        problems.append(Problem(HASH_KEY, f"{stored}", f"{tokenizer_hash(target.tokenizer)}", _CONVERT))
    return problems


def _check_borrowed(file: GgufFile, settings: DraftSettings, target: Target) -> list[Problem]:
    if EMBEDDING.name in file.tensors:
        return []
    problems = []
    if settings.n_embd != target.n_embd:
        seen = f"missing, and the target's has {target.n_embd} values a row"
        problems.append(Problem(EMBEDDING.name, seen, f"{settings.n_embd}", "give the target it was made for"))
    if settings.mask_token_id >= target.n_rows and NOISE_KEY not in file.metadata:
        seen = f"{settings.mask_token_id}, but the target's embedding has {target.n_rows} rows"
        problems.append(Problem("mask_token_id", seen, "a row of the target's embedding", _CONVERT))
    return problems


def _describe(file: GgufFile, settings: DraftSettings, target: Target) -> list[str]:
    has_embedding, has_output = EMBEDDING.name in file.tensors, OUTPUT.name in file.tensors
    lines = [
        f"{settings.kind} drafter for {target.name}: {settings.n_layer} layers, block of {settings.block_size} "
        f"({settings.layout}), target layers {list(settings.target_layers)}",
        f"embedding: {'own' if has_embedding else 'from the target'}, "
        f"head: {'own' if has_output else 'from the target'}, "
        f"confidence head: {'yes' if CONFIDENCE.name in file.tensors else 'no'}",
    ]
    if SHORT_LIST_KEY in file.metadata:
        lines.append(f"short list: {len(file.get(SHORT_LIST_KEY)):,} of {settings.n_vocab:,} tokens")
    if has_embedding and not has_output and not target.tied:
        lines.append(
            "warning: embedding without head. pydspark takes the target's head, but other programs take the embedding "
            "as the head, which ruins every draft; convert the checkpoint again for those"
        )
    if "dflash.rope.dimension_count" in file.metadata:
        count = file.get("dflash.rope.dimension_count")
        if count != settings.head_dim:
            lines.append(
                f"warning: dflash.rope.dimension_count is {count}, which leaked from the target; pydspark rotates all "
                f"{settings.head_dim} dimensions, other programs may not"
            )
    return lines


def _check_fingerprint(file: GgufFile, settings: DraftSettings, problems: list[Problem]) -> str:
    stored = stored_fingerprint(file)
    if stored is None:
        return "fingerprint: none in the file, so its arithmetic was not checked"
    distance = stored.distance(fingerprint_of_file(file, settings))
    few_bits = any(tensor.kind in FEW_BITS for tensor in file.tensors.values())
    most = _DISTANCE_OF_FEW_BITS if few_bits else _DISTANCE
    if not distance <= most:
        seen = f"the tensors compute something else (relative difference {distance:.3g})"
        problems.append(Problem("fingerprint", seen, f"at most {most}", _CONVERT))
    return f"fingerprint: agrees (relative difference {distance:.2g})"
