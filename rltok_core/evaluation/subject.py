"""What is evaluated: a trained run, or a stand-in that knows nothing, both as a U-Net."""

import io
import json
import pickle
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

from rltok_core.boundaries.registry import build_estimator
from rltok_core.config.experiment import read_run
from rltok_core.config.schema import RunConfig
from rltok_core.config.strict import digest, parse
from rltok_core.errors import UserError
from rltok_core.model.unet import UNet

ORACLES = ("uniform",)
DAMAGE = (RuntimeError, EOFError, ValueError, pickle.UnpicklingError)  # torch.load's, by the cut


@dataclass(frozen=True)
class Subject:
    """A model and where it comes from.

    Attributes:
        run: its configuration, with the evaluation section to use.
        model: float32, in evaluation mode.
        id, label: names for results; an oracle's are its own.
        data_hash: of the data it was trained on; None for an oracle.
        training: training.json; empty for an oracle.
    """

    run: RunConfig
    model: UNet
    id: str
    label: str
    data_hash: str | None
    training: dict

    @property
    def evaluation_hash(self) -> str:
        """Identity of the result: what was evaluated (an oracle isn't its run) and how."""
        if self.training:
            return self.run.evaluation_hash
        return digest({"oracle": self.label, "evaluation": self.run.evaluation_hash})

    def on(self, device: str) -> "Subject":
        """The same on another device: a run trained on a GPU can be scored without one."""
        runtime = self.run.runtime.model_copy(update={"device": device})
        return replace(self, run=self.run.model_copy(update={"runtime": runtime}))


def _network(run: RunConfig) -> UNet:
    training = run.training
    torch.manual_seed(run.seed)  # an estimator's own first weights come from the global state
    estimator = build_estimator(
        run.estimator, run.model.d_model, training.target_rate, training.seq_len
    )
    return UNet(run.model, estimator, run.seed).float().eval()


def load_trained(folder: Path, config: Path | None = None) -> Subject:
    """Load a finished run.

    Args:
        folder: the run folder, with final.pt and training.json.
        config: the run's resolved YAML, if its evaluation section is to be used instead of the
            one that training was started with (evaluation isn't part of a run's identity).

    Raises:
        UserError: a file is missing or damaged, or `config` is another run.
    """
    final, summary = folder / "final.pt", folder / "training.json"
    for path in (final, summary):
        if not path.is_file():
            raise UserError(f"{path}: no such file; the run isn't finished (rltok train)")
    try:
        # from memory: torch gives a cut file and a file that can't be read the same error
        file = io.BytesIO(final.read_bytes())
        saved = torch.load(file, map_location="cpu", weights_only=True)
        weights, values, data_hash = saved["model"], saved["config"], saved["data_hash"]
    except (*DAMAGE, KeyError, TypeError) as error:
        raise UserError(f"{final}: damaged or not a final model: {error}") from None
    try:
        training = json.loads(summary.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{summary}: not JSON: {error}") from None
    run = parse(RunConfig, values, f"{final}: config")
    if config is not None:
        asked = read_run(config)
        if asked.hash != run.hash:
            raise UserError(
                f"{config}: describes run {asked.id}, but {final} holds {run.id}; "
                "they must be the same run"
            )
        run = asked
    model = _network(run)
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise UserError(f"{final}: doesn't fit its own configuration: {error}") from None
    return Subject(run, model, run.id, run.estimator.label, data_hash, training)


def load_oracle(name: str, config: Path) -> Subject:
    """A stand-in for the model of a resolved run.

    "uniform": the run's untrained network with both heads set to zero, so that the 256 bytes have
    equal logits and every text scores 8 bits per byte, through all the code a real model takes
    (promise 7).

    Raises:
        UserError: unknown name, or a faulty config.
    """
    if name not in ORACLES:
        raise UserError(f"--oracle {name!r}: one of {', '.join(ORACLES)}")
    run = read_run(config)
    model = _network(run)
    nn.init.zeros_(model.head.weight)
    nn.init.zeros_(model.early_head.weight)
    label = f"{name}_oracle"
    return Subject(run, model, f"{label}-{run.id}", label, None, {})
