"""Numbers, durations and foreign text as text, the same in the terminal and on the page."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from clawrl_gym.core.intervals import Difference, Estimate
from clawrl_gym.core.metrics import (
    ENV_PREFIX,
    FAMILY_PREFIX,
    HELDOUT_HIGH,
    HELDOUT_LAST_VERSION,
    HELDOUT_LOST,
    HELDOUT_LOW,
    HELDOUT_N,
    HELDOUT_OWN,
    HELDOUT_REWARD,
    HELDOUT_SAMPLES_LOST,
    HELDOUT_SUCCESS,
    PASS_PREFIX,
    SAMPLED_REWARD,
    SAMPLED_SUCCESS,
)

HELDOUT_PREFIX = "heldout/"
_CONTROL = re.compile(
    r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|[\x00-\x1f\x7f-\x9f]+"
)


def duration(seconds: float) -> str:
    """`0.08 s`, `4.2 s`, `1:05`, `2:03:09`."""
    if not math.isfinite(seconds) or seconds < 0:
        return "?"
    if seconds < 1:
        return f"{seconds:.2f} s"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def age(seconds: float) -> str:
    """Age in whole seconds: `1 s`, `42 s`, `1:05`."""
    return duration(float(max(1, round(seconds)))).replace(".0 s", " s")


def until(seconds: float) -> str:
    """Time until something is due, in whole seconds: `42 s`, or `now`."""
    return age(seconds) if seconds > 0 else "now"


def number(value: float | None) -> str:
    """Short, with digits enough to compare: `3,120`, `64`, `9.1`, `0.012`, `1.2e-05`, or `-`."""
    if value is None or not math.isfinite(value):
        return "-"
    size = abs(value)
    if size >= 1000:
        return f"{value:,.0f}"
    if value == int(value):
        return str(int(value))
    if size >= 100:
        return f"{value:.0f}"
    if size >= 10:
        return f"{value:.1f}"
    if size >= 1:
        return f"{value:.2f}"
    if size >= 0.001:
        return f"{value:.3f}"
    return f"{value:.1e}"


def share(value: float | None) -> str:
    """A share of one as a percentage: `71 %`, and `99.6 %` where rounding would say all."""
    if value is None or not math.isfinite(value):
        return "-"
    percent = 100 * value
    close = 0 < percent < 1 or 99 < percent < 100
    return f"{percent:.1f} %" if close else f"{percent:.0f} %"


def in_words(estimate: Estimate) -> str:
    """`45 % (36 to 54 %)`."""
    if not estimate.n:
        return "-"
    return f"{share(estimate.value)} ({100 * estimate.low:.0f} to {100 * estimate.high:.0f} %)"


def estimate_words(estimate: Estimate) -> str:
    """`-0.42 (-0.51 to -0.33)`; without an interval where there is none."""
    words = number(estimate.value)
    if not estimate.low < estimate.high:
        return words
    return f"{words} ({number(estimate.low)} to {number(estimate.high)})"


def interval(values: Mapping[str, float]) -> str:
    """The held-out result in `values` in words: `71 % (62 to 78 %, n = 120)`."""
    success = share(values.get(HELDOUT_SUCCESS))
    if HELDOUT_LOW not in values or HELDOUT_HIGH not in values:
        return success
    low, high = 100 * values[HELDOUT_LOW], 100 * values[HELDOUT_HIGH]
    return f"{success} ({low:.0f} to {high:.0f} %, {sample_size(values)})"


def reward_words(values: Mapping[str, float], name: str = HELDOUT_REWARD) -> str:
    """`reward -0.42 (-0.51 to -0.33)`; empty where it is not known."""
    if name not in values:
        return ""
    words = f"reward {number(values[name])}"
    low, high = values.get(f"{name}_low"), values.get(f"{name}_high")
    if low is None or high is None:
        return words
    return f"{words} ({number(low)} to {number(high)})"


def reward_change(difference: Difference) -> str:
    """`+0.38 (+0.21 to +0.55)`."""
    mean, low, high = difference.mean, difference.low, difference.high
    return f"{mean:+.3g} ({low:+.3g} to {high:+.3g})"


def sampled_words(values: Mapping[str, float]) -> str:
    """`41 % (33 to 49 %)  reward 0.51 (0.43 to 0.60)` at the policy's own temperature; empty where
    it was not measured."""
    if SAMPLED_SUCCESS not in values:
        return ""
    low = values.get(f"{SAMPLED_SUCCESS}_low", math.nan)
    high = values.get(f"{SAMPLED_SUCCESS}_high", math.nan)
    success = f"{share(values[SAMPLED_SUCCESS])} ({100 * low:.0f} to {100 * high:.0f} %)"
    return "  ".join(filter(None, [success, reward_words(values, SAMPLED_REWARD)]))


def sample_size(values: Mapping[str, float]) -> str:
    """Number of tasks of a held-out result: `n = 120`, and `n = 120, 2 lost`."""
    lost = values.get(HELDOUT_LOST, 0)
    return f"n = {number(values.get(HELDOUT_N))}" + (f", {number(lost)} lost" if lost else "")


def pass_rates(values: Mapping[str, float]) -> str:
    """`pass@1 41 %, pass@8 80 %`, with `3 samples lost`; empty where they were not measured."""
    rates = {
        int(name.removeprefix(PASS_PREFIX)): value
        for name, value in values.items()
        if name.startswith(PASS_PREFIX)
    }
    lost = values.get(HELDOUT_SAMPLES_LOST, 0)
    words = [f"pass@{k} {share(rates[k])}" for k in sorted(rates)]
    return ", ".join([*words, f"{number(lost)} samples lost"] if lost else words)


def measured_versions(step: float, values: Mapping[str, float]) -> str:
    """`versions 5 to 7`, of an evaluation that weights were swapped under; else empty."""
    last = values.get(HELDOUT_LAST_VERSION, step)
    return f"versions {number(step)} to {number(last)}" if last > step else ""


def scores(values: Mapping[str, float]) -> dict[str, float]:
    """An environment's scores beside success in a held-out evaluation, by its own names."""
    return {
        name.removeprefix(HELDOUT_PREFIX): value
        for name, value in values.items()
        if name.startswith(HELDOUT_PREFIX)
        and name not in HELDOUT_OWN
        and not name.startswith((HELDOUT_SUCCESS, PASS_PREFIX))
    }


def one_line(text: str, limit: int = 500) -> str:
    """Foreign text as one line without control characters or escape sequences."""
    flat = plain(text).strip()
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def plain(text: str) -> str:
    """Foreign text with a space for each control character and escape sequence."""
    return _CONTROL.sub(" ", text).encode(errors="replace").decode()


def envs_in(values: Mapping[str, float], metric: str) -> dict[str, float]:
    """A metric of each environment of a mixture, by name; empty without a mixture."""
    return {
        name.removeprefix(ENV_PREFIX).removesuffix(f"/{metric}"): value
        for name, value in sorted(values.items())
        if name.startswith(ENV_PREFIX) and name.endswith(f"/{metric}")
    }


def family_of(metric: str) -> str | None:
    """The family in `train/success/FAMILY`; None for any other name."""
    return metric.removeprefix(FAMILY_PREFIX) if metric.startswith(FAMILY_PREFIX) else None


_PLAINER = str.maketrans({"→": "->", "…": "...", "·": "-", "✓": "+", "✗": "x", "≈": "~"})


def writable(text: str, encoding: str | None) -> str:
    """The text with what a stream's encoding does not know in plainer characters."""
    encoding = encoding or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.translate(_PLAINER).encode(encoding, "replace").decode(encoding)
    return text
