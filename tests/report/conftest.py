"""Small made-up results in the interface's format, for the tests of the report alone.

Nothing here was trained: the numbers are drawn from formulas so that tables and figures have
something to show. `lab` builds an experiment's YAML, its configs and its results in tmp_path.
"""

import csv
import json
import math
from pathlib import Path

import numpy as np
import pytest
import yaml

from rltok_core.config.experiment import read_experiment

# label: (BPB on prose, boundary rate, whitespace share)
PLAUSIBLE = {
    "uniform": (1.980, 0.199, 0.36),
    "stride": (1.975, 0.200, 0.36),
    "whitespace": (1.936, 0.168, 1.0),
    "bpe": (1.942, 0.210, 1.0),
    "bpe_causal": (1.955, 0.205, 0.9),
    "score_function": (1.958, 0.204, 0.25),
    "score_function_w1": (1.950, 0.203, 0.13),
    "hnet": (1.898, 0.240, 0.8),
    "pooling": (1.990, 0.198, 0.5),
    "no_mid": (2.050, 0.199, 0.36),
}
LEARNED = {"score_function", "score_function_w1", "hnet", "pooling"}
TEXT = (
    "It was a dark\tnight; the caf\u00e9 <b>stood</b> & waited.\nNobody came, nobody left, and the "
    "rain went on as if it had been told to. \u2018Quite so,\u2019 she said.\n"
)
CODE = "def fit(self, x, y=None):\n    return self.model.fit(x & mask, y) if x < 3 else None\n" * 2
PLANTED = "".join(
    f"{'abcdefgh'[i * 5 % 8]}{'ijk'[i % 3]}{'lmn'[i * 2 % 3]}" + "qrstuv"[i % 6] * (1 + i * 7 % 13)
    for i in range(24)
)


MANIFEST = {
    "code": {"version": "0.1.0", "commit": "abc123", "dirty": False},
    "packages": {"torch": "2.13.0", "numpy": "2.4.6"},
    "python": "3.11.2",
    "device": "cpu",
    "device_name": "A processor",
    "threads": 1,
    "host": "bench",
}


class Lab:
    """An experiment with made-up results."""

    def __init__(self, home: Path):
        self.home, self.results = home, home / "results"
        self.file = home / "configs" / "experiments" / "trial.yaml"
        self.sources = {
            "prose": {"kind": "packaged_prose"},
            "code": {"kind": "packaged_code", "distributions": {"numpy": "2.0.0"}},
            "planted": {"kind": "planted", "documents": 10, "document_bytes": 512},
        }

    def plan(self, matrix: list[dict], **more) -> list:
        """Write the configuration; return the runs."""
        folder = self.home / "configs"
        for name in ("data", "estimators", "experiments"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        for name, source in self.sources.items():
            _yaml(folder / "data" / f"{name}.yaml", {"name": name, "source": source})
        for label in {entry["name"] for block in matrix for entry in block["estimators"]}:
            if not (folder / "estimators" / f"{label}.yaml").is_file():
                self.estimator(label, "x:Y", {"window": 1 if label.endswith("w1") else 8})
        training = {"lr": 1e-3, "batch_size": 4, "seq_len": 65, "steps": 100}
        model = {"d_model": 16, "n_heads": 2, "n_down": 1, "n_mid": 1, "n_up": 1}
        _yaml(folder / "sizes.yaml", {"tiny": {"model": model, "training": training}})
        values = {"name": "trial", "figures": str(self.home / "out"), "matrix": matrix, **more}
        values.setdefault("results", str(self.results))
        _yaml(self.file, values)
        self.runs = read_experiment(self.file)[1]
        return self.runs

    def estimator(self, label: str, cls: str, params: dict) -> None:
        """Write a method's YAML, over the one that `plan` would write."""
        path = self.home / "configs" / "estimators" / f"{label}.yaml"
        _yaml(path, {"class": cls, "params": params})

    def block(self, data: str, labels: list[str], **more) -> dict:
        entries = [
            {"name": n, "training": {"weight_decay": 0.0}} if n == "no_mid" else {"name": n}
            for n in labels
        ]
        return {"data": data, "size": "tiny", "estimators": entries, **more}

    def run(self, data: str, label: str, seed: int):
        return next(
            r for r in self.runs if (r.data.name, r.estimator.label, r.seed) == (data, label, seed)
        )

    def finish(self, run, bpb: float | None = None, **evaluation) -> None:
        """Write all files of a run that was trained and evaluated."""
        self.train(run)
        self.evaluate(run, bpb, **evaluation)

    def train(self, run, **training) -> None:
        folder = self.results / "runs" / run.id
        folder.mkdir(parents=True, exist_ok=True)
        bpb, rate, white = _plausible(run)
        steps, noise = run.training.steps, np.random.Generator(np.random.PCG64(run.seed))
        target_bytes = run.training.batch_size * (run.training.seq_len - 1)
        records = []
        for step in range(5, steps + 1, 5):
            part = step / steps
            common = {
                "step": step,
                "bytes": step * target_bytes,
                "flops": step * target_bytes * (2e5 + 5e5 * rate),
                "bpb": bpb + 2.5 * math.exp(-7 * part) + 0.02 * noise.normal(),
                "bpb_early": bpb + 0.1,
                "boundary_rate": rate,
                "whitespace_share": None
                if run.data.name == "planted"
                else 0.36 + (white - 0.36) * part + 0.02 * noise.normal(),
                "seconds": step * 0.5,
            }
            records.append({"kind": "train", "loss": 1.0, "lr": 1e-3, **common})
            if step % 10 == 0:
                records.append({"kind": "validation", **common})
        text = "".join(json.dumps(record) + "\n" for record in records)
        (folder / "metrics.jsonl").write_text(text)
        _json(folder / "manifest.json", MANIFEST)
        _json(
            folder / "training.json",
            {
                "status": "complete",
                "run_id": run.id,
                "run_hash": run.hash,
                "data_hash": f"data-of-{run.data.name}",
                "label": run.estimator.label,
                "steps": steps,
                "bytes": steps * target_bytes,
                "seconds": 50.0,
                "parameters": {"total": 123456},
                "rate_collapsed": False,
                "manifest": MANIFEST,
            }
            | training,
        )

    def evaluate(self, run, bpb: float | None = None, **evaluation) -> None:
        folder = self.results / "evaluations" / run.id
        folder.mkdir(parents=True, exist_ok=True)
        values = made_up_evaluation(run, bpb) | evaluation
        _json(folder / "evaluation.json", values)
        with (folder / "documents.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["document", "bytes", "bits", "bits_early", "boundaries"])
            noise = np.random.Generator(np.random.PCG64(7)).normal(size=20)
            for i in range(20):
                count = 100 + i
                bits = count * (values["bpb"] + 0.1 * noise[i])
                writer.writerow([i, count, bits, bits, 20])
        _json(folder / "heatmap.json", {"documents": made_up_heatmap(run, values["boundary_rate"])})

    def fail(self, run, reason: str, step: int = 7) -> None:
        folder = self.results / "runs" / run.id
        folder.mkdir(parents=True, exist_ok=True)
        _json(folder / "failed.json", {"status": "failed", "reason": reason, "step": step})


def _plausible(run) -> tuple[float, float, float]:
    bpb, rate, white = PLAUSIBLE.get(run.estimator.label, (1.97, 0.2, 0.4))
    shift = {"prose": 0.0, "code": -0.4, "planted": -1.3}[run.data.name]
    return bpb + shift + 0.01 * math.sin(7 * run.seed + bpb * 50), rate, white


def made_up_evaluation(run, bpb: float | None) -> dict:
    plausible, rate, white = _plausible(run)
    label, planted = run.estimator.label, run.data.name == "planted"
    value = plausible if bpb is None else bpb
    f1 = {"precision": 0.5, "recall": 0.5, "f1": round(0.2 + 0.5 * (label in LEARNED), 2)}
    index = np.linspace(2, 63, 32)
    lengths = {
        str(n): int(1000 * (rate * (1 - rate) ** (n - 1) if label != "stride" else n == 5))
        for n in range(1, 40)
    }
    return {
        "run_id": run.id,
        "run_hash": run.hash,
        "evaluation_hash": run.evaluation_hash,
        "data_hash": f"data-of-{run.data.name}",
        "experiment": run.experiment,
        "data": run.data.name,
        "size": run.model.size,
        "label": label,
        "seed": run.seed,
        "causal": label != "bpe",
        "learned": label in LEARNED,
        "curriculum": run.training.curriculum is not None and label in LEARNED,
        "controller": False,
        "documents": 20,
        "windows": 40,
        "scored_bytes": 2190,
        "bpb": value,
        "bpb_early": value + 0.1,
        "bpb_mean_documents": value + 0.01,
        "bpb_threshold": value + 0.002,
        "bpb_stale": value + 0.03,
        "bpb_zeroed": value + 0.2,
        "mid_usage": 0.2,
        "mid_stale": 0.03,
        "boundary_rate": rate,
        "target_rate": run.training.target_rate,
        "bytes_per_token": 1 / rate,
        "token_lengths": lengths,
        "whitespace_share": None if planted else white,
        "whitespace_chance": None if planted else 1 - (1 - rate) ** 2,
        "segmentation": {
            "word_starts": f1,
            "bpe": None if planted else f1,
            "truth": f1 if planted else None,
            "truth_tolerant": f1 | {"f1": 0.9} if planted else None,
        },
        "floor_bpb": 0.47 if planted else None,
        "true_model_bpb": 0.495 if planted else None,
        "gap_bpb": value - 0.47 if planted else None,
        "positions": {
            "index": index.tolist(),
            "boundary_prob": (rate + 0.02 * np.sin(index + len(label))).tolist(),
            "bpb": (value + 3 * np.exp(-index / 4)).tolist(),
            "count": [100] * 32,
        },
        "rate_flag": False,
        "flops_paper": 1e12,
        "flops_counted": 9e11,
        "train_seconds": 50.0,
        "bytes_per_second": 512.0,
        "peak_memory_bytes": 2**28,
        "manifest": MANIFEST,
        "boundary_tolerance": 1,
        "status": "complete",
    }


def made_up_heatmap(run, rate: float) -> list[dict]:
    text = {"prose": TEXT, "code": CODE, "planted": PLANTED}[run.data.name].encode() + b"\x80\xff!"
    noise = np.random.Generator(np.random.PCG64(len(run.estimator.label)))
    prob = np.clip(noise.beta(0.4, 1.2, len(text)), 0, 1)
    boundary = noise.random(len(text)) < prob
    if run.estimator.label not in LEARNED:
        boundary = noise.random(len(text)) < rate
        prob = boundary.astype(float)
    entry = {
        "bytes": list(text),
        "prob": prob.round(4).tolist(),
        "boundary": boundary.astype(int).tolist(),
        "bits": noise.exponential(2, len(text)).round(3).tolist(),
    }
    return [{"document": number, **entry} for number in (1, 3)]


def _yaml(path: Path, values: dict) -> None:
    path.write_text(yaml.safe_dump(values))


def _json(path: Path, values: dict) -> None:
    path.write_text(json.dumps(values, allow_nan=False))


@pytest.fixture(scope="module")
def shared_lab(tmp_path_factory) -> Lab:
    """One for all of a file's tests, which only read it."""
    return Lab(tmp_path_factory.mktemp("lab"))


@pytest.fixture
def lab(tmp_path) -> Lab:
    return Lab(tmp_path)
