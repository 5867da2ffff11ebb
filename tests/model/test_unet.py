"""The U-Net against plain loops and against itself; K13 of cases.md."""

import math
from dataclasses import dataclass

import pytest
import torch

from rltok_core.boundaries.contract import Estimator, Proposal, fixed_proposal, forced_BS
from rltok_core.config.schema import ModelConfig
from rltok_core.data.batch import Batch
from rltok_core.data.stream import RandomStream
from rltok_core.data.vocabulary import BOS, N_SPECIAL, PAD
from rltok_core.model import attention
from rltok_core.model.attention import rope_table
from rltok_core.model.unet import UNet, target_logp


class RandomRule(Estimator):
    """Each position is a boundary with probability target_rate."""

    def propose(self, x_BSD, batch, target_rate):
        u_BS = batch.stream.uniform(batch.ids_BS.shape[1])
        return fixed_proposal(u_BS < target_rate, batch)


class LearnedRandomRule(RandomRule):
    """The same, but the curriculum may overrule it."""

    learned = True


@dataclass
class _Given:
    boundary_BS: torch.Tensor


class GivenRule(Estimator):
    """Exactly the boundaries it is told, the first position always among them."""

    def propose(self, x_BSD, batch, target_rate):
        boundary_BS = self.given.boundary_BS & batch.valid_BS
        return Proposal(boundary_BS, boundary_BS.float(), batch.valid_BS & ~forced_BS(batch))


CONFIG = ModelConfig(size="test", d_model=16, n_heads=2, n_down=2, n_mid=2, n_up=1, window=4)


def _batch(documents: list[bytes], pad_to: int = 0, seed: int = 0) -> Batch:
    width = max(pad_to, *(len(d) + 1 for d in documents))
    ids_BS = torch.full((len(documents), width), PAD)
    for row, document in enumerate(documents):
        ids_BS[row, 0] = BOS
        ids_BS[row, 1 : len(document) + 1] = torch.tensor(list(document)) + N_SPECIAL
    length_B = torch.tensor([len(d) + 1 for d in documents])
    return Batch(ids_BS, length_B, RandomStream([seed + row for row in range(len(documents))]))


def _random_bytes(length: int, seed: int) -> bytes:
    generator = torch.Generator().manual_seed(seed)
    return bytes(torch.randint(0, 256, (length,), generator=generator).tolist())


def _model(rule=RandomRule, config=CONFIG, seed=0, **attributes) -> UNet:
    estimator = rule({}, config.d_model, 1.0, 65)  # no rate asked for is above its own
    for name, value in attributes.items():
        setattr(estimator, name, value)
    model = UNet(config, estimator, seed)
    with torch.no_grad():  # norm weights away from zero, so that they matter
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.uniform_(-0.3, 0.3, generator=torch.Generator().manual_seed(seed))
    return model


def _loss_by_row(model, batch, rate=0.2):
    logp_BS, early_BS = target_logp(model(batch, rate), batch)
    count_B = batch.scored_BS.sum(1).clamp(min=1)
    return -logp_BS.sum(1) / count_B, -early_BS.sum(1) / count_B


@pytest.mark.parametrize("mid", ["use", "stale", "zero"])
def test_select_and_distribute_equal_a_loop(mid):
    """The token level row by row and byte by byte, without padding, sorting or gathering."""
    model = _model()
    batch = _batch([_random_bytes(n, n) for n in (1, 9, 40)])
    prediction = model(batch, 0.3, mid)
    boundary_BS = prediction.proposal.boundary_BS
    table = rope_table(batch.ids_BS.shape[1], 8, 10_000.0, torch.device("cpu"))
    for row, length in enumerate(batch.length_B.tolist()):
        x_SD = prediction.x_BSD[row, :length]
        chosen = [i for i in range(length) if boundary_BS[row, i]]
        assert chosen[0] == 0 and chosen[-1] == length - 1
        assert prediction.tokens.position_BT[row, : len(chosen)].tolist() == chosen
        y_1TD = torch.stack([x_SD[i] for i in chosen])[None]
        for layer in model.mid:
            y_1TD = layer(y_1TD, table[torch.tensor([chosen])])
        z = []
        for i in range(length):
            latest = max(t for t, position in enumerate(chosen) if position <= i)
            token = {"use": latest, "stale": max(latest - 1, 0)}.get(mid)
            z.append(x_SD[i] if token is None else x_SD[i] + y_1TD[0, token])
        z_1SD = torch.stack(z)[None]
        for layer in model.up:
            z_1SD = layer(z_1SD, table[:length])
        expected = z_1SD[0] @ model.head.weight[N_SPECIAL:].T
        torch.testing.assert_close(
            prediction.logits_BSC[row, :length], expected, rtol=1e-5, atol=1e-5
        )


@pytest.mark.parametrize("which", ["none", "all", "last"])
def test_K13_one_byte_beside_sixty_four(which):
    documents = [b"a", _random_bytes(64, 1)]
    together, alone = _batch(documents), _batch(documents[1:], seed=1)
    model = _model(GivenRule)
    losses = []
    for batch in (together, alone):
        boundary_BS = torch.full_like(batch.ids_BS, which == "all", dtype=torch.bool)
        if which == "last":
            boundary_BS.scatter_(1, (batch.length_B - 1)[:, None], True)
        model.estimator.given = _Given(boundary_BS)
        losses.append(_loss_by_row(model, batch))
    for together_B, alone_B in zip(*losses, strict=True):
        assert torch.isfinite(together_B).all()
        assert (together_B[1] - alone_B[0]).abs() < 1e-6
    model.zero_grad()
    model.estimator.given = _Given(torch.full_like(together.ids_BS, which == "all").bool())
    if which == "last":
        model.estimator.given.boundary_BS.scatter_(1, (together.length_B - 1)[:, None], True)
    final_B, early_B = _loss_by_row(model, together)
    (final_B + early_B).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is None or torch.isfinite(parameter.grad).all(), name
    if which == "all":
        prediction = model(together, 0.2)
        tokens = int(prediction.tokens.valid_BT.sum())
        assert int(together.length_B.sum()) / tokens == 1.0


def test_padding_changes_nothing():
    document = _random_bytes(30, 2)
    model = _model()
    losses = [_loss_by_row(model, _batch([document], pad_to=n))[0] for n in (31, 32, 77)]
    torch.testing.assert_close(losses[0], losses[1], rtol=0, atol=1e-6)
    torch.testing.assert_close(losses[0], losses[2], rtol=0, atol=1e-6)


def test_the_network_is_causal_given_the_boundaries():
    """Bytes from 20 on change; every prediction made before position 20 + 1 stays the same."""
    document = bytearray(_random_bytes(50, 3))
    changed = document[:20] + bytes((b + 1) % 256 for b in document[20:])
    batches = [_batch([bytes(d)]) for d in (document, changed)]
    model = _model()
    first, second = (model(batch, 0.3) for batch in batches)
    assert torch.equal(first.proposal.boundary_BS, second.proposal.boundary_BS)
    # byte j is at position j + 1: positions 0..20 hold what both documents share
    for name in ("logits_BSC", "early_logits_BSC", "x_BSD"):
        a, b = getattr(first, name), getattr(second, name)
        torch.testing.assert_close(a[:, :21], b[:, :21], rtol=0, atol=1e-6)
        assert not torch.allclose(a[:, 21:], b[:, 21:], atol=1e-3)


def test_without_token_layers_the_boundaries_are_still_proposed():
    model = _model(config=CONFIG.model_copy(update={"n_mid": 0}))
    batch = _batch([_random_bytes(20, 4)])
    prediction = model(batch, 0.3)
    assert prediction.tokens is None and prediction.proposal.boundary_BS.any()
    zeroed = model(batch, 0.3, "zero")
    assert torch.equal(prediction.logits_BSC, zeroed.logits_BSC)


def test_open_phase_overrules_a_learned_estimator_only():
    batch = _batch([_random_bytes(n, n) for n in (3, 40)])
    for rule in (RandomRule, LearnedRandomRule):
        # a rule that never fires but for its forced ends
        model = _model(rule)
        model.estimator.propose = lambda x, b, rate: fixed_proposal(
            torch.zeros_like(b.ids_BS, dtype=torch.bool), b
        )
        prediction = model(batch, 1.0)
        if rule.learned:
            assert torch.equal(prediction.proposal.boundary_BS, batch.valid_BS)
            assert not prediction.proposal.free_BS.any()
        else:
            assert int(prediction.proposal.boundary_BS.sum()) == 4
        assert int(model(batch, 0.9).proposal.boundary_BS.sum()) == 4


def test_a_rule_that_is_asked_for_more_than_its_own_rate_gets_random_boundaries_beside_its_own():
    batch = _batch([_random_bytes(n, n) for n in [200] * 40 + [0, 1]])
    model = _model(target_rate=0.2)
    x_BSD = model.encode(batch)
    own = model.propose(x_BSD, batch, 0.2)
    added = []
    for rate in (0.3, 0.6, 0.9):
        found = model.propose(x_BSD, batch, rate)
        assert (found.boundary_BS | ~own.boundary_BS).all()
        assert not (found.boundary_BS & ~batch.valid_BS).any()
        assert torch.equal(found.free_BS, own.free_BS)
        assert torch.equal(found.prob_BS, found.boundary_BS.float())
        realised = found.boundary_BS[:40].double().mean(1)
        assert realised.mean().item() == pytest.approx(rate, abs=0.01)
        assert (realised - rate).abs().max() < 0.15  # every row, whatever the rule gave it
        added.append(found.boundary_BS)
    assert (added[1] | ~added[0]).all() and (added[2] | ~added[1]).all()  # the same numbers
    assert torch.equal(model.propose(x_BSD, batch, 1.0).boundary_BS, batch.valid_BS)
    assert torch.equal(model.propose(x_BSD, batch, 0.2).boundary_BS, own.boundary_BS)


def test_decode_takes_other_boundaries_for_the_same_byte_vectors():
    """encode() knows nothing of boundaries: what another rule draws is decoded as by that rule."""
    batch = _batch([_random_bytes(n, n) for n in (9, 40)])
    model, other = _model(), _model(GivenRule)
    given = model(batch, 0.5).proposal
    other.estimator.given = given
    x_BSD = model.encode(batch)
    assert torch.equal(x_BSD, model(batch, 0.2).x_BSD)
    assert not torch.equal(model.propose(x_BSD, batch, 0.2).boundary_BS, given.boundary_BS)
    for mid in ("use", "stale", "zero"):
        decoded, whole = model.decode(x_BSD, batch, given, mid), other(batch, 0.2, mid)
        assert torch.equal(decoded.logits_BSC, whole.logits_BSC)
        assert torch.equal(decoded.early_logits_BSC, whole.early_logits_BSC)


def test_equal_logits_cost_ln_256_a_byte():
    model = _model()
    with torch.no_grad():
        model.head.weight.zero_()
        model.early_head.weight.zero_()
        model.head.weight[:N_SPECIAL] = 7.0  # special ids take no share of the probability
    batch = _batch([b"\x00", b"ab\x00", bytes([255] * 9)])
    for logp_BS in target_logp(model(batch, 0.2), batch):
        assert logp_BS.dtype == torch.float32
        expected = torch.where(batch.scored_BS, torch.tensor(-math.log(256)), torch.tensor(0.0))
        torch.testing.assert_close(logp_BS, expected, rtol=1e-7, atol=0)
        assert batch.scored_BS.sum() == 13


def test_target_logp_equals_float64_log_softmax_with_its_gradient():
    model, batch = _model(), _batch([_random_bytes(20, 6), b"xyz"])
    prediction = model(batch, 0.3)
    wide_BSC = prediction.logits_BSC.detach().double().requires_grad_()
    logp_BSC = torch.log_softmax(wide_BSC, -1)
    expected_BS = logp_BSC.gather(-1, batch.target_BS[..., None])[..., 0] * batch.scored_BS
    (expected_BS * torch.linspace(-1, 2, 21)).sum().backward()
    narrow_BSC = prediction.logits_BSC.detach().requires_grad_()
    prediction.logits_BSC = narrow_BSC
    logp_BS, _ = target_logp(prediction, batch)
    (logp_BS * torch.linspace(-1, 2, 21)).sum().backward()
    torch.testing.assert_close(logp_BS.double(), expected_BS, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(narrow_BSC.grad.double(), wide_BSC.grad, rtol=1e-6, atol=1e-6)


def test_under_autocast_losses_and_gradients_are_close_to_float32():
    batch, model = _batch([_random_bytes(n, n) for n in (40, 7)]), _model()
    plain, _ = _loss_by_row(model, batch)
    with torch.autocast("cpu", torch.bfloat16):
        rounded, _ = _loss_by_row(model, batch)
    assert rounded.dtype == torch.float32
    torch.testing.assert_close(rounded, plain, rtol=0, atol=0.05)
    rounded.sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_training_after_an_evaluation_in_inference_mode(dtype):
    """Tables and masks first made in inference mode must still serve a backward pass."""
    for cached in (attention.rope_table, attention._local_mask, attention._causal_mask):
        cached.cache_clear()
    batch, model = _batch([_random_bytes(23, 9)]), _model().to(dtype)
    with torch.inference_mode():
        before, _ = _loss_by_row(model, batch)
    after, _ = _loss_by_row(model, batch)
    after.sum().backward()
    assert torch.equal(before, after)


def test_every_weight_learns():
    batch, model = _batch([_random_bytes(40, 8)]), _model()
    final_B, early_B = _loss_by_row(model, batch, 0.3)
    (final_B + early_B).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().max() > 0, name
