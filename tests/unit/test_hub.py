"""Finding models in made-up Hugging Face caches."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from pydspark import hub
from pydspark.errors import ArgumentError, ModelFileError

OFFLINE = {"HF_HUB_OFFLINE": "1"}


def add_repo(cache: Path, repo: str, names: list[str], commit: str = "c0ffee", main: bool = True) -> Path:
    base = cache / ("models--" + repo.replace("/", "--"))
    snapshot = base / "snapshots" / commit
    for name in names:
        blob = base / "blobs" / name.replace("/", "_")
        blob.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(b"GGUF")
        link = snapshot / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(blob)
    if main:
        (base / "refs").mkdir(exist_ok=True)
        (base / "refs" / "main").write_text(commit)
    return snapshot


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"HF_HUB_CACHE": str(tmp_path / "hub"), "HOME": str(tmp_path), **OFFLINE}


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "hub"


def test_existing_path_is_taken_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"")
    assert hub.resolve(path, {}) == path


@pytest.mark.parametrize("name", ["missing.gguf", "some/folder/missing.gguf", "user/missing.gguf", "."])
def test_missing_path_is_not_looked_for_elsewhere(name: str) -> None:
    with pytest.raises(ModelFileError, match="does not exist|is a folder"):
        hub.resolve(name, {})


@pytest.mark.parametrize(
    ("names", "quant", "chosen"),
    [
        (["m-Q8_0.gguf", "m-Q4_K_M.gguf", "m-F16.gguf"], None, "m-Q4_K_M.gguf"),
        (["m-Q8_0.gguf", "m-F16.gguf"], None, "m-Q8_0.gguf"),
        (["m-Q6_K.gguf", "m-F16.gguf"], None, "m-F16.gguf"),
        (["m-Q8_0.gguf", "m-Q4_K_M.gguf"], "q8_0", "m-Q8_0.gguf"),
        (["m-BF16.gguf", "m-F16.gguf"], "f16", "m-F16.gguf"),
        (["m-BF16.gguf"], "F16", None),
        (["m-Q4_K_S.gguf", "m.Q4_K.gguf"], "Q4_K", "m.Q4_K.gguf"),
        (["m-Q4_0-00002-of-00002.gguf", "m-Q4_0-00001-of-00002.gguf"], "Q4_0", "m-Q4_0-00001-of-00002.gguf"),
        (["mmproj-Q8_0.gguf", "dspark-m-Q8_0.gguf", "mtp-m-Q8_0.gguf", "m-Q8_0.gguf"], "Q8_0", "m-Q8_0.gguf"),
        (["dspark-m-Q8_0.gguf", "imatrix.gguf", "README.md"], None, None),
        (["sub/m-Q8_0.gguf"], None, "sub/m-Q8_0.gguf"),
    ],
)
def test_choice_by_quantization(names: list[str], quant: str | None, chosen: str | None) -> None:
    assert hub.choose(names, quant) == chosen


def test_choice_by_pattern() -> None:
    names = ["a/m-Q8_0.gguf", "dspark-m.gguf", "m-F16.gguf"]
    assert hub.choose(names, filename="*F16*") == "m-F16.gguf"
    assert hub.choose(names, filename="m-Q8_0.gguf") == "a/m-Q8_0.gguf"
    assert hub.choose(names, filename="dspark-*") == "dspark-m.gguf"
    assert hub.choose(names, filename="nothing*") is None


def test_repo_in_the_cache(cache: Path, env: dict[str, str]) -> None:
    snapshot = add_repo(cache, "user/model", ["m-Q4_K_M.gguf", "m-Q8_0.gguf"])
    assert hub.resolve("user/model", env) == snapshot / "m-Q4_K_M.gguf"
    assert hub.resolve("user/model:q8_0", env) == snapshot / "m-Q8_0.gguf"


def test_main_revision_is_preferred(cache: Path, env: dict[str, str]) -> None:
    main = add_repo(cache, "user/model", ["m-Q8_0.gguf"], commit="aaa")
    add_repo(cache, "user/model", ["m-Q4_0.gguf"], commit="bbb", main=False)
    assert hub.resolve("user/model", env).parent == main


def test_link_without_its_blob_is_not_a_file(cache: Path, env: dict[str, str]) -> None:
    snapshot = add_repo(cache, "user/model", ["m-Q4_K_M.gguf", "m-Q8_0.gguf"])
    (snapshot / "m-Q4_K_M.gguf").resolve().unlink()
    assert hub.resolve("user/model", env).name == "m-Q8_0.gguf"


@pytest.mark.parametrize(
    ("given", "folders"),
    [
        ({}, ["/h/.cache/huggingface/hub"]),
        ({"XDG_CACHE_HOME": "/x"}, ["/x/huggingface/hub"]),
        ({"XDG_CACHE_HOME": "/x", "HF_HOME": "/f"}, ["/f/hub"]),
        ({"HF_HOME": "/f", "HUGGINGFACE_HUB_CACHE": "/g"}, ["/g"]),
        ({"HUGGINGFACE_HUB_CACHE": "/g", "HF_HUB_CACHE": "/b"}, ["/b"]),
        ({"LLAMA_CACHE": "/l", "HF_HUB_CACHE": "/b"}, ["/l", "/b"]),
    ],
)
def test_cache_folders(given: dict[str, str], folders: list[str]) -> None:
    assert hub.cache_folders({"HOME": "/h", **given}) == [Path(folder) for folder in folders]


@pytest.mark.parametrize("name", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_offline_asks_nothing_of_the_network(env: dict[str, str], name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace())
    del env["HF_HUB_OFFLINE"]
    with pytest.raises(ModelFileError, match=r"offline.*hf download user/model --include '\*\.gguf'"):
        hub.resolve("user/model", {**env, name: "1"})


def test_missing_quantization_tells_what_there_is(cache: Path, env: dict[str, str]) -> None:
    add_repo(cache, "user/model", ["m-Q8_0.gguf"])
    with pytest.raises(ModelFileError, match=r"no '\*Q5_0\*\.gguf' of user/model: .*there is: m-Q8_0\.gguf"):
        hub.resolve("user/model:Q5_0", env)


def test_without_the_library_the_command_to_type_is_named(env: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ModelFileError, match=r"Run: hf download user/model .*pydspark\[hub\]"):
        hub.resolve("user/model", {**env, "HF_HUB_OFFLINE": "0"})


# ---- drafters ----


@pytest.mark.parametrize(
    ("names", "quant", "chosen"),
    [
        (["m-Q4_K_M.gguf", "dspark-m-BF16.gguf"], None, "dspark-m-BF16.gguf"),
        (["m-Q4_K_M.gguf", "dflash-m-BF16.gguf"], None, "dflash-m-BF16.gguf"),
        (["m-Q8_0.gguf", "dspark-m-BF16.gguf", "dspark-m-Q8_0.gguf"], None, "dspark-m-Q8_0.gguf"),
        (["m-Q8_0.gguf", "dspark-m-BF16.gguf", "dspark-m-Q8_0.gguf"], "bf16", "dspark-m-BF16.gguf"),
        (["a/m-Q8_0.gguf", "b/dspark-m-F16.gguf", "a/dspark-m-F16.gguf"], None, "a/dspark-m-F16.gguf"),
        (["a/m-Q8_0.gguf", "b/c/dspark-x.gguf", "dspark-y.gguf"], None, "dspark-y.gguf"),
        (["m-Q8_0.gguf", "mtp-m-Q8_0.gguf"], None, None),
    ],
)
def test_choice_of_a_drafter(names: list[str], quant: str | None, chosen: str | None) -> None:
    assert hub.choose_draft(names, quant) == chosen


def test_drafter_of_a_repo(cache: Path, env: dict[str, str]) -> None:
    both = add_repo(cache, "user/both", ["m-Q8_0.gguf", "dspark-m-BF16.gguf", "dspark-m-Q8_0.gguf"])
    alone = add_repo(cache, "user/alone", ["draft-BF16.gguf", "draft-Q8_0.gguf"])
    assert hub.resolve_draft("user/both", "m.gguf", env=env) == both / "dspark-m-Q8_0.gguf"
    assert hub.resolve_draft("user/both:bf16", "m.gguf", env=env) == both / "dspark-m-BF16.gguf"
    assert hub.resolve_draft("user/alone:BF16", "m.gguf", env=env) == alone / "draft-BF16.gguf"
    with pytest.raises(ModelFileError, match="Q5_0"):
        hub.resolve_draft("user/both:Q5_0", "m.gguf", env=env)


def test_drafter_beside_the_model_is_taken_when_its_kind_is_asked_for(cache: Path, env: dict[str, str]) -> None:
    snapshot = add_repo(cache, "user/model", ["m-Q8_0.gguf", "dspark-m-BF16.gguf"])
    add_repo(cache, "user/plain", ["m-Q8_0.gguf"])
    assert hub.resolve_draft(None, "user/model:Q8_0", "draft-dspark", env) == snapshot / "dspark-m-BF16.gguf"
    assert hub.resolve_draft(None, "user/model:Q8_0", "auto", env) is None
    with pytest.raises(ModelFileError, match=r"no '\*dspark-\*\.gguf' of user/plain"):
        hub.resolve_draft(None, "user/plain", "draft-dspark", env)


def test_file_of_a_drafter(tmp_path: Path) -> None:
    path = tmp_path / "d.gguf"
    path.write_bytes(b"")
    assert hub.resolve_draft(path, "m.gguf") == path
    assert hub.resolve_draft(path, "m.gguf", "none") is None
    with pytest.raises(ModelFileError, match="no-such.gguf does not exist"):
        hub.resolve_draft("no-such.gguf", path)
    with pytest.raises(ArgumentError, match="'draft-dspark', but no drafter is named, and .*d.gguf is no repo"):
        hub.resolve_draft(None, path, "draft-dspark")


class FakeLibrary:
    """``huggingface_hub`` with one repo."""

    def __init__(self, folder: Path, names: list[str]) -> None:
        self.folder = folder
        self.names = names
        self.fetched: list[str] = []

    def list_repo_files(self, repo: str, token: str | None) -> list[str]:
        if repo != "user/model":
            raise LookupError(f"no repo {repo}")
        return self.names

    def hf_hub_download(self, repo: str, name: str, **options: object) -> str:
        self.fetched.append(name)
        return str(self.folder / name)


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeLibrary:
    names = ["m-Q8_0-00001-of-00002.gguf", "m-Q8_0-00002-of-00002.gguf", "m-F16.gguf"]
    fake = FakeLibrary(tmp_path, names)
    monkeypatch.setitem(sys.modules, "huggingface_hub", fake)
    return fake


def test_all_parts_are_downloaded(env: dict[str, str], library: FakeLibrary) -> None:
    path = hub.resolve("user/model:Q8_0", {**env, "HF_HUB_OFFLINE": "0"})
    assert library.fetched == library.names[:2]
    assert path.name == library.names[0]


def test_download_without_a_fitting_file_tells_what_there_is(env: dict[str, str], library: FakeLibrary) -> None:
    with pytest.raises(ModelFileError, match=r"there is no .*there is: m-F16\.gguf"):
        hub.resolve("user/model:Q4_0", {**env, "HF_HUB_OFFLINE": ""})


def test_failed_download_is_one_clear_error(env: dict[str, str], library: FakeLibrary) -> None:
    with pytest.raises(ModelFileError, match="downloading user/other failed: no repo user/other. By hand: hf download"):
        hub.resolve("user/other", {**env, "HF_HUB_OFFLINE": ""})
