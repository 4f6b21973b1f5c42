"""Cost of pages: resets, steps and pictures; many contexts at once; and BrowserGym beside us.

    python bench/gui.py speed [--episodes 50]
    python bench/gui.py contexts [--count 500] [--threads 8]
    python bench/gui.py side-by-side [--episodes 20] [--alive 4] [--rounds 2]

`side-by-side` plays the same pages of MiniWoB++ with the same scripted clicks, one action a step,
in turns with `browsergym-miniwob`, which pip installs into a folder that is thrown away; its
Playwright drives our Chromium. Each prints one line of JSON; nothing is left.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import psutil

from clawrl_gym.envs.gui.browser.chromium import find
from clawrl_gym.envs.gui.config import BrowserConfig
from clawrl_gym.envs.gui.env import GuiEnv
from clawrl_gym.envs.gui.miniwob.pages import html_folder

_MOST_CONTEXTS = 2000
_END_PATIENCE_S = 60.0
_PAGES = ("click-test", "click-test-2", "click-button", "click-dialog", "click-checkboxes")
"""Pages of MiniWoB++; the element to click is in the instruction."""
_KINDS: dict[str, dict[str, Any]] = {
    "own": {},
    "miniwob": {"tasks": "miniwob", "families": ["click-button"]},
}
_PLAYWRIGHT = """
import json, playwright, pathlib
folder = pathlib.Path(playwright.__file__).parent / "driver" / "package"
browsers = json.loads((folder / "browsers.json").read_text())["browsers"]
print(next(one["revision"] for one in browsers if one["name"] == "chromium"))
"""
_BROWSERGYM = """
import json, logging, re, sys, time
import gymnasium, psutil
logging.disable(logging.WARNING)
import browsergym.miniwob
from browsergym.utils.obs import flatten_axtree_to_str
pages, episodes, alive, waits = json.loads(sys.argv[1])
more = {} if waits else {"pre_observation_delay": 0.0, "slow_mo": 0}
def names(page, goal):
    if page == "click-checkboxes":
        listed = re.fullmatch(r"Select (.+) and click Submit\\.", goal)[1]
        return [*([] if listed == "nothing" else listed.split(", ")), "Submit"]
    known = {"click-test": "Click Me!", "click-test-2": "ONE", "click-dialog": "Close"}
    return [known.get(page) or re.search(r'"(.+)"', goal)[1]]
def timed(times_ms, call):
    started = time.perf_counter()
    result = call()
    times_ms.append((time.perf_counter() - started) * 1e3)
    return result
resets, steps, won = [], [], 0
for page in pages:
    env = gymnasium.make("browsergym/miniwob." + page, **more)
    for seed in range(episodes):
        observation, _ = timed(resets, lambda: env.reset(seed=seed))
        for name in names(page, observation["goal"]):
            tree = flatten_axtree_to_str(observation["axtree_object"])
            bid = re.search(r"\\[(\\w+)\\] \\w+ '" + re.escape(name) + "'", tree)[1]
            observation, reward, *_ = timed(steps, lambda: env.step("click('" + bid + "')"))
        won += reward > 0
    env.close()
held = [gymnasium.make("browsergym/miniwob.click-button", **more) for _ in range(alive)]
for env in held:
    env.reset(seed=1)
children = psutil.Process().children(recursive=True)
pss = sum(one.memory_full_info().pss for one in children) / 2**20
for env in held:
    env.close()
print(json.dumps({"resets": resets, "steps": steps, "won": won, "pss_mb": pss}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    added = commands.add_parser("speed", help="resets, steps, pictures")
    added.add_argument("--episodes", type=int, default=50, help="episodes of each kind")
    added.set_defaults(run=lambda args: speed(args.episodes))
    added = commands.add_parser("contexts", help="many at once, with one page each")
    added.add_argument("--count", type=int, default=500, help=f"at most {_MOST_CONTEXTS}")
    added.add_argument("--threads", type=int, default=8, help="threads that look")
    added.set_defaults(run=lambda args: contexts(args.count, args.threads))
    added = commands.add_parser("side-by-side", help="BrowserGym on the same pages")
    added.add_argument("--episodes", type=int, default=20, help="for each page and round")
    added.add_argument("--alive", type=int, default=4, help="environments whose memory is read")
    added.add_argument("--rounds", type=int, default=2, help="rounds in turn")
    added.set_defaults(run=lambda args: side_by_side(args.episodes, args.alive, args.rounds))
    args = parser.parse_args()
    counts = [value for value in vars(args).values() if isinstance(value, int)]
    if min(counts) < 1 or getattr(args, "count", 1) > _MOST_CONTEXTS:
        parser.error(f"got {counts}, expected positive numbers and at most {_MOST_CONTEXTS}")
    print(json.dumps({"load": round(os.getloadavg()[0], 1), **args.run(args)}))


def speed(episodes: int) -> dict[str, Any]:
    """Each episode: a fresh context, a look, a picture, and the oracle's turns."""
    figures: dict[str, Any] = {"episodes": episodes}
    for name, options in _KINDS.items():
        times_ms: dict[str, list[float]] = {"reset": [], "look": [], "jpeg": [], "act": []}
        with closing(GuiEnv(**options)) as env:
            ids = env.task_ids("heldout")
            env.reset(options={"task": ids[0]})
            won = 0
            for number in range(episodes):
                won += _episode(env, ids[number + 1], times_ms)
        figures[f"{name}_won"] = won
        for kind, values in times_ms.items():
            figures |= _percentiles(f"{name}_{kind}_ms", values)
    return figures


def _episode(env: GuiEnv, task: str, times_ms: dict[str, list[float]]) -> bool:
    """Whether the oracle won."""
    _timed(times_ms["reset"], lambda: env.reset(options={"task": task}))
    _timed(times_ms["look"], lambda: env.step("screenshot()"))
    _timed(times_ms["jpeg"], env.shot)
    reward = 0.0
    for reply in env.solve():
        reward = _stepped(env, reply, times_ms["act"])
    return reward >= 1.0


def contexts(count: int, threads: int) -> dict[str, Any]:
    """So many episodes at once: all answer, what each takes, and what is left afterwards."""
    envs = [GuiEnv() for _ in range(count)]
    ids = envs[0].task_ids("heldout")
    resets: list[float] = []
    looks: list[float] = []

    def begin(number: int) -> None:
        _timed(resets, lambda: envs[number].reset(options={"task": ids[number]}))

    def look(env: GuiEnv) -> bool:
        return bool(_timed(looks, lambda: env.step("screenshot()"))[0])

    try:
        with ThreadPoolExecutor(threads) as pool:
            started_s = time.monotonic()
            list(pool.map(begin, range(count)))
            all_begun_s = time.monotonic() - started_s
            started_s = time.monotonic()
            answer_count = sum(pool.map(look, envs))
            all_looked_s = time.monotonic() - started_s
        processes, pss_mb, rss_mb = _memory()
        started_s = time.monotonic()
    finally:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(lambda env: env.close(), envs))
    closed_s = time.monotonic() - started_s
    return {
        "contexts": count,
        "answered": answer_count,
        "begun_per_s": round(count / all_begun_s, 1),
        "looks_per_s": round(count / all_looked_s, 1),
        **_percentiles("reset_ms", resets),
        **_percentiles("look_ms", looks),
        "processes": processes,
        "pss_mb_each": round(pss_mb / count, 1),
        "rss_mb_each": round(rss_mb / count, 1),
        "close_s": round(closed_s, 1),
        "browser_processes_left": _left(),
    }


def side_by_side(episodes: int, alive: int, rounds: int) -> dict[str, Any]:
    """Rounds in turn, so that what else runs on the machine weighs on both."""
    parts: dict[str, list[dict[str, Any]]] = {
        "ours": [],
        "browsergym": [],
        "browsergym_no_wait": [],
    }
    with tempfile.TemporaryDirectory() as folder:
        python = _install(Path(folder))
        for _ in range(rounds):
            parts["ours"].append(_own_environment(episodes, alive))
            parts["browsergym"].append(_browsergym(python, episodes, alive, waits=True))
            parts["browsergym_no_wait"].append(_browsergym(python, episodes, alive, waits=False))
    figures: dict[str, Any] = {"episodes": episodes * len(_PAGES) * rounds, "alive": alive}
    for name, own_parts in parts.items():
        resets, steps = (
            [value for part in own_parts for value in part[key]] for key in ("resets", "steps")
        )
        figures[f"{name}_won"] = sum(part["won"] for part in own_parts)
        figures[f"{name}_steps_per_s"] = round(len(steps) * 1e3 / (sum(resets) + sum(steps)), 2)
        figures |= _percentiles(f"{name}_reset_ms", resets)
        figures |= _percentiles(f"{name}_step_ms", steps)
        each_mb = statistics.median(part["pss_mb"] for part in own_parts) / alive
        figures[f"{name}_pss_mb_each"] = round(each_mb, 1)
    for name in ("browsergym", "browsergym_no_wait"):
        faster = figures["ours_steps_per_s"] / figures[f"{name}_steps_per_s"]
        smaller = figures[f"{name}_pss_mb_each"] / figures["ours_pss_mb_each"]
        figures |= {
            f"{name}_times_steps": round(faster, 1),
            f"{name}_times_memory": round(smaller, 1),
        }
    return figures


def _own_environment(episodes: int, alive: int) -> dict[str, Any]:
    """One click a step, as on the other side."""
    times_ms: dict[str, list[float]] = {"resets": [], "steps": []}
    won = 0
    for page in _PAGES:
        with closing(GuiEnv(tasks="miniwob", families=[page])) as env:
            won += sum(_clicked(env, task, times_ms) for task in env.task_ids("train")[:episodes])
    with ExitStack() as stack:
        for number in range(alive):
            env = GuiEnv(tasks="miniwob", families=["click-button"])
            stack.callback(env.close)
            env.reset(options={"task": env.task_ids("train")[number]})
        pss_mb = _memory()[1]
    return {**times_ms, "won": won, "pss_mb": pss_mb}


def _clicked(env: GuiEnv, task: str, times_ms: dict[str, list[float]]) -> bool:
    """Whether the clicks won."""
    _timed(times_ms["resets"], lambda: env.reset(options={"task": task}))
    reward = 0.0
    for click in "\n".join(env.solve()).splitlines():
        reward = _stepped(env, click, times_ms["steps"])
    return reward > 0


def _stepped(env: GuiEnv, action: str, times_ms: list[float]) -> float:
    """The reward."""
    return float(_timed(times_ms, lambda: env.step(action))[1])


def _install(folder: Path) -> Path:
    """BrowserGym with the Playwright that it asks for; its revision's place is our Chromium."""
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True, timeout=300)
    python = folder / "venv" / "bin" / "python"
    pip = [str(python), "-m", "pip", "install", "-qq"]
    subprocess.run([*pip, "browsergym-miniwob", "psutil"], check=True, timeout=900)
    code = [str(python), "-c", _PLAYWRIGHT]
    process = subprocess.run(code, check=True, timeout=60, text=True, stdout=subprocess.PIPE)
    place = folder / "browsers" / f"chromium-{process.stdout.strip()}" / "chrome-linux"
    place.mkdir(parents=True)
    (place / "chrome").symlink_to(find(BrowserConfig()))
    return python


def _browsergym(python: Path, episodes: int, alive: int, *, waits: bool) -> dict[str, Any]:
    """Measure in a process of its own; without waits its fixed pauses of 0.1 and 0.5 s are off."""
    variables = {
        "PATH": os.environ["PATH"],
        "HOME": str(python.parents[2]),
        "MINIWOB_URL": f"{(html_folder() / 'miniwob').as_uri()}/",
        "PLAYWRIGHT_BROWSERS_PATH": str(python.parents[2] / "browsers"),
    }
    request = json.dumps([_PAGES, episodes, alive, waits])
    process = subprocess.run(
        [str(python), "-c", _BROWSERGYM, request],
        env=variables,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=3600,
    )
    part: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
    return part


def _timed(times_ms: list[float], call: Callable[[], Any]) -> Any:
    started_s = time.perf_counter()
    result = call()
    times_ms.append((time.perf_counter() - started_s) * 1e3)
    return result


def _percentiles(name: str, values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    figures = {"p50": ordered[len(ordered) // 2], "p95": ordered[len(ordered) * 95 // 100]}
    return {f"{name}_{key}": round(value, 1) for key, value in figures.items()}


def _memory() -> tuple[int, float, float]:
    """Processes below this one, and their proportional and resident memory in MB."""
    rollups = list(_rollups())
    pss_mb, rss_mb = (sum(rollup[key] for rollup in rollups) / 2**10 for key in ("Pss", "Rss"))
    return len(rollups), pss_mb, rss_mb


def _rollups() -> Iterator[dict[str, int]]:
    """Memory of each process below this one, in kB."""
    for child in psutil.Process().children(recursive=True):
        try:
            lines = Path(f"/proc/{child.pid}/smaps_rollup").read_text().splitlines()[1:]
        except OSError:  # it ended just now
            continue
        rows = (line.split() for line in lines)
        yield {fields[0].rstrip(":"): int(fields[1]) for fields in rows}


def _left() -> int:
    """Browser processes that are still there after a while."""
    patience_s = time.monotonic() + _END_PATIENCE_S
    while (left := _browsers()) and time.monotonic() < patience_s:
        time.sleep(0.2)
    return left


def _browsers() -> int:
    count = 0
    for child in psutil.Process().children(recursive=True):
        try:
            count += any(name in child.name() for name in ("headless", "chrom", "bwrap"))
        except psutil.NoSuchProcess:
            continue
    return count


if __name__ == "__main__":
    main()
