"""`rltok evaluate`: score one trained run (or an oracle) on the test split of its data.

    rltok evaluate --run results/runs/ID --data results/data/ID --out results/evaluations/ID
    rltok evaluate --oracle uniform --config RUN.yaml --data DIR --out DIR

Writes documents.csv, heatmap.json and probes.json, then evaluation.json, each whole or not at all.
"""

import argparse
import csv
import io
from pathlib import Path

import torch

from rltok_core.evaluation.bits import CorpusScore
from rltok_core.evaluation.evaluate import evaluate, read_held_out
from rltok_core.evaluation.subject import ORACLES, load_oracle, load_trained
from rltok_core.files import write_json, write_whole
from rltok_core.training.signals import StopSignals
from rltok_core.training.trainer import set_up_device


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="rltok evaluate", description=__doc__.split("\n")[0])
    parser.add_argument("--run", type=Path, help="the folder of a finished run")
    parser.add_argument("--oracle", choices=ORACLES, help="a stand-in model; needs --config")
    parser.add_argument(
        "--config",
        type=Path,
        help="a resolved run: what an oracle stands in for; with --run, the same run with the "
        "evaluation section to use",
    )
    parser.add_argument("--data", type=Path, required=True, help="the data folder")
    parser.add_argument("--prepared", type=Path, help="what `rltok prepare` made for this run")
    parser.add_argument("--bpe", type=Path, help="prepared folder of a BPE run: a reference")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: the run's own")
    parser.add_argument("--out", type=Path, required=True, help="where the results go")
    arguments = parser.parse_args(argv)
    if (arguments.run is None) == (arguments.oracle is None):
        parser.error("give one of --run and --oracle")
    if arguments.oracle and arguments.config is None:
        parser.error("--oracle needs --config RUN.yaml")
    return arguments


def _documents_csv(corpus: CorpusScore) -> bytes:
    """One line a document, in the split's order; bits in full precision."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["document", "bytes", "bits", "bits_early", "boundaries", "windows"])
    for index, score in corpus.in_order():
        row = (index, score.n_bytes, score.bits, score.bits_early, score.boundaries, score.windows)
        writer.writerow(row)
    return text.getvalue().encode()


def main(argv: list[str]) -> int:
    """Evaluate, write, and say the main figure. Returns the exit code."""
    arguments = _arguments(argv)
    with StopSignals() as stop:
        if arguments.run is not None:
            subject = load_trained(arguments.run, arguments.config)
        else:
            subject = load_oracle(arguments.oracle, arguments.config)
        if arguments.device is not None:
            subject = subject.on(arguments.device)
        set_up_device(subject.run)
        torch.set_float32_matmul_precision("highest")
        held_out = read_held_out(subject, arguments.data, arguments.prepared, arguments.bpe)
        result, corpus, maps, asked = evaluate(subject, held_out, stop.check)
        stop.check()

        out = arguments.out
        out.mkdir(parents=True, exist_ok=True)
        # evaluation.json says that the other three are there and belong to it: it goes first, and
        # comes last
        (out / "evaluation.json").unlink(missing_ok=True)
        write_whole(out / "documents.csv", _documents_csv(corpus))
        write_json(out / "heatmap.json", maps)
        write_json(out / "probes.json", asked)
        write_json(out / "evaluation.json", result)
    print(
        f"{subject.id}: {result['bpb']:.6f} bits per byte (early exit {result['bpb_early']:.6f}) "
        f"on {result['scored_bytes']} bytes of {result['documents']} documents, "
        f"boundary rate {result['boundary_rate']:.4f} -> {out}"
    )
    return 0
