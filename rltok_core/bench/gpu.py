"""`rltok bench --device cuda`: the prepared GPU script, at most eight minutes.

1. Every kernel that CUDA gets against float64, forward and gradient.
2. The peak: a large bf16 matrix product.
3. Training steps of the paper's sizes at the largest micro-batch that fits, with and without
   torch.compile: bytes and counted FLOPs a second (model/flops.py), share of the peak, memory.
4. One step of the largest size by part.

What the time doesn't reach is listed as not measured; a part that fails is listed with its error.

Shapes: B rows, S positions, D width.
"""

import contextlib
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from rltok_core.bench.measure import forward_and_backward, repeated
from rltok_core.bench.table import duration, markdown
from rltok_core.bench.workload import Step, network, random_batch
from rltok_core.boundaries.sampling import sample_boundaries
from rltok_core.config.schema import RuntimeConfig
from rltok_core.model import kernels
from rltok_core.model.flops import row_tokens, step_flops
from rltok_core.model.scans import ema_scan

# relative error, norm over norm; bf16 keeps 8 bits
TOLERANCE = {torch.float32: 5e-3, torch.bfloat16: 3e-2}


@dataclass(frozen=True)
class Plan:
    """What is measured: the issue's sizes, or tiny ones (also on the CPU) that show it runs."""

    sizes: tuple[str, ...] = ("20M", "40M", "90M", "147M")
    positions: int = 4096
    check_positions: int = 700
    sampling_rows: int = 128
    matmul: int = 8192
    first_rows: int = 4
    most_rows: int = 128
    repeats: int = 5
    seconds: float = 460.0
    precision: str = "bf16"


FULL = Plan()
TINY = Plan(("tiny",), 128, 128, 2, 64, 1, 2, 1, 460.0, "float32")


@contextlib.contextmanager
def _using(**runtime):
    """Kernels forced, or torch.compile on, for a while."""
    kernels.use(RuntimeConfig(**runtime))
    try:
        yield
    finally:
        kernels.use(RuntimeConfig())


def _error(actual: torch.Tensor, expected: torch.Tensor) -> float:
    actual, expected = actual.double(), expected.double()
    return float((actual - expected).norm() / expected.norm())


def _model_gradients(
    plan: Plan, device: str, dtype: torch.dtype, oracle: bool, checkpointing: bool = False
):
    """(loss, {parameter: gradient}) of a two-row step; the oracle in float64, without FlexAttention
    and Triton, on the same boundaries."""
    model = network(plan.sizes[0], plan.check_positions, device)
    batch = random_batch(2, plan.check_positions, device)
    # thresholds far from any rounding: all types draw the same boundaries
    with torch.no_grad():
        model.estimator.policy.weight.zero_()
    model.activation_checkpointing = checkpointing
    if oracle:
        model = model.double()
    forced = {"byte_attention": "blocks", "token_attention": "dense", "sampling": "scan"}
    precision = "bf16" if dtype == torch.bfloat16 else "float32"
    with _using(kernels=forced if oracle else {}):
        step = Step(model, batch, precision)
        loss = step.gradient().loss.detach()
    grads = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    return loss, grads


def _whole_model(plan: Plan, device: str) -> list[dict]:
    """The picked kernels inside the network: worst relative error of a weight's gradient."""
    loss64, grads64 = _model_gradients(plan, device, torch.float64, oracle=True)
    found = []
    for dtype in (torch.float32, torch.bfloat16):
        for checkpointing in (False, True):
            loss, grads = _model_gradients(plan, device, dtype, False, checkpointing)
            errors = {n: _error(grads[n], g) for n, g in grads64.items() if float(g.norm()) > 0}
            worst = max(errors, key=errors.get)
            again = ", activations computed again" if checkpointing else ""
            whole = _error(
                torch.cat([grads[n].flatten().double() for n in errors]),
                torch.cat([grads64[n].flatten() for n in errors]),
            )
            found.append(
                {
                    "what": f"network, loss and gradient{again}",
                    "dtype": str(dtype),
                    "error": max(whole, _error(loss, loss64)),
                    "worst": f"{worst} {errors[worst]:.2g}",
                    "tolerance": TOLERANCE[dtype],
                }
            )
    return found


def _attention(plan: Plan, device: str) -> list[dict]:
    """Byte attention by the picked kernel, and token attention packed, against float64."""
    from rltok_core.model.attention import local_attention, rope_table, token_attention
    from rltok_core.model.packing import Packing

    generator = torch.Generator().manual_seed(0)
    length, heads, size = plan.check_positions, 4, 64
    # scores beyond the soft cap
    qkv = torch.randn(2, length, 3 * heads * size, generator=generator, dtype=torch.float64) * 3
    weight = torch.randn(2, length, heads * size, generator=generator, dtype=torch.float64)
    valid = torch.arange(length) < torch.tensor([length, length // 3])[:, None]
    qkv, weight, valid = (x.to(device) for x in (qkv * valid[..., None], weight, valid))
    weight = weight * valid[..., None]
    table = rope_table(length, size, 10_000.0, qkv.device)
    tables = table.expand(2, -1, -1).contiguous()

    def packed(x):
        from rltok_core.model.flex import masked_attention

        packing = Packing(valid, int(valid.sum()))
        given = packing.pack(x), packing.pack(tables)
        return packing.unpack(masked_attention(*given, heads, 50.0, packing.mask()))

    def byte(x):
        return local_attention(x, table, heads, 64, 50.0)

    def token(x):
        return token_attention(x, tables, heads, 50.0)

    found = []
    gpu = device == "cuda"  # FlexAttention has no backward pass on the CPU
    for what, oracle, function in (
        ("byte attention", byte, byte),
        ("token attention", token, packed if gpu else token),
    ):
        results = []
        for dtype in (torch.float64, torch.float32, torch.bfloat16):
            x = qkv.detach().to(dtype, copy=True).requires_grad_()
            out = (oracle if dtype == torch.float64 else function)(x)
            (out * weight.to(dtype)).sum().backward()
            results.append((dtype, out.detach() * valid[..., None], x.grad))
        for dtype, out, grad in results[1:]:
            error = max(_error(out, results[0][1]), _error(grad, results[0][2]))
            record = {"what": what, "dtype": str(dtype), "error": error}
            found.append(record | {"worst": "", "tolerance": TOLERANCE[dtype]})
    return found


def _scans(plan: Plan, device: str) -> list[dict]:
    """Boundary sampling by the picked kernel against the host's scan; the moving average."""
    generator = torch.Generator().manual_seed(0)
    rows, length = plan.sampling_rows, plan.positions
    found = []
    for width in (2, 8):
        v = torch.randn(rows, length, width, generator=generator)
        u = torch.rand(rows, length, generator=generator)
        forced = torch.rand(rows, length, generator=generator) < 0.01
        lengths = torch.randint(1, length + 1, (rows,), generator=generator)
        given = (v, u, forced, lengths, torch.tensor(-1.4))
        expected = sample_boundaries(*given, 6.0)
        actual = sample_boundaries(*(x.to(device) for x in given), 6.0).cpu()
        # a tie in rounding (u within 1e-7 of p) may move a boundary and its row's next few
        wrong = float((actual != expected).double().mean())
        record = {"what": f"sampling, w {width}", "dtype": "torch.float32", "error": wrong}
        found.append(record | {"worst": "share of boundaries that differ", "tolerance": 1e-4})
    y = torch.randn(2, length // 5, 64, generator=generator, dtype=torch.float64)
    p = torch.rand(2, length // 5, generator=generator, dtype=torch.float64)
    results = []
    for dtype in (torch.float64, torch.float32):
        inputs = [x.detach().to(device, dtype, copy=True).requires_grad_() for x in (y, p)]
        out = forward_and_backward(ema_scan, inputs)()
        results.append([out.detach(), *(x.grad for x in inputs)])
    error = max(_error(a, e) for a, e in zip(results[1], results[0], strict=True))
    record = {"what": "moving average", "dtype": "torch.float32", "error": error}
    return [*found, record | {"worst": "", "tolerance": 1e-4}]


def peak_flops(plan: Plan, device: str) -> float:
    """FLOPs a second of a square matrix product in the steps' type: the median of 20."""
    dtype = torch.bfloat16 if plan.precision == "bf16" else torch.float32
    a, b = (torch.randn(plan.matmul, plan.matmul, device=device, dtype=dtype) for _ in range(2))
    seconds = repeated(lambda: a @ b, 20, 5, device)
    return 2 * plan.matmul**3 / statistics.median(seconds)


def _largest(size: str, plan: Plan, device: str) -> int:
    """The largest micro-batch, doubling from first_rows, whose step fits into memory."""
    rows, fits = plan.first_rows, 0
    while rows <= plan.most_rows:
        try:
            Step(
                network(size, plan.positions, device),
                random_batch(rows, plan.positions, device),
                plan.precision,
            )()
        except torch.cuda.OutOfMemoryError:
            break
        finally:
            if device == "cuda":
                torch.cuda.empty_cache()
        fits, rows = rows, rows * 2
    if not fits:
        raise RuntimeError(f"not even {plan.first_rows} rows of {size} fit")
    return fits


def throughput(size: str, rows: int, plan: Plan, device: str, peak: float, compiled: bool) -> dict:
    """Steps of `rows` rows: medians, and what they come to a second."""
    with _using(compile=compiled):
        model = network(size, plan.positions, device)
        if compiled:
            model.compile_layers()
        batch = random_batch(rows, plan.positions, device)
        step = Step(model, batch, plan.precision)
        if device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        began = time.perf_counter()
        prediction = step().prediction
        if device == "cuda":
            torch.cuda.synchronize()
        first = time.perf_counter() - began
        seconds = repeated(step, plan.repeats, 2, device)
    flops = step_flops(model, batch, row_tokens(prediction)).counted
    median = statistics.median(seconds)
    memory = torch.cuda.max_memory_allocated() if device == "cuda" else 0
    return {
        "size": size,
        "rows": rows,
        "positions": plan.positions,
        "compiled": compiled,
        "first_step_seconds": first,
        "seconds": seconds,
        "bytes_per_second": rows * (plan.positions - 1) / median,
        "flops_per_second": flops / median,
        "share_of_peak": flops / median / peak,
        "peak_memory_bytes": memory,
    }


def parts(size: str, rows: int, plan: Plan, device: str) -> dict[str, float]:
    """Median seconds of each part of a step, forward and backward, each by itself."""
    model = network(size, plan.positions, device)
    batch = random_batch(rows, plan.positions, device)
    step = Step(model, batch, plan.precision)
    with torch.no_grad(), step.autocast():
        x_BSD = model.encode(batch)
        proposal = model.propose(x_BSD, batch, 0.2)
    given = x_BSD.detach().requires_grad_()

    def backward(function: Callable) -> Callable:
        def work():
            model.zero_grad(set_to_none=True)
            with step.autocast():
                out = function()
            out.backward(torch.ones_like(out))

        return work

    def pooled():
        tokens = model.estimator.to_tokens(given, proposal)
        return model.estimator.to_bytes(tokens.x_BTD, tokens, proposal)

    works = {
        "embedding and down layers": backward(lambda: model.encode(batch)),
        "boundaries": backward(lambda: model.propose(given, batch, 0.2).logit_BS),
        "select and distribute": backward(pooled),
        "all after the boundaries": backward(
            lambda: model.decode(given, batch, proposal).logits_BSC
        ),
        "the same without token layers": backward(
            lambda: model.decode(given, batch, proposal, "zero").logits_BSC
        ),
        "gradient (all of it, with the losses)": step.gradient,
        "clipping and AdamW": step.update,
    }
    return {
        name: statistics.median(repeated(work, plan.repeats, 2, device))
        for name, work in works.items()
    }


def bench(plan: Plan, say: Callable[[str], None], device: str = "cuda") -> dict:
    """The whole script; prints its tables and returns them as plain values."""
    began = time.monotonic()
    failed: list[str] = []

    def attempt(name: str, needed: float, function: Callable, *given):
        """None where the time left is less than `needed` seconds, or it fails: said either way."""
        left = plan.seconds - (time.monotonic() - began)
        if left < needed:
            failed.append(f"{name}: not measured, {left:.0f} s left")
        else:
            try:
                return function(*given)
            except (RuntimeError, AssertionError) as error:
                failed.append(f"{name}: {type(error).__name__}: {str(error)[:500]}")
            finally:
                say(f"{name}: at {time.monotonic() - began:.0f} s")
                if device == "cuda":
                    torch.cuda.empty_cache()
        say(failed[-1])
        return None

    checks = []
    for check in (_scans, _attention, _whole_model):
        checks += (
            attempt(f"correctness, {check.__name__}", float("-inf"), check, plan, device) or []
        )
    for one in checks:
        one["ok"] = one["error"] <= one["tolerance"]
    peak = attempt("matmul peak", 10, peak_flops, plan, device)
    rows, steps, profile = {}, [], None
    for compiled in (False, True):
        # the largest first: it is what the paper's main table needs
        for size in reversed(plan.sizes):
            name = f"{size}{', compiled' if compiled else ''}"
            if not compiled:
                given = (size, plan, device)
                rows[size] = attempt(f"{size}, largest micro-batch", 20, _largest, *given)
            if peak and rows[size]:
                given = (size, rows[size], plan, device, peak, compiled)
                one = attempt(name, 80 if compiled else 15, throughput, *given)
                steps += [one] if one else []
        if not compiled and rows[plan.sizes[-1]]:
            size = plan.sizes[-1]
            profile = attempt(f"{size} by part", 20, parts, size, rows[size], plan, device)
    _show(checks, peak, steps, profile, failed)
    return {
        "correct": checks,
        "matmul_peak_flops_per_second": peak,
        "steps": steps,
        "parts": {"size": plan.sizes[-1], "seconds": profile},
        "not_measured": failed,
        "kernels": kernels.kernel_report(device, torch.bfloat16, 64, 50.0, 64),
        "seconds": time.monotonic() - began,
    }


def _show(checks, peak, steps, profile, failed) -> None:
    print(
        markdown(
            ["kernel", "type", "error", "allowed", "ok"],
            [
                [c["what"], c["dtype"], f"{c['error']:.2g}", f"{c['tolerance']:g}", str(c["ok"])]
                for c in checks
            ],
        )
    )
    if peak:
        print(f"matmul peak: {peak / 1e12:.4g} TFLOP/s\n")
    header = ["size", "rows", "compiled", "bytes/s", "TFLOP/s", "of the peak", "memory", "step"]
    lines = [
        [
            s["size"],
            str(s["rows"]),
            str(s["compiled"]),
            f"{s['bytes_per_second']:.4g}",
            f"{s['flops_per_second'] / 1e12:.3g}",
            f"{s['share_of_peak']:.1%}",
            f"{s['peak_memory_bytes'] / 2**30:.1f} GiB",
            duration(statistics.median(s["seconds"])),
        ]
        for s in steps
    ]
    print(markdown(header, lines))
    if profile:
        print(markdown(["part", "time"], [[k, duration(v)] for k, v in profile.items()]))
    for line in failed:
        print(f"- {line}")
