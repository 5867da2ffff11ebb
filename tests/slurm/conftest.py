"""A SLURM, and folders with experiments in which Snakemake uses it."""

import functools
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import yaml
from slurm_cluster import Cluster
from slurm_folder import Folder

from rltok_core.config.experiment import load_data
from rltok_core.data.build import build
from rltok_core.training.loop import train

REPO = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def cluster():
    """Not to be had: an error, never a skip."""
    with Cluster() as up:
        yield up


@pytest.fixture(scope="session")
def base() -> dict:
    """The settings of the smallest experiment, less its matrix."""
    values = yaml.safe_load((REPO / "tests/scenarios/two_methods.yaml").read_text())
    del values["matrix"]
    return {**values, "seeds": [0], "plugins": [str(REPO / "tests/slurm/plugins")]}


@pytest.fixture(scope="session")
def words() -> str:
    return str(REPO / "tests/scenarios/data/words.yaml")


@pytest.fixture(scope="session")
def data(tmp_path_factory, words) -> Path:
    """A folder of data folders, with the one that the experiments need."""
    config = load_data(words)
    folder = tmp_path_factory.mktemp("data")
    build(config, folder / config.id)
    return folder


@pytest.fixture(scope="session")
def slow_folder(tmp_path_factory, cluster, base, words, data) -> Callable[..., Folder]:
    """A folder with one slow training in it, whose data are there."""
    home = tmp_path_factory.mktemp("slow")

    def make(name: str, steps: int, runtime: dict | None = None, **params) -> Folder:
        entry = {"name": "slow", "params": params}
        experiment = {
            **base,
            # nothing is saved but what a signal has saved
            "runtime": {"checkpoint_every": 10_000, "log_every": 1, **(runtime or {})},
            "training": {"steps": steps},
            "matrix": [{"data": words, "size": "tiny", "estimators": [entry]}],
        }
        return Folder(home / name, cluster, experiment, data)

    return make


@pytest.fixture(scope="session")
def long_training(slow_folder):
    """Started first, looked at last: too long for two allocations of a minute (and a half)."""
    folder = slow_folder("long", steps=60, seconds=3.0)
    process = folder.start("--retries", "20", "--set-resources", "train:runtime=1")
    yield folder, process
    process.kill()


@pytest.fixture(scope="session")
def undisturbed(slow_folder) -> Callable[[int], dict[str, torch.Tensor]]:
    """The weights after so many steps in one go, without SLURM, Snakemake or a pause."""

    @functools.cache
    def weights(steps: int) -> dict[str, torch.Tensor]:
        folder = slow_folder(f"undisturbed_{steps}", steps)
        run = folder.config
        assert train(run, folder.path / "results/data" / run.data.id, folder.run) == 0
        return torch.load(folder.run / "final.pt", weights_only=True)["model"]

    return weights
