"""Loads and runs random targets and drafters. A program of its own: a crash must not end the tests.

    python try_random_files.py FOLDER FIRST COUNT

It says each seed before it is tried, and in the end how many attempts ended how.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from tiny.models import vocabulary
from tiny.random_files import N_BYTES, Dice, random_drafter, random_target, spoil, write_random_file

from pydspark._native import Draft, Gguf, Model, Session
from pydspark.errors import InternalError, PydsparkError
from pydspark.params import (
    CACHE_TYPES,
    DRAFT_ACCEPT,
    DRAFT_SAMPLING,
    ROLLBACK_FORMS,
    VERIFY_MODES,
    ModelParams,
    SamplingParams,
)
from pydspark.records import Finish, Request

RAN = "ran"


def main(folder: Path, first: int, count: int) -> None:
    outcomes: Counter[str] = Counter()
    for seed in range(first, first + count):
        print("seed", seed, flush=True)
        outcomes.update(try_seed(folder, seed))
    print(*(f"{name}={n}" for name, n in sorted(outcomes.items())))


def try_seed(folder: Path, seed: int) -> list[str]:
    """Writes a pair of files and runs the target alone, then the pair; returns how each ended."""
    dice = Dice(seed)
    target = random_target(dice)
    drafter = random_drafter(dice, target)
    for file in (target, drafter):
        if dice.chance(0.2):
            spoil(dice, file)
    paths = folder / f"target-{seed}.gguf", folder / f"drafter-{seed}.gguf"
    write_random_file(paths[0], dice, target)
    write_random_file(paths[1], dice, drafter)
    n_tokens = len(vocabulary(n_bytes=N_BYTES)[0])
    outcomes = [outcome(dice, n_tokens, *paths[:n]) for n in (1, 2)]
    for path in paths:
        path.unlink()
    return outcomes


def outcome(dice: Dice, n_tokens: int, target: Path, drafter: Path | None = None) -> str:
    """``ran``, or the kind of the error. An error that says nothing about the files is raised."""
    try:
        run(dice, n_tokens, target, drafter)
    except PydsparkError as error:
        if isinstance(error, InternalError) and "the model file may be damaged" not in str(error):
            raise
        return type(error).__name__
    return RAN if drafter is None else f"{RAN}-drafting"


def run(dice: Dice, n_tokens: int, target: Path, drafter: Path | None) -> None:
    params = random_params(dice)
    file = Gguf(target)
    model = Model(file, params)
    draft = None if drafter is None else Draft(Gguf(drafter), model, params)
    session = Session(model, params, draft)
    prompt = dice.rng.integers(0, n_tokens, dice.pick(1, 2, 9, 40)).tolist()
    for length in (len(prompt), dice.pick(1, len(prompt))):
        session.start(Request(prompt[:length], random_sampling(dice), seed=7, reuse_prefix=dice.chance(0.5)))
        while session.step().finish is Finish.NONE:
            pass


def random_params(dice: Dice) -> ModelParams:
    caches = {name: dice.pick(*CACHE_TYPES) for name in ("type_k", "type_v", "type_k_draft", "type_v_draft")}
    other_caches = dice.chance(0.3)
    return ModelParams(
        n_ctx=dice.pick(1, 33, 64, 64, 64, 256),
        n_batch=dice.pick(1, 5, 64),
        n_ubatch=dice.pick(1, 7, 64),
        n_threads=1,
        n_threads_batch=1,
        flash_attn=dice.chance(0.9 if other_caches else 0.5),  # most other types need it
        repack=dice.chance(0.5),
        fused_experts=dice.chance(0.5),
        verify=dice.pick(*VERIFY_MODES),
        rollback=dice.pick(*ROLLBACK_FORMS),
        cache_ram=dice.pick(0, 1),
        **(caches if other_caches else {}),
    )


def random_sampling(dice: Dice) -> SamplingParams:
    return SamplingParams(
        temperature=dice.pick(0.0, 1.0),
        max_tokens=12,
        n_draft_max=dice.pick(0, 1, 3, 31),
        draft_conf_min=dice.pick(0.0, 0.0, 0.5),
        draft_sampling=dice.pick(*DRAFT_SAMPLING),
        draft_accept=dice.pick(*DRAFT_ACCEPT),
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
