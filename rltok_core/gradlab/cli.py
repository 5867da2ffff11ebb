"""rltok gradlab: exact bias and variance of every estimator's gradient on a tiny U-Net.

    rltok gradlab --out paper_figures/gradlab [--config configs/gradlab.yaml]

Writes table.csv (every row), table.md, figure.png, figure.pdf and caption.md.
"""

import argparse
import sys
from pathlib import Path

import torch

from rltok_core.config.strict import parse, read_yaml
from rltok_core.files import write_whole
from rltok_core.gradlab.config import GradlabConfig
from rltok_core.gradlab.figure import bias_variance
from rltok_core.gradlab.lab import run
from rltok_core.gradlab.tables import answer, caption, csv_text, markdown
from rltok_core.report.style import RC, plt, save


def say(message: str) -> None:
    print(f"rltok gradlab: {message}", file=sys.stderr, flush=True)


def write(lab: GradlabConfig, configs: Path, out: Path) -> list[Path]:
    """Measure and write; returns the paths.

    Args:
        configs: the folder that holds estimators/.
    """
    rows, left_out = run(lab, configs, say)
    words = answer(rows)
    out.mkdir(parents=True, exist_ok=True)
    texts = {
        "table.csv": csv_text(rows),
        "table.md": markdown(rows, left_out, words),
        "caption.md": caption(rows, words),
    }
    for name, text in texts.items():
        write_whole(out / name, text.encode())
    with plt.rc_context(RC):
        pictures = save(bias_variance(rows), out / "figure", ("png", "pdf"))
    return [*(out / name for name in texts), *pictures]


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="rltok gradlab", description=__doc__.splitlines()[0])
    parser.add_argument("--config", type=Path, help="default: the checkout's configs/gradlab.yaml")
    parser.add_argument("--out", type=Path, required=True, help="folder of table and figure")
    args = parser.parse_args(argv)
    checkout = Path(__file__).resolve().parents[2] / "configs"
    path = args.config or checkout / "gradlab.yaml"
    beside = path.resolve().parent
    configs = beside if (beside / "estimators").is_dir() else checkout
    torch.set_num_threads(1)  # tiny matrices, and the same sums on every machine
    lab = parse(GradlabConfig, read_yaml(path), str(path))
    for written in write(lab, configs, args.out):
        print(written)
    return 0
