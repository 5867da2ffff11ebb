"""A folder of a test's own, in which the real snakemake works with the real SLURM."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import yaml
from slurm_cluster import Cluster

from rltok_core.config.experiment import read_experiment, write_run

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


def submitted(cluster: Cluster, folder: Path) -> list[dict[str, str]]:
    """SLURM's own account of the jobs that were submitted in a folder."""
    fields = "JobID,Comment,State,ExitCode,ReqTRES,AllocTRES,Partition,Account,WorkDir,SubmitLine"
    text = cluster("sacct", "-X", "-n", "-P", "--delimiter=\t", f"--format={fields}")
    rows = [dict(zip(fields.split(","), row.split("\t"), strict=True)) for row in text.split("\n")]
    return [row for row in rows if row["WorkDir"] == str(folder)]


class Folder:
    """A folder with one run in its experiment, where snakemake trains that on SLURM."""

    def __init__(self, path: Path, cluster: Cluster, experiment: dict, data: Path):
        path.mkdir()
        self.path, self.cluster = path, cluster
        (path / "slurm").symlink_to(REPO / "slurm")
        (path / "e.yaml").write_text(yaml.safe_dump(experiment), encoding="utf-8")
        shutil.copytree(data, path / "results/data")
        (self.config,) = read_experiment(path / "e.yaml", REPO / "configs")[1]
        self.run = path / "results/runs" / self.config.id

    def start(self, *options: str) -> subprocess.Popen:
        """snakemake in the background, for the training alone; its words go to `words`."""
        self.words = self.path / f"snakemake.{len(list(self.path.glob('snakemake.*')))}"
        command = ["setpriv", "--pdeathsig", "KILL"]  # it would outlive a test run that is killed
        command += [sys.executable, "-m", "snakemake", "-s", str(REPO / "Snakefile")]
        command += ["--cores", "all", "--profile", "slurm", *QUICK, "--configfile", "e.yaml"]
        goal = str((self.run / "final.pt").relative_to(self.path))
        with open(self.words, "w", encoding="utf-8") as file:
            return subprocess.Popen(
                [*command, *options, "--", goal],
                cwd=self.path,
                env={**os.environ, "PYTHONPATH": str(REPO)},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                # a shell ignores SIGINT in what it starts in the background: not in a test of it
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )

    def command(self, *options: str) -> list[str]:
        """The training's own command, to be run without Snakemake in the checkout."""
        write_run(self.config, self.path / "run.yaml")
        data = self.path / "results/data" / self.config.data.id
        command = [sys.executable, "-m", "rltok_core", "train", "--config", f"{self.path}/run.yaml"]
        return [*command, "--data", str(data), "--out", str(self.run), *options]

    def finish(self, process: subprocess.Popen, code: int | None = 0) -> str:
        """Wait for the end; returns what it said."""
        try:
            process.wait(PATIENCE_SECONDS)
        finally:
            process.kill()
        words = self.words.read_text(encoding="utf-8")
        assert code is None or process.returncode == code, words
        return words

    def steps(self) -> list[int]:
        """Steps in the metrics, in the file's order."""
        file = self.run / "metrics.jsonl"
        text = file.read_text(encoding="utf-8") if file.is_file() else ""
        whole = text.split("\n")[:-1]
        return [one["step"] for one in map(json.loads, whole) if one["kind"] == "train"]

    def reached(self, step: int) -> None:
        wait_for(lambda: (self.steps() or [0])[-1] >= step, f"step {step} of {self.run}")

    def jobs(self) -> list[str]:
        """SLURM's ids of the training's jobs, oldest first, as the plug-in's messages name them."""
        words = "".join(
            file.read_text(encoding="utf-8") for file in sorted(self.path.glob("snakemake.*"))
        )
        return re.findall(r"SLURM jobid (\d+) \(log: \S*rule_train", words)

    def hurry(self) -> None:
        """From here on the training's steps take no longer than they must."""
        (self.path / "hurry").touch()

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
