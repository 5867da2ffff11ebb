"""From an experiment's YAML to the list of resolved runs."""

import re
from pathlib import Path
from typing import Any

import yaml

from rltok_core.config.schema import (
    Block,
    DataConfig,
    EstimatorConfig,
    EstimatorEntry,
    ExperimentConfig,
    RunConfig,
)
from rltok_core.config.strict import merge, nearest, parse, read_yaml
from rltok_core.errors import UserError
from rltok_core.files import write_whole

CONFIGS = Path("configs")


def load_experiment(
    values: dict, where: str, configs: Path = CONFIGS
) -> tuple[ExperimentConfig, list[RunConfig]]:
    """Validate an experiment and expand its matrix.

    Args:
        values: the experiment as read from YAML (or Snakemake's merged `config`).
        where: what to call it in error messages (its file).
        configs: the folder that holds data/, estimators/ and sizes.yaml.

    Returns:
        The experiment and its runs, in the matrix's order, each exactly once.

    Raises:
        UserError: unknown or misspelt key, unknown name of data, size or estimator.
    """
    experiment = parse(ExperimentConfig, values, where)
    sizes = read_yaml(configs / "sizes.yaml")
    runs: dict[str, RunConfig] = {}
    for block in experiment.matrix:
        if block.size not in sizes:
            raise UserError(
                f"{where}: unknown size {block.size!r}{nearest(block.size, list(sizes))}"
            )
        for entry in block.estimators:
            for seed in block.seeds or experiment.seeds:
                run = _resolve(experiment, block, entry, seed, sizes[block.size], where, configs)
                runs.setdefault(run.id, run)
    return experiment, list(runs.values())


def read_experiment(
    path: Path, configs: Path | None = None
) -> tuple[ExperimentConfig, list[RunConfig]]:
    """load_experiment on a file.

    configs: by default the folder above the file's, ./configs or the checkout's own, whichever is
        the first to hold a sizes.yaml.
    """
    path = Path(path)
    checkout = Path(__file__).resolve().parents[2] / "configs"
    homes = [configs] if configs else [path.resolve().parent.parent, CONFIGS, checkout]
    home = next((home for home in homes if (home / "sizes.yaml").is_file()), homes[-1])
    return load_experiment(read_yaml(path), str(path), home)


def preparations(runs: list[RunConfig]) -> dict[str, RunConfig]:
    """What has to be prepared, each by the first run that asks for it."""
    found: dict[str, RunConfig] = {}
    for run in runs:
        if run.estimator.rules:
            found.setdefault(run.preparation_id, run)
    return found


def load_data(name: str, configs: Path = CONFIGS) -> DataConfig:
    """Read configs/data/NAME.yaml; a name with a slash or .yaml is a path of its own."""
    path = Path(name) if name.endswith(".yaml") else configs / "data" / f"{name}.yaml"
    return parse(DataConfig, read_yaml(path), str(path))


def load_estimator(
    entry: EstimatorEntry, configs: Path = CONFIGS, plugins: list[str] | None = None
) -> EstimatorConfig:
    """Read an estimator's YAML and lay the entry's params over it.

    The YAML names every parameter with its default, so that it is also the list of valid keys
    and of their types. A class of the form 'file.py:Class' is looked up beside the YAML.
    """
    folders = [configs / "estimators", *map(Path, plugins or [])]
    for folder in folders:
        if not folder.is_dir():
            raise UserError(f"plugins: no folder {folder}")
    known = {p.stem: p for folder in folders for p in sorted(folder.glob("*.yaml"))}
    if entry.name not in known:
        raise UserError(f"unknown estimator {entry.name!r}{nearest(entry.name, list(known))}")
    path = known[entry.name]
    values = read_yaml(path)
    values.setdefault("label", entry.name)
    if entry.label is not None:
        values["label"] = entry.label
    estimator = parse(EstimatorConfig, values, str(path))
    params = dict(estimator.params)
    for key, value in entry.params.items():
        if key not in params:
            hint = nearest(key, list(params))
            raise UserError(f"{path}: estimator {entry.name!r} has no parameter {key!r}{hint}")
        params[key] = value
    params = {
        key: _typed(value, estimator.params[key], f"{path}: parameter {key!r}")
        for key, value in params.items()
    }
    module, _, cls = estimator.cls.partition(":")
    if module.endswith(".py"):
        module = str((path.parent / module).resolve())
    rules = estimator.rules and str((path.parent / estimator.rules).resolve())
    update = {"params": params, "cls": f"{module}:{cls}", "rules": rules}
    return estimator.model_copy(update=update)


def _typed(value: Any, default: Any, where: str) -> Any:
    """`value` with the type of the parameter's default, wherever it was spelt as text.

    PyYAML reads 1e-3 (no dot) as text, and Snakemake's command line hands on text inside lists.
    """
    kind = type(_number(default))
    if kind is bool:
        words = {"true": True, "false": False}
        value = words.get(value.lower(), value) if isinstance(value, str) else value
        if not isinstance(value, bool):
            raise UserError(f"{where}: expected true or false, got {value!r}")
    elif kind in (int, float):
        value = _number(value)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise UserError(f"{where}: expected a number, got {value!r}")
    return value


def _number(value: Any) -> Any:
    """The number that a text such as '1e-3' or '8' looks like; anything else as it is."""
    if isinstance(value, str) and re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", value):
        return int(value) if re.fullmatch(r"[-+]?\d+", value) else float(value)
    return value


def _resolve(
    experiment: ExperimentConfig,
    block: Block,
    entry: EstimatorEntry,
    seed: int,
    size: dict,
    where: str,
    configs: Path,
) -> RunConfig:
    """One run: the size's defaults, then the experiment's, the block's and the estimator's own."""
    training = merge(size.get("training", {}), experiment.training)
    training = merge(merge(training, block.training), entry.training)
    values = {
        "experiment": experiment.name,
        "data": load_data(block.data, configs).model_dump(),
        "model": merge(merge({"size": block.size, **size["model"]}, block.model), entry.model),
        "estimator": load_estimator(entry, configs, experiment.plugins).model_dump(),
        "training": training,
        "seed": seed,
        "runtime": merge(experiment.runtime, block.runtime),
        "evaluation": merge(experiment.evaluation, block.evaluation),
    }
    return parse(RunConfig, values, f"{where}: {block.data}/{block.size}/{entry.name}")


def write_yaml(values: dict, path: Path) -> None:
    """Write values as YAML, whole or not at all; a file that says the same is left untouched (its
    time counts)."""
    text = yaml.safe_dump(values, sort_keys=False, allow_unicode=True)
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, text.encode())


def write_run(run: RunConfig, path: Path) -> None:
    """Write a resolved run as YAML, so that any step can be run by hand from this one file."""
    write_yaml(run.model_dump(mode="json"), path)


def write_matrix(experiment: ExperimentConfig, runs: list[RunConfig], out: Path) -> None:
    """Write an experiment's resolved files.

    Args:
        out: gets RUN_ID.yaml for each run, data/DATA_ID.yaml for each corpus, prepared/ID.yaml for
            each preparation and experiments/NAME.yaml. Files that would not change are left alone.
    """
    write_yaml(experiment.model_dump(mode="json"), out / "experiments" / f"{experiment.name}.yaml")
    for run in runs:
        write_run(run, out / f"{run.id}.yaml")
        write_yaml(run.data.model_dump(mode="json"), out / "data" / f"{run.data.id}.yaml")
    for name, run in preparations(runs).items():
        write_run(run, out / "prepared" / f"{name}.yaml")


def read_run(path: Path) -> RunConfig:
    """Read a resolved run back. Raises UserError as parse does."""
    return parse(RunConfig, read_yaml(path), str(path))
