"""What every estimator promises: run on each YAML in configs/estimators by itself.

And on those of the folders in the environment variable RLTOK_PLUGINS (separated as in PATH).

Shapes: B rows, S positions, T tokens, D model width.
"""

import dataclasses
import io
import math
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from rltok_core.boundaries.contract import Outcome, forced_BS
from rltok_core.boundaries.registry import build_estimator, estimator_class
from rltok_core.config.experiment import load_estimator
from rltok_core.config.schema import EstimatorEntry, ModelConfig
from rltok_core.config.strict import parse, read_yaml
from rltok_core.data.batch import Batch
from rltok_core.data.stream import RandomStream
from rltok_core.data.vocabulary import BOS, N_SPECIAL, PAD
from rltok_core.gradlab import lab
from rltok_core.gradlab.config import GradlabConfig
from rltok_core.model.incremental import IncrementalDecoder, open_decoder, steps
from rltok_core.model.unet import UNet, target_logp

CONFIGS = Path(__file__).parents[2] / "configs"
PLUGINS = [folder for folder in os.environ.get("RLTOK_PLUGINS", "").split(os.pathsep) if folder]
FOLDERS = [CONFIGS / "estimators", *map(Path, PLUGINS)]
FILES = {path.stem: path for folder in FOLDERS for path in folder.glob("*.yaml")}
NAMES = sorted(FILES)
LAB = parse(
    GradlabConfig,
    read_yaml(CONFIGS / "gradlab.yaml")
    | {"positions": 5, "joint_positions": 4, "batches": [1, 2], "gammas": [1], "samples": [2]}
    | {"switches": [], "noise_samples": 2, "plugins": PLUGINS},
    "the shared tests' laboratory",
)
MODEL = ModelConfig(size="test", d_model=16, n_heads=2, n_down=1, n_mid=1, n_up=1, window=4)
RATE, S = 0.2, 64
# words of several lengths, so that BPE and whitespace have something to find
WORDS = b"the cat sat on a mat and then there sat another rat under that other hat".split()


def text(length, seed):
    rng = np.random.default_rng(seed)
    return b" ".join(WORDS[i] for i in rng.integers(len(WORDS), size=length))[:length]


DOCUMENTS = [text(S - 1, 0), text(40, 1), text(1, 2), b"\x00", text(S - 1, 3)]


def configuration(name):
    return load_estimator(EstimatorEntry(name=name), CONFIGS, PLUGINS)


def build(name, seed=0):
    """The U-Net in float64: tolerances then are about the logic, not about rounding."""
    torch.manual_seed(seed)  # an estimator's own initial weights
    estimator = build_estimator(configuration(name), MODEL.d_model, RATE, S)
    return UNet(MODEL, estimator, seed).double()


@pytest.fixture(scope="session")
def hints_of(tmp_path_factory):
    """documents -> hints, by the estimator's own preparation, trained on the same text always."""

    def prepared(name, documents):
        config = configuration(name)
        folder = tmp_path_factory.mktemp(f"data_{name}")
        splits = {
            "train": [text(200, 100 + i) for i in range(20)],
            "validation": [text(200, 200)],
            "test": documents,
        }
        for split, contents in splits.items():
            (folder / split).mkdir()
            (folder / split / "bytes.bin").write_bytes(b"".join(contents))
            offsets = np.cumsum([0, *map(len, contents)])
            np.save(folder / split / "offsets.npy", offsets.astype(np.int64))
        (folder / "manifest.json").write_text('{"content_hash": "of the test"}')
        out = folder / "prepared"
        estimator_class(config).prepare(folder, out, config.params, RATE)
        hints = np.load(out / "test.hints.npy")
        assert hints.dtype == np.uint8 and len(hints) == sum(map(len, documents))
        return np.split(hints, np.cumsum([len(d) for d in documents])[:-1])

    return prepared


@pytest.fixture
def batch_of(hints_of):
    """name, documents -> Batch; a row's stream and truth depend on its key and place alone."""

    def make(name, documents, pad_to=0, keys=None, constant=None):
        keys = keys or list(range(len(documents)))
        width = max(pad_to, *(len(d) + 1 for d in documents))
        ids_BS = torch.full((len(documents), width), PAD)
        for row, document in enumerate(documents):
            symbols = [BOS, *(byte + N_SPECIAL for byte in document)]
            ids_BS[row, : len(symbols)] = torch.tensor(symbols)
        length_B = torch.tensor([len(d) + 1 for d in documents])
        hint = estimator_class(configuration(name)).hint
        hint_BS = None
        if hint is not None:
            hint_BS = torch.zeros(ids_BS.shape, dtype=torch.bool)
            if hint == "prepared":
                known = hints_of(name, documents)
            else:
                known = [
                    np.random.default_rng(key).random(S)[: len(d)] < RATE
                    for key, d in zip(keys, documents, strict=True)
                ]
            for row, values in enumerate(known):
                hint_BS[row, 1 : len(values) + 1] = torch.from_numpy(np.asarray(values, bool))
        return Batch(ids_BS, length_B, RandomStream(keys, constant=constant), hint_BS)

    return make


def loss_of(model, batch, rate=RATE):
    """The total loss, as training puts it together."""
    prediction = model(batch, rate, samples=model.estimator.samples)
    batch = prediction.batch
    logp_BS, early_BS = target_logp(prediction, batch)
    terms = model.estimator.losses(Outcome(batch, prediction.proposal, logp_BS, early_BS, rate))
    count = batch.scored_BS.sum()
    total = -(0.9 * logp_BS.sum() + 0.1 * early_BS.sum()) / count
    return total + sum(term.weight * term.value for term in terms.values())


each = pytest.mark.parametrize("name", NAMES)


def test_the_methods_of_the_paper_are_there():
    assert {"uniform", "bpe", "hnet", "pooling", "score_function"} <= set(NAMES)


@each
def test_the_yaml_names_every_parameter_and_no_other(name):
    values = read_yaml(FILES[name]).get("params", {})
    params = getattr(build(name).estimator, "params", None)
    assert values == ({} if params is None else dataclasses.asdict(params))


@each
def test_promise_6_causality_by_perturbing_later_bytes(name, batch_of):
    """Bytes from position `cut` on change, lengths and random numbers don't."""
    if not estimator_class(configuration(name)).causal:
        pytest.skip("marked non-causal; its decisions are caught looking ahead below")
    model = build(name)
    documents = [DOCUMENTS[0], DOCUMENTS[1]]
    before = model(batch_of(name, documents), RATE)
    for cut in (2, 11, 25, 38):
        changed = [
            d[: cut - 1]
            + bytes(np.random.default_rng(cut).integers(97, 123, len(d) - cut + 1).tolist())
            for d in documents
        ]
        after = model(batch_of(name, changed), RATE)
        assert torch.equal(
            before.proposal.boundary_BS[:, :cut], after.proposal.boundary_BS[:, :cut]
        )
        for field in ("logits_BSC", "early_logits_BSC"):
            gap = getattr(before, field)[:, :cut] - getattr(after, field)[:, :cut]
            assert gap.abs().max() < 1e-9
        gap = before.proposal.prob_BS[:, :cut] - after.proposal.prob_BS[:, :cut]
        assert gap.abs().max() < 1e-9
        moved = before.logits_BSC[:, cut] - after.logits_BSC[:, cut]
        assert moved.abs().max() > 1e-6  # the perturbation is seen at its own place


PREPARED = [name for name in NAMES if estimator_class(configuration(name)).hint == "prepared"]


@pytest.mark.parametrize("name", PREPARED)
def test_preparation_looks_ahead_exactly_if_marked_non_causal(name, hints_of):
    documents, cuts = [DOCUMENTS[0]], range(4, 60, 4)
    other = [documents[0][:cut] + b"q" * (len(documents[0]) - cut) for cut in cuts]
    original, *changed = hints_of(name, documents + other)
    caught = [bool((original[:cut] != c[:cut]).any()) for cut, c in zip(cuts, changed, strict=True)]
    assert any(caught) != estimator_class(configuration(name)).causal


@each
@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-9), (torch.float32, 1e-5)])
def test_one_position_at_a_time_equals_the_full_pass(name, dtype, tolerance, batch_of):
    """The decoder sees no byte before its turn, so a method that looks ahead needs its hints."""
    model, batch = build(name).to(dtype).eval(), batch_of(name, DOCUMENTS)
    with torch.no_grad():
        full = model(batch, RATE)
    decoder = open_decoder(model, batch, RATE)
    assert isinstance(decoder, IncrementalDecoder) == steps(model.estimator)
    for i in range(S):
        hint_B = None if batch.hint_BS is None else batch.hint_BS[:, i]
        logp_BC = decoder.step(batch.ids_BS[:, i], hint_B).log_softmax(-1)
        rows = batch.length_B > i
        gap = logp_BC - full.logits_BSC[:, i].log_softmax(-1)
        assert gap[rows].abs().max() < tolerance, i


@each
def test_forced_ends_padding_and_free_positions(name, batch_of):
    batch = batch_of(name, DOCUMENTS, pad_to=S + 7)
    proposal = build(name)(batch, RATE).proposal
    forced = forced_BS(batch)
    assert proposal.boundary_BS[forced].all()
    assert not proposal.boundary_BS[~batch.valid_BS].any()
    assert torch.equal(proposal.free_BS, batch.valid_BS & ~forced)
    assert ((proposal.prob_BS >= 0) & (proposal.prob_BS <= 1))[batch.valid_BS].all()
    assert (proposal.prob_BS[forced] == 1).all()


@each
def test_rate_follows_the_target(name, batch_of):
    """By itself (a rule that looks at the target), or through the rate controller's bias."""
    model = build(name)
    documents = [text(S - 1, 50 + i) for i in range(24)]
    batch = batch_of(name, documents)
    x_BSD = model(batch, RATE).x_BSD.detach()

    def realised(rate):
        return model.estimator.propose(x_BSD, batch, rate).boundary_BS.double().mean().item()

    if not model.estimator.learned:
        if realised(0.1) == realised(0.4):
            pytest.skip("a fixed rule: its text, not a target, decides the rate")
        for rate in (0.1, 0.25, 0.5):
            # a short row's last position alone is 1 / S
            assert realised(rate) == pytest.approx(rate, rel=0.15, abs=2 / S)
        return
    for target in (0.1, 0.2, 0.5):
        for _ in range(150):
            model.estimator.rate_bias += 0.3 * (target - realised(target)) / target
            model.estimator.rate_bias.clamp_(-8, 8)
        assert realised(target) == pytest.approx(target, rel=0.15)


@each
def test_open_phase_makes_every_position_a_boundary(name, batch_of):
    model, batch = build(name), batch_of(name, DOCUMENTS)
    assert torch.equal(model(batch, 1.0).proposal.boundary_BS, batch.valid_BS)
    assert torch.isfinite(loss_of(model, batch, 1.0))


@each
def test_padding_and_company_change_nothing(name, batch_of):
    model = build(name)
    together = model(batch_of(name, DOCUMENTS), RATE)
    padded = model(batch_of(name, DOCUMENTS, pad_to=S + 19), RATE)
    for row, document in enumerate(DOCUMENTS):
        n = len(document) + 1
        alone = model(batch_of(name, [document], keys=[row]), RATE)
        for other, at in ((padded, row), (alone, 0)):
            assert torch.equal(
                together.proposal.boundary_BS[row, :n], other.proposal.boundary_BS[at, :n]
            )
            gap = together.logits_BSC[row, :n] - other.logits_BSC[at, :n]
            assert gap.abs().max() < 1e-9


@each
def test_the_same_stream_gives_the_same_result(name, batch_of):
    first, second = (build(name)(batch_of(name, DOCUMENTS), RATE) for _ in range(2))
    assert torch.equal(first.logits_BSC, second.logits_BSC)
    assert torch.equal(first.proposal.boundary_BS, second.proposal.boundary_BS)


@each
def test_save_and_load(name, batch_of):
    model, batch = build(name), batch_of(name, DOCUMENTS)
    model.estimator.rate_bias.fill_(0.3)
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    other = build(name, seed=1)
    assert not torch.equal(other(batch, RATE).logits_BSC, model(batch, RATE).logits_BSC)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert other.estimator.rate_bias == model.estimator.rate_bias
    assert torch.equal(other(batch, RATE).logits_BSC, model(batch, RATE).logits_BSC)


@each
def test_gradients_are_finite_and_reach_every_parameter(name, batch_of):
    model, batch = build(name), batch_of(name, DOCUMENTS)
    loss = loss_of(model, batch)
    assert torch.isfinite(loss)
    loss.backward()
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None, key
        assert torch.isfinite(parameter.grad).all() and parameter.grad.any(), key


@each
def test_the_laboratory_measures_its_gradient(name):
    """Bias and variance over all boundary sequences of a short text; no bias where it says so."""
    cls = estimator_class(configuration(name))
    promise = {} if cls.unbiased is None else cls.unbiased
    given = load_estimator(EstimatorEntry(name=name, params=promise), CONFIGS, PLUGINS)
    subject = lab.Subject(name, given, LAB)
    model = subject.model(given)
    if cls.hint is not None or not any(True for _ in model.estimator.parameters()):
        pytest.skip("it learns nothing: there is no gradient to measure")
    bench = lab.Bench(subject, "init", model.state_dict(), lab.texts(LAB, 2, 0))
    rows = [row for row in bench.measure() if row["scope"] == "policy"]
    assert rows
    for row in rows:
        assert math.isfinite(row["bias"]) and math.isfinite(row["rel_variance"])
        if cls.unbiased is not None and "batch_relative" not in row["settings"]:
            assert row["bias"] < 1e-9 and row["rel_variance"] > 0
    if cls.unbiased is not None:
        assert any("batch_relative" not in row["settings"] for row in rows)


@each
def test_tokens_are_where_the_boundaries_are(name, batch_of):
    model, batch = build(name), batch_of(name, DOCUMENTS)
    prediction = model(batch, RATE)
    proposal, tokens, x_BSD = prediction.proposal, prediction.tokens, prediction.x_BSD
    count_B = proposal.boundary_BS.sum(1)
    assert tokens.x_BTD.shape == (len(DOCUMENTS), count_B.max(), MODEL.d_model)
    assert torch.equal(tokens.valid_BT.sum(1), count_B)
    assert not tokens.x_BTD[~tokens.valid_BT].any()
    for row, n in enumerate(count_B.tolist()):
        places = proposal.boundary_BS[row].nonzero().flatten()
        assert torch.equal(tokens.position_BT[row, :n], places)
        latest = [int((places <= i).sum()) - 1 for i in range(int(batch.length_B[row]))]
        assert tokens.index_BS[row, : len(latest)].tolist() == latest
    y_BSD = model.estimator.to_bytes(tokens.x_BTD, tokens, proposal)
    assert y_BSD.shape == x_BSD.shape and torch.isfinite(y_BSD).all()


@each
def test_threshold_evaluation_and_mid_usage_run(name, batch_of):
    """A constant stream (sampling becomes thresholding), and the token level stale or zeroed."""
    model, batch = build(name), batch_of(name, DOCUMENTS, constant=0.5)
    for mid in ("use", "stale", "zero"):
        assert torch.isfinite(model(batch, RATE, mid).logits_BSC).all()
