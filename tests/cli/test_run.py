"""Answers, prompts and errors of ``pydspark run``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli.conftest import Run
from fakes import FakeSession
from tiny.models import write_tiny_model

from pydspark import Llama


@pytest.fixture(scope="module")
def answers(tiny_llama_path: Path) -> dict[str, str]:
    """What the tiny model says to "hello", by kind of request."""
    with Llama(tiny_llama_path, n_ctx=256, n_threads=1) as llama:
        system = {"role": "system", "content": "the world"}
        user = {"role": "user", "content": "hello"}
        chat = {"max_tokens": 8, "temperature": 0}
        return {
            "raw": llama.create_completion("hello", **chat)["choices"][0]["text"],
            "chat": llama.create_chat_completion([user], **chat)["choices"][0]["message"]["content"],
            "system": llama.create_chat_completion([system, user], **chat)["choices"][0]["message"]["content"],
        }


@pytest.mark.parametrize(
    ("kind", "argv", "stdin"),
    [
        ("chat", ["hello"], b""),
        ("chat", ["-p", "hello"], b"ignored"),
        ("chat", [], b"hello\n"),
        ("chat", ["-"], b"hello\r\n"),
        ("chat", ["-p", "-"], b"hello"),
        ("raw", ["--raw", "hello"], b""),
        ("system", ["-sys", "the world", "hello"], b""),
    ],
)
def test_the_answer_and_nothing_else_is_on_standard_output(
    run: Run, tiny: list[str], answers: dict[str, str], kind: str, argv: list[str], stdin: bytes
) -> None:
    ran = run("run", *tiny, "-n", "8", *argv, stdin=stdin)
    assert (ran.status, ran.out) == (0, answers[kind] + "\n")
    assert ran.err.startswith("prompt ")
    assert len(ran.err.splitlines()) == 1


def test_the_answers_differ_by_kind(answers: dict[str, str]) -> None:
    assert len(set(answers.values())) == 3


def test_a_prompt_from_a_file(run: Run, tiny: list[str], answers: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "prompt.txt").write_bytes(b"hello\n")
    assert run("run", *tiny, "-n", "8", "-f", str(tmp_path / "prompt.txt")).out == answers["chat"] + "\n"


def test_quiet_leaves_standard_error_empty(run: Run, tiny: list[str]) -> None:
    assert run("run", *tiny, "-n", "2", "-q", "hello").err == ""


@pytest.mark.parametrize(("argv", "kind"), [([], "chat.completion"), (["--raw"], "text_completion")])
def test_json_is_the_result_of_the_api(run: Run, tiny: list[str], argv: list[str], kind: str) -> None:
    ran = run("run", *tiny, "-n", "4", "--ignore-eos", "--json", "hello", *argv)
    result = json.loads(ran.out)
    assert result["object"] == kind
    assert result["usage"]["completion_tokens"] == result["timings"]["predicted_n"] == 4
    assert ran.err == ""


def test_a_stop_text_ends_the_answer(run: Run, tiny: list[str], answers: dict[str, str]) -> None:
    stop = answers["raw"][2:4]
    ran = run("run", *tiny, "-n", "8", "--raw", "hello", "--stop", stop)
    assert ran.out == answers["raw"].partition(stop)[0] + "\n"


def test_what_the_file_recommends_comes_after_flags_and_variables(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The recommended temperature makes every answer the same; the others make them differ by seed.
    path = write_tiny_model(tmp_path / "cold.gguf", extra={"general.sampling.temp": 0.0})
    common = ["run", "-m", str(path), "-c", "256", "-t", "1", "-n", "20", "hello", "-s"]

    def differ(*more: str) -> bool:
        return len({run(*common, seed, *more).out for seed in ("1", "2")}) == 2

    assert not differ()
    assert differ("--temp", "2")
    monkeypatch.setenv("LLAMA_ARG_TEMPERATURE", "2")
    assert differ()
    assert not differ("--temp", "0")


def test_why_an_answer_was_cut_off_is_said(run: Run, tiny: list[str]) -> None:
    cut = ["run", *tiny, "-c", "40", "--ignore-eos", "hello"]
    assert run(*cut).err.endswith("context 40 of 40 | context full\n")
    assert run(*cut, "-n", "3").err.endswith("of 40 | -n 3 reached\n")


def test_lines_are_turns_of_a_conversation(run: Run, tiny: list[str], answers: dict[str, str]) -> None:
    ran = run("run", *tiny, "-n", "8", "-cnv", stdin=b"hello\n\nthe\n/clear\nhello\n/exit\nhello\n")
    lines = ran.out.splitlines()
    assert ran.status == 0
    assert ran.out.count(answers["chat"] + "\n") == 2
    assert ran.out.startswith(answers["chat"] + "\n")
    assert ran.out.endswith(answers["chat"] + "\n")
    assert len(ran.err.splitlines()) == 4  # three summaries and the note on /clear
    assert len(lines) > 2


def test_a_conversation_can_begin_with_a_prompt(run: Run, tiny: list[str], answers: dict[str, str]) -> None:
    assert run("run", *tiny, "-n", "8", "-cnv", "-p", "hello").out == answers["chat"] + "\n"


def test_a_message_that_does_not_fit_leaves_the_conversation_as_it_was(
    run: Run, tiny: list[str], answers: dict[str, str]
) -> None:
    ran = run("run", *tiny, "-n", "8", "-cnv", stdin=b"hello " * 150 + b"\nhello\n")
    assert (ran.status, ran.out) == (0, answers["chat"] + "\n")
    assert "/clear" in ran.err


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["-p", "a", "b"], ["-p", "without a flag"]),
        (["a", "b"], ["2", "quotes"]),
        (["-p", "a", "-f", "b"], ["-p", "-f"]),
        (["--demo", "a"], ["--demo", "-m"]),
        (["--raw", "-cnv"], ["-cnv", "--raw"]),
        (["--raw", "-sys", "a", "b"], ["-sys", "--raw"]),
        (["-cnv", "--json"], ["-cnv", "--json"]),
        (["--chat-template-kwargs", "{", "a"], ["--chat-template-kwargs", "JSON"]),
        (["--chat-template-kwargs", "[]", "a"], ["--chat-template-kwargs", "object"]),
        (["-"], ["standard input", "UTF-8", "0xff"]),
    ],
)
def test_arguments_that_do_not_go_together(run: Run, tiny: list[str], argv: list[str], words: list[str]) -> None:
    ran = run("run", *tiny, *argv, stdin=b"\xff")
    assert (ran.status, ran.out) == (2, "")
    assert len(ran.err.splitlines()) == 1
    for word in words:
        assert word in ran.err


def test_messages_name_flags_instead_of_parameters(run: Run, tiny: list[str]) -> None:
    ran = run("run", *tiny, "-c", "2000000000", "hello")
    assert "-c is 2000000000" in ran.err
    assert "n_ctx" not in ran.err


def test_verbose_shows_log_lines(run: Run, tiny: list[str]) -> None:
    assert "seed 7\n" in run("run", *tiny, "-n", "1", "-s", "7", "-v", "hello").err


def test_the_demo_model_answers(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSPARK_HOME", str(tmp_path))
    ran = run("run", "--demo", "-t", "1", "-c", "64", "-n", "2", "--temp", "0", "--raw", "The capital of France is")
    assert (ran.status, ran.out) == (0, " Paris.\n")


def test_no_model_says_how_to_get_one(run: Run) -> None:
    ran = run("run", "hello")
    assert ran.status == 2
    assert "--demo" in ran.err


def test_a_model_on_the_command_line_comes_before_one_of_the_environment(
    run: Run, tiny: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLAMA_ARG_MODEL", tiny[1])
    monkeypatch.setenv("LLAMA_ARG_HF_REPO", "nobody/nothing")
    assert run("run", *tiny[2:], "-n", "1", "hello").status == 0
    assert "no-such.gguf" in run("run", "-m", "no-such.gguf", "hello").err


@pytest.mark.parametrize("argv", [["-m", "no-such.gguf", "a"], ["-m", __file__, "a"], ["-m", "x", "-f", "no-such.txt"]])
def test_a_file_that_cannot_be_used_is_one_line(run: Run, argv: list[str]) -> None:
    ran = run("run", *argv)
    assert (ran.status, ran.out) == (1, "")
    assert len(ran.err.splitlines()) == 1
    assert ran.err.startswith("error: ")


def test_a_prompt_that_does_not_fit_fails_with_both_numbers(run: Run, tiny: list[str]) -> None:
    ran = run("run", *tiny, "-c", "32", "--raw", "x" * 40)
    assert (ran.status, ran.out) == (1, "")
    assert "40" in ran.err
    assert "32" in ran.err


def test_an_architecture_that_is_not_supported_is_named(run: Run, tmp_path: Path) -> None:
    ran = run("run", "-m", str(write_tiny_model(tmp_path / "other.gguf", "mamba")), "a")
    assert ran.status == 1
    assert "mamba" in ran.err


def test_a_defect_asks_for_a_report(run: Run, tiny: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pydspark.cli.run.show_reply", lambda *arguments: 1 // 0)
    plain, debug = run("run", *tiny, "a"), run("run", *tiny, "a", "--debug")
    assert plain.status == debug.status == 70
    assert "ZeroDivisionError" in plain.err
    assert "--debug" in plain.err
    assert "Traceback" not in plain.err
    assert "Traceback" in debug.err


@pytest.mark.parametrize("is_terminal", [True, False])
def test_reasoning_is_shown_to_a_person_alone(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    template = "{% for m in messages %}{{ m.reasoning_content }}|{{ m.content }}|{% endfor %}<think></think><think>"
    monkeypatch.setattr("tiny.models.CHAT_TEMPLATE", template)
    path = write_tiny_model(tmp_path / "thinking.gguf")
    session = FakeSession(b"hm.\n</think>\n\nyes")
    monkeypatch.setattr("pydspark.engine.Engine._session", lambda engine: session)
    monkeypatch.setattr("pydspark.cli.terminal.is_terminal", lambda stream: is_terminal)
    tiny = ["run", "-m", str(path), "-c", "256", "-t", "1", "--log-colors", "off"]
    assert run(*tiny, "hello").out == ("hm.\n\nyes\n" if is_terminal else "yes\n")
    assert run(*tiny, "hello", "--reasoning-format", "none").out == "hm.\n</think>\n\nyes\n"
    message = json.loads(run(*tiny, "hello", "--json").out)["choices"][0]["message"]
    assert message == {"role": "assistant", "content": "yes", "reasoning_content": "hm."}
    run(*tiny, "-cnv", stdin=b"hello\nwhy\n")
    with Llama(path, vocab_only=True) as llama:
        prompt = llama.detokenize(session.started[-1].tokens).decode()
    assert prompt == "|hello|hm.|yes||why|<think></think><think>"
