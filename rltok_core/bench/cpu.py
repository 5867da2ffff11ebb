"""`rltok bench` on the CPU: ours against the plain references of tests/reference.

Each case returns one or more comparisons; forward and backward unless it says otherwise, float32.

Shapes: B rows, S positions, T tokens, H heads, d head size, D width, L tokens of all rows.
"""

from collections.abc import Callable
from dataclasses import dataclass
from unittest.mock import patch

import torch

from rltok_core.bench.measure import Comparison, forward_and_backward, in_turns
from rltok_core.bench.reference import reference
from rltok_core.bench.workload import Step, network, random_batch
from rltok_core.boundaries.contract import distribute, select
from rltok_core.boundaries.sampling import sample_boundaries
from rltok_core.model import layers as layers_module
from rltok_core.model.attention import rope_table, split_turned, token_attention
from rltok_core.model.kernels import Case, pick
from rltok_core.model.layers import DecoderLayer
from rltok_core.model.scans import ema_scan


@dataclass(frozen=True)
class Scale:
    """How large: the issue's sizes, or tiny ones that only show that everything runs."""

    size: str = "20M"
    positions: int = 4096
    long: int = 16_384
    sampling_rows: int = 8
    repeats: int = 5
    slow_repeats: int = 2


FULL = Scale()
TINY = Scale("tiny", 128, 256, 2, 1, 1)
CPU = torch.device("cpu")


def _layer(scale: Scale, mid: bool = False) -> tuple[DecoderLayer, int]:
    """A layer of the size and its width."""
    model = network(scale.size, scale.positions, "cpu")
    return (model.mid if mid else model.down)[0], model.config.d_model


def _random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def _agree(ours: torch.Tensor, theirs: torch.Tensor, tolerance: float = 1e-3) -> None:
    """What is compared in speed must be the same thing."""
    error = float((ours - theirs).norm() / theirs.norm())
    if not error < tolerance:
        raise AssertionError(f"ours and the reference differ by {error:.2g}")


def _byte_kernel(layer: DecoderLayer, width: int) -> str:
    attention = layer.attention
    d_head = width // attention.n_heads
    case = Case("cpu", torch.float32, attention.window, attention.softcap, d_head)
    return f"{pick('byte_attention', case)}, loops around"


def sampling(scale: Scale) -> list[Comparison]:
    """Sequential boundary sampling, w = 8."""
    rows, length, width = scale.sampling_rows, scale.positions, 8
    v_BSw = _random(rows, length, width)
    u_BS = torch.rand(rows, length, generator=torch.Generator().manual_seed(1))
    none_BS = torch.zeros(rows, length, dtype=torch.bool)
    prior, length_B = torch.tensor(-1.4), torch.full((rows,), length)

    def ours():
        return sample_boundaries(v_BSw, u_BS, none_BS, length_B, prior, 6.0)

    def loop():
        return reference("sampling").sample(v_BSw, u_BS, -1.4, 6.0, none_BS)

    def plain():
        return [
            reference("sampling").sample_row(v, u, -1.4, 6.0, [False] * length)
            for v, u in zip(v_BSw.tolist(), u_BS.tolist(), strict=True)
        ]

    _agree(ours().float(), loop().float(), 0.05)  # a tie in rounding moves what follows
    setting = f"B {rows}, S {length}, w {width}, forward"
    found = []
    for name, work, goal in (
        ("Python loop over positions, rows at once", loop, 100.0),
        ("Python floats, no tensors", plain, None),
    ):
        seconds = in_turns(ours, work, scale.repeats, "cpu")
        found.append(Comparison("sampling", setting, "scan", name, *seconds, goal))
    return found


def byte_layer(scale: Scale) -> list[Comparison]:
    """A byte layer against itself with a dense mask, and against transformers' Gemma-2 layer."""
    layer, width = _layer(scale)
    table_Sd = rope_table(scale.positions, width // layer.attention.n_heads, 10_000.0, CPU)
    x_BSD = _random(1, scale.positions, width).requires_grad_()

    def dense_attention(qkv_BSX, table_Sd, heads, window, softcap):
        q_BSHd, k_BSHd, v_BSHd = split_turned(qkv_BSX, table_Sd, heads)
        dense = reference("attention").dense_attention
        return dense(q_BSHd, k_BSHd, v_BSHd, softcap, window).flatten(-2)

    ours = forward_and_backward(lambda x: layer(x, table_Sd), [x_BSD])

    def dense():
        with patch.object(layers_module, "local_attention", dense_attention):
            return ours()

    gemma_layer = reference("gemma").GemmaLayer(layer)
    gemma = forward_and_backward(lambda x: gemma_layer(x, table_Sd), [x_BSD])
    setting = f"B 1, S {scale.positions}, D {width}, window {layer.attention.window}"
    found = []
    for name, work, goal in (
        ("the same with a dense mask", dense, 5.0),
        ("transformers' Gemma-2 layer, eager, dense mask", gemma, None),
    ):
        _agree(ours().detach(), work().detach())
        seconds = in_turns(ours, work, scale.slow_repeats, "cpu", warm_up=(0, 0))
        kernel = _byte_kernel(layer, width)
        found.append(Comparison("byte layer", setting, kernel, name, *seconds, goal))
    return found


def long_rows(scale: Scale) -> list[Comparison]:
    """Cost per byte of a byte layer in long rows; the ratio is short over long, per byte."""
    layer, width = _layer(scale)
    works = []
    for length in (scale.long, scale.positions):
        table_Sd = rope_table(length, width // layer.attention.n_heads, 10_000.0, CPU)
        x_BSD = _random(1, length, width).requires_grad_()
        works.append(forward_and_backward(lambda x, t=table_Sd: layer(x, t), [x_BSD]))
    seconds, short = in_turns(*works, scale.repeats, "cpu")
    per_byte = [s / scale.long for s in seconds], [s / scale.positions for s in short]
    setting = f"B 1, S {scale.long}, D {width}, seconds a byte"
    kernel, short_name = _byte_kernel(layer, width), f"S {scale.positions}"
    return [Comparison("long rows", setting, kernel, short_name, *per_byte, 1 / 1.3)]


def pooling(scale: Scale) -> list[Comparison]:
    """Bytes to tokens and back."""
    width = _layer(scale)[1]
    x_BSD = _random(2, scale.positions, width).requires_grad_()
    boundary_BS = torch.rand(2, scale.positions, generator=torch.Generator().manual_seed(2)) < 0.2
    boundary_BS[:, 0] = True

    def gathered(x_BSD):
        tokens = select(x_BSD, boundary_BS)
        return distribute(tokens.x_BTD, tokens.index_BS)

    def one_hot(x_BSD):
        module = reference("pooling")
        return module.distribute(module.select(x_BSD, boundary_BS), boundary_BS)

    ours, theirs = (forward_and_backward(f, [x_BSD]) for f in (gathered, one_hot))
    _agree(ours().detach(), theirs().detach())
    setting = f"B 2, S {scale.positions}, D {width}, rate 0.2"
    seconds = in_turns(ours, theirs, scale.repeats, "cpu")
    return [Comparison("select and distribute", setting, "gather", "one-hot einsum", *seconds)]


def moving_average(scale: Scale) -> list[Comparison]:
    """EMA de-chunking over the tokens of two rows."""
    width, tokens = _layer(scale)[1], scale.positions // 5
    y_BTD = _random(2, tokens, width).requires_grad_()
    p_BT = torch.rand(2, tokens, generator=torch.Generator().manual_seed(3)).requires_grad_()
    loop_function = reference("ema").moving_average
    ours, loop = (forward_and_backward(f, [y_BTD, p_BT]) for f in (ema_scan, loop_function))
    _agree(ours().detach(), loop().detach())
    seconds = in_turns(ours, loop, scale.repeats, "cpu")
    setting = f"B 2, T {tokens}, D {width}"
    return [Comparison("moving average", setting, "chunked scan", "Python loop", *seconds)]


def training_step(scale: Scale) -> list[Comparison]:
    """A whole step: ours against transformers' layers, one-hot pooling, sampling in a loop."""
    gemma = reference("gemma")
    batch = random_batch(2, scale.positions, "cpu")
    model = network(scale.size, scale.positions, "cpu")
    eager_model = gemma.eager_unet(model)
    ours = Step(model, batch, "float32")
    eager_step = Step(eager_model, batch, "float32", fused=False)

    def eager():
        with gemma.eagerly(eager_model):
            return eager_step()

    _agree(ours().loss.detach(), eager().loss.detach())
    seconds = in_turns(ours, eager, scale.slow_repeats, "cpu", warm_up=(1, 0))
    setting = f"{scale.size}, B 2, S {scale.positions}, w 8, float32"
    kernel = _byte_kernel(model.down[0], model.config.d_model)
    return [Comparison("training step", setting, kernel, "eager Gemma-2", *seconds, 3.0)]


def ragged_tokens(scale: Scale) -> list[Comparison]:
    """Two token layers over rows with unlike numbers of tokens: padded (ours) against two ways
    of not padding. torch's nested tensors have no attention with a soft cap: they would be
    `packed`, row by row."""
    model = network("laptop_text" if scale is FULL else "tiny", 256, "cpu")
    width, heads = model.config.d_model, model.config.n_heads
    generator = torch.Generator().manual_seed(4)
    count_B = torch.randint(13, 53, (16,), generator=generator)  # of 64 to 256 bytes, rate 0.2
    longest = int(count_B.max())
    valid_BT = torch.arange(longest) < count_B[:, None]
    x_BTD = (_random(16, longest, width) * valid_BT[..., None]).requires_grad_()
    table_BTd = rope_table(longest, width // heads, 10_000.0, CPU).expand(16, -1, -1).contiguous()
    weight_BTD = _random(16, longest, width, seed=5) * valid_BT[..., None]

    def padded(x_BTD):
        return model.run_layers(model.mid, x_BTD, table_BTd, None)

    order_B = count_B.argsort()
    groups = [(rows, int(count_B[rows].max())) for rows in order_B.split(4)]

    def buckets(x_BTD):
        parts = [
            torch.nn.functional.pad(
                model.run_layers(model.mid, x_BTD[rows, :n], table_BTd[rows, :n], None),
                (0, 0, 0, longest - n),
            )
            for rows, n in groups
        ]
        return torch.cat(parts)[order_B.argsort()]

    def packed_layer(layer, x_LD, table_LTd):
        qkv_LX = layer.attention.qkv(layer.before_attention(x_LD))
        mixed_LD = torch.cat(
            [
                token_attention(qkv_TX[None], table_Td[None], heads, layer.attention.softcap)[0]
                for qkv_TX, table_Td in zip(qkv_LX.split(count_B.tolist()), table_LTd, strict=True)
            ]
        )
        x_LD = layer.after_attention(layer.attention.out(mixed_LD), residual_D=x_LD)
        return layer.after_mlp(layer.mlp(layer.before_mlp(x_LD)), residual_D=x_LD)

    def packed(x_BTD):
        x_LD, tables = x_BTD[valid_BT], [table_BTd[0, :n] for n in count_B.tolist()]
        for layer in model.mid:
            x_LD = packed_layer(layer, x_LD, tables)
        return torch.zeros_like(x_BTD).masked_scatter(valid_BT[..., None], x_LD)

    works = [
        forward_and_backward(lambda x, f=f: f(x) * weight_BTD, [x_BTD])
        for f in (padded, buckets, packed)
    ]
    setting = f"B 16, T {int(count_B.min())} to {longest}, D {width}, {len(model.mid)} layers"
    found = []
    for name, work in (("four buckets", works[1]), ("packed, attention by row", works[2])):
        _agree(works[0]().detach(), work().detach())
        seconds = in_turns(works[0], work, 4 * scale.repeats, "cpu", warm_up=(3, 3))
        found.append(Comparison("ragged tokens", setting, "padded to the longest", name, *seconds))
    return found


CASES: dict[str, Callable[[Scale], list[Comparison]]] = {
    "sampling": sampling,
    "byte_layer": byte_layer,
    "long_rows": long_rows,
    "pooling": pooling,
    "moving_average": moving_average,
    "ragged_tokens": ragged_tokens,
    "training_step": training_step,
}
