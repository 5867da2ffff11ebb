"""A folder of a test's own, in which the real snakemake works with the real SLURM."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import yaml
from slurm_cluster import Cluster

from rltok_core.config.experiment import read_experiment

REPO = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 900  # nothing here depends on how fast the machine is
# the profile's own is 20: a status is asked for ever more rarely while nothing ends
QUICK = ("--slurm-init-seconds-before-status-checks", "2", "--slurm-keep-successful-logs")


def wait_for(condition: Callable, what: str):
    end = time.monotonic() + PATIENCE_SECONDS
    while not (found := condition()):
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.2)
    return found


class Folder:
    """A folder with an experiment, where snakemake runs as a user's would."""

    def __init__(self, path: Path, cluster: Cluster, experiment: dict, data: Path | None = None):
        path.mkdir()
        self.path, self.cluster, self.experiment = path, cluster, experiment
        (path / "slurm").symlink_to(REPO / "slurm")
        (path / "e.yaml").write_text(yaml.safe_dump(experiment), encoding="utf-8")
        if data:
            shutil.copytree(data, path / "results/data")
        self.runs = read_experiment(path / "e.yaml", REPO / "configs")[1]

    @property
    def run(self) -> Path:
        """The folder of the first run."""
        return self.path / "results/runs" / self.runs[0].id

    def weights(self, run) -> dict[str, torch.Tensor]:
        file = self.path / "results/runs" / run.id / "final.pt"
        return torch.load(file, weights_only=True)["model"]

    def start(self, *options: str, profile: bool = True) -> subprocess.Popen:
        """snakemake in the background; its words go to `words`."""
        self.words = self.path / f"snakemake.{len(list(self.path.glob('snakemake.*')))}"
        command = [sys.executable, "-m", "snakemake", "-s", str(REPO / "Snakefile")]
        command += ["--cores", "all", "--configfile", "e.yaml"]
        command += ["--profile", "slurm", *QUICK] if profile else []
        with open(self.words, "w", encoding="utf-8") as file:
            return subprocess.Popen(
                [*command, *options],
                cwd=self.path,
                env={**os.environ, "PYTHONPATH": str(REPO)},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )

    def finish(self, process: subprocess.Popen, code: int | None = 0) -> str:
        """Wait for the end; returns what it said."""
        try:
            process.wait(PATIENCE_SECONDS)
        finally:
            process.kill()
        words = self.words.read_text(encoding="utf-8")
        assert code is None or process.returncode == code, words
        return words

    def train_only(self) -> list[str]:
        """The goal that leaves evaluation and report out."""
        return ["--", str((self.run / "final.pt").relative_to(self.path))]

    def steps(self) -> list[int]:
        """Steps in the metrics, in the file's order."""
        file = self.run / "metrics.jsonl"
        lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
        return [one["step"] for one in map(json.loads, lines) if one["kind"] == "train"]

    def reached(self, step: int) -> None:
        wait_for(lambda: (self.steps() or [0])[-1] >= step, f"step {step} of {self.run}")

    def jobs(self) -> list[str]:
        """SLURM's ids of the training's jobs, oldest first, as the plug-in's messages name them."""
        words = "".join(
            file.read_text(encoding="utf-8") for file in sorted(self.path.glob("snakemake.*"))
        )
        return re.findall(r"SLURM jobid (\d+) \(log: \S*rule_train", words)

    def summary(self) -> dict:
        return json.loads((self.run / "training.json").read_text(encoding="utf-8"))

    def log(self) -> str:
        """The last attempt's own log of the training."""
        name = f"results/logs/train/{self.run.name}.log"
        return (self.path / name).read_text(encoding="utf-8")

    def check_whole(self, weights: dict[str, torch.Tensor]) -> None:
        """The training is complete, has each step once, and ended at these weights."""
        summary = self.summary()
        assert summary["status"] == "complete"
        assert self.steps() == list(range(1, summary["steps"] + 1))
        assert_equal_weights(self.run / "final.pt", weights)


def assert_equal_weights(file: Path, weights: dict[str, torch.Tensor]) -> None:
    found = torch.load(file, weights_only=True)["model"]
    assert found.keys() == weights.keys()
    assert all(torch.equal(found[name], weights[name]) for name in weights)
