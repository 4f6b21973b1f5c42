"""`ClawRL/Conversation-v0`: a conversation with a user as a Gymnasium environment.

The environment is the Gymnasium side only; who talks is behind `Partner`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clawrl_gym.agents.tool_calls import decode
from clawrl_gym.core.errors import ConfigError, EnvError, boundary
from clawrl_gym.core.types import Split
from clawrl_gym.envs.conversation.config import ConversationEnvConfig
from clawrl_gym.envs.conversation.endpoint import Endpoint
from clawrl_gym.envs.conversation.live import LivePartner
from clawrl_gym.envs.conversation.partner import Partner
from clawrl_gym.envs.conversation.scripted import ScriptedPartner
from clawrl_gym.envs.shipped_tasks import shipped
from clawrl_gym.envs.task_env import Info, UnicodeEnv
from clawrl_gym.envs.task_source import TaskSource


class ConversationEnv(UnicodeEnv):
    """A user with a problem and a wish that is not said; one conversation an episode.

    Observation
        Text (`Unicode`). At reset the user's first message. After something said, what the user
        says to it. After tool calls their results, a JSON list of `{"tool_call_id", "content"}` in
        the order of the calls; `info["next_state_role"]` is "tool" then, else "user".
    Action
        Text (`Unicode`): what is said to the user; or a reply with tool calls, as JSON
        `{"content": TEXT, "tool_calls": [{"id", "name", "arguments"}]}` with `arguments` as JSON
        text. `info["tools"]` has the tools' schemas. No text is illegal: an unknown tool or wrong
        arguments give a result that says so.
    Reward
        1 when the user ends satisfied: the right answer, in a style that it likes, in the file too
        when it asked for that; the file's content is looked at. 0 otherwise and before. Of composed
        tasks: everything asked for was answered, with all that was said in mind; nothing else done.
    Start
        A problem with numbers up to 20, told or in a file. `options={"task": ID}` names the task;
        without it one of `options["split"]` ("train" unless given) is drawn from the seed.
    End
        Terminated when the user is satisfied, or leaves because a third complaint would be due.
        Truncated after `max_turns` replies. A user's model, or a gateway, that fails raises
        EnvError: no reward is made up for it.
    Options
        `source` ("simulated", or "live": see below), `tasks` ("personas"; "plain": general
        questions for pretrained models, a wish about form; "composed": several things in one
        conversation; both with a scripted user), `persona` (student, teacher, engineer, child,
        clerk; of plain tasks capitals, brief, cheerful, asking), `wording` ("heldout", or "train":
        sentences that the shipped policies were supervised on), `hint` and `hint_form` (what stands
        behind the first message when a teacher is measured), `families` (ask, homework, read, save;
        None for all), `max_turns`, `user`
        ("scripted", or "model": a model finds the words, code still decides and scores) with
        `user_base_url`, `user_key`, `user_model`, `user_timeout_s`, and `render_mode` ("ansi": the
        conversation so far).
    Live
        With source "live" the episodes are the sessions of a running gateway at `gateway_url`:
        reset waits for the next session that starts, step delivers the reply and waits for what
        comes back, `live_timeout_s` at most; `info["messages"]` has what came, system message
        included. There are no tasks, no wish and no reward.
    Info
        Always `task`, `family`, `split`, `tools`, `next_state_role`, `first_reply_score` (how well
        the first thing said fitted the wish, in [0, 1]), `correct` (whether it was right),
        `satisfied`, `scores` (both as numbers, and `liked`: whether the user accepts such a form;
        for the run's metrics) and `error` (None: failures
        are exceptions). Of composed tasks, in place of how the first reply was: `difficulty`,
        `parts` (the share of what was asked for that was done, to read and no reward) and it in
        `scores`.
    Version
        v0: first version.
    """

    def __init__(self, *, render_mode: str | None = None, **options: object) -> None:
        """`options`: the keys of `ConversationEnvConfig`. Raises ConfigError for wrong ones."""
        config = ConversationEnvConfig.of(options, "env.")
        super().__init__(config.max_turns, render_mode)
        self._partner = _partner(config)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, Info]:
        """Start an episode. Raises TaskError for an unknown task, EnvError when nobody comes."""
        super().reset(seed=seed)
        number = int(self.np_random.integers(2**31))
        with boundary(EnvError, "starting a conversation"):
            observation, info = self._partner.begin(number, options or {})
        self._start_transcript(observation)
        return observation, info

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Say something or call tools. Raises EnvError when the other side fails."""
        with boundary(EnvError, "a turn of a conversation"):
            observation, reward, terminated, truncated, info = self._partner.hear(decode(action))
        self._extend_transcript(action, observation, str(info["next_state_role"]))
        return observation, reward, terminated, truncated, info

    def finish(self) -> float:
        """An episode that was ended from outside: the user was not satisfied yet."""
        return 0.0

    def close(self) -> None:
        """Let go of the other side; idempotent, and reset() works afterwards."""
        self._partner.close()

    @staticmethod
    def source_of(
        config: ConversationEnvConfig,
    ) -> TaskSource[Any]:
        """Where a configuration's tasks come from. Raises ConfigError or TaskError for none."""
        if config.source == "live":
            raise ConfigError(
                "got env.source=live, expected simulated: live sessions are no tasks to draw; "
                "python -m clawrl_gym.serve learns from them"
            )
        return _simulated_partner(config).source

    def task_ids(self, split: Split) -> Sequence[str]:
        """The ids that `options={"task": id}` takes."""
        return self._simulated().ids(split)

    def solve(self) -> tuple[str, ...]:
        """The oracle: actions that satisfy the user of the current task, one a step."""
        return self._simulated().solve()

    def _simulated(self) -> ScriptedPartner[Any, Any]:
        if not isinstance(self._partner, ScriptedPartner):
            raise EnvError("got source='live', expected 'simulated': live sessions have no tasks")
        return self._partner


def _partner(config: ConversationEnvConfig) -> Partner:
    if config.source == "live":
        if config.gateway_url is None:
            raise ConfigError("got env.source=live and no env.gateway_url, expected a URL")
        gateway = Endpoint(config.gateway_url, config.gateway_key)
        return LivePartner(gateway, config.live_timeout_s, config.max_turns)
    return _simulated_partner(config)


def _simulated_partner(config: ConversationEnvConfig) -> ScriptedPartner[Any, Any]:
    partner: ScriptedPartner[Any, Any] = shipped("conversation.partners:partner_of")(config)
    return partner
