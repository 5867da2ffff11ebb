"""The command line: `rltok COMMAND ...` (or `python -m rltok_core`), a command a pipeline step."""

import importlib
import sys

from rltok_core.errors import UserError

# command: (module with main(argv) -> int, one line of help); imported only when it is called
COMMANDS = {
    "resolve": ("rltok_core.config.cli", "write an experiment's resolved runs as YAML"),
    "plan": ("rltok_core.plan.cli", "what an experiment will cost, before anything runs"),
    "data": ("rltok_core.data.cli", "build or inspect a byte dataset"),
    "prepare": ("rltok_core.boundaries.cli", "prepare what an estimator needs (BPE, entropies)"),
    "train": ("rltok_core.training.cli", "train one run, or go on with it"),
    "evaluate": ("rltok_core.evaluation.cli", "score one trained run on held-out text"),
    "compress": ("rltok_core.evaluation.compress", "code a file losslessly by a trained run"),
    "decompress": ("rltok_core.evaluation.decompress", "decode what `compress` wrote"),
    "downstream": ("rltok_core.evaluation.downstream", "the paper's four tasks, by bytes"),
    "lm-eval": ("rltok_core.evaluation.harness", "the LM Evaluation Harness, on run folders"),
    "segment": ("rltok_core.segment", "the tokens of trained runs on any text"),
    "report": ("rltok_core.report.cli", "tables, figures and the page of an experiment"),
    "figures": ("rltok_core.report.cli", "the same command by another name"),
    "new-estimator": ("rltok_core.boundaries.new_estimator", "write a new estimator to start from"),
    "gradlab": ("rltok_core.gradlab.cli", "exact bias and variance of every gradient estimate"),
    "bench": ("rltok_core.bench.cli", "how fast the kernels are, against plain references"),
    "progress": ("rltok_core.report.progress", "how far an experiment is, and what remains"),
}


def main(argv: list[str] | None = None) -> int:
    """Run one command; a UserError is one line on stderr and its own exit code."""
    argv = sys.argv[1:] if argv is None else argv
    if not argv or argv[0] in ("-h", "--help"):
        print("usage: rltok COMMAND ...   (rltok COMMAND --help)\n")
        for name, (_, text) in COMMANDS.items():
            print(f"  {name:14s} {text}")
        return 0 if argv else 2
    if argv[0] not in COMMANDS:
        print(f"rltok: unknown command {argv[0]!r}; one of {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    try:
        return importlib.import_module(COMMANDS[argv[0]][0]).main(argv[1:]) or 0
    except UserError as error:
        print(f"rltok {argv[0]}: {error}", file=sys.stderr)
        return error.code
