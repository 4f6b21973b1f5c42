"""A training run from Python: the same as `make train`, shorter, and its result as an object.

python examples/train_run.py
"""

import sys

import clawrl_gym as cg


def main(overrides: list[str]) -> cg.TrainingRun:
    """Train on easy terminal tasks; overrides are those of the command line."""
    run = cg.run_training(["env=terminal", "trainer.steps=10", "eval.tasks=60", *overrides])
    for step, evaluation in run.evaluations.items():
        print(f"after {step} updates: {evaluation.success:.0%} of {evaluation.n} held-out tasks")
    print(f"report: {run.report}")
    return run


if __name__ == "__main__":
    main(sys.argv[1:])
