"""Settings side by side: what is measured, the arithmetic of it, and the picture."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tiny.pairs import MIXED, Pair, TinyDraft, write_pair

from pydspark._native import Gguf
from pydspark.bench.contest import (
    STANDARD,
    Contest,
    Question,
    Run,
    Setting,
    every_depth,
    parse_acceptance,
    parse_setting,
    questions,
)
from pydspark.bench.contest_report import Report, Result
from pydspark.bench.main import main
from pydspark.bench.picture import bars
from pydspark.errors import ArgumentError
from pydspark.params import ModelParams, SamplingParams

PARAMS = ModelParams(n_ctx=256, n_threads=1, calibration=False)
TEXTS = [{"id": f"{kind}{i}", "category": kind, "turns": [f"{kind} {i}"]} for kind in ("a", "b") for i in range(2)]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return write_pair(tmp_path_factory.mktemp("pair"), TinyDraft(quality=MIXED))


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    file = tmp_path / "texts.jsonl"
    file.write_text("".join(json.dumps(text) + "\n" for text in TEXTS))
    return file


def run_of(ms: float, n_tokens: int = 10, text: tuple[int, ...] = (1, 2)) -> Run:
    return Run(ms, 2 * ms, n_tokens, 5, 5, (5,), (5,), (0, 5), {"whole": 5}, 1.0, 0.1, text)


def test_every_side_answers_every_question(pair: Pair, texts: Path) -> None:
    gguf = Gguf(pair.target_path)
    found = questions(gguf, 1, texts)
    assert [question.id for question in found] == ["a0", "b0"]
    sampling = SamplingParams(temperature=0.0, max_tokens=20)
    more = parse_setting("lookup:spec_type=auto+ngram,draft_schedule=fixed,n_draft_max=3")
    contest = Contest(gguf, Gguf(pair.draft_path), PARAMS, sampling, [*STANDARD, more])
    for seed, question in enumerate(found):
        runs = contest.answer(question, seed)
        assert list(runs) == [*(setting.name for setting in STANDARD), "lookup"]
        assert len({run.text for run in runs.values()}) == 1
        assert all(run.n_tokens == len(run.text) and run.wall_ms > 0 for run in runs.values())
        assert runs["plain"].drafted_at == ()
        assert max(runs["fixed 3"].depths[1:], default=0) > 0 and len(runs["fixed 3"].depths) <= 4


def test_acceptance_by_chance(pair: Pair) -> None:
    gguf = Gguf(pair.target_path)
    settings = every_depth(8)
    assert [setting.name for setting in settings] == ["plain", *(f"fixed {n}" for n in range(1, 9)), "auto"]
    sampling = SamplingParams(temperature=0.0, max_tokens=150)
    contest = Contest(gguf, Gguf(pair.draft_path), PARAMS, sampling, settings[:4], acceptance=(0.9, 0.5))
    runs = contest.answer(Question("x", "a", [5, 6, 7]), 0)
    run = runs["fixed 2"]
    assert run.accepted_at[0] / run.drafted_at[0] == pytest.approx(0.9, abs=0.12)
    assert run.accepted_at[1] / run.accepted_at[0] == pytest.approx(0.5, abs=0.2)
    assert runs["plain"].n_tokens == run.n_tokens == 150


@pytest.mark.parametrize(
    "text", ["x", ":n_draft_max=3", "x:n_draft_max", "x:colour=red", "x:n_draft_max=-1", "x:draft_schedule=never"]
)
def test_settings_that_are_wrong(text: str) -> None:
    with pytest.raises(ArgumentError):
        parse_setting(text)


def test_settings() -> None:
    found = parse_setting(
        "x:n_draft_max=3,draft_conf_min=0.5,draft_candidates=16,flash_attn=false,spec_type=auto+ngram"
    )
    sampling = {"n_draft_max": 3, "draft_conf_min": 0.5}
    model = {"draft_candidates": 16, "flash_attn": False, "spec_type": "auto,ngram"}
    assert found == Setting("x", sampling, model)
    assert parse_acceptance("0.9,0.5") == (0.9, 0.5)
    for wrong in ("", "x", "1.5", "0.5,-0.1"):
        with pytest.raises(ArgumentError):
            parse_acceptance(wrong)


def test_files_that_hold_no_prompts(pair: Pair, tmp_path: Path) -> None:
    file = tmp_path / "texts.jsonl"
    file.write_text('{"id": "a"}\n')
    with pytest.raises(ArgumentError, match="line 1: not a prompt"):
        questions(Gguf(pair.target_path), 1, file)


def test_ratios_and_verdicts() -> None:
    names = ["plain", "fixed 2", "auto"]
    first = Question("p", "a", [1])
    second = Question("q", "b", [1])
    results = [
        Result(first, {"plain": [run_of(100), run_of(90)], "fixed 2": [run_of(50)] * 2, "auto": [run_of(40)] * 2}),
        Result(second, {"plain": [run_of(100)], "fixed 2": [run_of(200)], "auto": [run_of(110, text=(3,))]}),
    ]
    report = Report(results, names, "wall_ms")
    assert results[0].ratios("auto", "plain", "wall_ms") == [2.5, 2.25]
    verdict = report.verdicts()
    assert verdict["worst_prompt"] == "q"
    assert verdict["worst_prompt_ratio"] == pytest.approx(100 / 110)
    assert verdict["worst_category"] == "a"
    assert verdict["worst_category_ratio"] == pytest.approx(2.375 / 1.9)
    assert verdict["geometric_mean"] == pytest.approx((2.375 * 100 / 110) ** 0.5)
    assert verdict["fixed_geometric_means"] == {"fixed 2": pytest.approx((1.9 * 0.5) ** 0.5)}
    assert not verdict["same_text"]
    text = report.text()
    assert "| a | 1 | 1.900 | 2.375 |" in text and "worst prompt (q): 0.909" in text
    assert json.loads(json.dumps(report.json()))["categories"]["b"]["fixed 2"] == 0.5


def test_the_picture_is_one() -> None:
    picture = bars("A & B", {"a<b": {"x": 0.5, "y": 2.0}, "c": {"x": 1.0, "y": 1.5}}, ["x", "y"])
    root = ElementTree.fromstring(picture)
    titles = [one.text for one in root.iter("{http://www.w3.org/2000/svg}title")]
    assert titles == ["A & B", "a<b, x: 0.500", "a<b, y: 2.000", "c, x: 1.000", "c, y: 1.500"]


def test_the_command(pair: Pair, texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved, picture = tmp_path / "found.json", tmp_path / "bars.svg"
    status = main([
        "-m", str(pair.target_path), "-md", str(pair.draft_path), "--compare", "-n", "8", "-r", "2", "-t", "1",
        "--texts", str(texts), "--only", "auto,fixed 3", "--save", str(saved), "--picture", str(picture),
    ])  # fmt: skip
    out = capsys.readouterr()
    assert status == 0
    assert "| category | prompts | fixed 3 | auto |" in out.out and "auto on its worst prompt" in out.out
    found = json.loads(out.out.splitlines()[-1])
    assert found["settings"] == ["plain", "fixed 3", "auto"] and len(found["prompts"]) == 2
    assert json.loads(saved.read_text())["prompts"] == found["prompts"]
    assert ElementTree.parse(picture)
    assert "2/2 b: b0" in out.err


def test_ctrl_c_keeps_what_there_is(
    pair: Pair, texts: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Contest.answer

    def answer(self: Contest, question: Question, seed: int) -> dict[str, Run]:
        if question.category == "b":
            raise KeyboardInterrupt
        return real(self, question, seed)

    monkeypatch.setattr(Contest, "answer", answer)
    command = ["-m", str(pair.target_path), "-md", str(pair.draft_path), "--compare", "-n", "4", "-r", "1", "-t", "1"]
    assert main([*command, "--texts", str(texts), "--acceptance", "0.5"]) == 0
    out = capsys.readouterr()
    assert [prompt["id"] for prompt in json.loads(out.out.splitlines()[-1])["prompts"]] == ["a0"]
    assert "stopped; this is what there is so far" in out.err
