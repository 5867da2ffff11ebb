"""What all the other files share, the matrix (expanded and checked once) and where things lie."""

import os
import re
import shlex
import sys
from functools import cache
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake_interface_executor_plugins.settings import DeploymentMethod

HOME = Path(workflow.basedir)
sys.path.insert(0, str(HOME))

from rltok_core import slurm
from rltok_core.config.experiment import load_experiment, preparations, write_matrix
from rltok_core.config.schema import RunConfig
from rltok_core.config.strict import digest, read_yaml
from rltok_core.data.checksums import Checksums
from rltok_core.data.shards import is_parallel, memo_of, shards_of
from rltok_core.errors import UserError
from rltok_core.plan.devices import device
from rltok_core.plan.estimate import Cost
from rltok_core.plan.summary import headline, plan
from rltok_core.report.products import PRODUCTS


# The resolved files are written before the first job (not in a dry run), by no rule: as some job's
# output they would be deleted and made anew with every new run, and what reads them with them. What
# decides an output is in its rule's parameters, as a hash.
onstart:
    jobs = list(workflow.dag.needrun_jobs())
    require_gpus(jobs)
    require_time_limits(jobs)
    make_way_for(jobs)
    write_matrix(EXPERIMENT, MATRIX, Path(RESULTS) / "configs")


def require_gpus(jobs: list) -> None:
    """Raises WorkflowError where a job asks for a GPU and would run on a machine without one."""
    wanting = [job for job in jobs if job.resources.get("gpu") or job.resources.get("gres")]
    if not (wanting and workflow.local_exec):
        return
    import torch  # takes seconds, so only where there is a question

    if not torch.cuda.is_available():
        raise WorkflowError(
            f"{len(wanting)} jobs ask for a GPU (the first: {wanting[0]}), and this machine has none; "
            "nothing was started. On a cluster: --profile slurm (docs/on-your-cluster.md). "
            "For two CPU cores there is configs/experiments/laptop.yaml"
        )


def require_time_limits(jobs: list) -> None:
    """Raises WorkflowError where a job asks for more time than its partition gives: it would wait for ever."""
    limits = {} if workflow.local_exec else slurm.longest_minutes()
    for job in jobs:
        partition = job.resources.get("slurm_partition", "")
        asked, limit = job.resources.get("runtime", 0), limits.get(partition, float("inf"))
        if not job.is_local and asked > limit:
            raise WorkflowError(
                f"{job.name} asks for {asked} minutes, more than the {limit:.0f} of SLURM's partition "
                f"{partition or '(the default)'}; nothing was started. In the profile (workflow/profiles/slurm): "
                f"set-resources: {job.name}: runtime: {limit:.0f}"
            )


def make_way_for(jobs: list) -> None:
    """End what a killed Snakemake left in SLURM's queue of these same jobs: they save, and go on anew.

    A living Snakemake can't be concerned: it would hold Snakemake's own lock on their outputs.
    """
    comments = {"_".join(["rule", job.name, "wildcards", *job.wildcards]) for job in jobs}
    found = slurm.left_behind(Path.cwd(), comments)
    for job, what in found.items():
        logger.warning(f"SLURM job {job} ({what}) was left behind: asking it to save and end ...")
    if found and (left := slurm.end(list(found))):
        raise WorkflowError(
            f"SLURM jobs {', '.join(left)} don't end; nothing was started. See: squeue --me"
        )


def load_matrix() -> tuple:
    """The experiment and its runs; a fault is one message that names the file and the key."""
    try:
        for path in workflow.configfiles:
            read_yaml(Path(path))  # refuses a key given twice, which Snakemake lets pass
        where = ", ".join(os.path.relpath(path) for path in workflow.configfiles)
        return load_experiment(config, where, HOME / "configs")
    except UserError as error:
        raise WorkflowError(str(error)) from None


EXPERIMENT, MATRIX = load_matrix()
RESULTS, FIGURES = EXPERIMENT.results, EXPERIMENT.figures
RUNS = {run.id: run for run in MATRIX}
DATA = {run.data.id: run.data for run in MATRIX}
PREPARED = preparations(MATRIX)
PREPARATION_RULES = sorted({run.estimator.rules for run in PREPARED.values()})

# with the plan (`-n`) and once more when it is carried out; no job says it again
if workflow.is_main_process and any(run.runtime.device == "cuda" for run in MATRIX):
    logger.info(f"{EXPERIMENT.name}: {headline(plan(EXPERIMENT, MATRIX, device('h100')))}")

# One step is one command of the library, run by the Python that runs Snakemake (or the container's),
# from this checkout, in whatever folder (four braces leave one pair for the shell). RLTOK_SNAKEMAKE
# tells a job that a killed Snakemake left behind (workflow/reproduce.py). Rules say `exec`: SLURM's
# SIGTERM would end a shell at once, and the allocation with it, before the process in it has saved.
CONTAINED = DeploymentMethod.APPTAINER in workflow.deployment_settings.deployment_method
OWN_PYTHON = f"PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH "
shell.prefix(
    f"export {'' if CONTAINED else OWN_PYTHON}"
    f"PYTHONPATH={shlex.quote(str(HOME))}:${{{{PYTHONPATH:-}}}} RLTOK_SNAKEMAKE={os.getpid()}; "
)
if CONTAINED:

    container: f"{HOME}/container/rltok.sif"


wildcard_constraints:
    run="[^/]+",
    data="[^/]+",
    prepared="[^/]+",


# What `rltok report` always writes, by the caption's name and the heading in `snakemake --report`;
# report.html shows these and what else could be drawn.
REPORT_FILES = {
    "table": ("Tables", "main_table.csv"),
    "provenance": ("Tables", "provenance.csv"),
    "page": ("Pages", "report.html"),
    "differences": ("Tables", "paired_differences.csv"),
    "bpb_by_method": ("Figures", "bpb_by_method.png"),
    "flops_bpb": ("Figures", "flops_bpb.png"),
    "position": ("Figures", "position.png"),
    "token_lengths": ("Figures", "token_lengths.png"),
}


@cache
def data_parts(data: str) -> list:
    """The parts that a corpus is read in; a missing file is one message that names it."""
    try:
        return shards_of(DATA[data].source)
    except UserError as error:
        raise WorkflowError(f"{DATA[data].name}: {error}") from None


def data_files(data: str) -> list[str]:
    """The user's own files that a corpus is read from; packaged, planted and hub text has none."""
    return list(dict.fromkeys(file.path for part in data_parts(data) for file in part.files))


def shard_files(data: str, index: int) -> list[str]:
    return [file.path for file in data_parts(data)[index].files]


def data_shards(data: str) -> list[str]:
    """The parts of a corpus that are jobs of their own: none where it is one, or has a limit."""
    parts = data_parts(data)
    if len(parts) == 1 or not is_parallel(DATA[data].source):
        return []
    return [f"{RESULTS}/data/.{data}.shards/{part.index:05d}/shard.json" for part in parts]


@cache
def identities(data: str, index: int | None = None) -> str:
    """A hash that changes when the content of the user's files does, and at no other time."""
    checksums = Checksums(memo_of(Path(RESULTS) / "data" / data))
    files = data_files(data) if index is None else shard_files(data, index)
    found = digest([[path, checksums.identity(path)] for path in files])
    checksums.save()
    return found


def data_manifest(run: RunConfig) -> str:
    return f"{RESULTS}/data/{run.data.id}/manifest.json"


def preparation(run: RunConfig) -> list[str]:
    """What the run's estimator has prepared beforehand; nothing for most."""
    return [f"{RESULTS}/prepared/{run.preparation_id}/preparation.json"] * bool(run.estimator.rules)


def prepared_by(file: str) -> str:
    """Which preparations the rule in `file` (beside the estimators' YAMLs) makes, as a pattern."""
    ids = [id for id, run in PREPARED.items() if Path(run.estimator.rules).name == file]
    return "|".join(map(re.escape, ids))


def bpe_reference(run: RunConfig) -> list[str]:
    """The BPE boundaries of the run's text, if the matrix has a `bpe` run on it to measure against."""
    for other in PREPARED.values():
        if other.estimator.label == "bpe" and other.data.hash == run.data.hash:
            return preparation(other)
    return []


def option(flag: str, files: list[str]) -> str:
    """`flag FOLDER` for a command, where FOLDER holds the one file; nothing without a file."""
    return f"{flag} {shlex.quote(str(Path(files[0]).parent))}" if files else ""


COSTS = {run.id: Cost(run) for run in MATRIX}  # what `rltok plan` prints, in the same arithmetic


def training_flops(run: RunConfig) -> int:
    return COSTS[run.id].flops_paper.total


def ranks(run: RunConfig) -> int:
    """Processes of a training: one a GPU."""
    return max(1, run.runtime.gpus)


def processors(run: RunConfig) -> int:
    """Of a training: `threads` are those of one rank."""
    return ranks(run) * run.runtime.threads


def minutes(run: RunConfig, attempt: int) -> int:
    """A time limit for a scheduler, generous: twice as long on a second attempt."""
    per_second = 2e13 * max(1, run.runtime.gpus) if run.runtime.device == "cuda" else 2e9
    return int(attempt * (20 + training_flops(run) / per_second / 60))


def memory_mb(run: RunConfig, attempt: int) -> int:
    """Host memory: PyTorch itself, and a training step (on a GPU what is loaded and saved)."""
    cost = COSTS[run.id]
    host = 20 * cost.weights.total if run.runtime.device == "cuda" else cost.memory
    return int(attempt * (2000 + host / 1e6))
