"""python -m clawrl_gym.export runs/NAME OUT: a checkpoint as a model's folder to hand on.

python -m clawrl_gym.export runs/NAME OUT --step best --dtype bfloat16
python -m clawrl_gym.export runs/serve OUT --user anna    # of her own weights
python -m clawrl_gym.export s3://BUCKET/runs/NAME OUT     # where learner.remote_checkpoints copied

OUT holds configuration, tokenizer, weights and a model card, and nothing of the learner:
transformers, vLLM and policy.model=OUT load it as it is. With --form adapter it holds what
learner=lora trained alone, for PEFT and vLLM, and the card.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import clawrl_gym as cg
from clawrl_gym.core.ownership import OWNER, user_named
from clawrl_gym.core.processes.interrupt import exit_code_of_short


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m clawrl_gym.export",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run", help="the run's folder, runs/NAME, or its address, s3://BUCKET/NAME")
    parser.add_argument("out", type=Path, help="where the model goes; new or empty")
    parser.add_argument(
        "--step",
        type=_step,
        default="last",
        metavar="N|best|last",
        help="the update; best on held-out tasks; the newest (default)",
    )
    parser.add_argument(
        "--dtype",
        choices=("float32", "bfloat16", "float16"),
        help="element type of the weights; what the run served in by default",
    )
    parser.add_argument(
        "--form",
        choices=("merged", "adapter"),
        default="merged",
        help="a whole model (default), or the adapter of learner=lora alone",
    )
    parser.add_argument(
        "--user",
        type=user_named,
        default=OWNER,
        metavar="NAME",
        help="whose weights; the run's own by default",
    )
    parser.add_argument("--force", action="store_true", help="replace an earlier export in OUT")
    options = parser.parse_args(arguments)
    return exit_code_of_short(lambda: _export(options), f"stopped: {options.out} is unchanged")


def _export(options: argparse.Namespace) -> None:
    exported = cg.export_run(
        options.run,
        options.out,
        step=options.step,
        dtype=options.dtype,
        form=options.form,
        force=options.force,
        user=options.user,
    )
    next_step = f"train from it: policy.model={exported.folder}"
    if options.form == "adapter":
        next_step = f"serve it: vllm serve BASE --enable-lora --lora-modules NAME={exported.folder}"
    whose = f"{options.user}'s in {options.run}" if options.user != OWNER else options.run
    sys.stdout.write(
        f"{exported.folder}: update {exported.step} of {whose}, {exported.dtype}; "
        f"README.md is its model card\n{next_step}\n"
    )


def _step(text: str) -> int | str:
    if text in ("best", "last"):
        return text
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"got {text!r}, expected an update, best or last")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
