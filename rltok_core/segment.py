"""`rltok segment --run results/runs/ID [--run ...] "any text"`: the tokens of trained runs.

Prints each run's tokens, its rate and its bits per byte on the text, as evaluation would see it;
`--html FILE` writes them as a page with the probability of every boundary. "-" reads the text from
standard input. What a run's estimator has prepared is looked for in the run's own results folder.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

from rltok_core.errors import UserError
from rltok_core.evaluation.bits import LN2
from rltok_core.evaluation.subject import Subject, load_trained
from rltok_core.evaluation.text import open_hints, text_scores
from rltok_core.files import write_whole
from rltok_core.report.explorer import Strip, Text, document_html, explorer_html
from rltok_core.report.glyphs import glyphs
from rltok_core.training.trainer import set_up_device

BETWEEN = "\u2502"  # between two tokens
TINTS = ("\033[48;5;153m\033[30m", "\033[48;5;223m\033[30m")  # of a terminal, in turn
PLAIN = "\033[0m"


def segment(subject: Subject, data: Path, prepared: Path, text: bytes) -> Strip:
    """One run's boundaries on a text.

    Args:
        data, prepared: folders that the run's estimator may need.

    Raises:
        UserError: the estimator can't place boundaries on such text, or a folder is missing.
    """
    run = subject.run
    parts = list(text_scores(subject, [text], open_hints(run, data, prepared)))

    def joined(values) -> list:
        return np.concatenate([values(part) for part in parts]).tolist()

    return Strip(
        subject.id,
        f"{subject.label} ({run.data.name}, {run.model.size}, seed {run.seed})",
        run.seed,
        joined(lambda part: part.prob.astype(np.float64)),
        joined(lambda part: part.boundary.astype(int)),
        joined(lambda part: part.nats.astype(np.float64) / LN2),
    )


def tokens(text: bytes, boundary: list[int]) -> list[str]:
    """What each token holds, in visible signs. What comes before the first boundary is one too."""
    signs = glyphs(text)
    starts = sorted({0, *np.flatnonzero(boundary).tolist()})
    return ["".join(signs[a:b]) for a, b in zip(starts, [*starts[1:], len(signs)], strict=True)]


def printed(text: bytes, strip: Strip, colour: bool) -> str:
    """A run's name and measures, and its tokens with a line between each two."""
    found = tokens(text, strip.boundary)
    bits = sum(strip.bits) / len(text)
    head = (
        f"{strip.shown}: {len(found)} tokens, {len(text) / len(found):.2f} bytes each, "
        f"{bits:.3f} bits per byte"
    )
    if colour:
        found = [f"{TINTS[i % 2]}{token}{PLAIN}" for i, token in enumerate(found)]
    return f"{head}\n  {BETWEEN.join(found)}"


def _results(run: Path) -> Path:
    """The results folder that a run folder lies in."""
    return run.resolve().parents[1]


def main(argv: list[str]) -> int:
    """Entry point of the command."""
    parser = argparse.ArgumentParser(prog="rltok segment", description=__doc__.split("\n")[0])
    parser.add_argument("text", help='the text, or "-" for standard input')
    parser.add_argument("--run", type=Path, action="append", required=True, help="a run folder")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page as well")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: each run's own")
    args = parser.parse_args(argv)
    text = sys.stdin.buffer.read() if args.text == "-" else args.text.encode()
    if not text:
        raise UserError("the text is empty: nothing to segment")
    strips = []
    for folder in args.run:
        subject = load_trained(folder)
        if args.device is not None:
            subject = subject.on(args.device)
        set_up_device(subject.run)
        results, run = _results(folder), subject.run
        data, prepared = results / "data" / run.data.id, results / "prepared" / run.preparation_id
        strips.append(segment(subject, data, prepared, text))
        print(printed(text, strips[-1], colour=sys.stdout.isatty()))
    if args.html:
        shown = Text("Your text", f"your text, {len(text)} bytes", text, strips)
        body = (
            "<main><h1>Tokens of one text</h1>"
            f"{explorer_html([shown], [strip.name for strip in strips])}</main>"
        )
        args.html.parent.mkdir(parents=True, exist_ok=True)
        write_whole(args.html, document_html("Tokens of one text", body).encode())
        print(f"page: {args.html}")
    return 0
