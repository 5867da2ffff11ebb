"""The gate of a change that must change nothing: fifty float32 steps on the CPU of every method.

Prints, for each run of configs/experiments/smoke.yaml on planted text, its name, the sum of its
training losses and a hash of every training line and final weight. Run it in two checkouts and
compare:

    python tests/reference/fifty_steps.py [CHECKOUT] > before.txt
"""

import hashlib
import json
import sys
import tempfile
from pathlib import Path

CHECKOUT = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[2]).resolve()
sys.path.insert(0, str(CHECKOUT))

import torch  # noqa: E402

from rltok_core.cli import main  # noqa: E402
from rltok_core.config.experiment import read_experiment, write_run  # noqa: E402

VOLATILE = ("seconds", "bytes_per_second")


def call(*arguments: object) -> None:
    if main([str(argument) for argument in arguments]):
        raise SystemExit(f"failed: {arguments}")


def fingerprint(folder: Path) -> tuple[float, str]:
    """(sum of the logged losses, sha256 of the training lines and the weights)."""
    digest, total = hashlib.sha256(), 0.0
    for text in (folder / "metrics.jsonl").read_text().splitlines():
        line = {k: v for k, v in json.loads(text).items() if k not in VOLATILE}
        digest.update(json.dumps(line, sort_keys=True).encode())
        total += line.get("loss", 0.0)
    for name, weight in torch.load(folder / "final.pt")["model"].items():
        digest.update(name.encode() + weight.numpy().tobytes())
    return total, digest.hexdigest()


def run_all(scratch: Path) -> None:
    _, runs = read_experiment(CHECKOUT / "configs/experiments/smoke.yaml")
    runs = [run for run in runs if run.data.name.startswith("planted")]
    call("data", "build", "--config", CHECKOUT / "configs/data/planted_tiny.yaml",
         "--out", scratch / "data")  # fmt: skip
    for run in runs:
        training = run.training.model_copy(update={"steps": 50})
        runtime = run.runtime.model_copy(update={"log_every": 1, "checkpoint_every": 50})
        run = run.model_copy(update={"training": training, "runtime": runtime})
        config, out = scratch / f"{run.estimator.label}.yaml", scratch / run.estimator.label
        write_run(run, config)
        given = ["--config", config, "--data", scratch / "data"]
        if run.estimator.rules:
            call("prepare", *given, "--out", scratch / f"{out.name}.prepared")
            given += ["--prepared", scratch / f"{out.name}.prepared"]
        call("train", *given, "--out", out)
        loss, digest = fingerprint(out)
        print(f"{run.estimator.label:20s} {loss:.17g} {digest[:16]}", flush=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        run_all(Path(folder))
