"""Several processes of one run: `rltok train --ranks N` calls torchrun's agent, passes on codes.

torchrun by itself turns every exit code of its workers into 1, dies of SIGUSR1 and gives workers
30 seconds to save. So the agent is called from here: each worker leaves its exit code in a folder,
SIGTERM, SIGUSR1 and SIGINT are handed to the workers, and they have GRACE_SECONDS to save.
"""

import ctypes
import logging
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from rltok_core.config.schema import RuntimeConfig
from rltok_core.errors import (
    EXIT_LOCKED,
    EXIT_NOT_FINITE,
    EXIT_RANK_LOST,
    EXIT_REQUEUE,
    EXIT_USER,
    UserError,
)

SIGNALS = "SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1"
PR_SET_PDEATHSIG = 1  # linux/prctl.h
GRACE_SECONDS = 600  # a scheduler's own patience is shorter
CODES = "RLTOK_EXIT_CODES"  # the folder in which workers leave theirs


@dataclass(frozen=True)
class Nodes:
    """The machines of a run: how many, where they meet, and the name of the meeting."""

    count: int = 1
    endpoint: str = "localhost:0"
    name: str = "one"


def is_worker(environment: Mapping[str, str]) -> bool:
    """Whether torchrun (or whoever sets its variables) has started this process."""
    return "RANK" in environment and "WORLD_SIZE" in environment


def ranks_wanted(asked: int | None, runtime: RuntimeConfig) -> int:
    """Processes of a run: --ranks, else one a GPU, else one."""
    if asked is not None:
        if asked < 1:
            raise UserError(f"--ranks must be at least 1, got {asked}")
        return asked
    return max(1, runtime.gpus) if runtime.device == "cuda" else 1


def slurm_nodes(environment: Mapping[str, str]) -> Nodes:
    """The nodes of a SLURM step that srun started with one task a node; one node elsewhere.

    They meet on the step's first node, at a port made of the job's and the step's numbers.

    Raises:
        UserError: several tasks a node: ranks are started here, not by srun.
    """
    count = int(environment.get("SLURM_STEP_NUM_NODES", 1))
    if count == 1:
        return Nodes()
    if int(environment["SLURM_STEP_NUM_TASKS"]) != count:
        raise UserError(
            f"srun started {environment['SLURM_STEP_NUM_TASKS']} tasks on {count} nodes; "
            "give srun --ntasks-per-node=1: `rltok train` starts the ranks of a node itself"
        )
    listed = ["scontrol", "show", "hostnames", environment["SLURM_STEP_NODELIST"]]
    found = subprocess.run(listed, capture_output=True, text=True, check=True).stdout.split()
    job, step = (int(environment[name]) for name in ("SLURM_JOB_ID", "SLURM_STEP_ID"))
    port = 20_000 + (101 * job + step) % 20_000
    return Nodes(count, f"{found[0]}:{port}", f"{job}.{step}")


def launch(arguments: list[str], ranks: int, nodes: Nodes) -> int:
    """Run `rltok train ARGUMENTS` as `ranks` processes over all nodes, this node's share here.

    Returns:
        The exit code of the run as one process would have it; EXIT_RANK_LOST where a rank died.

    Raises:
        UserError: the ranks can't be shared out evenly over the nodes.
    """
    if ranks % nodes.count:
        raise UserError(f"{ranks} ranks can't be shared out evenly over {nodes.count} nodes")
    for name in ("agent.server.api", "multiprocessing.api"):  # say what is said below
        logging.getLogger(f"torch.distributed.elastic.{name}").setLevel(logging.CRITICAL)
    config = LaunchConfig(
        min_nodes=nodes.count,
        max_nodes=nodes.count,
        nproc_per_node=ranks // nodes.count,
        run_id=nodes.name,
        rdzv_backend="c10d",
        rdzv_endpoint=nodes.endpoint,
        max_restarts=0,
        signals_to_handle=SIGNALS,
        shutdown_timeout=GRACE_SECONDS,
    )
    asked, died = None, ""
    with tempfile.TemporaryDirectory(prefix="rltok-") as folder:
        os.environ[CODES] = folder
        try:
            elastic_launch(config, sys.executable)("-m", "rltok_core", "train", *arguments)
        except SignalException as error:
            asked = error.sigval
        except ChildFailedError as error:
            killed = [(r, f.exitcode) for r, f in error.failures.items() if f.exitcode < 0]
            died = "".join(f"; rank {rank} died of signal {-code}" for rank, code in killed)
        codes = {int(path.read_text()) for path in Path(folder).iterdir()}
    for code in (EXIT_NOT_FINITE, EXIT_LOCKED, EXIT_USER, EXIT_REQUEUE):
        if code in codes:
            return code
    if codes == {0} and not died:
        return 0
    if asked is not None and not codes:
        return EXIT_REQUEUE  # asked to stop before anything had begun
    print(
        f"rltok train: the run ended early{died}; run the same command to go on from its newest "
        "checkpoint",
        file=sys.stderr,
    )
    return EXIT_RANK_LOST


def follow_launcher() -> None:
    """A launcher that is killed can't pass on a signal: Linux then sends its workers SIGTERM."""
    if CODES in os.environ and sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def leave_code(code: int) -> None:
    """A worker's last words to its launcher; nothing where torchrun itself started it."""
    folder = os.environ.get(CODES)
    if folder:
        Path(folder, os.environ["RANK"]).write_text(str(code))
