"""What `make reproduce` asks of Snakemake, and in which order (its whole way: test_reruns.py)."""

import importlib.util
import sys
from pathlib import Path

import pytest
import yaml

from rltok_core.config.experiment import read_experiment

REPO = Path(__file__).resolve().parents[2]


@pytest.fixture
def reproduce(tmp_path, monkeypatch, base):
    """The script in a folder with an experiment of two methods and two seeds; Snakemake is set
    aside: it records what it is asked for."""
    spec = importlib.util.spec_from_file_location("reproduce", REPO / "workflow/reproduce.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setattr(sys, "path", list(sys.path))
    spec.loader.exec_module(module)
    path = tmp_path / "configs/experiments/two.yaml"
    path.parent.mkdir(parents=True)
    for name in ("estimators", "sizes.yaml"):
        (tmp_path / "configs" / name).symlink_to(REPO / "configs" / name)
    path.write_text(yaml.safe_dump({**base, "name": "two", "seeds": [5, 6]}))
    monkeypatch.chdir(tmp_path)
    module.asked, module.reported = [], []
    monkeypatch.setattr(
        module, "run", lambda command, _: module.asked.append(command) or (0, False)
    )
    monkeypatch.setattr(module, "report", lambda path: module.reported.append(path) or 0)
    monkeypatch.setattr(module, "gather", lambda *_: "page")
    return module


def call(module, monkeypatch, *words) -> list[list[str]]:
    monkeypatch.setattr(sys, "argv", ["reproduce.py", "two", *words])
    module.asked.clear()
    assert module.main() == 0
    return module.asked


def scores(seed: int) -> list[str]:
    experiment, runs = read_experiment(Path("configs/experiments/two.yaml"))
    return [
        f"{experiment.results}/evaluations/{run.id}/evaluation.json"
        for run in runs
        if run.seed == seed
    ]


def test_one_seed_comes_first_with_a_report_of_its_own(reproduce, monkeypatch, capsys):
    first, rest = call(reproduce, monkeypatch)
    assert [word for word in first if word.endswith(".json")] == scores(5) and len(scores(5)) == 2
    assert not any(word.endswith(".json") for word in rest)
    assert len(reproduce.reported) == 1
    assert "one seed of every run is done" in capsys.readouterr().out


@pytest.mark.parametrize("results", ["./results", "results/"])
def test_scores_are_asked_for_as_the_rules_spell_them(results, reproduce, monkeypatch):
    path = Path("configs/experiments/two.yaml")
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | {"results": results}))
    first, _ = call(reproduce, monkeypatch)
    assert [word for word in first if word.endswith(".json")] == scores(5)


def test_all_at_once_where_the_first_seed_is_there_or_something_else_is_asked(
    reproduce, monkeypatch
):
    assert len(call(reproduce, monkeypatch, "-n")) == 1
    for path in map(Path, scores(5)):
        path.parent.mkdir(parents=True)
        path.write_text("{}")
    assert len(call(reproduce, monkeypatch)) == 1
    assert not reproduce.reported
