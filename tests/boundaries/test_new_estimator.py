"""`rltok new-estimator`: what it writes passes the shared suite, and nothing is overwritten."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rltok_core.boundaries.registry import build_estimator
from rltok_core.cli import main
from rltok_core.config.experiment import load_estimator
from rltok_core.config.schema import EstimatorEntry
from rltok_core.errors import UserError

REPO = Path(__file__).parents[2]
SUITE = "tests/boundaries/test_every_estimator.py"
CAUSALITY = "test_promise_6_causality_by_perturbing_later_bytes"


def suite(folder: Path, name: str) -> dict[str, str]:
    """The shared suite on a plugin, in a process of its own: the outcome of every test."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rA"]
        + ["--tb=no", SUITE, "-k", f"[{name}]"],
        cwd=REPO,
        env={**os.environ, "RLTOK_PLUGINS": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.findall(r"^(PASSED|FAILED|ERROR) \S+::(\w+)\[", done.stdout, re.MULTILINE)
    assert found, done.stdout + done.stderr
    return {test: outcome for outcome, test in found}


def test_the_skeleton_passes_the_shared_suite_as_a_plugin(tmp_path):
    assert main(["new-estimator", "first_try", "--folder", str(tmp_path / "mine")]) == 0
    outcomes = suite(tmp_path / "mine", "first_try")
    assert set(outcomes.values()) == {"PASSED"}
    assert len(outcomes) >= 10 and CAUSALITY in outcomes


def test_the_suite_catches_a_plugin_that_looks_ahead(tmp_path):
    assert main(["new-estimator", "ahead", "--folder", str(tmp_path)]) == 0
    code = tmp_path / "ahead.py"
    text = code.read_text("utf-8")
    code.write_text(text.replace("self.policy(wide_BSD)", "self.policy(wide_BSD.roll(-1, 1))"))
    assert code.read_text("utf-8") != text
    assert suite(tmp_path, "ahead")[CAUSALITY] == "FAILED"


def test_in_a_checkout_the_files_go_where_the_others_are(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["new-estimator", "mine"]) == 2
    assert "run it in a checkout, or give --folder" in capsys.readouterr().err
    for folder in ("rltok_core/boundaries", "configs/estimators"):
        Path(folder).mkdir(parents=True)
    assert main(["new-estimator", "mine"]) == 0
    assert Path("rltok_core/boundaries/mine.py").is_file()
    assert (
        "class: rltok_core.boundaries.mine:Mine" in Path("configs/estimators/mine.yaml").read_text()
    )


@pytest.mark.parametrize("name", ["Mine", "2nd", "a-b", "../up", "", "a b", "lambda", "mine\n"])
def test_names_that_cannot_be_are_refused(name, tmp_path, capsys):
    assert main(["new-estimator", name, "--folder", str(tmp_path)]) == 2
    assert "can't be a name" in capsys.readouterr().err and not list(tmp_path.iterdir())


@pytest.mark.parametrize("there", ["mine.py", "mine.yaml"])
def test_nothing_is_overwritten(there, tmp_path, capsys):
    (tmp_path / there).write_text("my own work")
    assert main(["new-estimator", "mine", "--folder", str(tmp_path)]) == 2
    assert there in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == [there]
    assert (tmp_path / there).read_text() == "my own work"


def test_a_shipped_estimators_name_is_taken(tmp_path, capsys):
    assert main(["new-estimator", "hnet", "--folder", str(tmp_path)]) == 2
    assert "'hnet' is there already" in capsys.readouterr().err


def test_parameters_are_checked(tmp_path):
    main(["new-estimator", "mine", "--folder", str(tmp_path)])
    entry = EstimatorEntry(name="mine", params={"weight": -1})
    config = load_estimator(entry, REPO / "configs", [str(tmp_path)])
    with pytest.raises(UserError, match="weight must not be negative"):
        build_estimator(config, 16, 0.2, 64)
