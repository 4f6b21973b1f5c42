"""The arithmetic behind docs/scaling.md, and that the page shows it."""

import re
from pathlib import Path

import pytest

from bench.at_scale import COSTS, SCENARIOS, Scenario, draw, ends_first, full_at, page, parts_of

COST = {name: unit.value for name, unit in COSTS.items()}
DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_what_is_needed_grows_evenly_and_one_is_full_where_one_is_needed(
    scenario: Scenario,
) -> None:
    for one, ten in zip(
        parts_of(scenario, 1_000, COST), parts_of(scenario, 10_000, COST), strict=True
    ):
        assert ten.needed == pytest.approx(10 * one.needed)
        needed = {
            p.name: p.needed for p in parts_of(scenario, full_at(scenario, one.name, COST), COST)
        }
        assert needed[one.name] == pytest.approx(1)
    assert ends_first(scenario, COST) == sorted(ends_first(scenario, COST))


def test_a_scenario_by_hand() -> None:
    scenario = Scenario("x", "sandbox", "gpu", 2, 100, 50, 50, outside_s=1.0)
    cost = COST | {
        "gpu_stream_tokens_per_s": 50, "gpu_tokens_per_s": 500, "gpu_context_mb": 1e-9,
        "gateway_cpu_ms": 3, "judge_cpu_ms": 1, "gpu_learner_tokens_per_s": 3000,
        "sandbox_step_cpu_ms": 5, "worker_cpu_ms": 1, "sandbox_start_cpu_ms": 8,
        "machine_cores": 10,
    }  # fmt: skip
    # 100 environments with turns of 2 s: 50 turns and 25 episodes of 300 tokens a second
    needed = {part.name: part.needed for part in parts_of(scenario, 100, cost)}
    assert needed == pytest.approx(
        {"machines": 0.05, "GPUs that serve": 5, "gateway cores": 0.2, "learners": 2.5}
    )


def test_the_page_shows_what_the_arithmetic_says() -> None:
    text = (DOCS / "scaling.md").read_text("utf-8")
    missing = [line for line in page(COST) if line and line not in text]
    assert not missing, "PYTHONPATH=. python bench/at_scale.py prints what belongs there"


def test_the_picture_is_the_one_of_the_page(tmp_path: Path) -> None:
    draw(tmp_path / "scaling.svg", SCENARIOS[1], COST)
    drawn = (tmp_path / "scaling.svg").read_text("utf-8")
    assert drawn == (DOCS / "scaling.svg").read_text("utf-8")
    assert re.findall(r">(1,000|100,000|environments 100,000)<", drawn)
