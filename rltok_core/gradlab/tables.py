"""The laboratory's table, csv and Markdown, and the answer in words, from the same rows."""

import csv
import io

from rltok_core.gradlab.lab import ALGEBRA, COLUMNS, OWN, TWIN

PAPER, PLAIN = "early_exit_reward + batch_relative", "none"


def csv_text(rows: list[dict]) -> str:
    """Every row, four digits a measure; empty where a number doesn't exist."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: _plain(row[key]) for key in COLUMNS} for row in rows)
    return buffer.getvalue()


def _plain(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else str(value)


def _short(value: float | None) -> str:
    if value is None:
        return ""
    return "0" if abs(value) < 1e-9 else f"{value:.3g}"


def largest_batch(rows: list[dict]) -> list[dict]:
    """The policy's rows at each estimator's largest batch."""
    largest: dict[str, int] = {}
    for row in rows:
        largest[row["estimator"]] = max(row["batch"], largest.get(row["estimator"], 0))
    return [r for r in rows if r["scope"] == "policy" and r["batch"] == largest[r["estimator"]]]


def markdown(rows: list[dict], left_out: dict[str, str], words: str) -> str:
    """The policy's rows at the largest batch, then the batch baseline's share by batch size."""
    lines = ["# The gradient laboratory", "", words, ""]
    head = ["estimator", "draws", "switched on", "gamma"]
    head += ["bias", "cosine", "variance", "noise / signal", "how"]
    for params in dict.fromkeys(row["params"] for row in rows):
        lines += [f"## Policy's parameters, {params}", ""]
        lines += _table(
            head,
            [
                [
                    r["estimator"], str(r["samples"]), r["settings"], _plain(r["gamma"]),
                    _short(r["bias"]), _short(r["cosine"]), _short(r["rel_variance"]),
                    _short(r["noise_to_signal"]),
                    f"{r['exact']}, {r['batch']} rows",
                ]
                for r in largest_batch(rows)
                if r["params"] == params
            ],
        )  # fmt: skip
    lines += ["## The batch baseline's bias", ""]
    lines += [
        "Each row's reward is part of the mean that is taken from it: E g shrinks by (B - 1) / B.",
        "",
    ]
    centred = [
        r
        for r in rows
        if r["gamma"] == 1 and r["exact"] == ALGEBRA and r["scope"] == "policy"
        and r["settings"] == "batch_relative"
    ]  # fmt: skip
    lines += _table(
        ["estimator", "parameters", "rows B", "bias", "1 / B", "variance", "noise / signal"],
        [
            [
                r["estimator"], r["params"], str(r["batch"]), _short(r["bias"]),
                _short(1 / r["batch"]), _short(r["rel_variance"]), _short(r["noise_to_signal"]),
            ]
            for r in centred
        ],
    )  # fmt: skip
    lines += ["## Not in the table", ""]
    lines += [f"- {name}: {reason}" for name, reason in left_out.items()]
    return "\n".join(lines) + "\n"


def _table(head: list[str], body: list[list[str]]) -> list[str]:
    rule = ["---"] * len(head)
    return [f"| {' | '.join(cells)} |" for cells in (head, rule, *body)] + [""]


def _find(rows: list[dict], **wanted) -> dict | None:
    found = [r for r in rows if all(r[key] == value for key, value in wanted.items())]
    return found[0] if found else None


def answer(rows: list[dict]) -> str:
    """The table's numbers, a line an estimator: discounting, baselines, the other gradients."""
    shown = largest_batch(rows)
    parts = []
    for params in dict.fromkeys(row["params"] for row in shown):
        lines = []
        for name in dict.fromkeys(r["estimator"] for r in shown if r["gamma"] is not None):
            part = []
            ladder = [
                _find(shown, estimator=name, params=params, settings=PLAIN, gamma=gamma)
                for gamma in (1, 0.9, 0.5, 0)
            ]
            if ladder := [r for r in ladder if r]:

                def listed(key, ladder=ladder):
                    return " / ".join(_short(r[key]) for r in ladder)

                part.append(
                    f"without baselines at gamma {listed('gamma')}: variance "
                    f"{listed('rel_variance')}, bias {listed('bias')}, cosine "
                    f"{listed('cosine')}, noise to signal {listed('noise_to_signal')}"
                )
            if len(counts := {r["samples"] for r in shown if r["estimator"] == name}) > 1:
                part.append(_by_draws(shown, name, params, sorted(counts)))
            full = _find(shown, estimator=name, params=params, settings=PAPER, gamma=0.99)
            bare = _find(shown, estimator=name, params=params, settings=PLAIN, gamma=0.99)
            if full and bare:
                part.append(
                    f"with both baselines, at gamma 0.99, noise to signal "
                    f"{_short(bare['noise_to_signal'])} becomes {_short(full['noise_to_signal'])}"
                )
            lines.append(f"- {name}: " + "; ".join(part) + ".")
        for r in shown:
            if r["params"] == params and r["gamma"] is None:
                against = {OWN: " (its own loss)", TWIN: " (its stochastic twin)"}
                lines.append(
                    f"- {r['estimator']}{against.get(r['exact'], '')}: "
                    f"cosine {_short(r['cosine'])}, bias {_short(r['bias'])}."
                )
        parts.append(f"Parameters {params}:\n\n" + "\n".join(lines))
    return "\n\n".join(parts)


def _by_draws(shown: list[dict], name: str, params: str, counts: list[int]) -> str:
    """What more draws a row buy, at gamma 1."""
    found = [_find(shown, estimator=name, params=params, gamma=1, samples=k) for k in counts]
    kept = [r for r in found if r]

    def listed(key):
        return " / ".join(_short(r[key]) for r in kept)

    return (
        f"with {listed('samples')} draws a row at gamma 1: variance "
        f"{listed('rel_variance')}, bias {listed('bias')}"
    )


def caption(rows: list[dict], words: str) -> str:
    """What figure.png shows, and the answer."""
    one = largest_batch(rows)[0]
    sequences = 2 ** (one["positions"] - 2)
    return (
        "Bias against variance of each estimator's gradient on the boundary policy's parameters, "
        f"exact: all {sequences} boundary sequences of each of {one['batch']} rows of "
        f"{one['positions']} positions are summed over, in float64, for a U-Net at "
        "initialisation and after a short training on the planted language. Across: distance of "
        "the mean gradient from the exact gradient of the expected loss, as a share of the "
        "latter's length (0: unbiased; a gradient of nothing is at 1). Up: variance, as a multiple "
        "of the exact gradient's squared length. A line is one estimator as its discount gamma "
        "goes from 1 to 0; a dotted one goes from two to more draws K of the boundaries, each "
        "of them a forward pass. off_policy is shown while its boundaries are random. The batch "
        "baseline holds the row's own reward, which costs 1 / B of "
        f"the gradient's length (B = {one['batch']} here, 128 in the paper). Estimators without "
        "randomness lie on the lower edge; H-Net is measured against its stochastic twin, whose "
        "boundaries are drawn with H-Net's own p.\n\n" + words + "\n"
    )
