"""Writes a target with random weights and the exact widths of a real one, to measure what its layers cost.

    python tools/make_bench_model.py OUT.gguf [--arch qwen35moe] [--layers 4] [--type q4_k] [--drafter DRAFT.gguf]

Widths, heads, experts and vocabulary are those of Qwen3.6-35B-A3B (``qwen35moe``), Qwen3.6-27B (``qwen35``) or
Qwen3-30B-A3B (``qwen3moe``); ``--layers`` says how deep it is. ``--drafter`` also writes a drafter that fits, with the
widths of the real 6-layer one. Text from it is noise. Quantized blocks are drawn as such, so writing is fast, and
memory does not grow with the file.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

from bench_model import drafter, target
from bench_model.blocks import Type
from bench_model.files import write_model

TYPES = {"q4_k": Type.Q4_K, "q8_0": Type.Q8_0, "nvfp4": Type.NVFP4, "bf16": Type.BF16, "f16": Type.F16, "f32": Type.F32}


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--arch", choices=target.MODELS, default="qwen35moe")
    parser.add_argument("--layers", type=int, default=4, metavar="N", help="at least 2 (%(default)s)")
    parser.add_argument("--type", choices=TYPES, default="q4_k", help="of the weights (%(default)s)")
    parser.add_argument("--drafter", type=Path, metavar="FILE", help="also write a drafter that fits")
    parser.add_argument("--draft-layers", type=int, default=drafter.N_LAYER, metavar="N", help="(%(default)s)")
    parser.add_argument("--draft-type", choices=TYPES, default="q8_0", help="of the drafter's weights (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="other seeds give other weights (%(default)s)")
    parser.add_argument("--force", action="store_true", help="replace files")
    options = parser.parse_args(arguments)
    if options.layers < 2:
        parser.error("--layers must be at least 2")
    if options.draft_layers < 1:
        parser.error("--draft-layers must be at least 1")
    if options.seed < 0:
        parser.error("--seed must be at least 0")
    return options


def write(options: argparse.Namespace) -> None:
    model = target.MODELS[options.arch]
    tensors = target.target_tensors(model, options.layers, TYPES[options.type], seed=options.seed)
    write_model(options.out, model.arch, target.target_settings(model, options.layers), tensors, force=options.force)
    if options.drafter is None:
        return
    n_features = len(drafter.feature_layers(options.layers))
    kind, n_layer = TYPES[options.draft_type], options.draft_layers
    tensors = drafter.draft_tensors(model.n_embd, n_features, kind, n_layer, seed=options.seed)
    settings = drafter.draft_settings(model.n_embd, options.layers, n_layer)
    write_model(options.drafter, "dflash", settings, tensors, force=options.force)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    signal.signal(signal.SIGTERM, _terminate)
    try:
        write(options)
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; nothing unfinished was left behind", file=sys.stderr)
        return 130
    return 0


def _terminate(signum: int, frame: FrameType | None) -> NoReturn:
    sys.exit(128 + signum)


if __name__ == "__main__":
    sys.exit(main())
