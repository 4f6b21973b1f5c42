"""A small made-up run on disk, the same each time: what the report and its tests read."""

from __future__ import annotations

import asyncio
import json
import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from clawrl_gym.config import RunConfig
from clawrl_gym.core.metrics import heldout_values, judged_shares
from clawrl_gym.core.pictures import text_of
from clawrl_gym.core.types import (
    DistilledTurn,
    DistillTarget,
    Message,
    Sample,
    Turn,
    Verdict,
    VerdictDetail,
)
from clawrl_gym.store import SessionRow, Store, UpdateRow

FAMILIES = (
    "archive", "config", "copy", "count", "csv", "env", "find", "git", "grep", "json", "logs",
    "permissions", "script", "words",
)  # fmt: skip
SYSTEM = "You work in a shell. Answer with one command. Say `done` when the task is solved."
START_S = 1_760_000_000.0


def make_run(
    folder: Path, *, steps: int = 40, stop_at: int | None = None, heldout: bool = True,
    store: bool = True, distilled: bool = False,
) -> Path:  # fmt: skip
    """A run of `steps` updates, of which `stop_at` were made; returns the folder.

    `distilled`: a judge gave verdicts with hints, and failed first turns were distilled.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config = RunConfig().model_dump() | {"seed": 7}
    config["trainer"]["steps"] = steps
    (folder / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    made = steps if stop_at is None else stop_at
    rows = _metrics(made, steps, heldout)
    if distilled:
        rows = [row | _judged(row["step"]) if "train/reward" in row else row for row in rows]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    solved = [_solved_tasks(row) for row in rows if "heldout/success" in row]
    (folder / "heldout.jsonl").write_text("".join(json.dumps(row) + "\n" for row in solved))
    spans = _timeline(made)
    (folder / "timeline.jsonl").write_text("".join(json.dumps(row) + "\n" for row in spans))
    start = {
        "command": "python -m clawrl_gym.train env=terminal policy=tiny seed=7",
        "started_s": START_S,
        "machine": {"cpu": "Test CPU", "cores": 2, "memory_gb": 16.0, "gpus": []},
        "versions": {"clawrl-gym": "0.1.0", "torch": "2.13.0"},
        "commit": None,
    }
    (folder / "run.json").write_text(json.dumps({"starts": [start]}))
    if store:
        _write_tokenizer(folder / "serving")
        asyncio.run(_write_store(folder, distilled))
    return folder


def _metrics(made: int, steps: int, heldout: bool) -> list[dict[str, Any]]:
    draw = random.Random(7)
    rows: list[dict[str, Any]] = []

    def evaluate(step: int, successes: int, n: int) -> None:
        values: dict[str, float] = heldout_values(successes, n)
        for index, family in enumerate(FAMILIES):
            ease = min(1.0, max(0.0, successes / n + 0.25 * ((index * 5) % 7 - 3) / 3))
            values[f"heldout/success/{family}"] = round(ease, 3)
        rows.append({"step": step, "time_s": START_S + 48 + 6 * step, **values})

    if heldout:
        evaluate(0, 41, 120)
    for step in range(1, made + 1):
        level = 0.35 + 0.6 * (1 - 0.93**step)
        success = min(1.0, max(0.0, level + draw.uniform(-0.05, 0.05)))
        values = {
            "train/reward": success + 0.02, "train/success": success, "policy/version": step,
            "rollout/tokens_per_s": 3000 + draw.uniform(-300, 300),
            "learner/tokens_per_s": 4200 + draw.uniform(-300, 300),
            "rollout/episodes_per_s": 20 + draw.uniform(-3, 3), "rollout/in_flight": 128,
            "learner/loss": draw.gauss(0, 0.02), "learner/grad_norm": 0.5 + draw.random() * 0.4,
            "learner/lr": 1e-3 * (1 - 0.9 * step / steps), "learner/entropy": 0.9 - 0.6 * level,
            "learner/clip_share": 0.004 + 0.002 * draw.random(), "learner/waited_s": 0.5,
            "staleness/mean": 0.8 + draw.uniform(-0.2, 0.2), "staleness/max": 2,
            "logprob_gap/mean": 0.003 + 0.001 * draw.random(), "logprob_gap/max": 0.1,
            "groups/zero_variance": int(16 * level), "groups/dropped_stale": 0,
            "swap/pause_s": 0.08 + 0.04 * draw.random(), "memory/rss_gb": 4.2,
            "merge/share": 0.98, "merge/fork_retoken": draw.randrange(3), "errors/env_error": 2,
            "failures/deadline": 0, "time/elapsed_s": 46 + 6 * step,
        }  # fmt: skip
        for index, family in enumerate(FAMILIES):
            ease = success + 0.25 * ((index * 5) % 7 - 3) / 3 + draw.uniform(-0.1, 0.1)
            values[f"train/success/{family}"] = min(1.0, max(0.0, ease))
        rows.append({"step": step, "time_s": START_S + 46 + 6 * step, **values})
        if heldout and step % 10 == 0 and step < steps:
            evaluate(step, int(48 * success), 48)
    if heldout and made == steps:
        evaluate(steps, 113, 120)
    return rows


def _solved_tasks(row: dict[str, Any]) -> dict[str, Any]:
    """The tasks of an evaluation: the first ones are solved."""
    n = int(row["heldout/n"])
    count = round(row["heldout/success"] * n)
    return {"step": row["step"], "solved": {f":t{task}#0": task < count for task in range(n)}}


def _judged(step: int) -> dict[str, float]:
    """What a judge with votes and hints, and a teacher, add to an update's metrics."""
    level = 1 - 0.95**step
    counts = {"positive": 40 * level, "neutral": 6, "negative": 60 * (1 - level), "abstained": 3,
              "hints": 50 * (1 - level), "hints_asked": 100, "hints_refused": 9, "votes": 300,
              "votes_invalid": 12, "agree": 90, "disagree": 4}  # fmt: skip
    return {
        **{f"verdicts/{name}": float(round(step * count)) for name, count in counts.items()},
        **judged_shares(counts),
        "objective/policy_gradient": 1.0, "objective/distillation_sampled": 0.6 * (1 - level),
        "teacher/gap_mean": -1.2 * (1 - level), "teacher/gap_abs": 1.4 * (1 - level),
        "teacher/gap_clipped": 0.02, "teacher/tokens": 900.0, "also/conversation/success": 0.9,
    }  # fmt: skip


def _timeline(made: int) -> list[dict[str, Any]]:
    draw = random.Random(3)
    end_s = 40.0 + 6 * made
    rows: list[dict[str, Any]] = []

    def add(loop: str, name: str, start_s: float, lasts_s: float, **info: float) -> None:
        times = {"start_s": START_S + start_s, "end_s": START_S + start_s + lasts_s}
        rows.append({"loop": loop, "name": name, **times, **info})

    add("collect", "held-out", 24, 14)
    for second in range(24, int(end_s)):
        add("serve", "decode", second, 0.99, tokens=2500 + 800 * draw.random())
    for update in range(made):
        begin_s = 42 + 6 * update
        add("train", "wait", begin_s, 0.6)
        add("train", "step", begin_s + 0.6, 4.2 + draw.random())
        add("serve", "swap", begin_s + 5.9, 0.1)
        for _ in range(16):
            add("judge", "group", begin_s + 6 * draw.random(), 0.05)
        for _ in range(60):
            add("collect", "episode", begin_s + 6 * draw.random() - 3, 2 + 3 * draw.random())
    return rows


def _write_tokenizer(folder: Path) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(["grep -c error app.log > count.txt", SYSTEM] * 4, trainer)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))


async def _write_store(folder: Path, distilled: bool) -> None:
    store = await asyncio.to_thread(Store.open, folder)
    try:
        for group in range(6):
            ids: list[int] = []
            for member in range(4):
                solved = member % 2 == group % 2
                is_distilled = distilled and not solved
                ids += await _write_episode(
                    store, folder, group, member, solved=solved, is_distilled=is_distilled
                )
            update = UpdateRow(group + 1, tokens=100, duration_s=1.0)
            await store.add_update(update, ids, checkpoint=None)
        await _write_episode(store, folder, -1, 0, solved=True)
        await _write_episode(store, folder, -1, 1, solved=False)
    finally:
        await store.close()


async def _write_episode(
    store: Store, folder: Path, group: int, member: int, *, solved: bool, is_distilled: bool = False
) -> list[int]:
    """An episode of two turns; returns the ids of its samples, none for a held-out one."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "serving" / "tokenizer.json"))
    heldout = group < 0
    session_id = f"{'heldout' if heldout else group}-{member}"
    number = member if heldout else group
    task_id = f"{FAMILIES[number]}-{'heldout' if heldout else 'train'}-{number:06d}"
    split = "heldout" if heldout else "train"
    started_s = START_S + 10 * group + member
    await store.add_session(
        SessionRow(session_id, task_id, group, split, "rollout", started_s)  # type: ignore[arg-type]
    )
    commands = [
        "grep -c error app.log > count.txt" if solved else "cat app.log | grep eror",
        "done" if solved else "echo '<b>&amp; ünïcode ✓ 漢字</b>'",
    ]
    messages: list[Message] = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": "Count the lines with `error` in app.log into count.txt."},
    ]
    prompt = tokenizer.encode("".join(text_of(m) for m in messages)).ids
    mask = [False] * len(prompt)
    for index, command in enumerate(commands):
        sampled = tokenizer.encode(command).ids
        logprobs: list[float | None] = [-0.05 - 0.3 * (i % 5) for i in range(len(sampled))]
        turn = Turn(
            session_id, index, "main", list(prompt), sampled, logprobs,
            [max(0, group)] * len(sampled), "stop", list(messages),
            {"role": "assistant", "content": command}, started_s + index,
        )  # fmt: skip
        turn_id = await store.add_turn(turn)
        answer: Message = {
            "role": "user",
            "content": "$ exit 0\n" if solved else "$ exit 1\n<eror>",
        }
        await store.add_next_state(turn_id, [answer])
        if index == 0:
            first = turn, turn_id
            if is_distilled:
                await store.add_verdict(_verdict(turn_id))
        messages += [{"role": "assistant", "content": command}, answer]
        mask += [True] * len(sampled)
        prompt = prompt + sampled
        if index == 0:
            given = tokenizer.encode(answer["content"] or "").ids
            prompt, mask = prompt + given, mask + [False] * len(given)
    await store.end_session(session_id, reward=float(solved), stop_reason="terminated")
    if heldout:
        return []
    advantage = 1.0 if solved else -0.6
    sample = Sample(
        session_id, group, prompt, mask, [-0.1 if m else 0.0 for m in mask],
        [group if m else -1 for m in mask], [advantage if m else 0.0 for m in mask], float(solved),
    )  # fmt: skip
    if not is_distilled:
        return await store.add_samples([sample])
    turn, turn_id = first
    start, length = len(turn.prompt_ids_T), len(turn.sampled_ids_T)
    weights = [1.0 if start <= at < start + length else 0.0 for at in range(len(prompt))]
    read = [*turn.prompt_ids_T, *tokenizer.encode(f" [hint] {HINT}").ids]
    sample = replace(
        sample, distill_T=weights, distill_targets=(DistillTarget(start, length, (read,)),)
    )
    ids = await store.add_samples([sample])
    gaps_T = [(-3.0, 0.0, 2.5, 0.4, -0.2)[at % 5] for at in range(length)]
    gaps_T[-1] = math.nan
    thought = DistilledTurn(ids[0], None, 0, turn.sampled_ids_T, gaps_T)
    await store.add_distilled_turns(group + 1, [thought])
    return ids


HINT = "The checks failed: count.txt is missing."


def _verdict(turn_id: int) -> Verdict:
    detail: VerdictDetail = {
        "votes": [-1, -1, None], "rule": -1, "hints": ["Use <grep> -c.", HINT],
        "refused": [{"hint": "The count is 42.", "why": "it gives the result away"}],
    }  # fmt: skip
    return Verdict(turn_id, "model", -1, -1.0, detail, START_S)
