"""The autoregressive U-Net over bytes (paper.md 2), with the estimator's boundaries inside.

ids -> embedding -> n_down byte layers -> X -> estimator -> n_mid token layers -> Y -> X + Y
-> n_up byte layers -> head -> next byte; a second, early head reads X alone.

Shapes: B rows, S positions (bytes, bos first), T tokens of the longest row, D model width,
C = 256 byte logits.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from rltok_core.boundaries.contract import Estimator, Proposal, Tokens
from rltok_core.config.schema import ModelConfig
from rltok_core.data.batch import Batch
from rltok_core.data.vocabulary import N_SPECIAL, VOCABULARY
from rltok_core.model import kernels
from rltok_core.model.attention import rope_table
from rltok_core.model.functions import CompiledLogProbability
from rltok_core.model.layers import DecoderLayer
from rltok_core.model.norm import widened
from rltok_core.model.packing import Packing, bucket

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask


@dataclass
class Prediction:
    """What the U-Net says of a batch.

    Attributes:
        batch: the rows, repeated where several draws of the boundaries were asked for.
        logits_BSC: next-byte logits over the 256 bytes alone: special ids have no probability.
        early_logits_BSC: the same by the early exit, from x_BSD: of the rows of one draw.
        proposal: the boundaries used.
        tokens: the token level's input; None without a token level.
        x_BSD: byte vectors after the down layers, of the rows of one draw: all draws share them.
    """

    batch: Batch
    logits_BSC: torch.Tensor
    early_logits_BSC: torch.Tensor
    proposal: Proposal
    tokens: Tokens | None
    x_BSD: torch.Tensor


class UNet(nn.Module):
    """The network. No final norm, no embedding scaling, separate embedding and heads.

    Args:
        config: sizes.
        estimator: proposes boundaries, turns bytes into tokens and back; it keeps the weights
            that it came with.
        seed: of the network's own weights, drawn on the CPU by PyTorch's default rules, so that
            they are the same on every device.
    """

    def __init__(self, config: ModelConfig, estimator: Estimator, seed: int):
        super().__init__()
        self.config, self.estimator = config, estimator
        width = config.d_model

        def layers(count, d_mlp, window):
            layer = (width, config.n_heads, d_mlp, window, config.attention_softcap)
            return nn.ModuleList(DecoderLayer(*layer) for _ in range(count))

        self.embedding = nn.Embedding(VOCABULARY, width)
        self.down = layers(config.n_down, width, config.window)
        self.mid = layers(config.n_mid, 4 * width, None)
        self.up = layers(config.n_up, width, config.window)
        self.head = nn.Linear(width, VOCABULARY, bias=False)
        self.early_head = nn.Linear(width, VOCABULARY, bias=False)
        self.activation_checkpointing = False
        self._draw(torch.Generator().manual_seed(seed))
        self._counts = self._count()

    @torch.no_grad()
    def _draw(self, generator: torch.Generator) -> None:
        """PyTorch's defaults from our generator: N(0, 1) embedding, U(+-fan_in^-1/2) matrices."""
        if self.embedding.weight.is_meta:
            return
        drawn = torch.empty(self.embedding.weight.shape, device="cpu")
        self.embedding.weight.copy_(drawn.normal_(generator=generator))
        for part in (self.down, self.mid, self.up, self.head):
            for module in part.modules():
                if isinstance(module, nn.Linear):
                    bound = module.in_features**-0.5
                    drawn = torch.empty(module.weight.shape, device="cpu")
                    module.weight.copy_(drawn.uniform_(-bound, bound, generator=generator))
        self.early_head.weight.copy_(self.head.weight)

    def forward(
        self,
        batch: Batch,
        target_rate: float,
        mid: Literal["use", "stale", "zero"] = "use",
        samples: int = 1,
    ) -> Prediction:
        """Predict the next byte at every position.

        Args:
            batch: rows of ids, right-padded.
            target_rate: boundaries per position asked for. At 1 or more a learned estimator is
                overruled and every position is a boundary (a curriculum's open phase); a rule
                that is asked for more than its own rate gets random boundaries beside its own.
            mid: how the token level is used, to measure what it is worth. "stale": each byte
                receives the token before the latest (the first where there is none); "zero":
                nothing.
            samples: draws of the boundaries for each row, which share the down layers' work.
        """
        x_BSD = self.encode(batch)
        batch = batch.repeated(samples, self.estimator.antithetic)
        proposal = self.propose(_repeated(x_BSD, samples), batch, target_rate)
        return self.decode(x_BSD, batch, proposal, mid)

    def encode(self, batch: Batch) -> torch.Tensor:
        """Embedding and down layers: x_BSD, which knows nothing of boundaries."""
        x_BSD = self.embedding(batch.ids_BS)
        return self.run_layers(self.down, x_BSD, self._rope(batch), self._byte_mask(x_BSD))

    def propose(self, x_BSD: torch.Tensor, batch: Batch, target_rate: float) -> Proposal:
        """The estimator's boundaries, and what a curriculum adds; see forward()."""
        estimator = self.estimator
        if beyond(estimator, target_rate):
            proposal = estimator.propose(x_BSD, batch, estimator.target_rate)
            return _filled(proposal, batch, target_rate)
        proposal = estimator.propose(x_BSD, batch, target_rate)
        if target_rate >= 1 and estimator.learned:
            valid_BS = batch.valid_BS
            proposal = replace(proposal, boundary_BS=valid_BS, free_BS=torch.zeros_like(valid_BS))
        return proposal

    def decode(
        self,
        x_BSD: torch.Tensor,
        batch: Batch,
        proposal: Proposal,
        mid: Literal["use", "stale", "zero"] = "use",
    ) -> Prediction:
        """Everything after the boundaries are known: token level, up layers, both heads.

        Args:
            x_BSD: what encode() says of the rows of one draw.
            batch, proposal: the rows of all draws (batch.samples).
        """
        table, shared_BSD = self._rope(batch), _repeated(x_BSD, batch.samples)
        z_BSD, tokens = shared_BSD, None
        if self.config.n_mid:
            tokens = self.estimator.to_tokens(shared_BSD, proposal)
            # rows without any boundary add zero: a batch of nothing else has no tokens at all
            if mid != "zero" and tokens.x_BTD.shape[1]:
                z_BSD = shared_BSD + self._token_level(tokens, proposal, table, mid == "stale")
        z_BSD = self.run_layers(self.up, z_BSD, table, self._byte_mask(z_BSD))
        return Prediction(
            batch=batch,
            logits_BSC=F.linear(z_BSD, self.head.weight[N_SPECIAL:]),
            early_logits_BSC=F.linear(x_BSD, self.early_head.weight[N_SPECIAL:]),
            proposal=proposal,
            tokens=tokens,
            x_BSD=x_BSD,
        )

    def _rope(self, batch: Batch) -> torch.Tensor:
        config, ids_BS = self.config, batch.ids_BS
        size, rounded = config.d_model // config.n_heads, config.rope_positions == "bf16"
        return rope_table(ids_BS.shape[1], size, config.rope_theta, ids_BS.device, rounded)

    def _token_level(
        self, tokens: Tokens, proposal: Proposal, table: torch.Tensor, stale: bool
    ) -> torch.Tensor:
        """The token layers' output spread over the bytes, y_BSD."""
        y_BTD = self.token_layers(tokens, table[tokens.position_BT])
        if stale:
            tokens = replace(tokens, index_BS=(tokens.index_BS - 1).clamp(min=0))
        y_BSD = self.estimator.to_bytes(y_BTD, tokens, proposal)
        return y_BSD.to(tokens.x_BTD.dtype)

    def token_layers(self, tokens: Tokens, table_BTd: torch.Tensor) -> torch.Tensor:
        x_BTD = tokens.x_BTD
        if kernels.pick("token_attention", self._case(x_BTD)) == "packed":
            packing = Packing(tokens.valid_BT, tokens.total)
            packed = packing.pack(x_BTD), packing.pack(table_BTd), packing.mask()
            return packing.unpack(self.run_layers(self.mid, *packed))
        if not kernels.layers_are_compiled():
            return self.run_layers(self.mid, x_BTD, table_BTd, None)
        length = x_BTD.shape[1]  # of which torch.compile should see few
        padded = (F.pad(x, (0, 0, 0, bucket(length) - length)) for x in (x_BTD, table_BTd))
        return self.run_layers(self.mid, *padded, None)[:, :length]

    def _case(self, x: torch.Tensor, window: int = 0) -> kernels.Case:
        config, dtype = self.config, kernels.compute_dtype(x)
        d_head = config.d_model // config.n_heads
        return kernels.Case(x.device.type, dtype, window, config.attention_softcap, d_head)

    def _byte_mask(self, x_BSD: torch.Tensor) -> "BlockMask | None":
        """What FlexAttention needs to know of the byte layers, where it is picked."""
        window = self.config.window
        if kernels.pick("byte_attention", self._case(x_BSD, window)) != "flex":
            return None
        from rltok_core.model.flex import window_mask  # slow to import

        return window_mask(x_BSD.shape[1], window, x_BSD.device)

    def run_layers(
        self, layers: nn.ModuleList, x: torch.Tensor, table: torch.Tensor, mask: "BlockMask | None"
    ) -> torch.Tensor:
        """The layers one after another; with activation checkpointing only their inputs are kept
        for the backward pass, and each is computed again there."""
        again = self.activation_checkpointing and torch.is_grad_enabled()
        for layer in layers:
            if again:  # nothing in a layer is random
                x = checkpoint(
                    layer, x, table, None, mask, use_reentrant=False, preserve_rng_state=False
                )
            else:
                x = layer(x, table, mask=mask)
        return x

    def compile_layers(self) -> None:
        """torch.compile on each layer: all of a kind share what is compiled."""
        for part in (self.down, self.mid, self.up):
            for layer in part:
                layer.compile()

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        """Every parameter once: embedding, heads, policy (the estimator's), layers."""
        return {
            "embedding": list(self.embedding.parameters()),
            "heads": [self.head.weight, self.early_head.weight],
            "policy": list(self.estimator.parameters()),
            "layers": [p for part in (self.down, self.mid, self.up) for p in part.parameters()],
        }

    def parameter_counts(self) -> dict[str, int]:
        """Numbers of weights: total, byte_layers, mid_layers, embedding_and_heads, policy."""
        return dict(self._counts)

    def _count(self) -> dict[str, int]:
        # once: the FLOPs of every training step ask for it
        def count(*modules):
            return sum(p.numel() for module in modules for p in module.parameters())

        return {
            "total": count(self),
            "byte_layers": count(self.down, self.up),
            "mid_layers": count(self.mid),
            "embedding_and_heads": count(self.embedding, self.head, self.early_head),
            "policy": count(self.estimator),
        }


def _filled(proposal: Proposal, batch: Batch, rate: float) -> Proposal:
    """A rule's boundaries, and beside them random ones so that each row has `rate` of them; all at
    rate 1. Their numbers are a channel of their own in the row's stream."""
    boundary_BS = proposal.boundary_BS
    length_B, count_B = batch.length_B.double(), boundary_BS.sum(1)
    share_B = (rate * length_B - count_B) / (length_B - count_B).clamp(min=1)
    u_BS = batch.stream.uniform(boundary_BS.shape[1], "curriculum")
    boundary_BS = (boundary_BS | (u_BS < share_B[:, None])) & batch.valid_BS
    return replace(proposal, boundary_BS=boundary_BS, prob_BS=boundary_BS.float())


def beyond(estimator: Estimator, target_rate: float) -> bool:
    """Whether a curriculum asks a rule for more boundaries than its own."""
    return not estimator.learned and target_rate > estimator.target_rate


def _repeated(x_BSD: torch.Tensor, samples: int) -> torch.Tensor:
    return x_BSD if samples == 1 else x_BSD.repeat(samples, 1, 1)


def target_logp(prediction: Prediction, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """(logp_BS, logp_early_BS): float32 log-probability (nats) of each position's next byte by
    the two heads, with gradient; 0 where nothing is predicted. `batch` has the rows of all draws
    (prediction.batch), and so do both."""

    def logp_BS(logits_BSC):
        # the early exit has the rows of one draw
        scored_BS = batch.scored_BS[: len(logits_BSC)]
        target_N = batch.target_BS[: len(logits_BSC)].flatten()
        logits_NC = widened(logits_BSC).flatten(0, 1)
        if kernels.use_loops(logits_NC):
            logp_N = CompiledLogProbability.apply(logits_NC, target_N)
        else:
            logp_N = -F.cross_entropy(logits_NC, target_N, reduction="none")
        return logp_N.view_as(scored_BS) * scored_BS

    early_BS = logp_BS(prediction.early_logits_BSC)
    if batch.samples > 1:
        early_BS = early_BS.repeat(batch.samples, 1)
    return logp_BS(prediction.logits_BSC), early_BS
