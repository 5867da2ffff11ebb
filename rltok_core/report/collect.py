"""Find an experiment's runs and read what they left, without ever stumbling over a gap (K37).

    results/runs/<id>/          training.json, metrics.jsonl, failed.json
    results/evaluations/<id>/   evaluation.json, documents.csv, heatmap.json, probes.json
    results/downstream/<id>.json

A run is "complete" (trained and evaluated), "failed" (failed.json), "damaged" (a file that can't
be trusted) or "missing"; all but the complete ones carry a reason. Runs of one corpus whose data
hashes differ are refused.
"""

import csv
import json
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from rltok_core.config.experiment import read_experiment
from rltok_core.config.schema import ExperimentConfig, RunConfig
from rltok_core.config.strict import digest
from rltok_core.errors import UserError


class Damaged(Exception):
    """A result file that is not what it should be; the message names the file and the line."""


@dataclass(frozen=True)
class Result:
    """One run of the experiment and all that is known of it."""

    run: RunConfig
    results: Path
    status: str
    reason: str = ""
    training: dict = field(default_factory=dict)
    evaluation: dict = field(default_factory=dict)
    downstream: dict = field(default_factory=dict)
    probes: dict = field(default_factory=dict)
    train_log: list[dict] = field(default_factory=list)
    validation_log: list[dict] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        return self.results / "runs" / self.run.id

    @property
    def evaluation_folder(self) -> Path:
        return self.results / "evaluations" / self.run.id

    @property
    def complete(self) -> bool:
        return self.status == "complete"

    @property
    def measured(self) -> dict:
        """evaluation.json, with the scores of downstream tasks under "downstream"."""
        return self.evaluation | {"downstream": self.downstream.get("tasks", {})}

    @property
    def data_hash(self) -> str:
        return self.evaluation.get("data_hash") or self.training.get("data_hash") or ""

    @cached_property
    def cell(self) -> str:
        """Identity of everything but the seed: runs with the same cell are seeds of one row."""
        whole = self.run.model_dump(mode="json", exclude={"seed", "runtime", "evaluation"})
        return digest(whole)

    @cached_property
    def heatmap(self) -> list[dict]:
        """Documents of heatmap.json; empty if the run has none."""
        path = self.evaluation_folder / "heatmap.json"
        if not path.is_file():
            return []
        documents = read_json(path).get("documents")
        if not isinstance(documents, list):
            raise Damaged(f"{path}: no list under 'documents'")
        return documents

    @cached_property
    def documents(self) -> dict[int, tuple[int, float]]:
        """documents.csv as {document: (bytes, bits)}; empty if the run has none."""
        path = self.evaluation_folder / "documents.csv"
        if not path.is_file():
            return {}
        found = {}
        with path.open(encoding="utf-8", newline="") as file:
            try:
                for row in csv.DictReader(file):
                    found[int(row["document"])] = int(row["bytes"]), float(row["bits"])
            except (ValueError, KeyError, TypeError):  # TypeError: a line that was cut
                raise Damaged(f"{path}: line {len(found) + 2}: no document") from None
        return found


@dataclass(frozen=True)
class Collection:
    """An experiment and its runs, in the order of its matrix."""

    experiment: ExperimentConfig
    results: list[Result]

    @property
    def complete(self) -> list[Result]:
        return [result for result in self.results if result.complete]

    @property
    def gaps(self) -> list[Result]:
        return [result for result in self.results if not result.complete]

    @property
    def labels(self) -> list[str]:
        """Every method's label once, in the matrix's order."""
        return list(dict.fromkeys(result.run.estimator.label for result in self.results))

    def corpora(self) -> list[tuple[str, str]]:
        """(data, size) once each, in the matrix's order."""
        return list(dict.fromkeys((r.run.data.name, r.run.model.size) for r in self.results))


def _refuse(token: str):
    raise ValueError(f"{token} is not strict JSON")


def read_json(path: Path) -> dict:
    """Read one strict JSON object (no NaN, no Infinity).

    Raises:
        Damaged: with the file's name and the line.
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse)
    except ValueError as error:
        raise Damaged(f"{path}: {error}") from None
    if not isinstance(values, dict):
        raise Damaged(f"{path}: expected an object, got {type(values).__name__}")
    return values


def read_metrics(path: Path) -> tuple[list[dict], list[dict]]:
    """metrics.jsonl as (train records, validation records); a torn last line is left out.

    Raises:
        Damaged: any other line that isn't a step's record in strict JSON.
    """
    if not path.is_file():
        return [], []
    # "\n" alone ends a line: str.splitlines would also cut at U+2028 (K01)
    lines = path.read_bytes().split(b"\n")
    records = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line, parse_constant=_refuse)
            if not isinstance(record, dict) or "step" not in record:
                raise ValueError("not the record of a step")
        except ValueError as error:
            if number == len(lines):  # no newline after it: the writer was stopped in mid-line
                break
            raise Damaged(f"{path}: line {number}: {error}") from None
        records.append(record)
    kinds = {"train": [], "validation": []}
    for record in records:
        kinds.setdefault(record.get("kind"), []).append(record)
    return kinds["train"], kinds["validation"]


def _collect_run(run: RunConfig, results: Path) -> Result:
    """Read one run's folders; whatever is wrong becomes a status and a reason."""
    folder, evaluated = results / "runs" / run.id, results / "evaluations" / run.id
    found: dict = {}
    try:
        found["train_log"], found["validation_log"] = read_metrics(folder / "metrics.jsonl")
        for key, path in (
            ("training", folder / "training.json"),
            ("evaluation", evaluated / "evaluation.json"),
            ("downstream", results / "downstream" / f"{run.id}.json"),
            ("probes", evaluated / "probes.json"),
        ):
            if path.is_file():
                found[key] = read_json(path)
                written = found[key].get("run_hash", run.hash)
                if written != run.hash:
                    raise Damaged(f"{path}: run_hash {written} is not this run's {run.hash}")
        # a run that failed once and then went through has a training.json
        failed = folder / "failed.json"
        if failed.is_file() and "training" not in found:
            record = read_json(failed)
            reason = str(record.get("reason", "no reason given"))
            if record.get("step") is not None and "step" not in reason:
                reason += f" at step {record['step']}"
            return Result(run, results, "failed", reason, **found)
    except Damaged as error:
        return Result(run, results, "damaged", str(error), **found)
    if "evaluation" not in found:
        if "training" in found:
            reason = f"trained, not evaluated: no {evaluated / 'evaluation.json'}"
        elif found["train_log"]:
            reason = f"training stopped or still running at step {found['train_log'][-1]['step']}"
        else:
            reason = f"not trained: no {folder / 'training.json'}"
        return Result(run, results, "missing", reason, **found)
    if found["evaluation"].get("evaluation_hash", run.evaluation_hash) != run.evaluation_hash:
        reason = f"evaluated with other settings than the experiment's: {evaluated}"
        return Result(run, results, "missing", reason, **found)
    for name in ("bpb", "boundary_rate"):
        if not isinstance(found["evaluation"].get(name), (int, float)):
            reason = f"{evaluated / 'evaluation.json'}: no number under {name!r}"
            return Result(run, results, "damaged", reason, **found)
    result = Result(run, results, "complete", "", **found)
    try:
        _ = result.heatmap, result.documents  # kept: read but once
    except Damaged as error:
        return Result(run, results, "damaged", str(error), **found)
    return result


def _check_data(results: list[Result]) -> None:
    """Raise UserError if complete runs of one corpus were made from different data (promise 9)."""
    first: dict[str, Result] = {}
    for result in results:
        if not (result.complete and result.data_hash):
            continue
        training_hash = result.training.get("data_hash", result.data_hash)
        if training_hash != result.data_hash:
            raise UserError(
                f"run {result.run.id} was trained on data {training_hash} and evaluated on data "
                f"{result.data_hash}: evaluate it again on the data it was trained on"
            )
        other = first.setdefault(result.run.data.name, result)
        if other.data_hash != result.data_hash:
            raise UserError(
                f"runs of {result.run.data.name!r} with different data can't share a table: "
                f"{other.folder} has data {other.data_hash}, "
                f"{result.folder} has data {result.data_hash}"
            )


def collect(experiment_file: Path, results: Path | None = None) -> Collection:
    """Read every run of an experiment.

    Args:
        experiment_file: the experiment's YAML.
        results: the results folder; by default the one that the experiment names.

    Raises:
        UserError: the experiment is wrong, runs of one corpus have different data, or no run
            has left anything at all.
    """
    experiment, runs = read_experiment(experiment_file)
    folder = Path(results or experiment.results)
    found = [_collect_run(run, folder) for run in runs]
    _check_data(found)
    if all(result.status == "missing" and not result.training for result in found):
        raise UserError(
            f"{folder}: no finished run of {experiment.name!r}: train and evaluate first"
        )
    return Collection(experiment, found)


def seeds_mean(series: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, ...]:
    """Curves of several seeds at the x that all have: (x, mean, lowest, highest).

    Args:
        series: (x, y) of each seed, x increasing.
    """
    shared = series[0][0]
    for x, _ in series[1:]:
        shared = np.intersect1d(shared, x)
    rows = np.stack([y[np.searchsorted(x, shared)] for x, y in series])
    return shared, rows.mean(0), rows.min(0), rows.max(0)
