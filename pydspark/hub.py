"""Finds model files: a path, or ``user/model[:quant]`` in the Hugging Face cache. Downloading is optional."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path, PurePosixPath

from pydspark.errors import ArgumentError, ModelFileError
from pydspark.params import drafter_type

_REPO = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)(?::(?P<quant>[\w.-]+))?")
_SPLIT_PART = re.compile(r"-(?P<part>\d{5})-of-(?P<parts>\d{5})\.gguf$")
_DRAFTERS = ("dspark-", "dflash-")
_SIDECARS = ("mmproj", "imatrix", "mtp-", "eagle3-", *_DRAFTERS)
_PREFERRED_QUANTS = ("Q4_K_M", "Q8_0")
_TRUE_WORDS = ("1", "true", "on", "yes", "enabled")


def resolve(model: str | os.PathLike[str], env: Mapping[str, str] | None = None) -> Path:
    """The local file for a path or ``user/model[:quant]``; a repo that is not in the cache is downloaded.

    Args:
        model: a file that exists, or a repo with an optional quantization. Without one, Q4_K_M, then Q8_0, then the
            first file is taken.
        env: environment variables; None = this process's.

    Raises:
        ModelFileError: nothing fits; the message says what there is, or the command that downloads it.
    """
    found = _local_or_repo(model)
    return found if isinstance(found, Path) else resolve_repo(found["repo"], found["quant"], env=env)


def resolve_draft(
    draft: str | os.PathLike[str] | None,
    model: str | os.PathLike[str],
    spec_type: str = "auto",
    env: Mapping[str, str] | None = None,
) -> Path | None:
    """The local file of a drafter, or None for plain decoding.

    Args:
        draft: a file that exists, or a repo with an optional quantization, of which the ``dspark-`` or ``dflash-`` file
            is taken, or its model file if it has none. None = no drafter, unless ``spec_type`` asks for one: then it is
            the one that lies beside ``model`` in its repo.
        model: the target, as for ``resolve``.
        spec_type: see ``params.ModelParams``.
        env: environment variables; None = this process's.

    Raises:
        ArgumentError: ``spec_type`` asks for a drafter, and none is named.
        ModelFileError: nothing fits, as for ``resolve``.
    """
    kind = drafter_type(spec_type)
    if kind == "none" or (draft is None and kind == "auto"):
        return None
    found = _local_or_repo(model if draft is None else draft)
    if not isinstance(found, Path):
        role = Role.DRAFTER if draft is not None else Role.SIDECAR
        return resolve_repo(found["repo"], found["quant"], role=role, env=env)
    if draft is None:
        raise ArgumentError(
            f"spec_type is {spec_type!r}, but no drafter is named, and {found} is no repo to find it in"
        )
    return found


def _local_or_repo(model: str | os.PathLike[str]) -> Path | re.Match[str]:
    path = Path(model).expanduser()
    if path.is_file():
        return path
    text = os.fspath(model)
    match = _REPO.fullmatch(text)
    if path.exists() or match is None or text.lower().endswith(".gguf"):
        what = "is a folder, not a model file" if path.is_dir() else "does not exist"
        raise ModelFileError(f"{path} {what}")
    return match


class Role(Enum):
    """What a file of a repo is wanted for; the value names it in messages."""

    MODEL = "model"
    DRAFTER = "drafter"  # of a repo that is named for it
    SIDECAR = "drafter beside the model"


def resolve_repo(
    repo: str,
    quant: str | None = None,
    *,
    filename: str | None = None,
    role: Role = Role.MODEL,
    cache_dir: str | os.PathLike[str] | None = None,
    local_dir: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
) -> Path:
    """The local file of a repo: from the cache, else downloaded with ``huggingface_hub`` when that is installed.

    Args:
        repo: ``user/model``.
        quant: such as ``"Q8_0"``; upper or lower case.
        filename: a name or glob pattern instead of a quantization.
        role: what the file is wanted for.
        cache_dir: the cache folder; None = as the environment says.
        local_dir: a folder of this repo's files, used instead of the cache.
        env: environment variables; None = this process's.

    Raises:
        ModelFileError: not in the cache, and not to be had.
    """
    env = os.environ if env is None else env
    if local_dir:
        folders = [Path(local_dir)]
    else:
        caches = [Path(cache_dir)] if cache_dir else cache_folders(env)
        folders = [folder for cache in caches if (folder := snapshot_folder(cache, repo))]
    wanted = _Wanted(repo, quant, filename, role)
    here: list[str] = []
    for folder in folders:
        names = _gguf_files(folder)
        if name := wanted.choose(names):
            return folder / name
        here += names
    where = local_dir or "the Hugging Face cache"
    missing = f"in {where} there is: {', '.join(here)}" if here else f"nothing of it is in {where}"
    return _download(wanted, missing, _path(cache_dir), _path(local_dir), env)


@dataclass(frozen=True)
class _Wanted:
    """What to look for in a repo."""

    repo: str
    quant: str | None
    filename: str | None
    role: Role

    @property
    def pattern(self) -> str:
        if self.filename is None and self.role is Role.SIDECAR:
            return "*dspark-*.gguf"
        return self.filename or (f"*{self.quant}*.gguf" if self.quant else "*.gguf")

    def choose(self, names: Sequence[str]) -> str | None:
        """The file among those of the repo."""
        if self.filename is not None or self.role is Role.MODEL:
            return choose(names, self.quant, self.filename)
        drafter = choose_draft(names, self.quant)
        if self.role is Role.SIDECAR:
            return drafter
        if drafter is not None and (self.quant is None or _has_quant(drafter, self.quant)):
            return drafter
        return choose(names, self.quant)

    def __str__(self) -> str:
        return f"{self.pattern!r} of {self.repo}"


def _download(
    wanted: _Wanted, missing: str, cache_dir: Path | None, local_dir: Path | None, env: Mapping[str, str]
) -> Path:
    by_hand = f"hf download {wanted.repo} --include '{wanted.pattern}'"
    if is_offline(env):
        raise ModelFileError(f"no {wanted}: {missing}. The environment says offline; with a network, run: {by_hand}")
    try:
        import huggingface_hub
    except ImportError:
        raise ModelFileError(f"no {wanted}: {missing}. Run: {by_hand} (or: pip install 'pydspark[hub]')") from None
    token = env.get("HF_TOKEN") or None
    download = partial(
        huggingface_hub.hf_hub_download, wanted.repo, token=token, cache_dir=cache_dir, local_dir=local_dir
    )
    try:
        names = huggingface_hub.list_repo_files(wanted.repo, token=token)
        name = wanted.choose(names)
        paths = [download(part) for part in _all_parts(name)] if name else []
    except Exception as error:  # the library and the one below it have no common error class
        raise ModelFileError(f"downloading {wanted.repo} failed: {error}. By hand: {by_hand}") from error
    if not paths:
        there = ", ".join(sorted(name for name in names if name.endswith(".gguf"))) or "no GGUF file"
        raise ModelFileError(f"there is no {wanted}; there is: {there}")
    return Path(paths[0])


def cache_folders(env: Mapping[str, str]) -> list[Path]:
    """Folders to look in: llama.cpp's when it is set, then the one that Hugging Face's library would use."""
    home = Path(env.get("HOME") or Path.home())
    xdg = Path(env.get("XDG_CACHE_HOME") or home / ".cache")
    hub = Path(env.get("HF_HOME") or xdg / "huggingface") / "hub"
    chosen = env.get("HF_HUB_CACHE") or env.get("HUGGINGFACE_HUB_CACHE") or hub
    folders = [env["LLAMA_CACHE"]] if env.get("LLAMA_CACHE") else []
    return [Path(folder).expanduser() for folder in (*folders, chosen)]


def snapshot_folder(cache: Path, repo: str) -> Path | None:
    """The folder of the main revision of a repo, else of the newest one, or None."""
    base = cache / f"models--{repo.replace('/', '--')}"
    snapshots = base / "snapshots"
    main = base / "refs" / "main"
    if main.is_file() and (snapshots / main.read_text().strip()).is_dir():
        return snapshots / main.read_text().strip()
    found = [folder for folder in snapshots.iterdir() if folder.is_dir()] if snapshots.is_dir() else []
    return max(found, key=lambda folder: folder.stat().st_mtime, default=None)


def _gguf_files(snapshot: Path) -> list[str]:
    # A link without its blob is a download that was removed: is_file() follows links.
    return sorted(str(path.relative_to(snapshot)) for path in snapshot.rglob("*.gguf") if path.is_file())


def choose(names: Iterable[str], quant: str | None = None, filename: str | None = None) -> str | None:
    """The model file among the files of a repo, or None.

    Never a side file (projector, importance matrix, drafter) unless ``filename`` asks for it; of a split set, its first
    part.
    """
    ggufs = [name for name in sorted(names) if name.endswith(".gguf") and _is_first_part(name)]
    if filename is not None:
        return next((name for name in ggufs if _matches(name, filename)), None)
    models = [name for name in ggufs if not PurePosixPath(name).name.lower().startswith(_SIDECARS)]
    for wanted in [quant] if quant else _PREFERRED_QUANTS:
        if found := next((name for name in models if _has_quant(name, wanted)), None):
            return found
    return models[0] if models and not quant else None


def choose_draft(names: Iterable[str], quant: str | None = None) -> str | None:
    """The drafter among the files of a repo, or None: of the model's quantization, and in the nearest folder.

    Args:
        names: paths of the files.
        quant: the wanted quantization of the model; another one of the drafter is better than no drafter.
    """
    names = list(names)
    model = choose(names, quant) or ""
    same = quant or next((wanted for wanted in _PREFERRED_QUANTS if _has_quant(model, wanted)), None)
    ggufs = [name for name in sorted(names) if name.endswith(".gguf") and _is_first_part(name)]
    drafters = [name for name in ggufs if PurePosixPath(name).name.lower().startswith(_DRAFTERS)]
    return min(drafters, key=lambda name: (not (same and _has_quant(name, same)), _distance(name, model)), default=None)


def _distance(name: str, other: str) -> int:
    """Folders to go up and down from one file to the other."""
    a, b = PurePosixPath(name).parent.parts, PurePosixPath(other).parent.parts
    return len(a) + len(b) - 2 * len(os.path.commonprefix([a, b]))


def _is_first_part(name: str) -> bool:
    part = _SPLIT_PART.search(name)
    return part is None or int(part["part"]) == 1


def _matches(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) or fnmatchcase(PurePosixPath(name).name, pattern)


def _has_quant(name: str, quant: str) -> bool:
    # Not in the middle of a word: F16 must not find BF16.
    return re.search(rf"(?<![A-Za-z0-9]){re.escape(quant)}[-.]", name, re.IGNORECASE) is not None


def is_offline(env: Mapping[str, str]) -> bool:
    """Whether the environment forbids the network."""
    return any(env.get(name, "").lower() in _TRUE_WORDS for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"))


def _path(folder: str | os.PathLike[str] | None) -> Path | None:
    return None if folder is None else Path(folder)


def _all_parts(name: str) -> Sequence[str]:
    """All files of the split set that begins with ``name``, which may be the only one."""
    part = _SPLIT_PART.search(name)
    if part is None:
        return [name]
    parts = int(part["parts"])
    return [f"{name[: part.start()]}-{i:05}-of-{parts:05}.gguf" for i in range(1, parts + 1)]
