"""A small made-up serving run on disk: conversations that are judged better and better."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import yaml

from clawrl_gym.config import ServeConfig
from clawrl_gym.config.compose import compose
from clawrl_gym.core.types import Turn, Verdict, VerdictDetail
from clawrl_gym.store import SessionRow, Store

START_S = 1_760_000_000.0
CORRECTION = "Write it in one short sentence, please, and leave out the greeting."
HINT = "The user said: No, shorter."


def make_serving(folder: Path, values: str, *, turns_an_update: int = 4) -> Path:
    """A turn for each of `values` (`+`, `0`, `-`, `?`); every third update a person corrects one.

    Returns the folder. Without values there is a configuration and nothing else.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config = compose("serve", [f"run.dir={folder}"], ServeConfig).model_dump(mode="json")
    (folder / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    asyncio.run(_write_store(folder, values, turns_an_update))
    updates = len(values) // turns_an_update
    rows = [
        {"step": step, "time_s": START_S + 60 * step, "learner/loss": 1 / step, "judge/mean": 0.5}
        for step in range(1, updates + 1)
    ]
    spans = [
        {"loop": loop, "name": name, "start_s": start_s, "end_s": start_s + 9}
        for start_s in (START_S + 60 * step for step in range(1, updates + 1))
        for loop, name in (("serve", "generate"), ("train", "step"))
    ]  # fmt: skip
    for name, lines in (("metrics", rows), ("timeline", spans)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


async def _write_store(folder: Path, values: str, turns_an_update: int) -> None:
    store = await asyncio.to_thread(Store.open, folder)
    try:
        for index, mark in enumerate(values):
            await _write_turn(store, index, mark, version=index // turns_an_update)
    finally:
        await store.close()


async def _write_turn(store: Store, index: int, mark: str, version: int) -> None:
    session_id, now_s = f"talk-{index}", START_S + 20 * index
    await store.add_session(SessionRow(session_id, None, None, "train", "live", now_s))
    turn = Turn(
        session_id, 0, "main", [1, 2], [3, 4], [-0.5, -0.5], [version] * 2, "stop",
        [{"role": "user", "content": "Say hello to Ada."}],
        {"role": "assistant", "content": "Dear Ada, ..."}, now_s,
    )  # fmt: skip
    turn_id = await store.add_turn(turn)
    value = {"+": 1, "0": 0, "-": -1, "?": None}[mark]
    detail: VerdictDetail = {"rule": "says_no", "hints": [HINT]} if mark == "-" else {}
    reward = None if value is None else float(value)
    await store.add_verdict(Verdict(turn_id, "rule", value, reward, detail, now_s))  # type: ignore[arg-type]
    if index % 12 == 11:
        corrected: VerdictDetail = {"thumb": "down", "text": CORRECTION}
        await store.add_verdict(Verdict(turn_id, "feedback", -1, -1.0, corrected, now_s))
