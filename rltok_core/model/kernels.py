"""The one place that picks a kernel: by device, type and shape, or as the configuration says.

| what | names | picked |
|---|---|---|
| byte_attention | loops | float32 on the CPU, windows up to 16 |
| | flex | CUDA: FlexAttention over the window's blocks |
| | blocks | everywhere else: PyTorch, a block and the one before |
| token_attention | loops | float32 on the CPU |
| | packed | CUDA: tokens of all rows in one, FlexAttention by row |
| | dense | everywhere else: PyTorch, rows padded to the longest |
| elementwise | loops | float32 on the CPU: norms, GeGLU, cross-entropy |
| | torch | everywhere else |
| sampling | scan | the host: numba |
| | triton | CUDA: one program a row |

`loops` are cpu_kernels.py. runtime.kernels forces a name; one that can't take what it is given is
an error, never something else in silence. With runtime.compile the loops don't count: torch.compile
writes its own. torch.nn.attention.varlen is no candidate: it has no soft cap.
"""

import importlib.util
from typing import Literal, NamedTuple

import torch

from rltok_core.config.schema import KernelsConfig, RuntimeConfig
from rltok_core.errors import UserError
from rltok_core.model.costs import LARGEST_LOOP_WINDOW

# the loops skip the softmax's maximum: exp(+-80) and its sums fit a float32
LARGEST_SOFTCAP = 80.0
SMALLEST_FLEX_HEAD = 16

Kind = Literal["byte_attention", "token_attention", "elementwise", "sampling"]


class _Settings:
    """This process's: set once by use(), like the number of threads."""

    forced: dict[str, str] = KernelsConfig().model_dump()
    compiled: bool = False


def use(runtime: RuntimeConfig) -> None:
    """Take the kernels that the run asks for, and whether torch.compile will see the layers."""
    _Settings.forced = runtime.kernels.model_dump()
    _Settings.compiled = runtime.compile


def layers_are_compiled() -> bool:
    """Whether runtime.compile is on: then lengths are worth rounding up."""
    return _Settings.compiled


class Case(NamedTuple):
    """What a kernel is picked for; window 0: no window."""

    device: str
    dtype: torch.dtype
    window: int = 0
    softcap: float = 0.0
    d_head: int = 0


def compute_dtype(x: torch.Tensor) -> torch.dtype:
    """What a matmul of x gives here: autocast's type where it is on."""
    if torch.is_autocast_enabled(x.device.type):
        return torch.get_autocast_dtype(x.device.type)
    return x.dtype


def _loops(case: Case) -> str | None:
    """Why the compiled loops can't take it; None where they can."""
    if _Settings.compiled:
        return "runtime.compile writes its own loops"
    if case.device != "cpu" or case.dtype != torch.float32:
        return f"loops take float32 on the CPU, not {case.dtype} on {case.device}"
    if case.softcap > LARGEST_SOFTCAP:
        return f"loops need a soft cap of at most {LARGEST_SOFTCAP:g}"
    return None


def _flex(case: Case) -> str | None:
    """Why FlexAttention can't take it; None where it can."""
    if case.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        return f"FlexAttention has no kernel for {case.dtype}"
    if case.d_head < SMALLEST_FLEX_HEAD:
        return f"FlexAttention needs heads of {SMALLEST_FLEX_HEAD} channels, not {case.d_head}"
    return None


def _triton(case: Case) -> str | None:
    """Why the Triton kernel can't take it; None where it can."""
    if case.device != "cuda":
        return "Triton kernels run on CUDA"
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed"
    return None


def _always(case: Case) -> None:
    return None


# in order of preference
_WAYS = {
    "byte_attention": {"loops": _loops, "flex": _flex, "blocks": _always},
    "token_attention": {"loops": _loops, "packed": _flex, "dense": _always},
    "elementwise": {"loops": _loops, "torch": _always},
    "sampling": {"triton": _triton, "scan": _always},
}


def _preferred(kind: Kind, name: str, case: Case) -> str | None:
    """Why a kernel that could take it isn't picked by itself; None where it is."""
    if name in ("flex", "packed") and case.device != "cuda":
        return "FlexAttention has no backward pass on the CPU"
    if kind == "byte_attention" and name == "loops" and case.window > LARGEST_LOOP_WINDOW:
        return f"blocks are faster beyond a window of {LARGEST_LOOP_WINDOW}"
    return None


def choose(kind: Kind, case: Case) -> tuple[str, str]:
    """(the kernel's name, why that one: forced, or why those before it were passed over).

    Raises:
        UserError: the forced kernel can't take this case.
    """
    forced = _Settings.forced[kind]
    if forced != "auto":
        why_not = _WAYS[kind][forced](case)
        if why_not is not None:
            raise UserError(f"runtime.kernels.{kind}: {forced} is not possible: {why_not}")
        return forced, "forced by runtime.kernels"
    passed_over = []
    for name, impossible in _WAYS[kind].items():
        why_not = impossible(case) or _preferred(kind, name, case)
        if why_not is None:
            return name, "; ".join(passed_over) or "first choice"
        passed_over.append(f"not {name}: {why_not}")
    raise AssertionError(f"{kind}: the last way is always possible")


def pick(kind: Kind, case: Case) -> str:
    """The kernel's name; see choose()."""
    return choose(kind, case)[0]


def use_loops(*tensors: torch.Tensor) -> bool:
    """Whether the compiled element-wise loops take these, all of them."""
    return all(pick("elementwise", Case(x.device.type, x.dtype)) == "loops" for x in tensors)


def kernel_report(
    device: str, dtype: torch.dtype, window: int, softcap: float, d_head: int
) -> dict[str, str]:
    """What is picked for a run, and why: {kind: "name (why)"}, for its manifest."""
    cases = {
        "byte_attention": Case(device, dtype, window, softcap, d_head),
        "token_attention": Case(device, dtype, 0, softcap, d_head),
        "elementwise": Case(device, torch.float32),
        "sampling": Case(device, torch.float32),
    }
    return {kind: "{} ({})".format(*choose(kind, case)) for kind, case in cases.items()}
