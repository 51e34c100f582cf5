"""What a contest of settings showed: ratios to the first setting, by prompt and by category."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean, median, quantiles
from typing import Any, Literal

from pydspark.bench.contest import Question, Run, run_json
from pydspark.bench.report import markdown

Clock = Literal["wall_ms", "cpu_ms"]


@dataclass(frozen=True)
class Result:
    """All answers to one question.

    Attributes:
        question: which.
        runs: of each setting, by repeat.
    """

    question: Question
    runs: Mapping[str, Sequence[Run]]

    def ratios(self, name: str, base: str, clock: Clock) -> list[float]:
        """Speed of a setting in units of another, by repeat: tokens per time."""
        pairs = zip(self.runs[name], self.runs[base], strict=True)
        return [
            (getattr(other, clock) / max(other.n_tokens, 1)) / (getattr(mine, clock) / max(mine.n_tokens, 1))
            for mine, other in pairs
        ]

    def ratio(self, name: str, base: str, clock: Clock) -> float:
        """The median of ``ratios``."""
        return median(self.ratios(name, base, clock))


class Report:
    """Tables and verdicts.

    Args:
        results: of all questions so far.
        names: of the settings; the first one is what the others are compared with.
        clock: what ratios are of. CPU time does not count waiting for the CPU, but counts every thread.
    """

    def __init__(self, results: Sequence[Result], names: Sequence[str], clock: Clock) -> None:
        self.results = results
        self.names = names
        self.base = names[0]
        self.clock: Clock = clock
        self.categories = list(dict.fromkeys(result.question.category for result in results))

    def ratio_of(self, name: str, results: Iterable[Result]) -> float:
        """Geometric mean over questions."""
        return geometric_mean([result.ratio(name, self.base, self.clock) for result in results])

    def of_category(self, category: str) -> list[Result]:
        """The results of one category."""
        return [result for result in self.results if result.question.category == category]

    def table(self) -> str:
        """Ratios by category, and how many tokens a round of each setting gave."""
        head = ["category", "prompts", *self.names[1:]]
        rows = [
            [category, str(len(some)), *(f"{self.ratio_of(name, some):.3f}" for name in self.names[1:])]
            for category in self.categories
            if (some := self.of_category(category))
        ]
        means = [f"{self.ratio_of(name, self.results):.3f}" for name in self.names[1:]]
        lengths = [f"{self._by_round(name, 'n_tokens'):.2f}" for name in self.names[1:]]
        host = [f"{self._by_round(name, 'host_ms'):.3f}" for name in self.names[1:]]
        rows.append(["geometric mean", str(len(self.results)), *means])
        return markdown(head, [*rows, ["tokens per round", "", *lengths], ["host ms per round", "", *host]])

    def _by_round(self, name: str, value: str) -> float:
        runs = [run for result in self.results for run in result.runs[name]]
        return float(sum(getattr(run, value) for run in runs) / max(sum(run.n_rounds for run in runs), 1))

    def spread(self, name: str) -> float:
        """How far repeats of a question lie apart: the median of their interquartile ranges, as a share."""
        ranges = []
        for result in self.results:
            ratios = result.ratios(name, self.base, self.clock)
            if len(ratios) > 1:
                low, middle, high = quantiles(ratios, n=4)
                ranges.append((high - low) / middle)
        return median(ranges) if ranges else 0.0

    def verdicts(self, name: str = "auto") -> dict[str, Any]:
        """Of one setting: its worst prompt against the first setting, its worst category against the best fixed depth,
        and its geometric mean against that of each fixed depth."""
        fixed = [other for other in self.names if other.startswith("fixed")]
        if name not in self.names or not self.results:
            return {}
        worst = min(self.results, key=lambda result: result.ratio(name, self.base, self.clock))
        found: dict[str, Any] = {
            "worst_prompt": worst.question.id,
            "worst_prompt_ratio": worst.ratio(name, self.base, self.clock),
            "geometric_mean": self.ratio_of(name, self.results),
            "spread": self.spread(name),
            "same_text": all(
                run.text == other.text
                for result in self.results
                for run, other in zip(result.runs[name], result.runs[self.base], strict=True)
            ),
        }
        if fixed:
            against = {
                category: self.ratio_of(name, some) / max(self.ratio_of(other, some) for other in fixed)
                for category in self.categories
                if (some := self.of_category(category))
            }
            worst_category = min(against, key=lambda category: against[category])
            found |= {
                "worst_category": worst_category,
                "worst_category_ratio": against[worst_category],
                "fixed_geometric_means": {other: self.ratio_of(other, self.results) for other in fixed},
            }
        return found

    def text(self) -> str:
        """Everything for people."""
        clock = "CPU time" if self.clock == "cpu_ms" else "time by the clock"
        lines = [f"Speed in units of {self.base}, by {clock}:\n", self.table()]
        verdict = self.verdicts()
        if verdict:
            lines.append(f"auto on its worst prompt ({verdict['worst_prompt']}): {verdict['worst_prompt_ratio']:.3f}")
            if "worst_category" in verdict:
                lines.append(
                    f"auto against the best fixed depth, worst category ({verdict['worst_category']}): "
                    f"{verdict['worst_category_ratio']:.3f}"
                )
            lines.append(f"repeats lie {verdict['spread']:.1%} apart (interquartile range of a prompt)")
            lines.append(f"auto gives the text of {self.base}: {'yes' if verdict['same_text'] else 'no'}")
        return "\n".join(lines)

    def json(self) -> dict[str, Any]:
        """Everything for machines."""
        return {
            "clock": self.clock,
            "settings": list(self.names),
            "verdict": self.verdicts(),
            "geometric_means": {name: self.ratio_of(name, self.results) for name in self.names} if self.results else {},
            "categories": {
                category: {name: self.ratio_of(name, self.of_category(category)) for name in self.names}
                for category in self.categories
            },
            "prompts": [
                {
                    "id": result.question.id,
                    "category": result.question.category,
                    "ratios": {name: result.ratios(name, self.base, self.clock) for name in self.names},
                    "runs": {name: [run_json(run) for run in result.runs[name]] for name in self.names},
                }
                for result in self.results
            ],
        }
