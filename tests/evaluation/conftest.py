"""A data folder, a run and a finished run folder, written by hand in their documented formats."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from rltok_core.boundaries.registry import build_estimator
from rltok_core.config.schema import RunConfig
from rltok_core.model.unet import UNet

FLOOR = 0.25


@pytest.fixture
def make_run():
    """make_run(estimator=("module:Class", params), ...) -> RunConfig of a tiny network."""

    def make(
        cls="rltok_core.boundaries.uniform:Uniform",
        params=None,
        seq_len=32,
        windows="all",
        model=None,
        target_rate=0.2,
        seed=0,
        **evaluation,
    ) -> RunConfig:
        network = {"size": "tiny", "d_model": 8, "n_heads": 2, "window": 4}
        network |= {"n_down": 1, "n_mid": 1, "n_up": 1}
        return RunConfig.model_validate(
            {
                "experiment": "test",
                "data": {
                    "name": "hand",
                    "source": {"kind": "files", "paths": ["hand.txt"], "format": "lines"},
                    "windows": windows,
                },
                "model": network | (model or {}),
                "estimator": {"label": "method", "class": cls, "params": params or {}},
                "training": {
                    "seq_len": seq_len,
                    "steps": 1,
                    "lr": 1e-3,
                    "precision": "float32",
                    "target_rate": target_rate,
                },
                "seed": seed,
                "evaluation": {"heatmap_documents": [0, 1], **evaluation},
            }
        )

    return make


@pytest.fixture
def write_data(tmp_path):
    """write_data(run, documents, truth) -> data folder whose test split is these documents."""

    def write(run: RunConfig, documents: list[bytes], truth: list[list[int]] | None = None) -> Path:
        folder = tmp_path / "data"
        (folder / "test").mkdir(parents=True, exist_ok=True)
        whole = b"".join(documents)
        (folder / "test" / "bytes.bin").write_bytes(whole)
        offsets = np.cumsum([0, *map(len, documents)], dtype=np.int64)
        np.save(folder / "test" / "offsets.npy", offsets)
        names = [f"d{i}" for i in range(len(documents))]
        (folder / "test" / "names.json").write_text(json.dumps(names))
        if truth is not None:
            flags = np.concatenate([np.array(t, np.uint8) for t in truth])
            np.save(folder / "test" / "truth.npy", flags)
        manifest = {
            "name": "hand",
            "hash": run.data.hash,
            "content_hash": hashlib.sha256(whole + offsets.tobytes()).hexdigest(),
            "splits": {
                "test": {
                    "documents": len(documents),
                    "bytes": len(whole),
                    "sha256": hashlib.sha256(whole).hexdigest(),
                }
            },
            "planted": None
            if truth is None
            else {"entropy_bits_per_byte": FLOOR, "true_model_bits_per_byte": {"test": 0.5}},
        }
        (folder / "manifest.json").write_text(json.dumps(manifest))
        return folder

    return write


@pytest.fixture
def write_config(tmp_path):
    """write_config(run) -> path of its resolved YAML."""

    def write(run: RunConfig, name: str = "run.yaml") -> Path:
        (tmp_path / name).write_text(yaml.safe_dump(run.model_dump(mode="json")))
        return tmp_path / name

    return write


@pytest.fixture
def network():
    """network(run) -> its UNet in evaluation mode, with weights that make boundaries matter."""

    def build(run: RunConfig) -> UNet:
        training = run.training
        estimator = build_estimator(
            run.estimator, run.model.d_model, training.target_rate, training.seq_len
        )
        return UNet(run.model, estimator, run.seed).eval()

    return build


@pytest.fixture
def finish_run(tmp_path, network):
    """finish_run(run, data, model) -> run folder with the final.pt and training.json of `model`."""

    def write(run: RunConfig, data: Path, model: UNet | None = None) -> Path:
        folder = tmp_path / "runs" / run.id
        folder.mkdir(parents=True, exist_ok=True)
        data_hash = json.loads((data / "manifest.json").read_text())["content_hash"]
        weights = (model or network(run)).state_dict()
        saved = {"model": weights, "config": run.model_dump(mode="json"), "step": 1}
        torch.save(saved | {"run_hash": run.hash, "data_hash": data_hash}, folder / "final.pt")
        training = {
            "status": "complete",
            "seconds": 2.0,
            "bytes_per_second": 10.0,
            "peak_memory_bytes": 1000,
            "flops_paper": 5.0,
            "flops_counted": 4.0,
        }
        (folder / "training.json").write_text(json.dumps(training))
        return folder

    return write
