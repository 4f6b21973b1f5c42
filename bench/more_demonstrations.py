"""The same number of updates by supervised learning, where `make train` learns by trying.

    PYTHONPATH=. python bench/more_demonstrations.py [--seeds 0 1 2] [--out runs/shown] [--lr 3e-4]

The shipped `tiny_skills` continues with the demonstrations of its recipe's last phase, as many
updates as the default run makes, each of as many conversations as that has episodes, and is
measured on the held-out tasks of the default run and of `env=toolcall_plain`, before and after.
None of the demonstrations does two things of one request without a person between them: if that
came by seeing more of them, trying would not be needed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from clawrl_gym.inference.models.shipped import shipped_dir
from clawrl_gym.recipe.configure import load_config
from tools.tiny_policy.phases import skill_phases
from tools.tiny_policy.training import fit

START = shipped_dir("tiny_skills")
ENVS = ("terminal_plain", "toolcall_plain")


def go_on(out: Path, lr: float | None, seed: int) -> None:
    """Train and write the folder."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_num_threads(2)
    model = AutoModelForCausalLM.from_pretrained(START, dtype="float32").train()
    tokenizer = AutoTokenizer.from_pretrained(START)
    last, run = skill_phases()[-1], load_config()
    plan = replace(
        last.plan,
        steps=run.trainer.steps,
        batch=run.rollout.groups * run.rollout.group_size,
        peak_lr=lr or run.learner.lr,
        warmup_steps=run.learner.warmup_steps,
        seed=last.plan.seed + 1 + seed,
    )
    losses = fit(model, tokenizer, last.source, plan)
    print(f"seed {seed}: loss {losses[0]:.3f} to {losses[-1]:.3f}", flush=True)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)


def measure(model: Path, place: Path) -> None:
    """Success by family, printed by the command."""
    for env in ENVS:
        arguments = [f"env={env}", f"policy.model={model}", f"run.dir={place}-{env}"]
        subprocess.run([sys.executable, "-m", "clawrl_gym.evaluate", *arguments], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--lr", type=float, help="that of the default run unless given")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=Path("runs/shown"))
    options = parser.parse_args()
    measure(START, options.out / "before")
    for seed in options.seeds:
        model = options.out / f"model{seed}"
        if not model.exists():
            go_on(model, options.lr, seed)
        measure(model, options.out / f"seed{seed}")


if __name__ == "__main__":
    main()
