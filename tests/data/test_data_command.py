"""`rltok data build` and `rltok data inspect`, and the data configurations that we ship."""

from pathlib import Path

import pytest
import yaml

from rltok_core.cli import main
from rltok_core.config.experiment import load_data
from rltok_core.errors import EXIT_USER

CONFIGS = sorted(Path("configs/data").glob("*.yaml"))


@pytest.fixture
def config(tmp_path):
    text = tmp_path / "a.txt"
    text.write_bytes(b"\n".join(b"line number %d, na\xc3\xafve" % n for n in range(40)))
    path = tmp_path / "mine.yaml"
    values = {"name": "mine", "source": {"kind": "files", "paths": [str(text)], "format": "lines"}}
    path.write_text(yaml.safe_dump(values))
    return path


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_shipped_configurations_are_valid(path):
    assert load_data(path.stem).name == path.stem


def test_paper_scale_configurations_are_the_papers():
    fineweb, codeparrot = load_data("fineweb"), load_data("codeparrot")
    assert (fineweb.min_bytes, codeparrot.min_bytes) == (4097, 4096)
    for data in (fineweb, codeparrot):
        split = data.split
        assert (split.scheme, split.test, split.validation) == ("counts", 32768, 256)
        assert data.windows == "first"


def test_build_and_inspect(config, tmp_path, capsys):
    assert main(["data", "build", "--config", str(config), "--out", str(tmp_path / "d")]) == 0
    assert "train 38" in capsys.readouterr().out
    assert main(["data", "inspect", str(tmp_path / "d")]) == 0
    out = capsys.readouterr().out
    for words in ("mine-", "kept 40", "train: 38 documents", "non-ASCII", "line number", "####"):
        assert words in out


def test_inspect_finds_changed_bytes(config, tmp_path, capsys):
    main(["data", "build", "--config", str(config), "--out", str(tmp_path / "d")])
    path = tmp_path / "d" / "train" / "bytes.bin"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    assert main(["data", "inspect", str(tmp_path / "d")]) == EXIT_USER
    assert "train: damaged" in capsys.readouterr().err


def test_faults_exit_with_a_message(config, tmp_path, capsys):
    assert main(["data", "inspect", str(tmp_path / "no")]) == EXIT_USER
    assert "manifest.json: no such file" in capsys.readouterr().err
    values = yaml.safe_load(config.read_text())
    values["source"]["pathes"] = values["source"].pop("paths")
    config.write_text(yaml.safe_dump(values))
    assert main(["data", "build", "--config", str(config), "--out", str(tmp_path / "d")])
    err = capsys.readouterr().err
    assert "mine.yaml" in err and "pathes" in err and "Traceback" not in err


def test_a_resolved_run_is_a_configuration_too(config, tmp_path, capsys):
    run = {
        "experiment": "e",
        "data": yaml.safe_load(config.read_text()),
        "model": {"size": "s", "d_model": 16, "n_heads": 2, "n_down": 1, "n_mid": 1, "n_up": 1},
        "estimator": {"label": "uniform", "class": "m:C"},
        "training": {"steps": 1, "lr": 0.001},
        "seed": 0,
        "runtime": {},
        "evaluation": {},
    }
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(run))
    assert main(["data", "build", "--config", str(path), "--out", str(tmp_path / "d")]) == 0
    assert "train 38" in capsys.readouterr().out
