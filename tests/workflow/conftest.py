"""The real snakemake, on the real Snakefile, in a folder of the test's own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

REPO = Path(__file__).resolve().parents[2]


class Workflow:
    """Runs snakemake in `folder` on the experiment in folder/e.yaml; `home` is the checkout."""

    def __init__(self, folder: Path, experiment: dict, home: Path = REPO):
        self.folder, self.home = folder, home
        self.write(experiment)

    def write(self, experiment: dict) -> None:
        self.experiment = experiment
        path = self.folder / "e.yaml"
        path.write_text(yaml.safe_dump(experiment), encoding="utf-8")

    def __call__(self, *options: str, configfile: bool = True) -> subprocess.CompletedProcess:
        command = [sys.executable, "-m", "snakemake", "-s", str(self.home / "Snakefile")]
        command += ["--configfile", "e.yaml"] * configfile
        environment = {**os.environ, "PYTHONPATH": str(self.home)}
        return subprocess.run(
            [*command, *options],
            cwd=self.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    def plan(self, *options: str, configfile: bool = True) -> dict[str, set[str]]:
        """rule: its wildcards, of every job that a dry run wants to do."""
        done = self("-n", *options, configfile=configfile)
        assert done.returncode == 0, done.stdout + done.stderr
        jobs: dict[str, set[str]] = {}
        for block in re.split(r"\n(?=\[)|\n\n", done.stdout + done.stderr):
            if found := re.search(r"^(?:local)?rule (\w+):", block, re.MULTILINE):
                wildcards = re.search(r"wildcards: (.*)", block)
                jobs.setdefault(found[1], set()).add(wildcards[1] if wildcards else "")
        return jobs


@pytest.fixture(scope="session")
def base() -> dict:
    """Two methods, one seed, on a few kilobytes of the planted language."""
    values = yaml.safe_load((REPO / "tests/scenarios/two_methods.yaml").read_text())
    values["matrix"][0]["data"] = str(REPO / values["matrix"][0]["data"])
    return {**values, "seeds": [0]}


@pytest.fixture(scope="session")
def in_folder() -> type[Workflow]:
    return Workflow


@pytest.fixture
def workflow(tmp_path, base) -> Workflow:
    return Workflow(tmp_path, base)
