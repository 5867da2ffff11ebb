"""Every table and figure there is, a line each: also a target of the workflow (`snakemake NAME`).

To add one, write a function that takes an Edition and gives back a Table or a Picture, or raises
NothingToShow (edition.py), and name it here; the report, `rltok report --only NAME`, the workflow
and docs/tables-and-figures.md's test find it. Modules are imported when their product is made.
"""

import importlib
from typing import NamedTuple

from rltok_core.errors import UserError


class Product(NamedTuple):
    """One table or figure.

    Attributes:
        title: its heading.
        make: "module:function", the module below rltok_core.report.
    """

    title: str
    make: str

    def function(self):
        """The function of `make`; imports its module."""
        module, _, name = self.make.partition(":")
        return getattr(importlib.import_module(f"rltok_core.report.{module}"), name)


# in the report's order
PRODUCTS: dict[str, Product] = {
    "main_table": Product("Every method", "main_table:main_table"),
    "paper_table": Product("The paper's main table", "paper_tables:paper_table"),
    "code_table": Product("The paper's code table", "paper_tables:code_table"),
    "ablation_table": Product("The paper's ablations", "paper_tables:ablation_table"),
    "rate_table": Product("Boundary rates", "paper_tables:rate_table"),
    "curriculum_table": Product("The rate curriculum", "curriculum:curriculum_table"),
    "scripts_table": Product("Other scripts", "scripts_table:scripts_table"),
    "ledger_table": Product("Fidelity ledger", "ledger:ledger_table"),
    "paired_differences": Product("Differences to the baseline", "differences:differences"),
    "bpb_by_method": Product("Bits per byte by method", "charts:bpb_by_method"),
    "difference_to_baseline": Product(
        "Paired difference to the baseline", "charts:difference_to_baseline"
    ),
    "gap_to_floor": Product("Gap to the entropy floor", "charts:gap_to_floor"),
    "flops_bpb": Product("Training FLOPs against validation BPB", "curves:flops_bpb"),
    "lambda_sweeps": Product("Weights of the loss terms", "sweeps:lambda_sweeps"),
    "aspect_ratio": Product("Aspect ratio", "sweeps:aspect_ratio"),
    "whitespace_over_training": Product(
        "Whitespace with a boundary", "curves:whitespace_over_training"
    ),
    "position": Product("Boundary probability and loss by position", "curves:position"),
    "token_lengths": Product("Token lengths", "charts:token_lengths"),
    "evaluation_checks": Product("Checks of the evaluation", "boundaries:evaluation_checks"),
    "boundary_table": Product("What the boundaries are like", "boundaries:boundary_table"),
    "agreement": Product("Agreement between methods", "boundaries:agreement"),
    "suite": Product("Boundaries on a suite of texts", "boundaries:suite"),
    "heatmaps_prose": Product("Heat maps, prose", "heatmaps:prose"),
    "heatmaps_code": Product("Heat maps, code", "heatmaps:code"),
    "heatmaps_planted": Product("Heat maps, planted language", "heatmaps:planted"),
    "heatmaps_other": Product("Heat maps, text of your own", "heatmaps:other"),
    "provenance": Product("Where every number comes from", "provenance:provenance"),
}


def product(name: str) -> Product:
    """Raises UserError for an unknown name, with the known ones."""
    if name not in PRODUCTS:
        raise UserError(f"no table or figure {name!r}; one of {', '.join(PRODUCTS)}")
    return PRODUCTS[name]
