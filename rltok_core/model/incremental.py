"""The network one position at a time: what was computed before is kept, not computed again.

    decoder = open_decoder(model, batch, target_rate)
    logits_BC = decoder.step(ids_B)        # of the byte after this position; bos comes first

Equal to the full forward pass up to rounding (tests: 1e-5 in float32). All rows stand at the same
position; a row that is over goes on with padding, which nothing of it can see. A byte layer keeps
its window's keys and values, a token layer those of every token, the estimator what it needs
(boundaries/stepping.py). An estimator that doesn't say how it steps gets the slow decoder.

Shapes: B rows, S positions, R rows with a boundary, K keys, H heads, d head size, D model width,
C = 256 byte logits.
"""

from dataclasses import replace

import torch
import torch.nn.functional as F

from rltok_core.boundaries.contract import Estimator
from rltok_core.data.batch import Batch
from rltok_core.data.stream import RandomStream
from rltok_core.data.vocabulary import N_SPECIAL, PAD
from rltok_core.model.attention import rope_table
from rltok_core.model.unet import UNet, beyond


class WindowPast:
    """The last `window` positions of every row, in a ring."""

    def __init__(self, window: int):
        self.window, self.seen = window, 0
        self.k_BKHd = self.v_BKHd = torch.empty(0)

    def extend(self, k_BHd: torch.Tensor, v_BHd: torch.Tensor) -> tuple:
        if not self.seen:
            shape = (len(k_BHd), self.window, *k_BHd.shape[1:])
            self.k_BKHd, self.v_BKHd = k_BHd.new_zeros(shape), v_BHd.new_zeros(shape)
        slot = self.seen % self.window
        self.k_BKHd[:, slot], self.v_BKHd[:, slot] = k_BHd, v_BHd
        self.seen += 1
        filled = min(self.seen, self.window)
        return self.k_BKHd[:, :filled], self.v_BKHd[:, :filled], None


class TokenPast:
    """Every token of each row. `rows` and `count_R` (tokens before) are set for each call."""

    def __init__(self, n_rows: int):
        self.n_rows = n_rows
        self.rows = self.count_R = torch.empty(0, dtype=torch.long)
        self.k_BKHd: torch.Tensor | None = None
        self.v_BKHd: torch.Tensor | None = None

    def extend(self, k_RHd: torch.Tensor, v_RHd: torch.Tensor) -> tuple:
        longest = int(self.count_R.max()) + 1
        self._make_room(longest, k_RHd)
        self.k_BKHd[self.rows, self.count_R] = k_RHd
        self.v_BKHd[self.rows, self.count_R] = v_RHd
        place_K = torch.arange(longest, device=k_RHd.device)
        hidden_RK = place_K > self.count_R[:, None]
        return self.k_BKHd[self.rows, :longest], self.v_BKHd[self.rows, :longest], hidden_RK

    def _make_room(self, longest: int, like_RHd: torch.Tensor) -> None:
        """Room doubles, so that copying stays linear."""
        if self.k_BKHd is None:
            shape = (self.n_rows, 16, *like_RHd.shape[1:])
            self.k_BKHd, self.v_BKHd = like_RHd.new_zeros(shape), like_RHd.new_zeros(shape)
        while self.k_BKHd.shape[1] < longest:
            self.k_BKHd = torch.cat([self.k_BKHd, torch.zeros_like(self.k_BKHd)], 1)
            self.v_BKHd = torch.cat([self.v_BKHd, torch.zeros_like(self.v_BKHd)], 1)


class DrawnStream(RandomStream):
    """A stream that remembers: asked at every position, its numbers are drawn once."""

    def __init__(self, stream: RandomStream):
        super().__init__(stream.keys_B, stream.device, stream.constant)
        self._drawn: dict[tuple[int, str], torch.Tensor] = {}

    def uniform(self, length: int, channel: str = "boundary") -> torch.Tensor:
        if (length, channel) not in self._drawn:
            self._drawn[length, channel] = super().uniform(length, channel)
        return self._drawn[length, channel]


class Decoder:
    """What both decoders share: the rows as far as they are read.

    Args:
        batch: lengths and streams of the rows; its ids and hints are not looked at.
    """

    def __init__(self, model: UNet, batch: Batch, target_rate: float):
        self.model, self.target_rate, self.position = model, target_rate, 0
        hint_BS = None if batch.hint_BS is None else torch.zeros_like(batch.hint_BS)
        self.batch = replace(
            batch,
            ids_BS=torch.full_like(batch.ids_BS, PAD),
            hint_BS=hint_BS,
            stream=DrawnStream(batch.stream),
        )

    @torch.no_grad()
    def step(self, ids_B: torch.Tensor, hint_B: torch.Tensor | None = None) -> torch.Tensor:
        """Read one position of every row.

        Args:
            ids_B: its ids; PAD where a row is over.
            hint_B: bool, whether a boundary is known there; for estimators with hints.

        Returns:
            logits_BC of the byte that comes next.
        """
        self.batch.ids_BS[:, self.position] = ids_B
        if hint_B is not None:
            self.batch.hint_BS[:, self.position] = hint_B
        logits_BC = self._logits(ids_B)
        self.position += 1
        return logits_BC

    def _logits(self, ids_B: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError


class FullDecoder(Decoder):
    """Runs the whole network again at each position: O(S) times slower, for any estimator."""

    def _logits(self, ids_B: torch.Tensor) -> torch.Tensor:
        return self.model(self.batch, self.target_rate).logits_BSC[:, self.position]


class IncrementalDecoder(Decoder):
    """Keeps everything that later positions look at."""

    def __init__(self, model: UNet, batch: Batch, target_rate: float):
        super().__init__(model, batch, target_rate)
        config, (rows, length) = model.config, batch.ids_BS.shape
        device = batch.ids_BS.device
        size, rounded = config.d_model // config.n_heads, config.rope_positions == "bf16"
        self.table_Sd = rope_table(length, size, config.rope_theta, device, rounded)
        self.down = [WindowPast(config.window) for _ in model.down]
        self.mid = [TokenPast(rows) for _ in model.mid]
        self.up = [WindowPast(config.window) for _ in model.up]
        self.stepper = model.estimator.stepper(self.batch, target_rate)
        self.count_B = torch.zeros(rows, dtype=torch.long, device=device)
        self.y_BD: torch.Tensor | None = None

    def _logits(self, ids_B: torch.Tensor) -> torch.Tensor:
        model, i = self.model, self.position
        table_1d = self.table_Sd[i : i + 1]
        x_B1D = model.embedding(ids_B)[:, None]
        for layer, past in zip(model.down, self.down, strict=True):
            x_B1D = layer(x_B1D, table_1d, past)
        z_B1D = x_B1D
        if model.config.n_mid:
            z_B1D = x_B1D + self._token_level(x_B1D[:, 0], table_1d)[:, None]
        for layer, past in zip(model.up, self.up, strict=True):
            z_B1D = layer(z_B1D, table_1d, past)
        return F.linear(z_B1D[:, 0], model.head.weight[N_SPECIAL:])

    def _token_level(self, x_BD: torch.Tensor, table_1d: torch.Tensor) -> torch.Tensor:
        """What the byte at this position receives, y_BD."""
        boundary_B, prob_B = self.stepper.boundary(self.position, x_BD)
        if self.target_rate >= 1 and self.model.estimator.learned:  # as in UNet.forward
            boundary_B = self.batch.length_B > self.position
        token_BD = self.stepper.token(x_BD, boundary_B)
        rows = boundary_B.nonzero().flatten()
        if self.y_BD is None:
            self.y_BD = torch.zeros_like(x_BD)
        if len(rows):
            y_R1D = token_BD[rows][:, None]
            for layer, past in zip(self.model.mid, self.mid, strict=True):
                past.rows, past.count_R = rows, self.count_B[rows]
                y_R1D = layer(y_R1D, table_1d, past)
            self.y_BD[rows] = y_R1D[:, 0]
            self.count_B[rows] += 1
        return self.stepper.spread(self.y_BD, boundary_B, prob_B)


def steps(estimator: Estimator) -> bool:
    """Whether its stepper knows all that it does: nothing was overridden without it."""
    mro = type(estimator).__mro__

    def place(name: str) -> int:
        return next(k for k, cls in enumerate(mro) if name in vars(cls))

    ours = place("stepper")
    # the base class's stepper asks propose itself, whoever defines it
    asked = ["propose"] if mro[ours] is not Estimator else []
    return all(ours <= place(name) for name in ["to_tokens", "to_bytes", *asked])


def open_decoder(model: UNet, batch: Batch, target_rate: float) -> Decoder:
    """The fast decoder where the estimator says how it steps, else the slow one."""
    fast = steps(model.estimator) and not beyond(model.estimator, target_rate)
    kind = IncrementalDecoder if fast else FullDecoder
    return kind(model, batch, target_rate)
