"""A large corpus under Snakemake: a job a shard, and what makes them again."""

import json
import os

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from rltok_core.config.experiment import read_experiment


def test_shards_are_jobs_and_only_content_makes_them_again(tmp_path, in_folder, base):
    for n in range(3):
        texts = [f"document {n}.{i} of a corpus in parts" for i in range(40)]
        table = pa.table({"text": texts})
        pq.write_table(table, tmp_path / f"{n}.parquet", compression="none")
    source = {"kind": "hub", "path": "parquet", "data_files": ["[0-2].parquet"], "shards": 3}
    data = tmp_path / "parts.yaml"
    data.write_text(yaml.safe_dump({"name": "parts", "source": source}))
    matrix = [{**base["matrix"][0], "data": str(data), "estimators": ["uniform"]}]
    workflow = in_folder(tmp_path, {**base, "matrix": matrix})
    run = read_experiment(tmp_path / "e.yaml")[1][0]
    target = f"results/data/{run.data.id}/manifest.json"

    assert len(workflow.plan(target)["data_shard"]) == 3
    done = workflow("--cores", "2", target)
    assert done.returncode == 0, done.stdout + done.stderr
    first = json.loads((tmp_path / target).read_text())
    assert first["counts"]["kept"] == 120
    assert not list((tmp_path / "results/data").glob(".*.shards/*/run"))

    assert workflow.plan(target) == {}
    path = tmp_path / "1.parquet"
    os.utime(path)  # a later date
    assert workflow.plan(target) == {}
    stat = path.stat()
    path.write_bytes(path.read_bytes().replace(b"document 1.7 of", b"DOCUMENT 1.7 of"))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert path.stat().st_size == stat.st_size
    plan = workflow.plan(target)
    assert len(plan["data_shard"]) == 3 and len(plan["build_data"]) == 1
    done = workflow("--cores", "2", target)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((tmp_path / target).read_text())["content_hash"] != first["content_hash"]
