"""What a plan has to know of an estimator, without importing torch for those that come with us.

tests/plan checks every line of FACTS against the class itself. A plug-in is built on torch's meta
device, which has shapes and no memory.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from rltok_core.config.schema import EstimatorConfig

PACKAGE = "rltok_core.boundaries."


class Facts(NamedTuple):
    """weights: of (params, width D); learned: a rate curriculum moves it; vectors: about how many
    float32 vectors of width D a byte it keeps for its backward pass; samples: draws a row."""

    weights: Callable[[dict[str, Any], int], int]
    learned: bool
    vectors: int = 0
    samples: int = 1


def _none(params: dict[str, Any], width: int) -> int:
    return 0


def _policy(params: dict[str, Any], width: int) -> int:
    return params["window"] * width


def _critic(params: dict[str, Any], width: int) -> int:
    return _policy(params, width) + width + int(params["early_exit_input"]) + 1


FACTS = {
    "uniform:Uniform": Facts(_none, learned=True),
    "stride:Stride": Facts(_none, learned=False),
    "whitespace:Whitespace": Facts(_none, learned=False),
    "oracle:Oracle": Facts(_none, learned=False),
    "no_mid:NoMid": Facts(_none, learned=False),
    "bpe:Bpe": Facts(_none, learned=False),
    "bpe_causal:BpeCausal": Facts(_none, learned=False),
    "entropy:Entropy": Facts(_none, learned=False),
    "score_function:ScoreFunction": Facts(_policy, learned=True),
    "off_policy:OffPolicy": Facts(_policy, learned=True),
    "rloo:Rloo": Facts(_policy, learned=True),  # draws: its parameter `samples`
    "disarm:Disarm": Facts(_policy, learned=True, samples=2),
    "bernoulli_ste:BernoulliSte": Facts(_policy, learned=True, vectors=1),
    "critic:Critic": Facts(_critic, learned=True, vectors=2),
    "hnet:HNet": Facts(lambda params, width: 2 * width**2, learned=True, vectors=4),
    "pooling:Pooling": Facts(
        lambda params, width: width**2 + 2 * width + 1, learned=True, vectors=16
    ),
}


class Size(NamedTuple):
    """Facts of one estimator in one network."""

    weights: int
    learned: bool
    vectors: int
    samples: int


def estimator_size(config: EstimatorConfig, d_model: int, rate: float, seq_len: int) -> Size:
    """Raises UserError where a plug-in can't be loaded or its parameters are wrong."""
    facts = FACTS.get(config.cls.removeprefix(PACKAGE))
    if facts is not None:
        samples = config.params.get("samples", facts.samples)
        weights = facts.weights(config.params, d_model)
        return Size(weights, facts.learned, facts.vectors, samples)
    import torch  # only for plug-ins: it takes seconds

    from rltok_core.boundaries.registry import build_estimator

    with torch.device("meta"):
        estimator = build_estimator(config, d_model, rate, seq_len)
    weights = sum(p.numel() for p in estimator.parameters())
    return Size(weights, estimator.learned, 0, estimator.samples)
