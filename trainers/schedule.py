"""The learning rate as a function of the update's number: resuming needs no schedule state."""

from __future__ import annotations

import math

from clawrl_gym.config import LearnerConfig


def learning_rate(update: int, updates: int, config: LearnerConfig) -> float:
    """Rate of update `update` (0 is the first) of `updates`.

    Rises over `warmup_steps`, reaches `lr` right after, decays to `lr * min_lr_ratio` at the last
    update; a run that lasts longer stays there. `inverse` knows no last update: the rate is
    lr / (1 + n / halves_after) after n updates, and never below `lr * min_lr_ratio`, so that early
    updates go far, later ones average over many samples, and what is new can always be learned.
    """
    if update < config.warmup_steps:
        return config.lr * (update + 1) / (config.warmup_steps + 1)
    risen = update - config.warmup_steps
    if config.schedule == "inverse":
        return config.lr * max(config.min_lr_ratio, 1.0 / (1.0 + risen / config.halves_after))
    span = max(updates - 1 - config.warmup_steps, 1)
    progress = min(risen / span, 1.0)
    falling = {
        "constant": 1.0,
        "linear": 1.0 - progress,
        "cosine": (1.0 + math.cos(math.pi * progress)) / 2,
    }[config.schedule]
    return config.lr * (config.min_lr_ratio + (1.0 - config.min_lr_ratio) * falling)
