"""Who is measured in the laboratory, on which text, and at which weights.

Estimators whose parameters have the same names and shapes (the score function and a
straight-through gradient for its policy) are measured at the same weights.

Shapes: B rows, S positions, N sampled texts of D bytes.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from rltok_core.boundaries.registry import build_estimator, estimator_class
from rltok_core.config.experiment import load_estimator
from rltok_core.config.schema import EstimatorConfig, EstimatorEntry, TrainingConfig
from rltok_core.data.batch import Batch
from rltok_core.data.planted import Language
from rltok_core.data.stream import RandomStream, stream_key
from rltok_core.data.vocabulary import BOS, N_SPECIAL
from rltok_core.gradlab.config import GradlabConfig
from rltok_core.model.unet import UNet
from rltok_core.training.objective import objective


@dataclass
class Subject:
    """One estimator of the laboratory and how its variants are made."""

    name: str
    given: EstimatorConfig
    lab: GradlabConfig

    def config(self, **changes) -> EstimatorConfig:
        """As the laboratory measures it: the YAML, what is neutral, and `changes`."""
        params = self.given.params
        over = {k: v for k, v in (self.lab.neutral | changes).items() if k in params}
        return self.given.model_copy(update={"params": params | over})

    def model(self, config: EstimatorConfig, weights: dict | None = None) -> UNet:
        lab = self.lab
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(lab.seed)  # an estimator's own initial weights
            estimator = build_estimator(config, lab.model.d_model, lab.target_rate, lab.positions)
        model = UNet(lab.model, estimator, lab.seed).double()
        if weights is not None:
            model.load_state_dict(weights)
        return model

    @property
    def rewarded(self) -> bool:
        """Terms linear in a reward: the score function and its kin."""
        reward = getattr(estimator_class(self.given), "reward", None)
        return callable(reward) and "gamma" in self.given.params

    @property
    def swept(self) -> dict:
        """The values of each of its parameters that the laboratory sweeps."""
        lab = self.lab
        values = {"gamma": lab.gammas, "samples": lab.samples}
        values |= dict.fromkeys(lab.switches, (True, False))
        return {name: each for name, each in values.items() if name in self.given.params}


def subjects(lab: GradlabConfig, configs: Path) -> tuple[list[Subject], dict[str, str]]:
    """The estimators that learn anything, reward-linear ones first; the others with a reason."""
    folders = [configs / "estimators", *map(Path, lab.plugins)]
    names = lab.estimators or sorted({p.stem for f in folders for p in f.glob("*.yaml")})
    found, left_out, seen = [], {}, {}
    for entry in [*(EstimatorEntry(name=name) for name in names), *lab.beside]:
        given = load_estimator(entry, configs, lab.plugins)
        name = given.label
        subject = Subject(name, given, lab)
        fixed = {k: v for k, v in given.params.items() if k not in subject.swept}
        twin = seen.setdefault((given.cls, json.dumps(fixed, sort_keys=True)), name)
        if twin != name:
            left_out[name] = f"{twin} at another setting of what is swept"
        elif estimator_class(given).hint is not None:
            left_out[name] = "its boundaries are given, nothing is learned"
        elif not any(True for _ in subject.model(given).estimator.parameters()):
            left_out[name] = "a rule without parameters: there is nothing to estimate"
        else:
            found.append(subject)
    return sorted(found, key=lambda s: not s.rewarded), left_out


def texts(lab: GradlabConfig, count: int, part: int) -> torch.Tensor:
    """ids_BS of `count` rows of the planted language; `part` keeps uses of it apart."""
    data_ND, _ = Language(lab.language).sample(count, np.random.default_rng([lab.seed, part]))
    ids_BS = torch.full((count, lab.positions), BOS)
    ids_BS[:, 1:] = torch.from_numpy(data_ND[:, : lab.positions - 1].astype(np.int64)) + N_SPECIAL
    return ids_BS


def short_training(subject: Subject) -> dict:
    """Weights after the short training, with the estimator as its YAML has it."""
    lab, how = subject.lab, subject.lab.training
    model = subject.model(subject.given)
    groups = model.parameter_groups()
    policy = groups.pop("policy")
    optimizer = torch.optim.AdamW(
        [
            {"params": [p for group in groups.values() for p in group], "lr": how.lr},
            {"params": policy, "lr": how.lr_of.get(subject.name, how.lr_policy)},
        ]
    )
    training = TrainingConfig(
        steps=how.steps, lr=how.lr, seq_len=lab.positions, target_rate=lab.target_rate
    )
    ids_BS = texts(lab, how.steps * how.batch_size, 1).view(how.steps, how.batch_size, -1)
    for step, rows in enumerate(ids_BS):
        keys = [stream_key(lab.seed, "gradlab", step, row) for row in range(len(rows))]
        length_B = torch.full((len(rows),), lab.positions)
        result = objective(
            model, Batch(rows, length_B, RandomStream(keys)), training, lab.target_rate
        )
        optimizer.zero_grad()
        result.loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), training.clip)
        optimizer.step()
    return model.state_dict()
