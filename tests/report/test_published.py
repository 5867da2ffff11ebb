"""The paper's numbers, typed a second time from paper.md 7, column by column."""

import pytest

from rltok_core.config.schema import DataConfig, EstimatorConfig
from rltok_core.report.published import ABLATIONS, CODEPARROT, MAIN_TABLE, family, published

ROWS = [
    "Uniform",
    "Dynamic pooling",
    "H-Net",
    "BPE guidance",
    "Score function, w = 1",
    "Score function, w = 8",
]
PIQA = [1.660, 1.737, 1.641, 1.589, 1.561, 1.557]
HELLASWAG = [1.306, 1.340, 1.313, 1.230, 1.199, 1.212]
ARC_EASY = [1.974, 2.011, 2.000, 2.084, 1.987, 2.016]
LAMBADA = [1.926, 1.956, 2.130, 1.645, 1.584, 1.737]
FINEWEB = [1.376, 1.372, 1.386, 1.299, 1.280, 1.297]
RATE = [0.200, 0.200, None, 0.207, None, 0.204]


def test_main_table_is_the_papers():
    columns = zip(PIQA, HELLASWAG, ARC_EASY, LAMBADA, FINEWEB, RATE, strict=True)
    assert dict(zip(ROWS, columns, strict=True)) == MAIN_TABLE


def test_ablations_and_code_are_the_papers():
    names = [
        "baseline",
        "no time discounting",
        "no batch-relative advantage",
        "no early-exit relative reward",
        "no window",
        "no target loss",
    ]
    rates = [0.196, 0.215, 0.208, 0.200, 0.196, 1.0]
    bpb = [1.548, 1.542, 1.543, 1.562, 1.51, 1.39]
    white = [0.99, 0.41, 0.99, 0.72, 0.99, 1.0]
    assert dict(zip(names, zip(rates, bpb, white, strict=True), strict=True)) == ABLATIONS
    assert CODEPARROT == {"Score function": 0.568, "H-Net": 0.769}


@pytest.mark.parametrize(
    ("kind", "label", "value"),
    [
        ("prose", "uniform", 1.376),
        ("prose", "pooling", 1.372),
        ("prose", "hnet", 1.386),
        ("prose", "bpe", 1.299),
        ("prose", "score_function_w1", 1.280),
        ("prose", "score_function", 1.297),
        ("code", "score_function", 0.568),
        ("code", "hnet", 0.769),
    ],
)
def test_lookup(kind, label, value):
    assert published(kind, label).value == value


@pytest.mark.parametrize(
    ("kind", "label"),
    [("planted", "uniform"), ("other", "uniform"), ("code", "uniform"), ("prose", "bpe_causal")],
)
def test_no_number_where_the_paper_has_none(kind, label):
    assert published(kind, label) is None


@pytest.mark.parametrize(
    ("params", "value"),
    [
        ({}, 1.548),
        ({"gamma": 1}, 1.542),
        ({"batch_relative": False}, 1.543),
        ({"early_exit_reward": False}, 1.562),
        ({"window": 1}, 1.51),
        ({"lam_target": 0}, 1.39),
        ({"gamma": 0.9}, None),
        ({"gamma": 1, "lam_target": 0}, None),
    ],
)
def test_ablations_are_told_by_their_parameters(params, value):
    estimator = EstimatorConfig(label="anything", cls="m:ScoreFunction", params=params)
    found = published("prose", "anything", "40M", estimator)
    assert (found and found.value) == value


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ({"kind": "packaged_prose"}, "prose"),
        ({"kind": "packaged_code", "distributions": {"numpy": "2"}}, "code"),
        ({"kind": "planted", "documents": 1, "document_bytes": 64}, "planted"),
        ({"kind": "hub", "path": "HuggingFaceFW/fineweb"}, "prose"),
        ({"kind": "hub", "path": "transformersbook/codeparrot"}, "code"),
        ({"kind": "files", "paths": ["a.txt"], "format": "txt"}, "other"),
    ],
)
def test_family(source, kind):
    assert family(DataConfig(name="x", source=source)) == kind
