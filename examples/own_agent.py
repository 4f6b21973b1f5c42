"""An agent of one's own: how observations become messages, and replies become actions.

python -m clawrl_gym.train env=terminal agent=examples.own_agent:PlanningAgent \\
    agent.options.max_plan_lines=2 trainer.steps=3

It extends the agent of the terminal: a reply may begin with a plan, which is kept out of the
command; a plan that is too long comes back as an observation, which is no error of the run.
"""

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, Field

import clawrl_gym as cg
from clawrl_gym.envs.terminal.agent import TerminalAgent

SYSTEM = (
    "You work in a Linux shell. You may write a short plan first. Then reply with one bash block."
)


class PlanningAgent(TerminalAgent):
    """Plan, then one bash block."""

    class Options(BaseModel):
        """Checked before anything starts, like every key of the configuration."""

        model_config = ConfigDict(extra="forbid", frozen=True)

        max_plan_lines: int = Field(3, ge=0)
        """Lines before the bash block; more are refused."""

    def __init__(self, options: Options) -> None:
        super().__init__(SYSTEM)
        self._max_plan_lines = options.max_plan_lines

    def messages(
        self, observations: Sequence[str], replies: Sequence[cg.Message]
    ) -> list[cg.Message]:
        """The request for the next turn: the newest observation says how many came before."""
        messages = super().messages(observations, replies)
        if replies:
            newest = messages[-1]
            turn = f"[turn {len(replies) + 1}] {newest['content']}"
            messages[-1] = {"role": "user", "content": turn}
        return messages

    def action(self, reply: cg.Message) -> cg.Action | cg.ParseFailure:
        """The command of the block, without the plan."""
        plan, _, _ = str(reply.get("content") or "").partition("```")
        lines = len(plan.strip().splitlines())
        if lines > self._max_plan_lines:
            return cg.ParseFailure(
                f"got a plan of {lines} lines, expected at most {self._max_plan_lines}"
            )
        return super().action(reply)
