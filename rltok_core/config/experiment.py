"""From an experiment's YAML to the list of resolved runs."""

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
            raise UserError(f"{where}: unknown size {block.size!r}{nearest(block.size, list(sizes))}")
        for entry in block.estimators:
            for seed in block.seeds or experiment.seeds:
                run = _resolve(experiment, block, entry, seed, sizes[block.size], where, configs)
                runs.setdefault(run.id, run)
    return experiment, list(runs.values())


def read_experiment(path: Path) -> tuple[ExperimentConfig, list[RunConfig]]:
    """load_experiment on a file; its configs folder is the grandparent `configs`, else ./configs."""
    path = Path(path)
    home = path.resolve().parent.parent
    return load_experiment(
        read_yaml(path), str(path), home if (home / "sizes.yaml").is_file() else CONFIGS
    )


def load_data(name: str, configs: Path = CONFIGS) -> DataConfig:
    """Read configs/data/NAME.yaml; a name with a slash or .yaml is a path of its own."""
    path = Path(name) if name.endswith(".yaml") else configs / "data" / f"{name}.yaml"
    return parse(DataConfig, read_yaml(path), str(path))


def load_estimator(
    entry: EstimatorEntry, configs: Path = CONFIGS, plugins: list[str] | None = None
) -> EstimatorConfig:
    """Read an estimator's YAML and lay the entry's params over it.

    The YAML names every parameter with its default, so that it is also the list of valid keys.
    A class of the form 'file.py:Class' is looked up beside the YAML.
    """
    folders = [configs / "estimators", *map(Path, plugins or [])]
    known = {p.stem: p for folder in folders for p in sorted(folder.glob("*.yaml"))}
    if entry.name not in known:
        raise UserError(f"unknown estimator {entry.name!r}{nearest(entry.name, list(known))}")
    path = known[entry.name]
    values = read_yaml(path)
    values.setdefault("label", entry.name)
    if entry.label is not None:
        values["label"] = entry.label
    estimator = parse(EstimatorConfig, values, str(path))
    for key in entry.params:
        if key not in estimator.params:
            hint = nearest(key, list(estimator.params))
            raise UserError(f"{path}: estimator {entry.name!r} has no parameter {key!r}{hint}")
    module, _, cls = estimator.cls.partition(":")
    if module.endswith(".py"):
        module = str((path.parent / module).resolve())
    rules = estimator.rules and str((path.parent / estimator.rules).resolve())
    return estimator.model_copy(
        update={
            "params": _numbers(merge(estimator.params, entry.params)),
            "cls": f"{module}:{cls}",
            "rules": rules,
        }
    )


def _numbers(params: dict[str, Any]) -> dict[str, Any]:
    """PyYAML reads 1e-3 (no dot) as text; here it is the number it looks like."""

    def number(value):
        if isinstance(value, str):
            try:
                return float(value)
            except ValueError:
                return value
        return value

    return {key: number(value) for key, value in params.items()}


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
        "model": merge({"size": block.size, **size["model"]}, block.model),
        "estimator": load_estimator(entry, configs, experiment.plugins).model_dump(),
        "training": training,
        "seed": seed,
        "runtime": merge(experiment.runtime, block.runtime),
        "evaluation": merge(experiment.evaluation, block.evaluation),
    }
    return parse(RunConfig, values, f"{where}: {block.data}/{block.size}/{entry.name}")


def write_run(run: RunConfig, path: Path) -> None:
    """Write a resolved run as YAML, so that any step can be run by hand from this one file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(run.model_dump(mode="json"), sort_keys=False), encoding="utf-8")


def read_run(path: Path) -> RunConfig:
    """Read a resolved run back. Raises UserError as parse does."""
    return parse(RunConfig, read_yaml(path), str(path))
