"""A small byte store, a tiny run and an estimator that can be told to break its own process."""

import json
import os
import sys
import textwrap
import traceback
from pathlib import Path

import numpy as np
import pytest
import yaml

from rltok_core.config.schema import RunConfig

# a score-function policy whose n-th training call in this process (SPY_AT) does what SPY_DO says
SPY = """
import os
import torch
from rltok_core.boundaries.score_function import ScoreFunction


class Spy(ScoreFunction):
    calls = 0

    def propose(self, x_BSD, batch, target_rate):
        if self.training:
            type(self).calls += 1
            if type(self).calls == int(os.environ.get("SPY_AT", 0)):
                if os.environ["SPY_DO"] == "nan":
                    self.policy.weight.register_hook(lambda grad: grad * torch.nan)
                else:
                    os.kill(os.getpid(), int(os.environ["SPY_DO"]))
        return super().propose(x_BSD, batch, target_rate)
"""
SIZES = Path(__file__).parents[2] / "configs" / "sizes.yaml"


class Bench:
    """A data folder and a maker of runs on it."""

    def __init__(self, folder: Path):
        self.folder, self.data = folder, folder / "data"
        (folder / "spy.py").write_text(textwrap.dedent(SPY))
        self._data_hash = self.run().data.hash
        random = np.random.default_rng(0)
        words = [b"the ", b"cat ", b"sat\n", b"on ", b"every ", b"mat. "]
        for split, count in (("train", 12), ("validation", 3)):
            documents = [
                b"".join(words[i] for i in random.integers(0, len(words), size=size))
                for size in random.integers(5, 40, size=count)
            ]
            path = self.data / split
            path.mkdir(parents=True)
            (path / "bytes.bin").write_bytes(b"".join(documents))
            np.save(path / "offsets.npy", np.cumsum([0, *map(len, documents)], dtype=np.int64))
            (path / "names.json").write_text(json.dumps([f"{split}-{i}" for i in range(count)]))
        manifest = {"hash": self._data_hash, "content_hash": "c0ffee" * 8}
        (self.data / "manifest.json").write_text(json.dumps(manifest))

    def run(self, runtime=None, estimator=None, seed=0, model=None, **training) -> RunConfig:
        """The tiny size, 12 steps, a line every step and a checkpoint every 2."""
        tiny = yaml.safe_load(SIZES.read_text())["tiny"]
        spy = {"label": "spy", "class": f"{self.folder / 'spy.py'}:Spy"}
        spy["params"] = {
            "window": 2,
            "gamma": 0.9,
            "early_exit_reward": True,
            "batch_relative": True,
            "lam_pi": 0.01,
            "lam_target": 0.05,
            "softcap": 6.0,
            "logit_scale": 1.0,
            "softcap_in_evaluation": True,
        }
        return RunConfig.model_validate(
            {
                "experiment": "test",
                "data": {"name": "words", "source": {"kind": "packaged_prose"}},
                "model": {"size": "tiny", **tiny["model"], **(model or {})},
                "estimator": estimator or spy,
                "training": {**tiny["training"], "steps": 12, "batch_size": 4, **training},
                "seed": seed,
                "runtime": {"checkpoint_every": 2, "log_every": 1, **(runtime or {})},
            }
        )


@pytest.fixture
def bench(tmp_path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture
def forked():
    """Run a function in a forked process (torch is loaded already): its exit status, negative
    for a signal, and the text of its stderr."""

    def run(function, **environment) -> tuple[int, str]:
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            sys.stderr = os.fdopen(write, "w", buffering=1)  # pytest has put its own there
            os.environ |= environment
            code = 1
            try:
                code = function()
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        os.close(write)
        with os.fdopen(read) as pipe:
            text = pipe.read()
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), text

    return run
