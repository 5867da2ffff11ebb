"""A small byte store, a tiny run and an estimator that can be told to break its own process."""

import json
import os
import socket
import sys
import textwrap
import traceback
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from rltok_core.config.schema import RunConfig
from rltok_core.errors import UserError
from rltok_core.training.checkpoint import checkpoint_path
from rltok_core.training.loop import train
from rltok_core.training.ranks import OtherRank

# a score-function policy whose n-th training call in this process (SPY_AT) does what SPY_DO says;
# of several ranks only on SPY_RANK
SPY = """
import os
import signal
import time
import torch
from rltok_core.boundaries.score_function import ScoreFunction


class Spy(ScoreFunction):
    calls = 0

    def propose(self, x_BSD, batch, target_rate):
        if self.training:
            type(self).calls += 1
            here = os.environ.get("RANK", "0") == os.environ.get("SPY_RANK", "0")
            if here and type(self).calls == int(os.environ.get("SPY_AT", 0)):
                if os.environ["SPY_DO"] == "nan":
                    self.policy.weight.register_hook(lambda grad: grad * torch.nan)
                elif "SPY_LAUNCHER" in os.environ:  # and wait until it comes back
                    os.kill(os.getppid(), int(os.environ["SPY_DO"]))
                    while signal.getsignal(signal.SIGTERM).__self__.asked is None:
                        time.sleep(0.01)
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

    @staticmethod
    def lines(out: Path, kind: str | None = None) -> list[dict]:
        """The metric lines without their clock."""
        found = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        for line in found:
            assert line.pop("seconds") > 0
        return [line for line in found if kind in (None, line["kind"])]

    @classmethod
    def leaves(cls, values, prefix=""):
        """Every leaf of nested dicts and lists with its path."""
        if isinstance(values, dict | list):
            items = values.items() if isinstance(values, dict) else enumerate(values)
            for key, value in items:
                yield from cls.leaves(value, f"{prefix}/{key}")
        else:
            yield prefix, values

    def assert_same_run(self, one: Path, other: Path, steps: int) -> None:
        """Final weights, optimiser, random state and metrics, bit for bit."""
        for name in ("final.pt", checkpoint_path(Path("checkpoints"), steps)):
            states = [torch.load(out / name, weights_only=True) for out in (one, other)]
            for state in states:
                for clock in ("seconds", "peak_memory_bytes", "resumed_from"):
                    state.get("progress", {}).pop(clock, None)
                state["config"].pop("runtime")
            a, b = (dict(self.leaves(state)) for state in states)
            assert a.keys() == b.keys()
            for key, value in a.items():
                same = torch.equal(value, b[key]) if torch.is_tensor(value) else value == b[key]
                assert same, f"{name}: {key}"
        assert self.lines(one) == self.lines(other)


@pytest.fixture
def bench(tmp_path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture(scope="session")
def make_bench(tmp_path_factory):
    """For files whose tests share one."""
    return lambda: Bench(tmp_path_factory.mktemp("bench"))


@pytest.fixture(scope="session")
def warm(make_bench):
    """Run everything once here, so that forked children find torch and numba's loops loaded."""
    bench = make_bench()
    assert train(bench.run(steps=3), bench.data, bench.folder / "run") == 0


class Child:
    """A forked process (torch is loaded already) that runs `function` and leaves with its code.

    Args:
        function: returns the exit status; a UserError is printed and its code is the status.
        environment: set in the child alone.
    """

    def __init__(self, function, **environment):
        read, write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.dup2(write, 2)  # for the child's own children
            sys.stderr = os.fdopen(write, "w", buffering=1)  # pytest has put its own there
            os.environ |= environment
            code = 1
            try:
                code = function()
            except (UserError, OtherRank) as error:
                if isinstance(error, UserError):
                    print(error, file=sys.stderr)
                code = error.code
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        os.close(write)
        self._pipe = read

    def wait(self) -> tuple[int, str]:
        """Its exit status, negative for a signal, and the text of its stderr."""
        with os.fdopen(self._pipe) as pipe:
            text = pipe.read()
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1]), text


@pytest.fixture(scope="session")
def forked():
    """Run a function in a forked process: its exit status and the text of its stderr."""
    return lambda function, **environment: Child(function, **environment).wait()


def _start_ranks(function, size: int, **environment) -> list[Child]:
    """The processes of a run, forked, with torchrun's variables."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    place = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return [
        Child(function, RANK=str(r), LOCAL_RANK=str(r), **place, **environment) for r in range(size)
    ]


@pytest.fixture(scope="session")
def start_ranks():
    """Begin a run's forked processes, to be waited for with wait()."""
    return _start_ranks


@pytest.fixture(scope="session")
def ranked():
    """Run a function in `size` forked ranks: (exit status, stderr) of each, in order."""

    def run(function, size: int = 2, **environment) -> list[tuple[int, str]]:
        return [child.wait() for child in _start_ranks(function, size, **environment)]

    return run
