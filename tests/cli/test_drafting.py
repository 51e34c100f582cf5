"""Drafters on the command line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from cli.conftest import Run
from tiny.pairs import MIXED, NEARLY_BIGRAM, Pair, TinyDraft, write_draft, write_pair

from pydspark.cli.model import Pair as Files
from pydspark.cli.reply import draft_summary
from pydspark.records import Stats


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return write_pair(tmp_path_factory.mktemp("pair"), TinyDraft(quality=MIXED), shape=NEARLY_BIGRAM)


@pytest.fixture
def target(pair: Pair) -> list[str]:
    """Arguments for a tiny model whose answers do not change."""
    model = ["-m", str(pair.target_path), "-c", "256", "-t", "1"]
    return [*model, "--temp", "0", "-n", "24", "--ignore-eos", "--spec-draft-schedule", "fixed"]


def hub_folder(folder: Path, pair: Pair) -> Path:
    """A Hugging Face cache with the pair as the repo ``user/model``."""
    snapshot = folder / "models--user--model" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "m-Q8_0.gguf").symlink_to(pair.target_path)
    (snapshot / "dspark-m-Q8_0.gguf").symlink_to(pair.draft_path)
    return folder


# ---- run ----


@pytest.mark.parametrize("flag", ["-md", "--model-draft", "--spec-draft-model", "-hfd"])
def test_the_answer_is_the_same_and_a_line_tells_what_drafting_brought(
    run: Run, target: list[str], pair: Pair, flag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(hub_folder(tmp_path, pair)))
    drafter = "user/model" if flag == "-hfd" else str(pair.draft_path)
    plain, drafted = run("run", *target, "hello"), run("run", *target, flag, drafter, "hello")
    assert (drafted.status, drafted.out) == (plain.status, plain.out)
    assert len(plain.err.splitlines()) == 1
    summary, line = drafted.err.splitlines()
    assert summary.startswith("prompt ")
    number = r"\d+\.\d"
    assert re.fullmatch(
        rf"drafts: accept_len \d\.\d\d \| accepted by position (\d+% ){{2}}\d+% \| {number} t/s, "
        rf"plain about {number} t/s \(from steps of one token timed just now\): \d+\.\d\dx",
        line,
    )


def test_a_drafter_beside_the_model_is_found(
    run: Run, target: list[str], pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(hub_folder(tmp_path, pair)))
    from_repo = ["run", "-hf", "user/model:Q8_0", *target[2:], "hello"]
    assert "drafts:" in run(*from_repo, "--spec-type", "draft-dspark").err
    assert "drafts:" not in run(*from_repo).err


@pytest.mark.parametrize(
    "more", [["--spec-type", "none"], ["--spec-draft-n-max", "0"], ["-q"], ["-n", "1"]], ids=lambda more: more[0]
)
def test_no_line_where_nothing_was_drafted_or_nobody_listens(
    run: Run, target: list[str], pair: Pair, more: list[str]
) -> None:
    ran = run("run", *target, "-md", str(pair.draft_path), "hello", *more)
    assert ran.status == 0
    assert "drafts:" not in ran.err


def test_each_answer_of_a_conversation_has_its_line(run: Run, target: list[str], pair: Pair) -> None:
    argv = ["run", *target, "-n", "8", "-cnv"]
    stdin = b"hello\nthe world\n"
    drafted, plain = run(*argv, "-md", str(pair.draft_path), stdin=stdin), run(*argv, stdin=stdin)
    assert drafted.out == plain.out
    assert drafted.err.count("drafts:") == 2


def test_json_has_the_counts(run: Run, target: list[str], pair: Pair) -> None:
    ran = run("run", *target, "-md", str(pair.draft_path), "--spec-draft-n-max", "2", "--json", "hello")
    timings = json.loads(ran.out)["timings"]
    assert timings["draft_n"] >= timings["draft_n_accepted"] > 0
    assert len(timings["drafted_at"]) == 2
    assert ran.err == ""


def test_too_many_drafts_are_said_to_be_clamped(run: Run, target: list[str], pair: Pair) -> None:
    ran = run("run", *target, "-md", str(pair.draft_path), "--spec-draft-n-max", "20", "hello")
    assert ran.status == 0
    assert "warning: --spec-draft-n-max is 20, but this drafter proposes at most 8 tokens" in ran.err


@pytest.mark.parametrize(
    ("argv", "status", "words"),
    [
        (["-md", "a.gguf", "-hfd", "a/b"], 2, ["-md", "-hfd"]),
        (["-md", "no-such.gguf"], 1, ["no-such.gguf"]),
        (["--spec-type", "draft-dspark"], 2, ["--spec-type", "no drafter is named"]),
        (["--spec-type", "eagle3"], 2, ["--spec-type", "none", "draft-dspark", "draft-dflash"]),
        (["--draft-max", "3"], 2, ["--spec-draft-n-max"]),
        (["--spec-draft-n-min", "3"], 2, ["--spec-draft-n-min", "not supported"]),
    ],
)
def test_what_cannot_be_drafted_with_is_one_line(
    run: Run, target: list[str], argv: list[str], status: int, words: list[str]
) -> None:
    ran = run("run", *target, *argv, "hello")
    assert (ran.status, ran.out, len(ran.err.splitlines())) == (status, "", 1)
    for word in words:
        assert word in ran.err


def test_a_threshold_without_a_confidence_head_is_refused(run: Run, tmp_path: Path) -> None:
    headless = write_pair(tmp_path, TinyDraft(confidence="none"))
    argv = ["run", "-m", str(headless.target_path), "-md", str(headless.draft_path), "-c", "64", "hello"]
    for flag in ("--spec-draft-conf-min", "--spec-draft-p-min"):
        ran = run(*argv, flag, "0.5")
        assert ran.status == 2
        assert "--spec-draft-conf-min is 0.5" in ran.err
        assert "no confidence head" in ran.err


def test_the_summary_compares_with_steps_of_one_token() -> None:
    stats = Stats(
        5, 0, 1.0, 9, 80.0, 0.5, 4, draft_rounds=3, draft_n=8, draft_n_accepted=5, drafted_at=(3, 3, 2),
        accepted_at=(3, 1, 1),
    )  # fmt: skip
    line = "drafts: accept_len 2.67 | accepted by position 100% 33% 50%"
    # 9 tokens in 80 ms; 8 plain steps of 15 ms would be 120 ms
    assert draft_summary(stats, 15.0) == (
        f"{line} | 112.5 t/s, plain about 75.0 t/s (from steps of one token timed just now): 1.50x"
    )
    assert draft_summary(stats, None) == line
    unsure = Stats(5, 0, 1.0, 1, 80.0, 0.5, 2, draft_rounds=1)
    assert draft_summary(unsure, 15.0) == "drafts: accept_len 1.00 | accepted by position nothing was sure enough"


# ---- info ----


def test_a_pair_is_described(run: Run, pair: Pair) -> None:
    argv = ["-m", str(pair.target_path), "-md", str(pair.draft_path), "-c", "128"]
    facts = json.loads(run("info", *argv, "--json").out)
    found = facts["pair"]
    assert (found["target"], found["draft"]) == (str(pair.target_path), str(pair.draft_path))
    assert (found["fits"], found["mismatches"], found["unsupported"]) == (True, [], [])
    assert found["borrowed"] == ["token_embd.weight", "output.weight"]
    drafter = found["drafter"]
    assert (drafter["kind"], drafter["n_slots"], drafter["target_layers"]) == ("draft-dspark", 8, [0, 2])
    assert found["memory"]["n_ctx"] == 128
    alone, both = (sum(line["kv"] for line in part["memory"]["lines"]) for part in (facts["model"], found))
    assert both > alone
    text = run("info", *argv).out
    assert run("info", "--pair", *argv).out in text
    assert "architecture" in text


def test_the_pair_alone_fits_in_eighty_columns(
    run: Run, pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    for name, path in (("target.gguf", pair.target_path), ("draft.gguf", pair.draft_path)):
        Path(name).symlink_to(path)
    ran = run("info", "--pair", "-m", "target.gguf", "-md", "draft.gguf")
    assert (ran.status, ran.err) == (0, "")
    assert max(map(len, ran.out.splitlines())) <= 80
    assert "architecture" not in ran.out
    for words in ("draft-dspark", "8 tokens", "token_embd.weight, output.weight", "Memory with the drafter", "yes"):
        assert words in ran.out


def test_every_mismatch_is_listed(run: Run, tmp_path: Path) -> None:
    wrong = write_pair(tmp_path, TinyDraft(target_layers=(0, 3)))
    write_draft(wrong, n_padding=0, change={"tokenizer.ggml.mask_token_id": 5, "tokenizer.ggml.pre": "qwen2"})
    argv = ["info", "--pair", "-m", str(wrong.target_path), "-md", str(wrong.draft_path)]
    ran = run(*argv, "--json")
    facts = json.loads(ran.out)["pair"]
    assert (ran.status, facts["fits"], facts["memory"]) == (1, False, None)
    begins = [reason.partition(":")[0] for reason in facts["mismatches"]]
    assert begins == ["target layers", "pre-tokenizer", "mask id"]
    ran = run(*argv)
    assert ran.status == 1
    assert ran.out.count("  reason ") == 3


def test_a_target_in_place_of_the_drafter_is_said(run: Run, pair: Pair) -> None:
    for target, draft in ((pair.target_path, pair.target_path), (pair.draft_path, pair.draft_path)):
        ran = run("info", "--pair", "-m", str(target), "-md", str(draft))
        assert ran.status == 1
        assert "swapped" in ran.out or "pass it as draft" in " ".join(ran.out.split())


@pytest.mark.parametrize("argv", [["--pair"], ["--pair", "-m"], ["-md", "d.gguf"]])
def test_a_pair_needs_two_files(run: Run, pair: Pair, argv: list[str]) -> None:
    ran = run("info", *argv, *([str(pair.target_path)] if argv[-1] == "-m" else []))
    assert (ran.status, ran.out) == (2, "")
    assert "-m FILE" in ran.err


# ---- the demo ----


@pytest.fixture
def demo(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> Files:
    """The tiny pair in place of the demo's."""
    monkeypatch.setattr("pydspark.cli.model.demo_model_path", lambda: pair.target_path)
    monkeypatch.setattr("pydspark.cli.model.demo_target", lambda progress, log: pair.target_path)
    monkeypatch.setattr("pydspark.cli.model.demo_draft_path", lambda: pair.draft_path)
    return Files(pair.target_path, pair.draft_path, is_demo=True)


def test_the_demo_drafts(run: Run, demo: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    argv = ["run", "--demo", "-c", "256", "-t", "1", "-n", "24", "--ignore-eos", "hello"]
    assert "drafts: accept_len" in run(*argv, "--spec-draft-schedule", "fixed").err
    assert "drafts:" in run(*argv).err
    assert "drafts:" not in run(*argv, "--spec-type", "none").err
    monkeypatch.setenv("LLAMA_ARG_SPEC_DRAFT_MODEL", "drafter-of-another-model.gguf")
    assert "drafts:" in run(*argv).err
    assert "no-such.gguf" in run(*argv, "-md", "no-such.gguf").err
    facts = json.loads(run("info", "--demo", "--json").out)
    assert facts["pair"]["draft"] == str(demo.draft)


def test_the_demo_answers_without_its_drafter(run: Run, demo: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pydspark.cli.model.demo_draft_path", lambda: Path("not-in-the-package.gguf"))
    ran = run("run", "--demo", "-c", "256", "-t", "1", "-n", "4", "hello")
    assert ran.status == 0
    assert "drafts:" not in ran.err
