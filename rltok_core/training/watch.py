"""What training keeps an eye on: running sums between two log lines, and a collapsed rate.

Both stay on the device as float64 until a line is written, so that they cost no synchronisation;
both travel in the checkpoint, so that a resumed run writes the same lines.
"""

import torch

from rltok_core.evaluation.bits import bits_per_byte

COLLAPSE_STEPS = 50  # window of steps over which the boundary rate is judged
COLLAPSE_FACTOR = 4.0


def out_of_bounds(ratio: float) -> bool:
    """Whether realised / target rate counts as collapsed: below 1/4 or above 4 (promise 5)."""
    return not 1 / COLLAPSE_FACTOR <= ratio <= COLLAPSE_FACTOR


class Tally:
    """Named float64 sums."""

    def __init__(self):
        self.sums: dict[str, torch.Tensor | float] = {}

    def __getitem__(self, name: str) -> torch.Tensor | float:
        return self.sums[name]

    def add(self, **values: torch.Tensor | float) -> None:
        for name, value in values.items():
            if isinstance(value, torch.Tensor):
                value = value.detach().double()
            self.sums[name] = self.sums.get(name, 0.0) + value

    def state(self) -> dict[str, float]:
        return {name: float(value) for name, value in self.sums.items()}

    def line(self) -> dict:
        """The sums as a line of metrics.jsonl has them: means, bits per byte, rates."""
        sums = self.state()
        n_bytes, steps = int(sums["bytes"]), sums["steps"]
        return {
            "loss": sums["loss"] / steps,
            "bpb": bits_per_byte(sums["nats"], n_bytes),
            "bpb_early": bits_per_byte(sums["nats_early"], n_bytes),
            "boundary_rate": sums["boundaries"] / sums["positions"],
            "whitespace_share": sums["marked"] / sums["whitespace"] if sums["whitespace"] else None,
            "terms": {
                name.removeprefix("term "): value / steps
                for name, value in sums.items()
                if name.startswith("term ")
            },
        }


class RateWatch:
    """Says when the boundary rate has been < 1/4 or > 4 x the target over a window of steps.

    Args:
        steps: of the run; a run shorter than the window is judged over its whole length.
    """

    def __init__(self, steps: int, device):
        self.ratio = torch.zeros(min(COLLAPSE_STEPS, steps), dtype=torch.float64, device=device)

    def add(self, step: int, realised: torch.Tensor, target: float) -> None:
        """`step` (from 0) had the boundary rate `realised` where `target` was asked for."""
        self.ratio[step % len(self.ratio)] = realised / target

    def collapsed(self, steps_done: int) -> float | None:
        """The window's mean of realised / target if it is out of bounds, else None."""
        if steps_done < len(self.ratio):
            return None
        mean = float(self.ratio.mean())
        return mean if out_of_bounds(mean) else None
