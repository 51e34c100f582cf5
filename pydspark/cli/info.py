"""``pydspark info``: what is installed, what is in a model file and the memory it needs, and how a drafter fits it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydspark.cli.args import Arguments
from pydspark.cli.calibration import calibration_facts, report_calibration
from pydspark.cli.facts import model_facts, system_facts
from pydspark.cli.model import Pair, find_pair
from pydspark.cli.pair import pair_facts, report_pair
from pydspark.cli.report import Report, bytes_text
from pydspark.cli.sections import report_memory, report_weights
from pydspark.cli.terminal import Output, Terminal
from pydspark.errors import ArgumentError
from pydspark.params import ModelParams

_SPECIAL_NOTES = {
    "bos": "begins a text",
    "eos": "ends a text or an answer",
    "eot": "ends a turn of a chat",
    "eom": "ends a message of a chat",
    "unk": "stands for what is in no token",
    "pad": "fills up unused places",
    "mask": "stands for a token to be guessed",
}


def info(arguments: Arguments, terminal: Terminal, output: Output, width: int) -> int:
    """Runs the command and returns the exit status.

    The status is 1 for a drafter that cannot be used with the model.

    Raises:
        ArgumentError: a prompt, or more than one model, is given, or a drafter is missing.
        ModelFileError: a file is missing or damaged.
    """
    if arguments.positionals:
        raise ArgumentError(f"info takes no prompt; a model file goes after -m: -m {arguments.positionals[0]}")
    params = ModelParams(**arguments.of(ModelParams))
    files = find_pair(arguments)
    for flag in ("pair", "calibration"):
        if arguments.get(flag) and (files is None or files.draft is None):
            raise ArgumentError(f"--{flag} needs a model and a drafter: -m FILE -md FILE")
    if arguments.get("calibration"):
        return _calibration(arguments, params, files, Report(width, terminal if output.is_terminal else None), output)
    system = system_facts(params)
    model = None if files is None else model_facts(files.target, params)
    pair = None if files is None or files.draft is None else pair_facts(files.target, files.draft, params)
    status = 0 if pair is None or pair["fits"] else 1
    if arguments.get("json"):
        facts = {"system": system, "model": model, "pair": pair}
        output.write(json.dumps(facts, ensure_ascii=False, indent=2) + "\n")
        return status
    report = Report(width, terminal if output.is_terminal else None)
    if model is None:
        _report_system(report, system)
    elif not arguments.get("pair"):
        _report_model(report, model)
    if pair is not None:
        report_pair(report, pair)
    output.write_styled(report.text())
    return status


def _calibration(arguments: Arguments, params: ModelParams, files: Pair | None, report: Report, output: Output) -> int:
    assert files is not None and files.draft is not None
    facts = calibration_facts(files.target, files.draft, params)
    if arguments.get("json"):
        output.write(json.dumps(facts, ensure_ascii=False, indent=2) + "\n")
    else:
        report_calibration(report, facts)
        output.write_styled(report.text())
    return 0


def _report_system(report: Report, facts: Mapping[str, Any]) -> None:
    ggml = facts["ggml"]
    report.title(f"pydspark {facts['version']}")
    report.row("core", f"interface {facts['core_interface']}", "how Python talks to the core")
    report.row("core file", facts["core_file"] or "unknown")
    report.row("ggml", f"{ggml['version']}, core built with {ggml['built_with']}", "the library that calculates")
    report.row("ggml options", " ".join(f"{name}={value}" for name, value in ggml["options"].items()))
    for i, library in enumerate(ggml["libraries"]):
        report.row("ggml libraries" if i == 0 else "", library)
    report.title("Devices")
    for device in facts["devices"]:
        memory = f"{bytes_text(device['memory_free'])} free of {bytes_text(device['memory_total'])}"
        report.row(device["name"], f"{device['description']}, {memory}")
    report.title("Threads")
    threads = facts["threads"]
    report.row("answer", str(threads["answer"]), "while generating; -t changes it")
    report.row("prompt", str(threads["prompt"]), "while reading the prompt; -tb changes it")


def _report_model(report: Report, facts: Mapping[str, Any]) -> None:
    report.title(facts["name"] or "model without a name")
    _report_files(report, facts)
    report.row("architecture", facts["architecture"] or "not named", "the kind of network")
    if facts["shape"] is not None:
        _report_shape(report, facts["shape"])
    report_weights(report, facts["tensor_types"])
    if facts["vocabulary"] is not None:
        _report_vocabulary(report, facts["vocabulary"])
    _report_sampling(report, facts["sampling"])
    if facts["memory"] is not None:
        report_memory(report, facts["memory"])
    for problem in facts["unsupported"]:
        report.title("pydspark cannot run this model")
        report.row("reason", problem)


def _report_files(report: Report, facts: Mapping[str, Any]) -> None:
    files = facts["files"]
    for i, file in enumerate(files):
        label = "file" if len(files) == 1 else f"file {i + 1} of {len(files)}"
        report.row(label, file["path"])
    size = sum(file["size"] for file in files)
    report.row("size", bytes_text(size), f"on disk, in GGUF format {facts['gguf_version']}")


def _report_shape(report: Report, shape: Mapping[str, Any]) -> None:
    report.row("parameters", _big(shape["n_params"]), "numbers that the model has learned")
    report.row("context", f"{shape['n_ctx_train']:,} tokens", "longest text it was trained for")
    report.row("layers", f"{shape['n_layer']}", "steps that each token goes through")
    if shape["n_recurrent"]:
        report.row("recurrent", f"{shape['n_recurrent']}", "of these; what they remember does not grow with the text")
    report.row("attention heads", f"{shape['n_head']}", "parts that look back at the text")
    report.row("key/value heads", f"{shape['n_head_kv']}", "fewer need less memory for context")
    report.row("embedding", f"{shape['n_embd']}", "numbers that stand for one token")


def _report_vocabulary(report: Report, vocabulary: Mapping[str, Any]) -> None:
    report.title("Text")
    report.row("vocabulary", f"{vocabulary['n_tokens']:,} tokens", "pieces of text that the model knows")
    report.row("pre-tokenizer", vocabulary["pre_tokenizer"], "how text is split into words first")
    for name, token in vocabulary["special_tokens"].items():
        report.row(f"{name} token", _token(token), _SPECIAL_NOTES[name])
    ends = " ".join(map(_token, vocabulary["end_of_generation"]))
    report.row("end tokens", ends or "none", "any of them ends an answer")
    templates = ", ".join(vocabulary["chat_templates"])
    note = "turns messages into a prompt" if templates else "for plain text only, not for -cnv and -sys"
    report.row("chat template", templates or "none", note)


def _token(token: Mapping[str, Any]) -> str:
    return f"{token['id']}={token['text']}"


def _report_sampling(report: Report, sampling: Mapping[str, Any]) -> None:
    report.title("Sampling")
    for name, value in sampling.items():
        report.row(name.replace("_", " "), f"{value:g}", "recommended by the model file")
    if not sampling:
        report.row("recommended", "nothing", "so the defaults of pydspark run hold")


def _big(number: int) -> str:
    for size, word in ((10**9, "billion"), (10**6, "million"), (10**3, "thousand")):
        if number >= size:
            return f"{number / size:.3g} {word}"
    return str(number)
