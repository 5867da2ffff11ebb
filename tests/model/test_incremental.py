"""Which decoder an estimator gets, rings and room; equality is tests/boundaries' own matter."""

import pytest
import torch

from rltok_core.boundaries.contract import Estimator, fixed_proposal
from rltok_core.boundaries.policy import Policy
from rltok_core.boundaries.uniform import Uniform
from rltok_core.config.schema import ModelConfig
from rltok_core.data.batch import Batch
from rltok_core.data.stream import RandomStream
from rltok_core.data.vocabulary import N_SPECIAL
from rltok_core.model.incremental import (
    FullDecoder,
    IncrementalDecoder,
    TokenPast,
    WindowPast,
    open_decoder,
    steps,
)
from rltok_core.model.unet import UNet

S, RATE = 90, 0.4


class Doubling(Estimator):
    """A plug-in that knows nothing of steps: tokens count twice."""

    def propose(self, x_BSD, batch, target_rate):
        return fixed_proposal(batch.ids_BS % 3 == 0, batch)

    def to_bytes(self, y_BTD, tokens, proposal):
        return 2 * super().to_bytes(y_BTD, tokens, proposal)


class Thirds(Estimator):
    """A plug-in with boundaries alone: the default stepper does for it."""

    def propose(self, x_BSD, batch, target_rate):
        return fixed_proposal(batch.ids_BS % 3 == 0, batch)


class Moved(Uniform):
    """Overrides what the class above stepped for."""

    def propose(self, x_BSD, batch, target_rate):
        return fixed_proposal(batch.ids_BS % 3 == 0, batch)


class Told(Moved):
    """Says that asking propose will do."""

    stepper = Estimator.stepper


def build(cls, **sizes):
    config = {"size": "t", "d_model": 16, "n_heads": 2, "n_down": 2, "n_mid": 2, "n_up": 1}
    model = ModelConfig(**(config | {"window": 5} | sizes))
    return UNet(model, cls({}, 16, RATE, S), seed=0).double()


def make_batch():
    ids_BS = torch.randint(N_SPECIAL, 320, (3, S), generator=torch.Generator().manual_seed(0))
    return Batch(ids_BS, torch.tensor([S, 41, 2]), RandomStream([1, 2, 3]))


@pytest.mark.parametrize(
    "cls, kind",
    [
        (Doubling, FullDecoder),
        (Thirds, IncrementalDecoder),
        (Moved, FullDecoder),
        (Told, IncrementalDecoder),
        (Uniform, IncrementalDecoder),
    ],
)
@pytest.mark.parametrize("rate", [RATE, 1.0])
def test_whoever_it_is_the_full_pass_is_met(cls, kind, rate):
    model, batch = build(cls), make_batch()
    decoder = open_decoder(model, batch, rate)
    # a rule that is asked for more than its own gets a curriculum's random boundaries
    assert type(decoder) is (kind if rate == RATE or cls.learned else FullDecoder)
    full_BSC = model(batch, rate).logits_BSC
    for i in range(S):
        gap_BC = decoder.step(batch.ids_BS[:, i]) - full_BSC[:, i]
        assert gap_BC[batch.length_B > i].abs().max() < 1e-9


def test_without_a_token_level():
    model, batch = build(Thirds, n_mid=0), make_batch()
    decoder = open_decoder(model, batch, RATE)
    full_BSC = model(batch, RATE).logits_BSC
    for i in range(S):
        gap_BC = decoder.step(batch.ids_BS[:, i]) - full_BSC[:, i]
        assert gap_BC[batch.length_B > i].abs().max() < 1e-9


def test_positions_rounded_as_the_full_pass_rounds_them():
    """bf16 holds every integer up to 256: only beyond can the two tables differ (ledger 3)."""
    model, length = build(Thirds, rope_positions="bf16"), 300
    ids_BS = torch.randint(N_SPECIAL, 320, (1, length), generator=torch.Generator().manual_seed(0))
    batch = Batch(ids_BS, torch.tensor([length]), RandomStream([1]))
    decoder = open_decoder(model, batch, RATE)
    full_BSC = model(batch, RATE).logits_BSC
    gaps = [decoder.step(ids_BS[:, i]) - full_BSC[:, i] for i in range(length)]
    assert torch.stack(gaps).abs().max() < 1e-9


def test_a_stepper_counts_only_for_what_it_knew():
    assert steps(build(Thirds).estimator) and not steps(build(Doubling).estimator)
    assert steps(build(Told).estimator) and not steps(build(Moved).estimator)


def test_the_policys_subclasses_say_so_themselves():
    class Other(Policy):
        def to_tokens(self, x_BSD, proposal):
            return super().to_tokens(x_BSD, proposal)

    assert not steps(Other.__new__(Other))


def test_nothing_ahead_is_looked_at():
    """The decoder's own batch is empty: what the caller's holds further on can't matter."""
    model, batch = build(Thirds), make_batch()
    decoder = open_decoder(model, batch, RATE)
    decoder.step(batch.ids_BS[:, 0])
    assert not decoder.batch.ids_BS[:, 1:].any()


def test_a_ring_keeps_the_window():
    past = WindowPast(3)
    for i in range(7):
        k, v, hidden = past.extend(torch.full((2, 1, 1), float(i)), torch.full((2, 1, 1), -1.0 * i))
        assert sorted(k[0].flatten().tolist()) == list(range(max(0, i - 2), i + 1))
        assert torch.equal(v, -k) and hidden is None


def test_room_for_tokens_grows_and_rows_stay_apart():
    past, count_B = TokenPast(3), torch.zeros(3, dtype=torch.long)
    for i in range(50):
        rows = torch.tensor([0, 2] if i % 2 else [1])
        past.rows, past.count_R = rows, count_B[rows]
        value = torch.full((len(rows), 1, 1), float(i))
        k, _, hidden = past.extend(value, value)
        count_B[rows] += 1
        for r, row in enumerate(rows.tolist()):
            seen = k[r][~hidden[r]].flatten().tolist()
            assert seen == [j for j in range(i + 1) if (j % 2 == 1) == (row != 1)]
