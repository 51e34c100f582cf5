"""``pydspark quantize``: a model file with its weights in another type."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

from pydspark._native import Gguf
from pydspark.cli.args import Arguments
from pydspark.cli.report import bytes_text
from pydspark.cli.terminal import Terminal
from pydspark.errors import ArgumentError
from pydspark.quantize import TYPES
from pydspark.quantize import quantize as write_copy


def quantize(arguments: Arguments, terminal: Terminal) -> int:
    """Runs the command and returns the exit status.

    Raises:
        ArgumentError: not two files and a type, or a type that cannot be written.
        ModelFileError: the model cannot be read, or the new file cannot be written.
    """
    if len(arguments.positionals) != 3:
        raise ArgumentError(f"quantize needs IN OUT TYPE: two files and one of {', '.join(TYPES)}")
    source, wanted, type_name = arguments.positionals

    def show(fraction: float) -> bool:
        terminal.progress(f"writing {Path(wanted).name}", fraction)
        return True

    begin = time.monotonic()
    try:
        path = write_copy(source, wanted, type_name, force=bool(arguments.get("force")), progress=show)
    finally:
        terminal.clear_live()
    terminal.say(_summary(source, path, time.monotonic() - begin))
    return 0


def _summary(source: str, path: Path, seconds: float) -> str:
    size = sum(Path(file).stat().st_size for file in Gguf(source).files)
    types = Counter(tensor.type_name for tensor in Gguf(path).tensors())
    counts = ", ".join(f"{count} {name}" for name, count in types.most_common())
    return f"{path}: {bytes_text(size)} -> {bytes_text(path.stat().st_size)}, tensors: {counts}, {seconds:.1f} s"
