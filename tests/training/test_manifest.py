"""Provenance: what code, where, on what."""

import json
import subprocess

import torch

from rltok_core import __version__
from rltok_core.training import manifest


def git(folder, *arguments):
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_code_version_in_a_checkout_clean_and_dirty(tmp_path):
    package = tmp_path / "package"
    package.mkdir()
    (package / "a.py").write_text("a = 1\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    head = git(tmp_path, "rev-parse", "HEAD")
    clean = {"version": __version__, "commit": head, "dirty": False}
    assert manifest.code_version(package) == clean
    (tmp_path / "figure.pdf").write_text("outside of the package")
    assert manifest.code_version(package) == clean
    (package / "a.py").write_text("a = 2\n")
    assert manifest.code_version(package)["dirty"] is True


def test_code_version_installed_inside_somebody_elses_repository(tmp_path):
    git(tmp_path, "init", "-q")
    package = tmp_path / "venv" / "site-packages" / "package"
    package.mkdir(parents=True)
    assert manifest.code_version(package) == {
        "version": __version__,
        "commit": None,
        "dirty": None,
    }


def test_provenance_is_strict_json_and_names_the_parts(bench):
    run = bench.run()
    found = manifest.provenance(run, "data")
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["run_hash"] == run.hash and found["data_hash"] == "data"
    assert found["packages"]["torch"] == torch.__version__
    assert found["device"] == "cpu" and found["device_name"] and found["threads"] == 1
    # the tiny size's window is 4
    assert found["kernels"]["byte_attention"] == "loops (first choice)"
