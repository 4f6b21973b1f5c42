"""The report of a run as one HTML page: words and numbers for the template."""

from __future__ import annotations

import math
import time
from pathlib import Path

from markupsafe import Markup

from clawrl_gym.core.errors import ClawError, StoreError
from clawrl_gym.core.files.files import replace_text
from clawrl_gym.core.metrics import ERRORS_PREFIX, FAILURES_PREFIX, REQUESTS_PREFIX
from clawrl_gym.core.provenance import Start
from clawrl_gym.core.types import Json, Verdict
from clawrl_gym.store import StoreReader
from clawrl_gym.store.schema import DATABASE_FILE
from clawrl_gym.ui import charts, pages
from clawrl_gym.ui.headline import headline
from clawrl_gym.ui.judging import why
from clawrl_gym.ui.personal import first_replies, teacher_probe
from clawrl_gym.ui.run_data import RunData, TranscriptCard, is_serving, read_run
from clawrl_gym.ui.text import duration, number, share
from clawrl_gym.ui.timeline import busy_of_loops, loops_of, timeline_svg, training_window
from clawrl_gym.ui.transcripts import EpisodeTranscript, Token
from clawrl_gym.ui.verdicts import verdict_charts

REPORT_FILE = "report.html"
_CLOSE_UP_S = 30.0
_MOST_OPEN_SETTINGS = 16
"""Settings that a page lists at once; more are folded."""


def write_report(folder: Path) -> Path:
    """Write report.html of a run, finished or not.

    Raises ClawError when there is no run, or when a session was deleted meanwhile, of which the
    page may tell: it is not kept.
    """
    before = _live_sessions(folder)
    page = render_page(read_run(folder))
    path = folder / REPORT_FILE
    try:
        replace_text(path, page)
        if not before <= _live_sessions(folder):
            path.unlink(missing_ok=True)
            raise ClawError("a session was deleted while the report was written: write it again")
    except OSError as error:
        raise ClawError(f"cannot write {str(path)!r}: {error}") from error
    return path


def _live_sessions(folder: Path) -> set[str]:
    if not (folder / DATABASE_FILE).exists():
        return set()
    try:
        reader = StoreReader(folder)
    except StoreError:  # the page itself says why
        return set()
    try:
        return reader.live_ids()
    finally:
        reader.close()


def render_page(run: RunData) -> str:
    """The whole page."""
    strongest = max(
        (abs(a) for c in run.cards for t in c.transcripts for a in t.advantages), default=0.0
    )
    widest = widest_gap(run)
    return pages.render(
        "report.html.j2",
        run=run,
        title=run.folder.resolve().name,
        head=headline(run),
        first_replies=first_replies(run),
        probe=teacher_probe(run.folder),
        facts=facts(run),
        commands=[start.get("command", "") for start in run.starts],
        reward_is_success=charts.reward_is_success(run),
        heldout_reward=bool(charts.heldout_reward_series(run).points),
        main_wide=charts.main_chart(run, 1040, 330),
        main_narrow=charts.main_chart(run, 400, 260),
        smalls=[
            ("By environment", charts.env_charts(run)),
            ("Scores", charts.score_charts(run)),
            ("By task family", charts.family_charts(run)),
            ("In other environments", charts.transfer_charts(run)),
        ],
        details=charts.detail_charts(run),
        judging=charts.judging_charts(run),
        verdict_counts=verdict_counts(run),
        verdicts=verdict_charts(run.judged),
        loops=loops_of(run.spans),
        hints=list(reversed(run.hints)),
        sign=sign,
        why=why,
        taught_words=taught_words,
        gap_tint=lambda token: tint(token.gap, widest),
        gap_legend=gap_legend(widest),
        films_above={film.session.id for card in run.films for film in card.films},
        timelines=timeline_charts(run),
        busy=busy_words(run),
        card_title=card_title,
        errors=last_counts(run, ERRORS_PREFIX),
        failures=last_counts(run, FAILURES_PREFIX),
        merges=merge_facts(run),
        requests=request_facts(run),
        changed=changed_settings(run.config),
        most_open=_MOST_OPEN_SETTINGS,
        tint=lambda token: tint(token.advantage, strongest),
        tip=tip,
        summary=summary,
        number=number,
        made=time.strftime("%Y-%m-%d %H:%M"),
    )


def facts(run: RunData) -> list[tuple[str, str]]:
    """The small print under the headline."""
    start = run.starts[-1] if run.starts else Start()
    machine, versions = start.get("machine", {}), start.get("versions", {})
    times = [row["time_s"] for row in run.heldout if "time_s" in row]
    training = times[-1] - times[0] if len(times) > 1 else None
    memory = [value for _, value in run.points("memory/rss_gb")]
    sessions = "conversations" if run.is_serving else "episodes"
    mixture = mixture_words(run)  # each of its environments has a judge of its own
    rows = [
        ("wall time", wall_time(run)),
        ("main turns that look machine-made", machine_turns_in_words(run)),
        ("first to last evaluation", duration(training) if training is not None else None),
        (sessions, number(run.episodes) if run.episodes else None),
        ("seed", run.setting("seed")),
        (
            "environment",
            run.setting("env.id") or run.setting("env.target") if not mixture else None,
        ),
        ("model", run.setting("policy.model")),
        ("algorithm", run.setting("trainer.algorithm")),
        ("judge", run.setting("judge.type") if not mixture else None),
        ("mixture", mixture),
        (
            "users' own weights",
            ", ".join(f"{user}@{newest}" for user, newest in sorted(run.versions_of_users.items())),
        ),
        ("memory, at most", f"{max(memory):.1f} GiB" if memory else None),
        ("processor", machine.get("cpu")),
        ("cores", machine.get("cores")),
        (
            "memory of the machine",
            f"{machine['memory_gb']} GiB" if machine.get("memory_gb") else None,
        ),
        ("GPU", ", ".join(machine.get("gpus", [])) or ("none" if machine else None)),
        ("system", machine.get("system")),
        ("versions", ", ".join(f"{name} {v}" for name, v in versions.items()) or None),
        ("commit", start.get("commit")),
        ("started", _date(start.get("started_s"))),
    ]
    return [(name, str(value)) for name, value in rows if value not in (None, "")]


def machine_turns_in_words(run: RunData) -> str | None:
    """Number of machine turns at the last update; None where there were none."""
    counts = [count for _, count in run.points("turns/machine_like")]
    return f"{number(counts[-1])} (docs/serving.md, clients)" if counts and counts[-1] else None


def mixture_words(run: RunData) -> str | None:
    """The environments that were trained on together, with their weights and who judged."""
    mixture = run.setting("mixture")
    if not isinstance(mixture, dict) or not mixture:
        return None
    return ", ".join(
        f"{name} (weight {number(float(domain['weight']))}, judge {domain['judge']['type']})"
        for name, domain in mixture.items()
    )


def wall_time(run: RunData) -> str | None:
    """From the command to the last measurement, start-up included; of a resumed run all parts."""
    logged_s = [row["time_s"] for row in run.rows if "time_s" in row]
    starts_s = [s["started_s"] for s in run.starts if isinstance(s.get("started_s"), int | float)]
    total_s = 0.0
    for start_s, next_s in zip(starts_s, [*starts_s, math.inf][1:], strict=True):
        total_s += max([0.0, *(end_s - start_s for end_s in logged_s if start_s < end_s < next_s)])
    if total_s > 0:
        return duration(total_s)
    elapsed = run.points("time/elapsed_s")
    return duration(elapsed[-1][1]) if elapsed else None


def _date(seconds: float | None) -> str | None:
    if not isinstance(seconds, int | float):  # a damaged run.json
        return None
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))


def timeline_charts(run: RunData) -> list[tuple[str, Markup, Markup]]:
    """(title, wide, narrow): the whole run, and half a minute of it."""
    if not run.spans:
        return []
    end_s = max(span.end_s for span in run.spans)
    low_s, high_s = training_window(run.spans)
    windows = [("the whole run", 0.0, end_s)]
    if high_s - low_s > 2 * _CLOSE_UP_S:
        middle_s = round((low_s + high_s) / 2)
        windows.append(("half a minute from the middle", middle_s - 15.0, middle_s + 15.0))
    timelines = []
    for title, start_s, stop_s in windows:
        label = f"Timeline of the loops, {title}"
        wide, narrow = (
            timeline_svg(run.spans, start_s=start_s, end_s=stop_s, width=width, label=label)
            for width in (1040, 400)
        )
        timelines.append((title, wide, narrow))
    return timelines


def busy_words(run: RunData) -> list[tuple[str, str]]:
    """Share of time that each loop was busy between the first and the last update."""
    return [(loop, share(value)) for loop, value in busy_of_loops(run.spans).items()]


def card_title(card: TranscriptCard) -> tuple[str, str]:
    """Title of a card, and the reason to show it."""
    first, update = card.choice.sessions[0], card.choice.update
    if update is not None:
        return f"Training task {first.task_id}", f"update {update} learned from their difference"
    if first.source == "live":
        return "Live conversation", "one of the newest that taught something"
    if first.split == "heldout":
        return "Held-out tasks", "the newest episodes"
    return "Training task", "an episode"


def summary(transcript: EpisodeTranscript) -> str:
    """Turns, weight versions and advantage of an episode."""
    session, turns = transcript.session, len(transcript.turns) + transcript.hidden_turns
    words = [f"{turns} turn{'' if turns == 1 else 's'}"]
    if session.reward is not None:
        words.insert(0, f"reward {number(session.reward)}")
    if transcript.versions:
        words.append(f"weight version {', '.join(map(str, transcript.versions))}")
    if transcript.advantages:
        low, high = min(transcript.advantages), max(transcript.advantages)
        words.append(f"advantage {low:+.2f}" + ("" if low == high else f" to {high:+.2f}"))
    if session.stop_reason not in (None, "terminated"):
        words.append(f"ended: {session.stop_reason}")
    return " · ".join(words)


def tint(value: float | None, strongest: float) -> str:
    """Strength of a token's colour, 0.15 to 1; empty for a token without a signal."""
    if not value or strongest <= 0:
        return ""
    return f"{0.15 + 0.85 * min(1.0, abs(value) / strongest):.2f}"


def tip(token: Token) -> str:
    """The facts about a token."""
    logprob = "unknown" if token.logprob is None else f"{token.logprob:.3f}"
    advantage = "not trained on" if token.advantage is None else f"{token.advantage:+.3f}"
    words = f"id {token.id} · log-prob {logprob} · version {token.version} · advantage {advantage}"
    return words if token.gap is None else f"{words} · teacher's gap {token.gap:+.3f}"


def widest_gap(run: RunData) -> float:
    """The gap that gets the full colour: the widest shown, but no wider than what is cut off."""
    gaps = [
        abs(t.gap) for card in run.distilled_turns for t in card.turn.tokens if t.gap is not None
    ]
    clip = run.setting("trainer.distillation.gap_clip")
    return min(max(gaps, default=0.0), float(clip) if isinstance(clip, int | float) else 5.0)


def gap_legend(widest: float) -> list[tuple[str, str]]:
    """(words, tint) of a few gaps, from the lowest to the highest."""
    parts = (-1.0, -0.5, -0.1, 0.0, 0.1, 0.5, 1.0)
    return [(f"{part * widest:+.2g}" if part else "0", tint(part, 1.0)) for part in parts]


def sign(value: int | None) -> str:
    """A verdict as people write it."""
    return "abstained" if value is None else f"{value:+d}".replace("+0", "0")


def taught_words(verdict: Verdict) -> list[str]:
    """A judge's hints, or what a person would rather have read."""
    correction = verdict.detail.get("text")
    return [*verdict.hints, *([correction] if correction else [])]


def changed_settings(config: Json) -> list[tuple[str, str, str]]:
    """(key, value, default) of each setting that the command alone would have set otherwise."""
    from clawrl_gym.config import RunConfig, ServeConfig
    from clawrl_gym.config.compose import compose

    default = (
        compose("serve", [], ServeConfig) if is_serving(config) else compose("train", [], RunConfig)
    )
    defaults = _flat(default.model_dump(mode="json"))
    return [
        (key, str(value), str(defaults.get(key, "-")))
        for key, value in _flat(config).items()
        if key not in defaults or defaults[key] != value
    ]


def _flat(values: Json, prefix: str = "") -> dict[str, object]:
    flat: dict[str, object] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


_EARLIER_FAILURES = frozenset(f"{ERRORS_PREFIX}{kind}" for kind in ("deadline", "agent_fault"))
"""Names under which runs of earlier versions counted what the agent itself had ended."""


def last_counts(run: RunData, prefix: str) -> dict[str, float]:
    """The last count of each kind that is counted under a prefix, without those of none."""
    counts: dict[str, float] = {}
    for row in run.rows:
        for name, value in row.items():
            own = FAILURES_PREFIX if name in _EARLIER_FAILURES else name.partition("/")[0] + "/"
            if own == prefix:
                counts[name.partition("/")[2]] = value
    return {kind: count for kind, count in sorted(counts.items()) if count > 0}


def merge_facts(run: RunData) -> list[tuple[str, str]]:
    """The share of turns that merged, and why the others did not."""
    facts = []
    shares = run.points("merge/share")
    if shares:
        facts.append(("turns merged into the sequence before them", share(shares[-1][1])))
    forks = {name for row in run.rows for name in row if name.startswith("merge/fork")}
    for name in sorted(forks):
        total = sum(value for _, value in run.points(name))
        facts.append((name.removeprefix("merge/").replace("_", " "), number(total)))
    return facts


def request_facts(run: RunData) -> list[tuple[str, str]]:
    """Inputs of requests and environments that were not used as they were sent, and replies that
    could not be used as they were."""
    labels = {
        "unread": "fields and parts without effect",
        "untrainable": "turns not trained on, for their sampling",
        "replaced": "invalid characters replaced, from the",
        "failed_calls": "turns with a tool call that no client can carry out",
        "noted_replies": "turns whose tool calls were read with a reservation",
    }
    names = {name for row in run.rows for name in row if name.startswith(REQUESTS_PREFIX)}
    facts = []
    for name in sorted(names):
        kind, _, detail = name.removeprefix(REQUESTS_PREFIX).partition("/")
        words = f"{labels.get(kind, kind)} {detail}".strip()
        facts.append((words, number(run.points(name)[-1][1])))
    return facts


_VERDICT_LABELS = {
    "positive": "turns judged +1", "neutral": "turns judged 0", "negative": "turns judged -1",
    "abstained": "abstentions", "hints": "turns with a hint", "hints_asked": "hints asked for",
    "hints_refused": "hints refused", "votes": "votes", "votes_invalid": "invalid votes",
    "votes_retried": "votes asked for again", "agree": "agreed with the rules",
    "disagree": "disagreed with the rules",
}  # fmt: skip


_PROMPT_LABELS = {
    "prompts": "prompts made for the teacher", "too_long": "hints without room in the prompt",
    "refused": "prompts that vLLM refused", "failed": "prompts lost to a failure",
}  # fmt: skip


def verdict_counts(run: RunData) -> list[tuple[str, str]]:
    """Counts of the judge since the run's last start."""
    counts = [(words, run.points(f"verdicts/{name}")) for name, words in _VERDICT_LABELS.items()]
    counts += [
        (words, run.points(f"{prefix}hints/{name}"))
        for name, words in _PROMPT_LABELS.items()
        for prefix in ("", "live/")
    ]
    return [(words, number(points[-1][1])) for words, points in counts if points]
