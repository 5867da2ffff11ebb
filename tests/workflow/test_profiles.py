"""The profiles and the container recipe, as far as they can be tried without what they are for."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

REPO = Path(__file__).resolve().parents[2]
RECIPE = REPO / "container/rltok.def"


@pytest.fixture
def on_a_gpu(workflow, base):
    workflow.write({**base, "runtime": {**base["runtime"], "device": "cuda", "gpus": 1}})
    return workflow


def test_a_gpu_is_missed_before_anything_starts(on_a_gpu, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # whatever this machine has
    done = on_a_gpu("--cores", "1")
    message = done.stdout + done.stderr
    assert done.returncode != 0 and "Traceback" not in message
    assert "ask for a GPU" in message and "--profile slurm" in message
    assert not (on_a_gpu.folder / "results/data").exists()
    assert on_a_gpu.plan()  # that much may be asked anywhere


def test_the_gpu_profile_gives_one_job_the_gpu(on_a_gpu):
    profile = str(REPO / "workflow/profiles/gpu")
    done = on_a_gpu("-n", "--profile", profile)
    assert done.returncode == 0, done.stdout + done.stderr
    values = yaml.safe_load((REPO / "workflow/profiles/gpu/config.yaml").read_text())
    assert values == {"cores": "all", "resources": {"gpu": 1}}


def sections() -> dict[str, str]:
    """The recipe's sections: the body of each."""
    parts = re.split(r"^%(\w+)\n", RECIPE.read_text("utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_the_recipe_copies_what_there_is_and_installs_the_pins():
    *files, _ = sections()["files"].split()
    assert all((REPO / file).exists() for file in files)
    assert {"pyproject.toml", "constraints.txt", "requirements-corpora.txt"} <= set(files)
    assert "-c constraints.txt" in sections()["post"]
    assert "--require-hashes -r requirements-corpora.txt" in sections()["post"]


@pytest.mark.parametrize("name", ["post", "test", "runscript"])
def test_the_recipe_is_a_shell_script_by_section(name):
    done = subprocess.run(["sh", "-n"], input=sections()[name], text=True, check=False)
    assert done.returncode == 0


def test_steps_run_in_the_image_with_the_checkouts_code(workflow, tmp_path, monkeypatch):
    """With a stand-in for apptainer, which only says what it was asked to run, and runs that."""
    stand_in = tmp_path / "bin/apptainer"
    stand_in.parent.mkdir()
    stand_in.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] && echo apptainer version 1.4.0 && exit\n'
        f'printf "%s\\n" "$@" >> {tmp_path}/asked\nwhile [ "$1" != bash ]; do shift; done\n'
        'exec "$@"\n'
    )
    stand_in.chmod(0o755)
    home = tmp_path / "checkout"
    for name in ("workflow", "configs", "rltok_core", "container"):
        shutil.copytree(REPO / name, home / name)
    for name in ("Snakefile", "profiles"):
        shutil.copy(REPO / name, home / name, follow_symlinks=False)
    (home / "container/rltok.sif").touch()
    inside = Path(sys.executable).parent  # of the image, so to speak
    monkeypatch.setenv("PATH", f"{stand_in.parent}:{inside}:/usr/bin:/bin")
    workflow.home = home
    ask = ("--software-deployment-method", "apptainer", "--apptainer-args=--nv")
    done = workflow("--cores", "1", "--until", "build_data", *ask)
    assert done.returncode == 0, done.stdout + done.stderr
    asked = (tmp_path / "asked").read_text()
    assert "--nv" in asked and str(home / "container/rltok.sif") in asked
    assert f"PYTHONPATH={home}" in asked
    assert "export PATH" not in asked  # the image's own Python
