"""Ten thousand and a hundred thousand environments by arithmetic, from what one unit costs.

    PYTHONPATH=. python bench/at_scale.py                       # tables; --picture PATH.svg draws
    PYTHONPATH=. python bench/at_scale.py --set gateway_cpu_ms=0.6 gpu_hour=1.9

Nothing is run: each cost was measured by the command that stands beside it, on two cores, or is
said to be assumed. Environments and the engine take turns; from the length of a turn follow turns a
second, and from these what every part has to do. A part that there can be any number of says how
many are needed; one that there is only one of says at how many environments it is full, which is
what ends first. What is larger than that was never run.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from clawrl_gym.ui.svg import CHART_HEIGHT, CHART_WIDTH, Series, line_chart, write_picture

_LEAST_DRAWN = 1e-2
SIZES = (128, 1_000, 5_000, 10_000, 100_000)


@dataclass(frozen=True, slots=True)
class UnitCost:
    """Cost of one unit."""

    value: float
    what: str
    source: str
    """The command that measures it; "assumed" where nobody has."""


COSTS = {
    "sandbox_mb": UnitCost(1.83, "MB of a live sandbox", "bench/sandbox.py --alive 5000"),
    "container_mb": UnitCost(5.6, "MB of a live container", "bench/docker_sandbox.py"),
    "browser_mb": UnitCost(18.0, "MB of a browser context with a page", "bench/gui.py contexts"),
    "sandbox_start_cpu_ms": UnitCost(17.7, "CPU of a start", "bench/sandbox.py --alive 100"),
    "container_start_cpu_ms": UnitCost(286.0, "CPU of a start", "bench/docker_sandbox.py"),
    "browser_start_cpu_ms": UnitCost(235.0, "CPU of a context's start", "bench/gui.py contexts"),
    "sandbox_step_cpu_ms": UnitCost(
        2.3, "CPU of a command that forks", "bench/sandbox.py --alive 5000"
    ),
    "container_step_cpu_ms": UnitCost(4.6, "CPU of a command", "bench/docker_sandbox.py"),
    "browser_step_cpu_ms": UnitCost(
        50.0, "CPU of a reply's actions and look", "bench/gui.py speed"
    ),
    "gateway_cpu_ms": UnitCost(0.75, "CPU of a turn in the gateway's process", "-m bench.rollout"),
    "worker_cpu_ms": UnitCost(0.36, "CPU of a turn in a worker", "-m bench.rollout"),
    "worker_mb": UnitCost(133.0, "MB of a Ray actor", "docs/measured.md"),
    "worker_environments": UnitCost(1_000, "environments of a worker", "assumed"),
    "store_kb": UnitCost(2.6, "KB of a turn in run.db", "bench/gateway.py"),
    "judge_cpu_ms": UnitCost(0.85, "CPU of a rule judge's verdict", "bench/judge_languages.py"),
    "tiny_tokens_per_s": UnitCost(2_400, "sampled tokens a second of a core", "assumed"),
    "gpu_tokens_per_s": UnitCost(6_000, "4B: sampled tokens a second of a GPU", "assumed"),
    "gpu_stream_tokens_per_s": UnitCost(50, "4B: of one request among many", "assumed"),
    "tiny_stream_tokens_per_s": UnitCost(80, "tiny: of one request among many", "assumed"),
    "gpu_context_mb": UnitCost(0.147, "4B: MB of a token in the key-value cache", "arithmetic"),
    "gpu_cache_gb": UnitCost(60, "4B: cache of a GPU of 80 GB", "assumed"),
    "tiny_learner_tokens_per_s": UnitCost(4_200, "tiny: trained tokens a second", "make train"),
    "gpu_learner_tokens_per_s": UnitCost(4_000, "4B: trained tokens a second", "assumed"),
    "head_cores": UnitCost(1, "cores that one gateway can use", "one event loop"),
    "machine_cores": UnitCost(64, "cores of a machine for environments", "assumed"),
    "machine_gb": UnitCost(256, "GB of it, of which 0.8 are used", "assumed"),
    "machine_hour": UnitCost(2.6, "USD an hour for it", "assumed"),
    "core_hour": UnitCost(0.04, "USD an hour for a core that serves the tiny model", "assumed"),
    "gpu_hour": UnitCost(2.5, "USD an hour for a GPU of 80 GB", "assumed"),
}


@dataclass(frozen=True, slots=True)
class Scenario:
    """Properties of episodes."""

    name: str
    environment: str
    """The beginning of the names of its costs."""
    model: str
    turns: int
    prompt_tokens: int
    reply_tokens: int
    observation_tokens: int
    outside_s: float
    """Seconds from a reply to the next request: the environment works."""

    @property
    def sequence_tokens(self) -> int:
        """Tokens that an episode is trained on, its turns merged."""
        return self.prompt_tokens + self.turns * (self.reply_tokens + self.observation_tokens)


SCENARIOS = (
    Scenario("terminal, tiny policy", "sandbox", "tiny", 1, 45, 14, 0, 0.03),
    Scenario("terminal, 4B", "sandbox", "gpu", 8, 800, 200, 200, 1.0),
    Scenario("repositories in containers, 4B", "container", "gpu", 25, 2_500, 150, 400, 6.0),
    Scenario("web pages, 4B", "browser", "gpu", 12, 1_800, 60, 900, 2.0),
)


@dataclass(frozen=True, slots=True)
class Part:
    """Something that has to be there."""

    name: str
    needed: float
    """So many of it, for these environments."""
    usd_hour: float = 0.0
    """Price of one, in dollars an hour."""
    is_single: bool = False
    """There is only one, whatever is needed."""


def turn_s(scenario: Scenario, cost: Mapping[str, float]) -> float:
    """Seconds from one reply's end to the next one's."""
    stream_tokens_per_s = cost[f"{scenario.model}_stream_tokens_per_s"]
    return scenario.outside_s + scenario.reply_tokens / stream_tokens_per_s


def parts_of(scenario: Scenario, environments: float, cost: Mapping[str, float]) -> list[Part]:
    """Parts that so many environments need, all of them busy all the time."""
    kind, model = scenario.environment, scenario.model
    turns_per_s = environments / turn_s(scenario, cost)
    episodes_per_s = turns_per_s / scenario.turns
    workers = environments / cost["worker_environments"]
    environment_cores = 1e-3 * (
        turns_per_s * (cost[f"{kind}_step_cpu_ms"] + cost["worker_cpu_ms"])
        + episodes_per_s * cost[f"{kind}_start_cpu_ms"]
    )
    environment_gb = 1e-3 * (environments * cost[f"{kind}_mb"] + workers * cost["worker_mb"])
    machines = max(
        environment_cores / cost["machine_cores"], environment_gb / (0.8 * cost["machine_gb"])
    )
    head_cores = turns_per_s * 1e-3 * (cost["gateway_cpu_ms"] + cost["judge_cpu_ms"])
    learner = episodes_per_s * scenario.sequence_tokens / cost[f"{model}_learner_tokens_per_s"]
    return [
        Part("machines", machines, cost["machine_hour"]),
        _engines(scenario, turns_per_s, environments, cost),
        Part("gateway cores", head_cores / cost["head_cores"], 0.0, is_single=True),
        Part("learners", learner, _device_hour(model, cost), is_single=True),
    ]


def _engines(
    scenario: Scenario, turns_per_s: float, environments: float, cost: Mapping[str, float]
) -> Part:
    model = scenario.model
    by_tokens = turns_per_s * scenario.reply_tokens / cost[f"{model}_tokens_per_s"]
    if model == "tiny":
        return Part("cores that serve", by_tokens, cost["core_hour"])
    context = scenario.prompt_tokens + scenario.turns / 2 * (
        scenario.reply_tokens + scenario.observation_tokens
    )
    by_cache = environments * context * cost["gpu_context_mb"] / (1e3 * cost["gpu_cache_gb"])
    return Part("GPUs that serve", max(by_tokens, by_cache), cost["gpu_hour"])


def _device_hour(model: str, cost: Mapping[str, float]) -> float:
    return cost["core_hour"] if model == "tiny" else cost["gpu_hour"]


def full_at(scenario: Scenario, part: str, cost: Mapping[str, float]) -> float:
    """Number of environments that fill one of a part; the need grows with them evenly."""
    return 1 / next(p.needed for p in parts_of(scenario, 1, cost) if p.name == part)


def table(scenario: Scenario, cost: Mapping[str, float]) -> Iterator[str]:
    """Lines of Markdown."""
    names = [part.name for part in parts_of(scenario, 1, cost)]
    columns = ["environments", *names, "turns a second", "run.db, GB an hour", "USD an hour"]
    yield f"| {' | '.join(columns)} |"
    yield "|" + "---|" * len(columns)
    for environments in SIZES:
        parts = parts_of(scenario, environments, cost)
        # one of each at least; of a single one as many as it would take
        usd = sum(math.ceil(part.needed) * part.usd_hour for part in parts)
        needs = " | ".join(_amount(part.needed) for part in parts)
        turns_per_s = environments / turn_s(scenario, cost)
        store_gb = turns_per_s * 3600 * cost["store_kb"] * 1e-6
        yield (
            f"| {environments:,} | {needs} | {turns_per_s:,.0f} | {_amount(store_gb)} | "
            f"{usd:,.0f} |"
        )


def _amount(needed: float) -> str:
    return f"{needed:,.0f}" if needed >= 10 else f"{needed:.2g}"


def ends_first(scenario: Scenario, cost: Mapping[str, float]) -> list[tuple[float, str]]:
    """Parts that there is only one of: at how many environments, which, the first one first."""
    single = [part.name for part in parts_of(scenario, 1, cost) if part.is_single]
    return sorted((full_at(scenario, name, cost), name) for name in single)


def page(cost: Mapping[str, float]) -> Iterator[str]:
    """Lines of docs/scaling.md about all this."""
    yield "| cost | | measured by |"
    yield "|---|---|---|"
    for name, unit in COSTS.items():
        yield f"| `{name}` | {cost[name]:g} {unit.what} | {unit.source} |"
    for scenario in SCENARIOS:
        firsts = ", ".join(f"the {name} at {at:,.0f}" for at, name in ends_first(scenario, cost))
        yield ""
        yield (
            f"**{scenario.name[0].upper()}{scenario.name[1:]}** (turns: {scenario.turns}, of "
            f"{scenario.reply_tokens} tokens, {scenario.outside_s:g} s outside of the engine). "
            f"One of each is full: {firsts}."
        )
        yield ""
        yield from table(scenario, cost)


def draw(path: Path, scenario: Scenario, cost: Mapping[str, float]) -> None:
    """Draw the needed parts over environments, both by powers of ten."""
    exponents = [2 + step / 10 for step in range(31)]
    by_size = [parts_of(scenario, 10**exponent, cost) for exponent in exponents]
    series = []
    for place, part in enumerate(by_size[0]):
        points = [
            (exponent, math.log10(parts[place].needed))
            for exponent, parts in zip(exponents, by_size, strict=True)
            if parts[place].needed >= _LEAST_DRAWN
        ]
        series.append(Series(part.name, f"recipe{place}", points))
    chart = line_chart(
        series, width=CHART_WIDTH, height=CHART_HEIGHT, x_range=(2.0, 5.0),
        y_range=(math.log10(_LEAST_DRAWN), 3.0),
        x_label="environments", label="what is needed over environments", powers=True,
    )  # fmt: skip
    keys = [(curve.colour, curve.name) for curve in series]
    write_picture(path, f"What environments need: {scenario.name}", keys, chart)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE")
    parser.add_argument("--picture", type=Path, help="an SVG of the second scenario")
    options = parser.parse_args()
    cost = {name: unit.value for name, unit in COSTS.items()}
    for setting in options.set:
        name, _, value = setting.partition("=")
        if name not in cost:
            parser.error(f"got the cost {name!r}, expected one of: {', '.join(cost)}")
        try:
            cost[name] = float(value)
        except ValueError:
            parser.error(f"got {setting!r}, expected NAME=NUMBER")
        if not (math.isfinite(cost[name]) and cost[name] > 0):
            parser.error(f"got {setting!r}, expected a number above 0")
    print("\n".join(page(cost)))
    if options.picture:
        draw(options.picture, SCENARIOS[1], cost)


if __name__ == "__main__":
    main()
