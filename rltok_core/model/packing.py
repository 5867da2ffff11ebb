"""Tokens of ragged rows without padding: all rows one after another, and back.

Shapes: B rows, T tokens of the longest row, L slots of the packed sequence.
"""

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

BLOCK = 128  # of FlexAttention's masks (flex.py)


def bucket(length: int, multiple: int = 16) -> int:
    """length rounded up to one of 16 steps an octave (at most a sixteenth more), so that few
    shapes ever occur; a multiple of `multiple`."""
    step = max(multiple, 1 << max(length.bit_length() - 5, 0))
    return -(-length // step) * step


class Packing:
    """Where each token goes. Needs no look at the device: the count is known.

    Args:
        valid_BT: bool, a row's tokens first.
        total: how many there are.
    """

    def __init__(self, valid_BT: torch.Tensor, total: int):
        self.valid_BT = valid_BT
        rows = valid_BT.shape[0]
        slots = bucket(total, BLOCK)
        slot_BT = (valid_BT.flatten().cumsum(0) - 1).view_as(valid_BT)
        # padding is written to one slot more, which is cut off; unused slots show token 0 and
        # belong to a row of their own
        self.slot_BT = torch.where(valid_BT, slot_BT, slots)
        source_L = valid_BT.new_zeros(slots + 1, dtype=torch.int64)
        index_BT = torch.arange(valid_BT.numel(), device=valid_BT.device).view_as(valid_BT)
        self.source_L = source_L.scatter_(0, self.slot_BT.flatten(), index_BT.flatten())[:-1]
        row_L = torch.full_like(source_L, rows)
        row_BT = torch.arange(rows, device=valid_BT.device)[:, None].expand_as(valid_BT)
        self.row_L = row_L.scatter_(0, self.slot_BT.flatten(), row_BT.flatten())[:-1]

    def mask(self) -> "BlockMask":
        """What each slot's token may see."""
        from rltok_core.model.flex import row_mask  # slow to import

        return row_mask(self.row_L)

    def pack(self, x_BTD: torch.Tensor) -> torch.Tensor:
        """(1, L, D); unused slots repeat the first token and are read by nobody."""
        return x_BTD.flatten(0, 1).index_select(0, self.source_L)[None]

    def unpack(self, x_1LD: torch.Tensor) -> torch.Tensor:
        """BTD, zero on padding."""
        x_BTD = x_1LD[0].index_select(0, self.slot_BT.clamp(max=x_1LD.shape[1] - 1).flatten())
        return x_BTD.unflatten(0, self.valid_BT.shape) * self.valid_BT[..., None]
