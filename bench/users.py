"""Users with weights of their own behind one `serve`: does each get what they wish, alone?

    python bench/users.py [--users 4] [--rounds 6] [--conversations 16] [--problems 40] [KEY=VALUE]

Starts `python -m clawrl_gym.serve learner=lora policy.serve=adapters` on the tiny policy, with N
users. Each is a persona of the environment `conversation` (with a wish that the first message does
not say), who talks, complains and thanks by script. In even rounds users 0, 2, 4, ... talk, in odd
rounds the others. After each round everybody's first replies to the same held-out problems, sampled
greedily, are scored by code against the user's own wish. Prints each user's scores, and by how much
the score of those who did not talk in a round moved at most: their weights are as they were.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import httpx

from clawrl_gym.agents.tool_calls import Reply
from clawrl_gym.envs.conversation.generated import make_task, task_ids
from clawrl_gym.envs.conversation.personas import PERSONAS
from clawrl_gym.envs.conversation.simulated import SimulatedPartner
from clawrl_gym.envs.conversation.user import ScriptedSpeaker
from clawrl_gym.store.users import Users

_QUIET_S = 12.0
"""Without a new version for so long, a round's updates are over."""


@dataclass(frozen=True)
class Person:
    """One user, and their client."""

    name: str
    persona: str
    http: httpx.Client
    numbers: Any
    """Of their conversations, each once."""

    def first_reply(self, opening: str) -> str:
        """Greedy, and no part of any conversation that is learned from."""
        return self._ask([{"role": "user", "content": opening}], temperature=0, side=True)

    def score(self, problems: int) -> float:
        """How well first replies to held-out problems fit the wish, in the mean."""
        tasks = [make_task(task) for task in task_ids(self.persona, "heldout", ["ask"])[:problems]]
        style = PERSONAS[self.persona].style
        with ThreadPoolExecutor(8) as threads:
            replies = list(threads.map(lambda task: self.first_reply(task.opening), tasks))
        scores = [style.score(text, t.problem) for text, t in zip(replies, tasks, strict=True)]
        return sum(scores) / len(scores)

    def talk(self, _: int) -> None:
        """One conversation, to its end."""
        number = next(self.numbers)
        partner = SimulatedPartner(self.persona, ["ask"], 8, ScriptedSpeaker())
        text, _info = partner.begin(number, {})
        session, over = f"talk-{number}", False
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
        self.last_version_s = time.monotonic()
        arguments = [
            "gateway.port=0", f"run.dir={folder}", "ui=line", "learner=lora",
            "policy.serve=adapters", "live.flush_s=3", "policy.threads=1",
            "gateway.max_waiting_per_user=64", *overrides,
        ]  # fmt: skip
        self.process = subprocess.Popen(
            [sys.executable, "-m", "clawrl_gym.serve", *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            if " serves, of " in line:
                self.last_version_s = time.monotonic()

    def wait_for(self, words: str, timeout_s: float = 180) -> str:
        give_up_s = time.monotonic() + timeout_s
        while time.monotonic() < give_up_s and self.process.poll() is None:
            found = next((line for line in self.lines if words in line), None)
            if found is not None:
                return found
            time.sleep(0.1)
        raise SystemExit("\n".join([*self.lines[-30:], f"no {words!r}"]))

    def wait_until_learned(self) -> None:
        """Until no user gets a new version any more."""
        self.last_version_s = time.monotonic()
        while time.monotonic() - self.last_version_s < _QUIET_S:
            if self.process.poll() is not None:
                raise SystemExit("\n".join(self.lines[-30:]))
            time.sleep(0.2)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(timeout=60)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--conversations", type=int, default=16, help="of a user in a round")
    parser.add_argument("--problems", type=int, default=40, help="held-out ones for each score")
    options, overrides = parser.parse_known_args()
    with tempfile.TemporaryDirectory(prefix="users-") as root:
        folder = Path(root) / "serve"
        users, kinds = Users(folder), list(PERSONAS)
        keys = {f"user{at}": users.add(f"user{at}") for at in range(options.users)}
        overrides = [f"policy.max_adapters={options.users + 2}", *overrides]
        served = Served(folder, overrides)
        try:
            url = served.wait_for("gateway: ready at ").split("ready at ")[1].split()[0]
            served.wait_for("ready: talk to")
            people = [
                Person(name, kinds[at % len(kinds)], _client(url, key), count())
                for at, (name, key) in enumerate(keys.items())
            ]
            _rounds(served, people, options)
        finally:
            served.stop()


def _client(url: str, key: str) -> httpx.Client:
    return httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=120)


def _rounds(served: Served, people: list[Person], options: argparse.Namespace) -> None:
    began_s = time.monotonic()
    scores = [[person.score(options.problems) for person in people]]
    moved = 0.0
    for number in range(options.rounds):
        talking = [at for at in range(len(people)) if at % 2 == number % 2]
        with ThreadPoolExecutor(8) as threads:
            talks = [people[at] for at in talking for _ in range(options.conversations)]
            list(threads.map(lambda person: person.talk(0), talks))
        served.wait_until_learned()
        scores.append([person.score(options.problems) for person in people])
        for at in range(len(people)):
            if at not in talking:
                moved = max(moved, abs(scores[-1][at] - scores[-2][at]))
        said = " ".join(f"{score:.2f}" for score in scores[-1])
        sys.stderr.write(f"round {number + 1}: {said} ({time.monotonic() - began_s:.0f} s)\n")
    versions = {person.name: 0 for person in people}
    for line in served.lines:
        for name in versions:
            versions[name] += f"{name}@" in line and " serves, of " in line
    sys.stdout.write("| user | persona | updates | before | after each round they talked in |\n")
    sys.stdout.write("|---|---|---|---|---|\n")
    for at, person in enumerate(people):
        after = [f"{s[at]:.2f}" for n, s in enumerate(scores[1:]) if n % 2 == at % 2]
        sys.stdout.write(
            f"| {person.name} | {person.persona} | {versions[person.name]} | {scores[0][at]:.2f} | "
            f"{', '.join(after)} |\n"
        )
    sys.stdout.write(f"\nwho did not talk moved by at most {moved:.4f}\n")


if __name__ == "__main__":
    main()
