"""python -m clawrl_gym.rejudge runs/NAME: judge a run's stored turns again.

python -m clawrl_gym.rejudge runs/NAME                    # by today's rules, in seconds
python -m clawrl_gym.rejudge runs/serve judge=chain judge.base_url=http://127.0.0.1:8000/v1
python -m clawrl_gym.rejudge runs/NAME judge=my_pkg.judge:Mine turns=500

No policy is needed and nothing is generated again. The verdicts go to runs/NAME/rejudged/, with a
table of old and new ones and a page of those that flipped; the run keeps its own, and what it
was trained on stays as it is. The same command continues what was broken off.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import clawrl_gym as cg
from clawrl_gym.config import RejudgeConfig
from clawrl_gym.core.processes.interrupt import INTERRUPTS
from clawrl_gym.run.command import command


def _say(part: str, phase: str) -> None:
    sys.stderr.write(f"{part}: {phase}\n")


def _configure(arguments: list[str]) -> RejudgeConfig:
    return cg.load_config(arguments, "rejudge")


def _check(config: RejudgeConfig) -> Iterator[str]:
    from clawrl_gym.run.rejudge import preflight_rejudging

    plan = preflight_rejudging(config)
    yield f"Configuration is valid. {len(plan.turns):,} turns of {plan.folder.path} would be judged"
    for note in plan.notes:
        yield f"  note       {note}"


async def _rejudge(config: RejudgeConfig) -> int:
    from clawrl_gym.run.rejudge import rejudge

    with INTERRUPTS.goes_on("the same command continues with what is missing"):
        rejudging = await rejudge(config, on_phase=_say)
    sys.stdout.write(rejudging.summary() + "\n")
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    return command("rejudge", __doc__, _configure, _check, _rejudge, arguments)


if __name__ == "__main__":
    sys.exit(main())
