"""python -m clawrl_gym.sft: supervised learning, before RL or instead of it.

python -m clawrl_gym.sft chats.jsonl policy=qwen3_0_6b learner=lora epochs=3
python -m clawrl_gym.sft runs/NAME episodes.per_task=1          # a run's own successes
python -m clawrl_gym.sft demonstrations=200 env=terminal_plain  # that the oracle plays
python -m clawrl_gym.sft resume=runs/NAME
python -m clawrl_gym.train policy.model=runs/NAME               # RL from its newest checkpoint

Data are chats ({"messages": [...]}, or {"prompt": ..., "completion": ...}, one a line or in a
.parquet file), folders of them, and runs. Only the policy's own replies count in the loss.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import clawrl_gym as cg
from clawrl_gym.run.command import command


def _say(part: str, phase: str) -> None:
    sys.stderr.write(f"{part}: {phase}\n")


def _configure(arguments: list[str]) -> cg.SftConfig:
    return cg.load_config(arguments, "sft")


def _check(config: cg.SftConfig) -> Iterator[str]:
    from clawrl_gym.run.sft import preflight_sft

    yield from preflight_sft(config).lines()


async def _learn(config: cg.SftConfig) -> int:
    run = await cg.run_sft_async(config, on_phase=_say)
    sys.stdout.write(run.summary() + "\n")
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    return command("sft", __doc__, _configure, _check, _learn, arguments)


if __name__ == "__main__":
    sys.exit(main())
