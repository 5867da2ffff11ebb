"""What numbers a run computes and keeps (`training.precision`; paper.md 8, ledger 12).

float32: everything. bf16: autocast; weights, gradients, AdamW's states and reductions stay float32.
bf16_pure: weights, gradients, AdamW's states and the byte and token vectors are bf16, as in the
authors' code; softmaxes, norms, losses and the boundaries' probabilities are computed in float32
from them. In the middle of such a run validation computes so too; the evaluation afterwards is
float32 as for every run, on the weights that bf16 has left.
"""

import contextlib

import torch
from torch import nn

from rltok_core.config.schema import TrainingConfig
from rltok_core.model.unet import UNet


def to_precision(model: UNet, config: TrainingConfig) -> None:
    """Store the weights as asked for, in place; to be called before an optimiser is made.

    Buffers stay float32: the rate controller's steps would vanish in bf16. An estimator computes
    in float32 around its own Linear modules, which here take bf16 in and give float32 back.
    """
    if config.precision != "bf16_pure":
        return
    for parameter in model.parameters():
        parameter.data = parameter.data.bfloat16()
    for module in model.estimator.modules():
        if isinstance(module, nn.Linear):
            module.register_forward_pre_hook(lambda _, given: (given[0].bfloat16(), *given[1:]))
            module.register_forward_hook(lambda _, given, out: out.float())


def autocast(device: str, config: TrainingConfig) -> contextlib.AbstractContextManager:
    """The context of a forward pass in training."""
    if config.precision == "bf16":
        return torch.autocast(device, torch.bfloat16)
    return contextlib.nullcontext()
