"""Users with weights of their own behind one `serve`: does each get what they wish, alone?

    python bench/users.py [--users 4] [--rounds 6] [--conversations 16] [--problems 40] [--dir DIR]
        [--seconds 280] [KEY=VALUE]

Starts `python -m clawrl_gym.serve learner=lora policy.serve=adapters` on the tiny policy, with N
users. Each is a persona of the environment `conversation` (with a wish that the first message does
not say), who talks, complains and thanks by script. In even rounds users 0, 2, 4, ... talk, in odd
rounds the others. After each round everybody's first replies to the same held-out problems, sampled
greedily, are scored by code against the user's own wish. Prints each user's scores, the share of
right answers before and at the end, and by how much the score of those who did not talk in a round
moved at most: their weights are as they were.

With --dir it goes on after the rounds that are whole there, with the users, weights and serve's
own folder; --seconds begins no round after so long.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import httpx

from clawrl_gym.agents.tool_calls import Reply
from clawrl_gym.envs.conversation.config import ConversationEnvConfig
from clawrl_gym.envs.conversation.user import ScriptedSpeaker
from clawrl_gym.envs.showcase.conversation.generated import make_task, task_ids
from clawrl_gym.envs.showcase.conversation.personas import PERSONAS
from clawrl_gym.envs.showcase.conversation.simulated import SimulatedPartner
from clawrl_gym.store.reader import StoreReader
from clawrl_gym.store.users import Users

STATE_FILE = "bench.json"
REACHED = 0.8
_LEARNING_S = 600.0
_AT_ONCE = 8


@dataclass(frozen=True)
class Person:
    """One user, and their client."""

    name: str
    persona: str
    http: httpx.Client

    def first_reply(self, opening: str) -> str:
        """Greedy, and no part of any conversation that is learned from."""
        return self._ask([{"role": "user", "content": opening}], temperature=0, side=True)

    def score(self, problems: int) -> tuple[float, float]:
        """First replies to held-out problems: the mean fit to the wish, and the share of right
        answers, whatever their style."""
        tasks = [make_task(task) for task in task_ids(self.persona, "heldout", ["ask"])[:problems]]
        persona = PERSONAS[self.persona]
        replies = [(self.first_reply(task.opening), task.problem) for task in tasks]
        fits = statistics.mean(persona.style.score(*reply) for reply in replies)
        return round(fits, 6), statistics.mean(persona.right(*reply) for reply in replies)

    def talk(self, number: int, start: int) -> None:
        """Conversation `number`, to its end; a start of the bench does not resume another's."""
        config = ConversationEnvConfig(
            persona=self.persona, families=["ask"], max_turns=8, wording="train"
        )
        partner = SimulatedPartner(config, ScriptedSpeaker())
        text, _info = partner.begin(number, {})
        session, over = f"talk-{start}-{number}", False
        messages: list[dict[str, str]] = []
        while not over:
            messages.append({"role": "user", "content": text})
            reply = self._ask(messages, session=session)
            messages.append({"role": "assistant", "content": reply})
            text, _reward, ended, cut, _info = partner.hear(Reply(reply))
            over = ended or cut
        body = {"next_state": [{"role": "user", "content": text}]}
        self.http.post(f"/v1/sessions/{session}/end", json=body).raise_for_status()

    def _ask(
        self, messages: list[dict[str, str]], session: str = "", side: bool = False, **more: Any
    ) -> str:
        headers = {"X-Turn-Type": "side"} if side else {"X-Session-Id": session}
        body = {"messages": messages, "max_tokens": 64, **more}
        answer = self.http.post("/v1/chat/completions", json=body, headers=headers)
        answer.raise_for_status()
        return str(answer.json()["choices"][0]["message"]["content"] or "")


class Served:
    """One `serve`, and the lines that it writes."""

    def __init__(self, folder: Path, overrides: list[str]) -> None:
        self.lines: list[str] = []
        self._folder = folder
        arguments = [
            "gateway.port=0", f"run.dir={folder}", "ui=line", "learner=lora",
            "policy.serve=adapters", "live.flush_s=3", "policy.threads=1",
            "gateway.max_waiting_per_user=64", *overrides,
        ]  # fmt: skip
        self._process = subprocess.Popen(
            [sys.executable, "-m", "clawrl_gym.serve", *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line.rstrip("\n"))

    def wait_for(self, words: str, timeout_s: float = 300) -> str:
        give_up_s = time.monotonic() + timeout_s
        while time.monotonic() < give_up_s and self._process.poll() is None:
            met = next((line for line in self.lines if words in line), None)
            if met is not None:
                return met
            time.sleep(0.1)
        raise SystemExit("\n".join([*self.lines[-30:], f"no {words!r}"]))

    def wait_until_learned(self) -> None:
        """Wait until nothing that was said waits for the judge or the learner."""
        give_up_s = time.monotonic() + _LEARNING_S
        with closing(StoreReader(self._folder)) as store:
            while store.unjudged(1) or store.judged_without_sample() or store.untrained_groups():
                if self._process.poll() is not None or time.monotonic() > give_up_s:
                    raise SystemExit("\n".join([*self.lines[-30:], "learning does not end"]))
                time.sleep(0.5)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(timeout=60)


@dataclass
class State:
    """State of the rounds."""

    keys: dict[str, str]
    starts: int = 0
    scores: list[list[float]] = field(default_factory=list)
    """Scores of all users, before the first round and after each."""
    right: list[list[float]] = field(default_factory=list)
    """Shares of right answers, likewise."""

    @classmethod
    def of(cls, folder: Path, users: int) -> State:
        """State that an earlier start left, else a new one with new users."""
        file = folder / STATE_FILE
        if file.exists():
            state = cls(**json.loads(file.read_text()))
            if len(state.keys) != users:
                raise SystemExit(f"got --users {users}, expected the {len(state.keys)} of {file}")
        else:
            listed = Users(folder)
            state = cls({f"user{at}": listed.add(f"user{at}") for at in range(users)})
        state.starts += 1
        state.write(folder)
        return state

    def write(self, folder: Path) -> None:
        (folder / STATE_FILE).write_text(json.dumps(asdict(self)))

    def after(self, user: int) -> list[float]:
        """A user's scores after the rounds in which they talked."""
        return [scores[user] for at, scores in enumerate(self.scores[1:]) if at % 2 == user % 2]

    def moved(self) -> float:
        """Largest change of score of a user who did not talk in a round."""
        rounds = enumerate(zip(self.scores, self.scores[1:], strict=False))
        return max(
            (
                abs(new[user] - old[user])
                for at, (old, new) in rounds
                for user in range(len(self.keys))
                if at % 2 != user % 2
            ),
            default=0.0,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--conversations", type=int, default=16, help="for a user in a round")
    parser.add_argument("--problems", type=int, default=40, help="held-out ones for each score")
    parser.add_argument("--dir", type=Path, help="folder that is kept, and resumed")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    options, overrides = parser.parse_known_args()
    with tempfile.TemporaryDirectory(prefix="users-") as root:
        folder = options.dir or Path(root) / "serve"
        folder.mkdir(parents=True, exist_ok=True)
        _run(folder, options, [f"policy.max_adapters={options.users + 2}", *overrides])


def _run(folder: Path, options: argparse.Namespace, overrides: list[str]) -> None:
    began_s = time.monotonic()
    state = State.of(folder, options.users)
    served = Served(folder, overrides)
    try:
        url = served.wait_for("gateway: ready at ").split("ready at ")[1].split()[0]
        served.wait_for("ready: talk to")
        kinds = list(PERSONAS)
        people = [
            Person(name, kinds[at % len(kinds)], _client(url, key))
            for at, (name, key) in enumerate(state.keys.items())
        ]
        if not state.scores:
            _measure(people, state, options.problems)
        while len(state.scores) <= options.rounds:
            if time.monotonic() - began_s > options.seconds:
                break
            _round(served, people, state, options)
            state.write(folder)
            after = " ".join(f"{score:.2f}" for score in state.scores[-1])
            sys.stderr.write(
                f"round {len(state.scores) - 1}: {after} ({time.monotonic() - began_s:.0f} s)\n"
            )
    finally:
        served.stop()
    with closing(StoreReader(folder)) as store:
        updates = {user: row.version for user, row in store.newest_of_users().items()}
    _print(people, state, updates)


def _client(url: str, key: str) -> httpx.Client:
    return httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=300)


def _round(served: Served, people: list[Person], state: State, options: argparse.Namespace) -> None:
    number, count = len(state.scores) - 1, options.conversations
    talks = [
        (person, number * count + each)
        for at, person in enumerate(people)
        if at % 2 == number % 2
        for each in range(count)
    ]
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        list(threads.map(lambda talk: talk[0].talk(talk[1], state.starts), talks))
    served.wait_until_learned()
    _measure(people, state, options.problems)


def _measure(people: list[Person], state: State, problems: int) -> None:
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        measured = list(threads.map(lambda person: person.score(problems), people))
    state.scores.append([fit for fit, _right in measured])
    state.right.append([right for _fit, right in measured])


def _print(people: list[Person], state: State, updates: dict[str, int]) -> None:
    lines = [
        "| user | persona | updates | before | after each round they talked in | right answers |",
        "|---|---|---|---|---|---|",
    ]
    for at, person in enumerate(people):
        after = ", ".join(f"{score:.2f}" for score in state.after(at))
        lines.append(
            f"| {person.name} | {person.persona} | {updates.get(person.name, 0)} | "
            f"{state.scores[0][at]:.2f} | {after} | "
            f"{state.right[0][at]:.2f} to {state.right[-1][at]:.2f} |"
        )
    talked = [scores for at in range(len(people)) if (scores := state.after(at))]
    if talked:
        lasts = [scores[-1] for scores in talked]
        reached = sum(max(scores) >= REACHED for scores in talked)
        lines.append(
            f"\n{reached} of {len(talked)} reached {REACHED}; after {len(state.scores) - 1} rounds "
            f"{sum(last >= REACHED for last in lasts)} are there, lowest {min(lasts):.2f}, "
            f"median {statistics.median(lasts):.2f}"
        )
    lines.append(f"who did not talk in a round moved by at most {state.moved():.4f}")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
