"""An experiment's plan as values, as a table and as one sentence."""

from rltok_core.config.experiment import preparations
from rltok_core.config.schema import ExperimentConfig, RunConfig
from rltok_core.plan.devices import Device
from rltok_core.plan.estimate import Cost, store_bytes

UTILISATION = 0.4


def plan(
    experiment: ExperimentConfig,
    runs: list[RunConfig],
    to: Device,
    utilisation: float = UTILISATION,
    micro_batch: int | None = None,
) -> dict:
    """Everything that is printed, as plain values (--json).

    Returns:
        "rows": one a group of runs that differ in the seed alone, figures of ONE run each;
        "total": over all runs; "corpora": name and store; "assumptions".

    Raises:
        UserError: an estimator that is no class of ours can't be loaded.
    """
    groups: dict[tuple, list[RunConfig]] = {}
    for run in runs:
        groups.setdefault(_group(run), []).append(run)
    rows = [_row(group, micro_batch, to, utilisation) for group in groups.values()]
    corpora = {run.data.id: run.data for run in runs}
    stores = {name: store_bytes(data) for name, data in corpora.items()}
    hints = [store_bytes(run.data) for run in preparations(runs).values()]
    summed = ("bytes", "flops_paper", "flops_counted", "gpu_hours", "disk_bytes")
    total = {key: sum(len(row["seeds"]) * row[key] for row in rows) for key in summed}
    total |= {
        "runs": len(runs),
        "peak_memory_bytes": max(row["peak_memory_bytes"] for row in rows),
        "store_bytes": sum(known[0] for known in (*stores.values(), *hints) if known),
        "stores_unknown": [name for name, known in stores.items() if known is None],
    }
    return {
        "experiment": experiment.name,
        "assumptions": {
            "device": to.title,
            "peak_flops": to.peak,
            "utilisation": utilisation,
            "device_memory_bytes": to.memory,
        },
        "rows": rows,
        "corpora": {
            name: {"store_bytes": known and known[0], "bound": known and known[1]}
            for name, known in stores.items()
        },
        "total": total,
    }


def _group(run: RunConfig) -> tuple:
    alike = run.model_copy(update={"seed": 0})
    return (run.estimator.label, alike.hash, run.runtime.model_dump_json())


def _row(runs: list[RunConfig], micro_batch: int | None, to: Device, utilisation: float) -> dict:
    run, first = runs[0], Cost(runs[0], micro_batch)
    paper, counted = first.flops_paper, first.flops_counted
    return {
        "data": run.data.name,
        "size": run.model.size,
        "estimator": run.estimator.label,
        "seeds": [each.seed for each in runs],
        "parameters": first.weights._asdict() | {"total": first.weights.total},
        "bytes": first.bytes,
        "flops_paper": paper.total,
        "flops_paper_byte": paper.byte,
        "flops_paper_mid": paper.mid,
        "flops_counted": counted.total,
        "flops_counted_byte": counted.byte,
        "flops_counted_mid": counted.mid,
        "gpu_hours": first.gpu_hours(to, utilisation),
        "micro_batch": first.rows,
        "peak_memory_bytes": first.memory,
        "fits": None if to.memory is None else first.memory < to.memory,
        "disk_bytes": first.disk,
    }


def _size(n_bytes: float) -> str:
    """In GB, or MB below one."""
    return f"{n_bytes / 1e9:.1f} GB" if n_bytes >= 1e9 else f"{n_bytes / 1e6:.0f} MB"


def _count(number: float) -> str:
    return f"{number / 1e6:.1f}M" if number >= 1e6 else f"{number / 1e3:.0f}k"


HEADER = [
    *("data", "size", "method", "seeds", "weights", "byte / mid", "bytes"),
    *("FLOPs, paper", "byte / mid", "counted", "GPU h", "rows", "memory", "disk"),
]


def _cells(row: dict) -> list[str]:
    weights = row["parameters"]
    return [
        row["data"],
        row["size"],
        row["estimator"],
        str(len(row["seeds"])),
        _count(weights["total"]),
        f"{_count(weights['byte_layers'])} / {_count(weights['mid_layers'])}",
        f"{row['bytes']:.2g}",
        f"{row['flops_paper']:.1e}",
        f"{row['flops_paper_byte']:.1e} / {row['flops_paper_mid']:.1e}",
        f"{row['flops_counted']:.1e}",
        f"{row['gpu_hours']:.2f}",
        str(row["micro_batch"]),
        _size(row["peak_memory_bytes"]) + ("" if row["fits"] is not False else " !"),
        _size(row["disk_bytes"]),
    ]


def headline(planned: dict) -> str:
    """The totals in one sentence; the workflow shows it in a dry run."""
    total, given = planned["total"], planned["assumptions"]
    share, peak = f"{given['utilisation']:.0%}", f"{given['peak_flops']:.3g} FLOP/s"
    return (
        f"{total['runs']} runs, {total['bytes']:.2g} bytes of text, "
        f"{total['flops_paper']:.2e} FLOPs by the paper's convention ({total['flops_counted']:.2e} "
        f"counted), {total['gpu_hours']:.1f} hours of one {given['device']} at {share} of {peak}"
    )


def _lines(rows: list[dict]) -> list[list[str]]:
    """The cells; neighbours that differ in the method's name alone share a line."""
    folded: list[tuple[list[str], list[str]]] = []
    for row in rows:
        cells = _cells(row)
        if folded and _nameless(folded[-1][1]) == _nameless(cells):
            folded[-1][0].append(cells[2])
        else:
            folded.append(([cells[2]], cells))
    return [[*cells[:2], _names(names), *cells[3:]] for names, cells in folded]


def _nameless(cells: list[str]) -> list[str]:
    return [*cells[:2], *cells[3:]]


def _names(names: list[str]) -> str:
    return ", ".join(names) if len(names) < 3 else f"{names[0]} and {len(names) - 1} more"


def table(planned: dict) -> str:
    """The plan as a Markdown table that a terminal shows well too, and its totals."""
    lines = [HEADER, *_lines(planned["rows"])]
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEADER))]
    left = 3

    def show(line: list[str]) -> str:
        cells = [
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        return "| " + " | ".join(cells) + " |"

    rule = "|" + "|".join(
        "-" * (width + 2) if i < left else "-" * (width + 1) + ":" for i, width in enumerate(widths)
    )
    total = planned["total"]
    stores = [
        f"{name} {known['bound']} {_size(known['store_bytes'])}"
        if known["bound"]
        else f"{name} unknown before it is read"
        for name, known in planned["corpora"].items()
    ]
    notes = [
        f"Total: {headline(planned)}.",
        f"Disk: runs {_size(total['disk_bytes'])}; text: {', '.join(stores)}.",
        "A line's figures are those of one run of one method, of which there are `seeds`. rows: "
        "sequences of a forward pass; memory: tensors at the peak of a step, an estimate; disk: "
        "checkpoints and final weights. Training alone, without validation and evaluation.",
    ]
    if any(row["fits"] is False for row in planned["rows"]):
        notes.append("! more than the device has: take a smaller --micro-batch.")
    return "\n".join([show(HEADER), rule + "|", *map(show, lines[1:]), "", *notes])
