"""provenance.csv: where every run's numbers come from (promise 9), and what didn't finish."""

import json

from rltok_core.report.edition import Edition, Table

COLUMNS = [
    *("run", "data", "size", "estimator", "seed", "status", "reason"),
    *("folder", "evaluation_folder", "run_hash", "evaluation_hash", "data_hash"),
    *("code_version", "evaluation_code_version", "device", "device_name", "host", "threads"),
    *("python", "package_versions"),
]


def provenance(edition: Edition) -> Table:
    """One line a planned run, whatever became of it; on the page the runs have their own part."""
    records = []
    for result in edition.collection.results:
        run, evaluation = result.run, result.evaluation
        made, scored = result.training.get("manifest", {}), evaluation.get("manifest", {})
        values = (run.id, run.data.name, run.model.size, run.estimator.label, run.seed)
        values += (result.status, result.reason, str(result.folder), str(result.evaluation_folder))
        values += (run.hash, evaluation.get("evaluation_hash"), result.data_hash)
        values += (_plain(made.get("code")), _plain(scored.get("code")), made.get("device"))
        values += (made.get("device_name"), made.get("host"), made.get("threads"))
        values += (made.get("python"), _plain(made.get("packages")))
        records.append(dict(zip(COLUMNS, values, strict=True)))
    return Table([], "Run folder, hashes, versions and device of every planned run.", records)


def _plain(value: object) -> str | None:
    """Text as it is, anything structured as JSON."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, sort_keys=True)
