"""The loss against loops over its parts; K13; whitespace counts."""

import numpy as np
import pytest
import torch

from rltok_core.boundaries.contract import Estimator, LossTerm, fixed_proposal
from rltok_core.config.schema import ModelConfig, TrainingConfig
from rltok_core.data.batch import Batch
from rltok_core.data.stream import RandomStream
from rltok_core.data.vocabulary import BOS, N_SPECIAL, PAD
from rltok_core.evaluation.segmentation import TokenLengths, WhitespaceShare
from rltok_core.model.unet import UNet, target_logp
from rltok_core.training.objective import boundary_counts, objective, whitespace_counts

MODEL = ModelConfig(size="t", d_model=16, n_heads=2, n_down=1, n_mid=1, n_up=1, window=4)
TRAINING = TrainingConfig(steps=1, lr=1.0, lam_early=0.25)


class Pattern(Estimator):
    """Boundaries where `chosen` says, and two loss terms without batch statistics."""

    def propose(self, x_BSD, batch, target_rate):
        if isinstance(self.chosen, torch.Tensor):
            return fixed_proposal(self.chosen, batch)
        return fixed_proposal(torch.full_like(batch.valid_BS, self.chosen), batch)

    def losses(self, outcome):
        size = (outcome.batch.length_B - 1).sum()
        return {
            "gap": LossTerm(0.5, (outcome.logp_BS - outcome.logp_early_BS).sum() / size),
            "square": LossTerm(0.1, (outcome.logp_BS**2).sum() / size),
        }


def unet(chosen=False, seed=0, model=MODEL) -> UNet:
    estimator = Pattern({}, model.d_model, 0.2, 66)
    estimator.chosen = chosen
    return UNet(model, estimator, seed)


def batch_of(*documents: bytes) -> Batch:
    length = max(map(len, documents)) + 1
    ids_BS = torch.full((len(documents), length), PAD)
    ids_BS[:, 0] = BOS
    for row, document in enumerate(documents):
        ids_BS[row, 1 : len(document) + 1] = torch.tensor(list(document)) + N_SPECIAL
    sizes = torch.tensor([len(document) + 1 for document in documents])
    return Batch(ids_BS, sizes, RandomStream(list(range(len(documents)))))


class Drawn(Pattern):
    """A boundary where the row's random number is below 0.4; three draws a row."""

    samples = 3

    def propose(self, x_BSD, batch, target_rate):
        self.chosen = batch.stream.uniform(batch.ids_BS.shape[1]) < 0.4
        return super().propose(x_BSD, batch, target_rate)


class OneDraw(RandomStream):
    """The stream of one draw alone of RandomStream.repeated."""

    def __init__(self, stream, sample, samples):
        super().__init__(stream.keys_B)
        self.whole, self.place = stream.repeated(samples, False), (sample, samples)

    def uniform(self, length, channel="boundary"):
        sample, samples = self.place
        return self.whole.uniform(length, channel).chunk(samples)[sample]


LONG = bytes(range(64, 128))
TEXTS = (b"the cat sat\n", b"on", b" every mat. and so on")


def test_loss_is_the_weighted_sum_of_its_parts():
    batch, model = batch_of(*TEXTS), unet()
    result = objective(model, batch, TRAINING, 0.2)
    logits = result.prediction.logits_BSC.detach().double().log_softmax(-1)
    early = result.prediction.early_logits_BSC.detach().double().log_softmax(-1)
    final = [logits[r, i, b].item() for r, t in enumerate(TEXTS) for i, b in enumerate(t)]
    first = [early[r, i, b].item() for r, t in enumerate(TEXTS) for i, b in enumerate(t)]
    assert float(result.nats) == pytest.approx(-sum(final), rel=1e-6)
    assert float(result.nats_early) == pytest.approx(-sum(first), rel=1e-6)
    gap = sum(final) / len(final) - sum(first) / len(first)
    square = sum(x * x for x in final) / len(final)
    auto, exit_ = -sum(final) / len(final), -sum(first) / len(first)
    extra = 0.5 * gap + 0.1 * square
    assert result.loss.item() == pytest.approx(0.75 * auto + 0.25 * exit_ + extra, rel=1e-6)
    assert {name: float(v) for name, v in result.terms.items()} == pytest.approx(
        {"auto": auto, "early": exit_, "gap": gap, "square": square}, rel=1e-5
    )
    paper = objective(model, batch, TRAINING.model_copy(update={"paper_loss_weights": True}), 0.2)
    assert paper.loss.item() == pytest.approx(auto + 0.25 * exit_ + extra, rel=1e-6)


@pytest.mark.parametrize("chosen", ["none", "all", "only last"])
def test_K13_nothing_to_attend_to(chosen):
    both, alone = batch_of(b"x", LONG), batch_of(LONG)
    pattern = chosen == "all"
    if chosen == "only last":
        pattern = torch.zeros_like(both.valid_BS)
        pattern[:, -1] = True
    model = unet(pattern)
    result = objective(model, both, TRAINING, 0.2)
    result.loss.backward()
    assert result.loss.isfinite() and all(v.isfinite() for v in result.terms.values())
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name
    together = target_logp(result.prediction, both)[0][1].double().sum()
    if isinstance(pattern, torch.Tensor):
        model.estimator.chosen = pattern[1:]
    single = objective(model, alone, TRAINING, 0.2)
    assert -together.item() / 64 == pytest.approx(single.nats.item() / 64, abs=1e-6)
    boundaries, positions = boundary_counts(both, result.prediction.proposal.boundary_BS)
    assert positions == 67  # 2 + 65
    if chosen == "all":
        assert boundaries == 67
        lengths = TokenLengths()
        for row, size in enumerate((1, 64)):
            boundary = result.prediction.proposal.boundary_BS[row, 1 : size + 1]
            lengths.add(boundary.numpy())
        assert lengths.mean == 1.0
    else:
        assert boundaries == 4  # two forced ends a row


def test_a_batch_without_a_token_level_has_a_loss():
    model = unet(model=MODEL.model_copy(update={"n_mid": 0}))
    result = objective(model, batch_of(*TEXTS), TRAINING, 0.2)
    result.loss.backward()
    assert result.loss.isfinite() and result.prediction.tokens is None


def test_whitespace_share_counts_as_the_evaluation_does():
    texts = (*TEXTS, b" ", b"  ", b"a b", b"\t\n\r\x0b\x0c x" * 3)
    batch = batch_of(*texts)
    boundary_BS = torch.rand(batch.ids_BS.shape, generator=torch.Generator().manual_seed(1)) < 0.4
    boundary_BS &= batch.valid_BS
    expected = WhitespaceShare()
    for row, text in enumerate(texts):
        boundary = boundary_BS[row, 1 : len(text) + 1].numpy()
        expected.add(np.frombuffer(text, np.uint8), boundary)
    marked, whitespace = whitespace_counts(batch, boundary_BS)
    assert (marked, whitespace) == (expected.marked, expected.whitespace)
    assert 0 < expected.marked < expected.whitespace


def test_several_draws_are_as_many_batches_that_share_the_down_layers():
    batch = batch_of(*TEXTS)
    estimator = Drawn({}, MODEL.d_model, 0.2, 66)
    model = UNet(MODEL, estimator, 0)
    calls = []
    model.down[0].register_forward_hook(lambda module, inputs, output: calls.append(len(output)))
    whole = objective(model, batch, TRAINING, 0.2)
    assert calls == [3] and whole.prediction.batch.samples == 3
    whole.loss.backward()
    found = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    estimator.samples = 1
    parts = []
    for sample in range(3):
        drawn = batch.with_stream(OneDraw(batch.stream, sample, 3))
        parts.append(objective(model, drawn, TRAINING, 0.2))
        (parts[-1].loss / 3).backward()
        block = whole.prediction.proposal.boundary_BS.chunk(3)[sample]
        assert torch.equal(block, parts[-1].prediction.proposal.boundary_BS)
    assert float(whole.nats) == pytest.approx(sum(float(p.nats) for p in parts) / 3, rel=1e-6)
    assert float(whole.nats_early) == pytest.approx(float(parts[0].nats_early), rel=1e-6)
    for name, value in whole.terms.items():
        assert float(value) == pytest.approx(sum(float(p.terms[name]) for p in parts) / 3, rel=1e-5)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(found[name], parameter.grad, rtol=1e-4, atol=1e-6)
    one, all_ = batch_of(*TEXTS), whole.prediction.batch
    boundaries, positions = boundary_counts(all_, whole.prediction.proposal.boundary_BS)
    assert positions == 3 * one.length_B.sum()
    each = [boundary_counts(one, p.prediction.proposal.boundary_BS)[0] for p in parts]
    assert boundaries == sum(each)
