"""Learning rate, target boundary rate and rate controller, all functions of the step alone.

A step is counted from 0 here: step s is the one that has s steps behind it.
"""

import math
from typing import TYPE_CHECKING

from rltok_core.config.schema import ControllerConfig, CurriculumConfig, TrainingConfig

if TYPE_CHECKING:  # plans and the workflow read schedules, and torch takes seconds to import
    import torch


def learning_rate(step: int, config: TrainingConfig) -> float:
    """The learning rate of step `step` (paper.md 2: linear warm-up, then cosine to 0).

    The first step takes warmup_from * lr and the last of the warm-up takes lr; what follows is
    measured from the end of the warm-up and would reach 0 at step `steps`, one past the last.
    So peak 1, warm-up 2 from 0.5, linear over 10 steps is .5, 1, 1, .875, .75 ... .125.
    """
    if step < config.warmup_steps:
        risen = step / max(config.warmup_steps - 1, 1)
        return config.lr * (config.warmup_from + (1 - config.warmup_from) * risen)
    done = (step - config.warmup_steps) / (config.steps - config.warmup_steps)
    if config.schedule == "cosine":
        return config.lr * 0.5 * (1 + math.cos(math.pi * done))
    return config.lr * (1 - done) if config.schedule == "linear" else config.lr


def curriculum_ends(config: TrainingConfig, learned: bool) -> int:
    """The first step whose target rate is the run's own; 0 where no curriculum applies."""
    if config.curriculum is None or not (learned or config.curriculum.rules):
        return 0
    share = max(config.curriculum.open_until, config.curriculum.end)
    return math.ceil(share * config.steps)


def target_rate(step: int, config: TrainingConfig, learned: bool) -> float:
    """The boundary rate asked for at step `step` (the curriculum; not in the paper).

    Rate 1 for the first `open_until` of the steps, then a linear fall from `start` to the run's
    target, which is reached at `end`: for estimators that learn, and for rules (whose boundaries
    the U-Net adds to) where the curriculum says so.
    """
    if step >= curriculum_ends(config, learned):
        return config.target_rate
    curriculum: CurriculumConfig = config.curriculum
    opened, end = curriculum.open_until * config.steps, curriculum.end * config.steps
    if step < opened:
        return 1.0
    return curriculum.start + (config.target_rate - curriculum.start) * (step - opened) / (
        end - opened
    )


def control_rate(
    rate_bias: "torch.Tensor", config: ControllerConfig, target: float, realised: "torch.Tensor"
) -> None:
    """One step of the integral controller, in place on the estimator's logit bias.

    Args:
        rate_bias: the estimator's buffer, a scalar without a gradient.
        target, realised: boundaries a position, forced ends included in both.
    """
    rate_bias.add_(config.gain * (target - realised) / target)
    rate_bias.clamp_(-config.limit, config.limit)
