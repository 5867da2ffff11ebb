"""Activation checkpointing, torch.compile, and how often the host waits for the device."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from rltok_core.bench.workload import Step, network, random_batch
from rltok_core.config.schema import RuntimeConfig
from rltok_core.model import kernels


@pytest.fixture(autouse=True)
def as_before():
    yield
    kernels.use(RuntimeConfig())


def _saved_bytes(step: Step) -> int:
    """Bytes that the forward pass keeps for the backward pass, each storage once."""
    seen = {}

    def pack(x):
        seen[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        loss = step.gradient().loss
    del loss
    return sum(seen.values())


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_activation_checkpointing_changes_nothing_but_memory(precision):
    steps = []
    for again in (False, True):
        model = network("tiny", 128, "cpu", n_down=3, n_mid=3)
        model.activation_checkpointing = again
        steps.append(Step(model, random_batch(4, 128, "cpu"), precision))
    for _ in range(3):
        plain, again = (step() for step in steps)
        assert torch.equal(plain.loss, again.loss)
    for (name, a), b in zip(
        steps[0].model.named_parameters(), steps[1].model.parameters(), strict=True
    ):
        assert torch.equal(a, b), name
    assert _saved_bytes(steps[1]) < 0.6 * _saved_bytes(steps[0])


class _HostReads(TorchDispatchMode):
    """Counts what makes the host wait for a GPU: values read, and results of unknown size."""

    WAITS = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "equal")

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        boolean = name == "index" and any(x is not None and x.dtype == torch.bool for x in args[1])
        if boolean or name in self.WAITS:
            self.found.append(name)
        return function(*args, **(kwargs or {}))


def test_the_counter_sees_a_wait():
    with _HostReads() as reads:
        x = torch.arange(4.0)
        x.max().item()
        x[x > 1]
    assert reads.found == ["_local_scalar_dense", "index"]


def test_only_the_token_count_makes_the_host_wait(monkeypatch):
    """Of a forward and backward pass; on CUDA sampling stays on the device, here it is set aside.
    The count itself travels by tolist(), which no dispatch shows: one call, checked as such."""
    monkeypatch.setattr(
        "rltok_core.boundaries.policy.sample_boundaries", lambda v, u, forced, *_: u < 0.2
    )
    counted, tolist = [], torch.Tensor.tolist
    monkeypatch.setattr(torch.Tensor, "tolist", lambda x: counted.append(x.shape) or tolist(x))
    step = Step(network("tiny", 64, "cpu"), random_batch(2, 64, "cpu"), "float32")
    # CUDA's paths but for attention
    forced = {"byte_attention": "blocks", "token_attention": "dense", "elementwise": "torch"}
    kernels.use(RuntimeConfig(kernels=forced))
    with _HostReads() as reads:
        step.gradient()
    assert reads.found == []
    assert counted == [(2,)]


@pytest.mark.slow
def test_compiled_layers_see_few_shapes_and_say_the_same():
    """Other batches, with other numbers of tokens, compile nothing more than the first ones did."""
    from torch._dynamo.testing import CompileCounter
    from torch._dynamo.utils import counters

    batch = random_batch(2, 128, "cpu")
    expected = Step(network("tiny", 128, "cpu"), batch, "float32").gradient().loss.detach()
    torch._dynamo.reset()
    counters.clear()
    kernels.use(RuntimeConfig(compile=True))
    model = network("tiny", 128, "cpu")
    counter = CompileCounter()
    for part in (model.down, model.mid, model.up):
        for layer in part:
            layer.compile(backend=counter)
    losses, compiled = [], []
    for i in range(6):
        model.estimator.rate_bias.fill_(0.2 * i)
        losses.append(Step(model, batch, "float32").gradient().loss.detach())
        compiled.append(counter.frame_count)
    torch.testing.assert_close(losses[0], expected, rtol=1e-5, atol=1e-5)
    assert len({float(loss) for loss in losses}) == 6  # other boundaries each time
    assert compiled[0] > 0 and compiled[-1] == compiled[2], compiled
    assert not counters["graph_break"], counters["graph_break"]
