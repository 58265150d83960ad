"""The dashboard asks for metrics that exist, by labels that they have."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gateway.routing.breaker import BreakerRules
from gateway.routing.health import Health
from gateway.routing.route import Target
from gateway.telemetry import names
from gateway.telemetry.exposition import exposition
from gateway.telemetry.gauges import engine_gauges, gauge, target_gauges
from gateway.telemetry.series import AttemptSeries, RequestSeries, Snapshot
from local_engine.generation import EngineStats
from providers.abilities import Measure
from providers.local.measures import measures
from providers.testing.scripted import ScriptedProvider

DASHBOARD = json.loads((Path(__file__).parents[2] / "deploy/grafana/gateway.json").read_text())


class WithEngine(ScriptedProvider):
    def measures(self) -> Sequence[Measure]:
        return list(measures("m", EngineStats(*[1] * 12)))


def everything_counted() -> Snapshot:
    series = RequestSeries(ended={(200, ""): 1}, cost_usd=1.0, cache={"hit": 1}, cached_tokens=1)
    for histogram in (series.duration, series.queue, series.ttft, series.tpot, series.prompt, series.completion):
        histogram.observe(1)
    attempts = AttemptSeries(ended={("first", "answered", ""): 1})
    attempts.duration.observe(1)
    provider = WithEngine("p")
    health = Health(BreakerRules(), lambda: 0.0)
    health.of(Target(provider, "m"))
    gauges = [gauge(names.ACTIVE_REQUESTS, 1), *target_gauges(health, lambda: 0.0), *engine_gauges([provider])]
    return Snapshot({("r", "m", "p", "k", "t"): series}, {("p", "m"): attempts}, gauges)


def labels_by_metric() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for line in exposition(everything_counted()).decode().splitlines():
        if match := re.match(r"(\w+)(?:{(.*)})? ", line):
            found[match[1]] = set(re.findall(r'(\w+)="', match[2] or ""))
    return found


LABELS = labels_by_metric()


@pytest.mark.parametrize("panel", DASHBOARD["panels"], ids=lambda panel: panel["title"])
def test_a_panel_asks_for_metrics_that_exist_by_labels_that_they_have(panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        expression = target["expr"]
        asked = re.findall(r"\b((?:gateway|gen_ai)_\w+)(?=[{\[)])(?:{(.*?)})?", re.sub(r"by \([^)]*\)", "", expression))
        assert asked
        grouped = set(re.findall(r"\w+", ",".join(re.findall(r"by \(([^)]*)\)", expression))))
        for name, conditions in asked:
            assert name in LABELS
            assert set(re.findall(r'(\w+)[!=]~?"', conditions)) | grouped <= LABELS[name], expression
        assert set(re.findall(r"{{(\w+)}}", target.get("legendFormat", ""))) <= grouped


@pytest.mark.parametrize("variable", DASHBOARD["templating"]["list"], ids=lambda variable: variable["name"])
def test_a_choice_above_the_panels_is_of_a_label_that_exists_and_is_used(variable: dict[str, Any]) -> None:
    if variable["type"] == "query":
        name, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]).groups()  # type: ignore[union-attr]
        assert label in LABELS[name]
    assert re.search(rf"\$(?:{variable['name']}\b|{{{variable['name']}}})", json.dumps(DASHBOARD["panels"]))
