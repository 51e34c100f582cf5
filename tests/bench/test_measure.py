"""Measuring: cases, samples, workers."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from pydspark.bench.measure import Bench, Case, Kind, Plan, run_round
from pydspark.bench.worker import Worker, plan_from_json, plan_to_json, serve
from pydspark.errors import ArgumentError, PydsparkError
from pydspark.params import ModelParams


@pytest.fixture
def plan(tiny_llama_path: Path) -> Plan:
    return Plan(tiny_llama_path, ModelParams(n_threads=1), n_prompt=16, n_gen=4, depths=(0, 20), widths=(1, 9))


def test_cases_are_named_after_what_they_do(plan: Plan) -> None:
    names = [case.name for case in plan.cases()]
    assert names[:5] == ["pp16", "tg4", "sampled4", "batch1", "batch9"]
    assert names[5:] == ["tg4 @ d20", "sampled4 @ d20", "batch1 @ d20", "batch9 @ d20"]


def test_every_case_takes_time_and_only_generation_knows_its_host_time(plan: Plan) -> None:
    bench = Bench(plan)
    samples = run_round(bench)
    assert len(samples) == len(bench.cases)
    for case, sample in zip(bench.cases, samples, strict=True):
        assert sample.wall_ms > 0 and sample.cpu_ms > 0
        if case.kind in (Kind.GREEDY, Kind.SAMPLED):
            assert sample.host_ms is not None and 0 < sample.host_ms < sample.wall_ms
        else:
            assert sample.host_ms is None


def test_context_holds_the_longest_case(plan: Plan) -> None:
    assert Bench(replace(plan, depths=(0, 100))).params.n_ctx >= 100 + 9


def test_nothing_to_measure_is_refused(plan: Plan) -> None:
    with pytest.raises(ArgumentError, match="nothing to measure"):
        Bench(replace(plan, n_prompt=0, n_gen=0, widths=()))


def test_more_than_the_model_was_trained_for_is_refused(plan: Plan) -> None:
    with pytest.raises(ArgumentError, match="the model has 256"):
        Bench(replace(plan, depths=(1000,)))


def test_batches_are_forgotten(plan: Plan) -> None:
    bench = Bench(plan)
    bench.run(Case(Kind.GREEDY, 4, 20))
    held = bench._session.n_past
    assert len(bench._session.measure(6, 3)) == 3
    assert bench._session.n_past == held


@pytest.mark.parametrize("n_tokens", [-1, 0, 1000])
def test_batch_that_does_not_fit_is_refused(plan: Plan, n_tokens: int) -> None:
    with pytest.raises(ArgumentError, match=f"a batch of {n_tokens} cannot be measured"):
        Bench(plan)._session.measure(n_tokens)


def test_plan_survives_the_way_to_a_worker(plan: Plan) -> None:
    assert plan_from_json(plan_to_json(plan)) == plan


def test_worker_answers_with_facts_and_one_line_per_round(plan: Plan) -> None:
    answers = io.StringIO()
    serve(io.StringIO(f"{plan_to_json(plan)}\nround\nround\n"), answers)
    facts, *rounds = map(json.loads, answers.getvalue().splitlines())
    assert facts["settings"]["n_threads"] == 1
    assert [len(samples) for samples in rounds] == [len(plan.cases())] * 2


def test_worker_process_measures(plan: Plan) -> None:
    with Worker(plan) as worker:
        assert worker.facts["model_filename"] == plan.path.name
        assert len(worker.run_round()) == len(plan.cases())


def test_worker_that_cannot_load_says_so(plan: Plan, tmp_path: Path) -> None:
    with pytest.raises(PydsparkError, match="ended with status 1"):
        Worker(replace(plan, path=tmp_path / "missing.gguf"))


def test_folder_without_the_library_is_refused(plan: Plan, tmp_path: Path) -> None:
    with pytest.raises(PydsparkError, match="has no library of that name"):
        Worker(plan, tmp_path)
