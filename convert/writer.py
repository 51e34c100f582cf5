"""Writes a plan to disk piece by piece. Either the whole file appears under its name, or nothing does."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from gguf import GGUFWriter

from .encode import encode_rows
from .errors import ConvertError
from .metadata import ARCHITECTURE
from .plan import ALIGNMENT, Plan
from .progress import Progress

_SUFFIX = ".partial"
# room for the header beyond the token texts; lists of numbers and keys are small beside it
_HEADER_MARGIN = 1 << 20


def check_output(outfile: Path, inputs: set[Path], force: bool) -> None:
    """Refuses an output path that cannot or must not be written.

    Raises:
        ConvertError: the folder is missing or read-only, the path is an input, or it exists and ``force`` is not set.
    """
    folder = outfile.parent
    if not folder.is_dir():
        raise ConvertError(f"the folder {folder} does not exist; create it, or choose another --outfile")
    if outfile.is_dir():
        raise ConvertError(f"{outfile} is a folder; --outfile needs a file name")
    if outfile.exists() and any(path.exists() and outfile.samefile(path) for path in inputs):
        raise ConvertError(f"{outfile} is one of the inputs; choose another --outfile")
    if outfile.exists() and not force:
        raise ConvertError(f"{outfile} exists; give --force to replace it, or choose another --outfile")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ConvertError(f"the folder {folder} cannot be written; choose another --outfile")


def write(plan: Plan, outfile: Path, force: bool, quiet: bool, verify: Callable[[Path], None]) -> None:
    """Writes ``plan``, lets ``verify`` look at the finished file, and gives it its name.

    Whatever ends this early (an error, Ctrl-C, SIGTERM), the unfinished file is removed. After a SIGKILL it stays,
    under a name that no program takes for a model, until the next run for the same output removes it.

    Raises:
        ConvertError: not enough space, or the system refused to write.
    """
    remove_stale(outfile)
    wanted = plan.data_bytes + _header_bytes(plan)
    free = shutil.disk_usage(outfile.parent).free
    if free < wanted:
        raise ConvertError(f"{outfile.parent} has {free:,} bytes free, the file needs {wanted:,}; free some space")
    try:
        with partial_file(outfile) as partial:
            _write_header(plan, partial)
            _write_data(plan, partial, quiet)
            verify(partial)
            if outfile.exists() and not force:
                raise ConvertError(f"{outfile} appeared while converting; give --force to replace it")
            os.rename(partial, outfile)
            _sync_folder(outfile.parent)
    except OSError as error:
        raise ConvertError(
            f"{outfile} could not be written: {error.strerror or error}; nothing was left behind"
        ) from error


def remove_stale(outfile: Path) -> None:
    """Removes what killed runs left of ``outfile``; files of runs that are still going are locked and stay."""
    for path in outfile.parent.glob(f".{_escape(outfile.name)}.*{_SUFFIX}"):
        try:
            with open(path, "rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
        except OSError:
            continue  # in use, or not ours: it does no harm where it is


def _escape(name: str) -> str:
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)


@contextmanager
def partial_file(outfile: Path) -> Iterator[Path]:
    """A new file beside ``outfile``, locked, and removed unless it has been renamed."""
    path = outfile.with_name(f".{outfile.name}.{os.getpid()}{_SUFFIX}")
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield path
    finally:
        path.unlink(missing_ok=True)
        os.close(handle)


def _header_bytes(plan: Plan) -> int:
    lists = (value.value for value in plan.metadata.values() if isinstance(value.value, list))
    return _HEADER_MARGIN + sum(8 + len(item) if isinstance(item, bytes) else 8 for items in lists for item in items)


def _write_header(plan: Plan, path: Path) -> None:
    writer = GGUFWriter(path, ARCHITECTURE)
    for key, value in plan.metadata.items():
        if key != "general.architecture":  # the writer has put that one in
            writer.add_key_value(key, value.value, value.type, value.item_type)
    dtype = np.dtype(np.float32)  # of no effect: raw_dtype decides
    for item in plan.items:
        # sizes are given as numbers: nothing is read before its turn
        writer.add_tensor_info(item.name, item.source.shape or (1,), dtype, item.n_bytes, raw_dtype=item.kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()


def _write_data(plan: Plan, path: Path, quiet: bool) -> None:
    progress = Progress("writing", plan.data_bytes, quiet)
    with open(path, "r+b") as file:
        file.write(bytes(-file.seek(0, os.SEEK_END) % ALIGNMENT))
        for item in plan.items:
            if item.ids is not None:
                file.write(item.id_bytes().data)
            else:
                for start, stop in item.source.spans():
                    file.write(encode_rows(item.source, start, stop, item.kind).data)
                    progress.add((stop - start) * item.row_bytes)
            file.write(bytes(item.padded_bytes - item.n_bytes))
        file.flush()
        os.fsync(file.fileno())
    progress.close()


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
