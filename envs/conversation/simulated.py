"""Conversations with simulated users: a task, its files, and the user's reactions."""

from __future__ import annotations

from collections.abc import Sequence

from clawrl_gym.agents.tool_calls import Call, Reply, encode
from clawrl_gym.core.errors import EnvError
from clawrl_gym.core.types import Json, Split
from clawrl_gym.envs.conversation.generated import ConversationTask, make_task, task_ids
from clawrl_gym.envs.conversation.tools import Workspace, arguments_of
from clawrl_gym.envs.conversation.user import SimulatedUser, Speaker
from clawrl_gym.envs.draw import Draw
from clawrl_gym.envs.task_env import Info
from clawrl_gym.envs.task_source import requested_task


class SimulatedPartner:
    """A persona that lives for one task at a time."""

    def __init__(
        self,
        persona: str,
        families: Sequence[str] | None,
        max_turns: int,
        speaker: Speaker,
    ) -> None:
        self._persona = persona
        self._families = families
        self.ids("train")  # refuses an unknown persona or family now, not at the first reset
        self._max_turns = max_turns
        self._speaker = speaker
        self._task: ConversationTask | None = None
        self._turns = 0
        self._over = True

    def ids(self, split: Split) -> Sequence[str]:
        """The tasks of a split."""
        return task_ids(self._persona, split, self._families)

    def begin(self, number: int, options: Json) -> tuple[str, Info]:
        """The task that `options` names, else one of its split."""
        task_id, split = requested_task(options)
        ids = self.ids(split)
        task = make_task(ids[number % len(ids)] if task_id is None else str(task_id))
        self._task = task
        self._user = SimulatedUser(task, self._speaker, Draw(f"user/{task.id}/{number}"))
        self._files = Workspace(
            task.files, frozenset(tool["function"]["name"] for tool in task.tools)
        )
        self._turns = 0
        self._over = self._satisfied = False
        return task.opening, self._info(task, "user")

    def hear(self, reply: Reply) -> tuple[str, float, bool, bool, Info]:
        task = self._task
        if task is None or self._over:
            raise EnvError("got step() outside an episode, expected reset() first")
        self._turns += 1
        if reply.calls:
            observation, role = self._files.results(reply.calls), "tool"
        else:
            reaction = self._user.hear(reply.content, self._files.files)
            observation, role = reaction.text, "user"
            self._over, self._satisfied = reaction.over, reaction.satisfied
        truncated = not self._over and self._turns >= self._max_turns
        terminated = self._over
        self._over = terminated or truncated
        reward = 1.0 if self._satisfied else 0.0
        return observation, reward, terminated, truncated, self._info(task, role)

    def solve(self) -> tuple[str, ...]:
        """The oracle's actions from the start: the wished style at once, files when asked."""
        if self._task is None:
            raise EnvError("got solve() outside an episode, expected reset() first")
        task = self._task
        answer = task.persona.style.render(task.problem, Draw(f"oracle/{task.id}"))
        actions = []
        if task.source is not None:
            actions.append(Reply("", (Call("read-1", "read", arguments_of(path=task.source)),)))
        actions.append(Reply(answer))
        if task.target is not None:
            written = arguments_of(path=task.target, content=answer)
            actions += [Reply("", (Call("write-1", "write", written),)), Reply("done")]
        return tuple(encode(action) for action in actions)

    def close(self) -> None:
        """Nothing is open."""

    def _info(self, task: ConversationTask, role: str) -> Info:
        first, correct = self._user.first_score, self._user.first_correct
        return {
            "task": task.id,
            "family": task.family,
            "split": task.split,
            "tools": task.tools,
            "next_state_role": role,
            "first_reply_score": first,
            "correct": correct,
            "satisfied": self._satisfied,
            "scores": {"personalization": first, "correct": float(correct)},
            "error": None,
        }
