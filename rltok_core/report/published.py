"""The paper's published numbers (paper.md 7), and which of them stands beside which of our rows.

They come from another scale and another corpus than anything trained here on a laptop; every
table that shows one says so.
"""

from typing import NamedTuple

from rltok_core.config.schema import DataConfig, EstimatorConfig

SOURCE = "Dauncey & Wattenhofer, ICML 2026, arXiv 2602.13940v2"

# FineWeb, 147M, bits per byte. The four tasks: BPB of the target continuation, zero-shot.
COLUMNS = ("piqa", "hellaswag", "arc_easy", "lambada", "fineweb_test", "boundary_rate")
MAIN_TABLE: dict[str, tuple[float | None, ...]] = {
    "Uniform": (1.660, 1.306, 1.974, 1.926, 1.376, 0.200),
    "Dynamic pooling": (1.737, 1.340, 2.011, 1.956, 1.372, 0.200),
    "H-Net": (1.641, 1.313, 2.000, 2.130, 1.386, None),
    "BPE guidance": (1.589, 1.230, 2.084, 1.645, 1.299, 0.207),
    "Score function, w = 1": (1.561, 1.199, 1.987, 1.584, 1.280, None),
    "Score function, w = 8": (1.557, 1.212, 2.016, 1.737, 1.297, 0.204),
}

# CodeParrot, 90M: "validation loss", as published
CODEPARROT: dict[str, float] = {"Score function": 0.568, "H-Net": 0.769}

# FineWeb validation, 40M: (boundary rate, BPB, share of whitespace with a boundary)
ABLATIONS: dict[str, tuple[float, float, float]] = {
    "baseline": (0.196, 1.548, 0.99),
    "no time discounting": (0.215, 1.542, 0.41),
    "no batch-relative advantage": (0.208, 1.543, 0.99),
    "no early-exit relative reward": (0.200, 1.562, 0.72),
    "no window": (0.196, 1.51, 0.99),
    "no target loss": (1.0, 1.39, 1.0),
}

# our label: the paper's row
MAIN_LABELS = {
    "uniform": "Uniform",
    "pooling": "Dynamic pooling",
    "hnet": "H-Net",
    "bpe": "BPE guidance",
    "score_function_w1": "Score function, w = 1",
    "score_function": "Score function, w = 8",
}
CODE_LABELS = {"score_function": "Score function", "hnet": "H-Net"}
# what differs from the score function's defaults, and the paper's name for that ablation
SWITCHES = {
    ("gamma", 1.0): "no time discounting",
    ("batch_relative", False): "no batch-relative advantage",
    ("early_exit_reward", False): "no early-exit relative reward",
    ("window", 1): "no window",
    ("lam_target", 0.0): "no target loss",
}
_DEFAULTS = {
    "gamma": 0.99,
    "batch_relative": True,
    "early_exit_reward": True,
    "window": 8,
    "lam_target": 0.01,
}


class Published(NamedTuple):
    """One number of the paper, with what it was measured on."""

    value: float
    method: str
    setting: str


def family(data: DataConfig) -> str:
    """'prose', 'code', 'planted' or 'other': the kind of text, which decides the paper's column."""
    source = data.source
    path = getattr(source, "path", "").lower()
    if source.kind == "planted":
        return "planted"
    if source.kind == "packaged_code" or "codeparrot" in path:
        return "code"
    if source.kind == "packaged_prose" or "fineweb" in path:
        return "prose"
    return "other"


def ablation(estimator: EstimatorConfig) -> str | None:
    """The paper's name of a score-function ablation, from the parameters; None if it has none."""
    if not estimator.cls.endswith(":ScoreFunction"):
        return None
    params = {key: estimator.params.get(key, value) for key, value in _DEFAULTS.items()}
    changed = [(key, value) for key, value in params.items() if value != _DEFAULTS[key]]
    if not changed:
        return "baseline"
    return SWITCHES.get(changed[0]) if len(changed) == 1 else None


def published(
    kind: str, label: str, size: str = "", estimator: EstimatorConfig | None = None
) -> Published | None:
    """The paper's number beside a row of ours.

    Args:
        kind: what `family` returned.
        label: the estimator's label in our tables.
        size: the size's name; "40M" rows stand beside the paper's 40M ablations.
        estimator: needed for the ablations, which are told apart by their parameters.

    Returns:
        The number, the paper's name of the method and the setting; None if there is none.
    """
    if kind == "prose" and size == "40M" and estimator is not None:
        name = ablation(estimator)
        if name is not None:
            return Published(ABLATIONS[name][1], name, "FineWeb validation BPB, 40M")
    if kind == "prose" and label in MAIN_LABELS:
        row = dict(zip(COLUMNS, MAIN_TABLE[MAIN_LABELS[label]], strict=True))
        return Published(row["fineweb_test"], MAIN_LABELS[label], "FineWeb test BPB, 147M")
    if kind == "code" and label in CODE_LABELS:
        name = CODE_LABELS[label]
        return Published(CODEPARROT[name], name, "CodeParrot validation loss as published, 90M")
    return None
