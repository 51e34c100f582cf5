"""The command ``dspark-convert``."""

from __future__ import annotations

import argparse
import difflib
import os
import re
import signal
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

from .check_file import check_file
from .convert import Options, prepare, run
from .errors import ConvertError, UsageError
from .hf_cache import local_folder
from .mapping import OUTTYPES
from .plan import describe, describe_json
from .settings import LAYOUT_ANCHOR_FIRST, LAYOUT_ONE_PLUS_N
from .share import POLICIES
from .target import Target, load_target
from .writer import check_output

EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_INTERNAL, EXIT_INTERRUPTED, EXIT_TERMINATED = 0, 1, 2, 70, 130, 143

_EXAMPLES = """examples:
  dspark-convert DRAFTER_FOLDER --target model.gguf
  dspark-convert DRAFTER_FOLDER --target model.gguf --outtype q8_0 --outfile dspark-model-Q8_0.gguf
  dspark-convert DRAFTER_FOLDER --target model.gguf --dry-run
  dspark-convert --check dspark-model-BF16.gguf --target model.gguf
"""
# flags of llama.cpp's converter that people may type here, with what to do instead
_FOREIGN = {
    "--dspark": "not needed: the kind of drafter is read from the checkpoint",
    "--remote": "not supported; download the checkpoint first with 'hf download'",
    "--vocab-only": "not supported",
    "--no-lazy": "not needed: tensors are always read piece by piece",
    "--use-temp-file": "not needed: tensors are always written piece by piece",
    "--bigendian": "not supported",
    "--split-max-tensors": "not supported; drafters are written as one file",
    "--split-max-size": "not supported; drafters are written as one file",
    "--no-tensor-first-split": "not supported; drafters are written as one file",
    "--mmproj": "not supported",
    "--mtp": "not supported",
    "--mistral-format": "not supported",
    "--fp8-as-q8": "not supported; use the unquantized checkpoint",
    "--metadata": "not supported; --model-name sets the name",
    "--print-supported-models": "not supported; docs/convert.md lists the supported drafters",
}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def build_parser() -> argparse.ArgumentParser:
    """The parser; the table of flags in docs/convert.md is compared with it."""
    parser = _Parser(
        prog="dspark-convert",
        description="Convert a DSpark or DFlash drafter checkpoint to GGUF, for the target it drafts for.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "model", nargs="?", help="drafter folder (config.json, *.safetensors), or user/name if already downloaded"
    )
    files = parser.add_argument_group("files")
    files.add_argument(
        "--target", "--target-model-dir", metavar="PATH", help="the target: GGUF file or Hugging Face folder (required)"
    )
    files.add_argument(
        "--outfile",
        metavar="PATH",
        help="file to write; {ftype} becomes the type (default: dspark-<target>-<TYPE>.gguf in this folder)",
    )
    files.add_argument("--force", action="store_true", help="replace an existing output file")
    content = parser.add_argument_group("content")
    content.add_argument(
        "--outtype",
        choices=[*OUTTYPES, "auto"],
        default="bf16",
        help="number format; mixed = q8_0 with heads in bf16; q4_0 has heads in q8_0; auto = bf16 (default: bf16)",
    )
    content.add_argument(
        "--share",
        choices=POLICIES,
        default="auto",
        help="embedding and head: auto drops copies of the target's, keep writes them, drop insists (default: auto)",
    )
    content.add_argument(
        "--shortlist",
        metavar="FILE|N",
        help="tokens to make drafts of: a file of ids, perhaps with counts, or the N lowest ids (default: all tokens)",
    )
    content.add_argument(
        "--layout",
        choices=[LAYOUT_ANCHOR_FIRST, LAYOUT_ONE_PLUS_N],
        help="block layout it was trained with (default: from config.json)",
    )
    content.add_argument("--model-name", metavar="NAME", help="general.name of the file (default: from the target)")
    modes = parser.add_argument_group("modes and messages")
    modes.add_argument("--dry-run", action="store_true", help="run every check, print the plan, write nothing")
    modes.add_argument("--check", metavar="FILE", help="check an existing drafter GGUF against --target")
    modes.add_argument("--json", action="store_true", help="print the plan of --dry-run as JSON")
    modes.add_argument("-v", "--verbose", action="store_true", help="print the plan before writing")
    modes.add_argument("-q", "--quiet", action="store_true", help="no progress and no notes")
    modes.add_argument("--debug", action="store_true", help="show tracebacks (also with DSPARK_DEBUG=1)")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments or os.environ.get("DSPARK_DEBUG") == "1"
    previous = signal.signal(signal.SIGTERM, _terminate)
    try:
        _run(_parse(arguments))
        sys.stdout.flush()
        return EXIT_OK
    except KeyboardInterrupt:
        _say("interrupted; nothing was left behind")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # the reader has gone; keep the interpreter from complaining when it closes stdout
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    except (ConvertError, OSError) as error:
        if debug:
            traceback.print_exc()
        _say(f"error: {error}")
        return error.exit_code if isinstance(error, ConvertError) else EXIT_FAILED
    except Exception as error:
        if debug:
            traceback.print_exc()
        _say(f"internal error: {type(error).__name__}: {error}; please report it, with the output of --debug")
        return EXIT_INTERNAL
    finally:
        signal.signal(signal.SIGTERM, previous)


def _terminate(signum: int, frame: FrameType | None) -> NoReturn:
    sys.exit(EXIT_TERMINATED)


def _say(text: str) -> None:
    print(f"dspark-convert: {text}", file=sys.stderr)


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = build_parser()
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        flag = unknown[0].split("=")[0]
        known = [name for action in parser._actions for name in action.option_strings]
        close = difflib.get_close_matches(flag, known, n=1)
        hint = _FOREIGN.get(flag) or (f"did you mean {close[0]}?" if close else "see --help")
        raise UsageError(f"unknown argument {flag}: {hint}")
    if options.check is not None and options.model is not None:
        raise UsageError("--check takes no drafter folder beside the file")
    if options.check is None and options.model is None:
        raise UsageError("no drafter folder given; usage: dspark-convert DRAFTER_FOLDER --target model.gguf")
    if options.target is None:
        raise UsageError(
            "--target is missing: a drafter has no tokenizer and takes it from its target; give the target's GGUF file "
            "(--target model.gguf) or its Hugging Face folder"
        )
    if options.outtype == "auto":
        options.outtype = "bf16"
    return options


def _run(options: argparse.Namespace) -> None:
    target = load_target(local_folder(options.target))
    if options.check is not None:
        print("\n".join([*check_file(Path(options.check), target), "ok"]))
        return
    outfile = _outfile(options.outfile, options.outtype, target)
    if not options.dry_run:
        # before the slow part; the list of inputs is complete only afterwards
        check_output(outfile, set(target.files), options.force)
    choices = Options(options.outtype, options.share, options.layout, options.model_name, options.shortlist)
    prepared = prepare(local_folder(options.model), target, choices, options.quiet)
    if options.dry_run:
        text = (
            describe_json(prepared.plan, str(outfile))
            if options.json
            else describe(prepared.plan, target, str(outfile))
        )
        print(text)
        return
    check_output(outfile, prepared.inputs, options.force)
    if options.verbose:
        print(describe(prepared.plan, target, str(outfile)), file=sys.stderr)
    elif not options.quiet:
        for note in prepared.plan.notes:
            _say(note)
    run(prepared, outfile, options.force, options.quiet)
    print(outfile)


def _outfile(given: str | None, outtype: str, target: Target) -> Path:
    kind = outtype.upper()
    if given is not None:
        return Path(given.replace("{ftype}", kind)).expanduser()
    name = re.sub(r"[^\w.-]+", "-", target.path.stem if target.path.suffix == ".gguf" else target.name).strip("-")
    return Path(f"dspark-{name}-{kind}.gguf")


if __name__ == "__main__":
    sys.exit(main())
