"""The comparison's figures: curves with intervals, paired differences, and how far one lags."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from bench.learning.settings import CONTROL, is_control
from clawrl_gym.core.intervals import Difference, mean_difference, mean_of, student_t

Results = dict[str, dict[int, dict[str, Any]]]
"""Results by arm and seed."""
MEASURES = ("greedy", "sampled")
SMOOTHED = 2
"""Updates on either side that a point of a picture is the mean of."""
_LEVELS = (0.25, 0.5, 0.75)


@dataclass(frozen=True, slots=True)
class Curve:
    """Mean training reward by update, and its 95 % interval."""

    means: list[float]
    lows: list[float]
    highs: list[float]


def curve_of(seeds: dict[int, dict[str, Any]]) -> Curve:
    """Curve over seeds (Student's t), or of one seed over each update's prompts (resampled)."""
    by_seed = [[list(map(fmean, u)) for u in r["training"]["rewards"]] for r in seeds.values()]
    updates = min(map(len, by_seed))
    estimates = []
    for update in range(updates):
        if len(by_seed) == 1:
            estimate = mean_of(by_seed[0][update])
            estimates.append((estimate.value, estimate.low, estimate.high))
            continue
        means = [fmean(rewards[update]) for rewards in by_seed]
        half = student_t(len(means) - 1) * stdev(means) / math.sqrt(len(means))
        estimates.append((fmean(means), fmean(means) - half, fmean(means) + half))
    means, lows, highs = (list(column) for column in zip(*estimates, strict=True))
    return Curve(means, lows, highs)


def held_out_table(seeds: dict[int, dict[str, Any]], measure: str) -> dict[int, list[float]]:
    """Rewards by seed and task; of several samples the mean."""
    return {seed: _rewards(result["held_out"], measure) for seed, result in seeds.items()}


def _rewards(held_out: dict[str, Any], measure: str) -> list[float]:
    rewards = held_out[measure]
    return [fmean(own) if isinstance(own, list) else own for own in rewards]


def difference(results: Results, arm: str, other: str, measure: str) -> Difference | None:
    """Difference of held-out rewards, paired by seed and task; None without a common seed."""
    if arm not in results or other not in results:
        return None
    ours, theirs = (held_out_table(results[name], measure) for name in (arm, other))
    return mean_difference(
        [
            [x - y for x, y in zip(ours[seed], theirs[seed], strict=True)]
            for seed in ours
            if seed in theirs
        ]
    )


def lag(curve: Sequence[float], reference: Sequence[float]) -> float | None:
    """Updates that `curve` comes later than `reference`: the mean over a quarter, a half and three
    quarters of the reference's rise. None where a curve never reaches them."""
    smooth = [smoothed(values, 1) for values in (curve, reference)]
    third = max(1, len(reference) // 3)
    low, high = smooth[1][0], fmean(reference[-third:])
    if high <= low:
        return None
    lags = []
    for part in _LEVELS:
        level = low + part * (high - low)
        late, early = (_reached(values, level) for values in smooth)
        if late is None or early is None:
            return None
        lags.append(late - early)
    return fmean(lags)


def smoothed(values: Sequence[float], reach: int) -> list[float]:
    """The mean of each value and its neighbours, `reach` on either side."""
    return [fmean(values[max(0, at - reach) : at + reach + 1]) for at in range(len(values))]


def _reached(values: Sequence[float], level: float) -> float | None:
    """The point where a line through the values first comes to a level."""
    for at, value in enumerate(values):
        if value >= level:
            if at == 0:
                return 0.0
            before = values[at - 1]
            return at - 1 + (level - before) / (value - before)
    return None


def lags(results: Results) -> dict[str, dict[str, float | None]]:
    """How far each arm of ours is behind trl: by the update that learned from a batch, and by the
    weights that sampled it, which leaves the age of samples out."""
    if "trl" not in results:
        return {}
    reference = curve_of(results["trl"]).means
    found: dict[str, dict[str, float | None]] = {}
    for arm in _ours(results):
        found[arm] = {
            "by update": lag(curve_of(results[arm]).means, reference),
            "by weights that sampled": lag(_by_version(results[arm]), reference),
        }
    return found


def _ours(results: Results) -> list[str]:
    """Our arms that learn from their own rewards."""
    return [arm for arm in results if arm != "trl" and not is_control(arm)]


def _by_version(seeds: dict[int, dict[str, Any]]) -> list[float]:
    """Mean reward of what each version sampled, beginning with the first weights."""
    rows = [result["training"]["by_version"] for result in seeds.values()]
    versions = sorted({int(version) for row in rows for version in row})
    return [fmean([row[str(v)] for row in rows if str(v) in row]) for v in versions]


def table(results: Results, before: dict[str, Any]) -> Iterator[str]:
    """Markdown: what each arm reached, against its control, and what it took."""
    names = ["arm", "seeds"]
    for measure in MEASURES:
        names += [f"held-out {measure}", "less control (95 %)"]
    names += [
        "train reward, last third",
        "policy lag",
        "wall",
        "of it updates",
        "CPU",
        "peak memory",
    ]
    yield f"| {' | '.join(names)} |"
    yield "|" + "---|" * len(names)
    for arm, seeds in results.items():
        cells = [arm, str(len(seeds))]
        for measure in MEASURES:
            start = fmean(_rewards(before["held_out"], measure))
            end = fmean(fmean(row) for row in held_out_table(seeds, measure).values())
            cells += [f"{start:.2f} → {end:.2f}", words(_less_control(results, arm, measure))]
        means = curve_of(seeds).means
        lagging = [value for one in seeds.values() for value in one["training"]["policy_lag"]]
        cells += [
            f"{fmean(means[-max(1, len(means) // 3) :]):.2f}",
            f"{fmean(lagging):.2f}",
            *(
                f"{fmean(values):.0f} s"
                for values in (
                    [one["wall_s"] for one in seeds.values()],
                    [one["training"]["updates_s"] for one in seeds.values()],
                    [one["cpu_s"] for one in seeds.values()],
                )
            ),
            f"{max(one['peak_gib'] for one in seeds.values()):.1f} GiB",
        ]
        yield f"| {' | '.join(cells)} |"


def _less_control(results: Results, arm: str, measure: str) -> Difference | None:
    return None if is_control(arm) else difference(results, arm, arm + CONTROL, measure)


def words(found: Difference | None) -> str:
    return "" if found is None else f"{found.mean:+.2f} ({found.low:+.2f} to {found.high:+.2f})"


def beside_trl(results: Results) -> Iterator[str]:
    """Comparison of our arms with trl's, in sentences of one line."""
    for arm in _ours(results) if "trl" in results else ():
        for measure in MEASURES:
            yield f"{arm} less trl, held-out {measure}: " + words(
                difference(results, arm, "trl", measure)
            )
        wall, cpu, memory = (
            [fmean(one[name] for one in results[each].values()) for each in (arm, "trl")]
            for name in ("wall_s", "cpu_s", "peak_gib")
        )
        yield (
            f"{arm} / trl: {wall[0] / wall[1]:.2f} of the wall time, {cpu[0] / cpu[1]:.2f} of the "
            f"CPU seconds, {memory[0] / memory[1]:.2f} of the memory"
        )
    for arm, values in lags(results).items():
        each = ", ".join(
            f"{'not reached' if value is None else format(value, '+.1f')} {how}"
            for how, value in values.items()
        )
        yield f"{arm} comes later than trl by updates: {each}"
