"""What was learnt of a pair's costs and reliability, kept between runs in the cache folder."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydspark._native import devices, ggml_version
from pydspark.cache import cache_dir
from pydspark.cpu import default_threads
from pydspark.errors import PydsparkError
from pydspark.params import ModelParams
from pydspark.records import LEARNT_KINDS, Learnt, LearntBin, LearntCost, LearntCosts

log = logging.getLogger("pydspark")

_FORMAT = 1
_HEAD, _TAIL = 1 << 20, 1 << 16  # bytes of a model file that tell it from others
# settings that change what rounds cost or how often drafts are accepted
_SETTINGS = (
    "n_threads", "n_gpu_layers", "repack", "flash_attn", "fused_experts", "verify", "rollback", "type_k", "type_v",
    "type_k_draft", "type_v_draft",
)  # fmt: skip


@dataclass(frozen=True)
class CalibrationKey:
    """What the learnt values belong to: other files, devices or settings have others."""

    target: str
    draft: str
    devices: tuple[str, ...]
    ggml: str
    settings: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Of the file."""
        text = json.dumps([_FORMAT, asdict(self)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32] + ".json"


def calibration_key(target: Path, draft: Path, params: ModelParams) -> CalibrationKey:
    """The key of a pair of files under these settings."""
    names = tuple(f"{device.name}: {device.description}" for device in devices())
    settings = {name: getattr(params, name) for name in _SETTINGS}
    settings["n_threads"] = params.n_threads if params.n_threads and params.n_threads > 0 else default_threads()
    return CalibrationKey(_fingerprint(target), _fingerprint(draft), names, ggml_version(), settings)


def _fingerprint(path: Path) -> str:
    """Of a file, without reading all of it."""
    size = path.stat().st_size
    with path.open("rb") as file:
        digest = hashlib.sha256(file.read(_HEAD))
        file.seek(max(size - _TAIL, 0))
        digest.update(file.read(_TAIL))
    return f"{size}-{digest.hexdigest()[:32]}"


class CalibrationFile:
    """The file for a key.

    Trouble with it never stops the work: what cannot be read is ignored, and what cannot be written is not kept, each
    with one warning.

    Args:
        key: what it belongs to.
        folder: where it lies; None = ``calibration`` in the cache folder, which is made when something is saved.
    """

    def __init__(self, key: CalibrationKey, folder: Path | None = None) -> None:
        self._key = key
        self._folder = folder
        self._is_writable = True

    @property
    def path(self) -> Path:
        """Where the file is, or would be."""
        folder = self._folder if self._folder is not None else cache_dir() / "calibration"
        return folder / self._key.name

    def load(self) -> Learnt | None:
        """What was saved; None if there is nothing, or nothing that can be used."""
        try:
            content = json.loads(self.path.read_text("utf-8"))
            return _read(content, self._key)
        except (FileNotFoundError, PydsparkError):
            return None
        except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
            log.warning("%s is not a calibration of this pair (%s): it is learnt anew", self.path, error)
            return None

    def save(self, learnt: Learnt) -> None:
        """Replaces the file, whole or not at all."""
        if not self._is_writable:
            return
        try:
            path = self.path
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
            try:
                with open(handle, "w", encoding="utf-8") as file:
                    json.dump(_written(learnt, self._key), file)
                os.replace(name, path)
            except BaseException:
                os.unlink(name)
                raise
        except (OSError, PydsparkError) as error:
            self._is_writable = False
            log.warning("what was learnt of this pair cannot be kept: %s", error)


def _written(learnt: Learnt, key: CalibrationKey) -> dict[str, Any]:
    values = {
        "verify": _costs_written(learnt.verify),
        "draft": _costs_written(learnt.draft),
        "bins": [[b.kind, b.slot, b.index, *_rounded(b.weight, b.logits, b.labels)] for b in learnt.bins],
    }
    return {"format": _FORMAT, "key": asdict(key), "checksum": _checksum(values), **values}


def _costs_written(costs: LearntCosts) -> dict[str, Any]:
    rows = [[cost.n_rows, *_rounded(cost.weight, cost.ms, cost.depth)] for cost in costs.rows]
    return {"rows": rows, "depth": _rounded(costs.depth_var, costs.depth_cov)}


def _rounded(*values: float) -> list[float]:
    return [float(f"{value:.7g}") for value in values]


def _checksum(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def _read(content: Any, key: CalibrationKey) -> Learnt:
    """Raises ValueError, TypeError or KeyError for anything but what was written for this key."""
    if content["format"] != _FORMAT:
        raise ValueError(f"format {content['format']!r}, wanted {_FORMAT}")
    if content["key"] != json.loads(json.dumps(asdict(key))):
        raise ValueError("it belongs to other files, devices or settings")
    values = {name: content[name] for name in ("verify", "draft", "bins")}
    if content["checksum"] != _checksum(values):
        raise ValueError("its checksum is wrong")
    bins = tuple(LearntBin(_kind(kind), _index(slot), _index(i), *_numbers(*v)) for kind, slot, i, *v in values["bins"])
    return Learnt(_costs_read(values["verify"]), _costs_read(values["draft"]), bins)


def _costs_read(values: Mapping[str, Any]) -> LearntCosts:
    rows = tuple(LearntCost(_index(n_rows), *_numbers(*more)) for n_rows, *more in values["rows"])
    return LearntCosts(rows, *_numbers(*values["depth"]))


def _kind(value: Any) -> str:
    if value not in LEARNT_KINDS:
        raise ValueError(f"no kind {value!r}")
    return str(value)


def _index(value: Any) -> int:
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r} is not an index")
    return value


def _numbers(*values: Any) -> list[float]:
    if not all(isinstance(value, (int, float)) and math.isfinite(value) for value in values):
        raise ValueError(f"{values!r} are not numbers")
    return [float(value) for value in values]
