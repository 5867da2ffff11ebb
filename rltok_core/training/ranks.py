"""The processes of one run, and everything that they say to each other.

Rank 0 holds the lock and writes every file. One process is Ranks(): its methods then do nothing to
what they are given, so a run without company is computed as if this file weren't there.

Gradients are summed once a step, after the last micro-batch, in buckets; not by
DistributedDataParallel, whose hooks sum during the backward pass. The sum is the same, in one place
and in an order that doesn't depend on timing, a parameter that only some micro-batches reach needs
no search of the graph, and accumulation needs no `no_sync`. What it costs is overlap: 4 bytes a
weight each step, 0.6 GB at 147M, 5 ms where NVLink moves 200 GB/s (docs/distributed.md).
"""

import datetime
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from rltok_core.errors import EXIT_RANK_LOST, UserError

T = TypeVar("T")

BUCKET_BYTES = 64 << 20  # of gradients summed at once: what the sum needs in memory
PATIENCE = datetime.timedelta(minutes=30)  # others wait while rank 0 writes a checkpoint


class OtherRank(Exception):
    """Another rank has failed and says why; this one leaves with the same `code`, silently."""

    def __init__(self, code: int):
        super().__init__(f"another rank failed with code {code}")
        self.code = code


@contextmanager
def _together() -> Iterator[None]:
    """A collective operation: it fails where another rank has gone."""
    try:
        yield
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(
            f"lost another process of this run ({reason}); run the same command to go on from "
            "its newest checkpoint",
            EXIT_RANK_LOST,
        ) from None


def buckets(tensors: Sequence[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """The tensors in order, in lists of one dtype of up to BUCKET_BYTES (or of one tensor)."""
    bucket: list[torch.Tensor] = []
    size = 0
    for tensor in tensors:
        full = size + tensor.nbytes > BUCKET_BYTES
        if bucket and (full or tensor.dtype != bucket[0].dtype):
            yield bucket
            bucket, size = [], 0
        bucket.append(tensor)
        size += tensor.nbytes
    if bucket:
        yield bucket


class Ranks:
    """Who this process is among the run's processes.

    Args:
        rank, size: this process's number, from 0, and how many there are. With more than one the
            default process group is there (see `join`).
    """

    def __init__(self, rank: int = 0, size: int = 1):
        self.rank, self.size = rank, size

    @property
    def first(self) -> bool:
        return self.rank == 0

    def total(self, tensors: Sequence[torch.Tensor]) -> None:
        """Sum each tensor over the ranks, in place, on its own device and in its own precision."""
        if self.size == 1:
            return
        for bucket in buckets(tensors):
            flat = torch.cat([tensor.flatten() for tensor in bucket])
            with _together():
                dist.all_reduce(flat)
            parts = flat.split([tensor.numel() for tensor in bucket])
            for tensor, part in zip(bucket, parts, strict=True):
                tensor.copy_(part.view_as(tensor))

    def total_counts(self, counts: Sequence[int]) -> list[int]:
        """Whole numbers summed over the ranks, on the host."""
        if self.size == 1:
            return list(counts)
        sums = torch.tensor(counts, dtype=torch.int64)
        with _together():
            dist.all_reduce(sums)
        return sums.tolist()

    def gather(self, value: T) -> list[T]:
        """Every rank's value, in the order of ranks, on every rank."""
        if self.size == 1:
            return [value]
        found: list[Any] = [None] * self.size
        with _together():
            dist.all_gather_object(found, value)
        return found

    def each(self, work: Callable[[], T]) -> T:
        """Every rank works; if any fails, all leave, and the lowest that failed says why."""
        result, error = None, None
        try:
            result = work()
        except UserError as failed:
            error = failed
        codes = self.gather(None if error is None else error.code)
        worst = next((rank for rank, code in enumerate(codes) if code is not None), None)
        if worst is None:
            return result
        if worst == self.rank:
            raise error
        raise OtherRank(codes[worst])

    def first_does(self, work: Callable[[], T]) -> T:
        """Rank 0 works while the others wait; all get its result, or leave if it fails."""
        return self.gather(self.each(work if self.first else lambda: None))[0]


@contextmanager
def join(device: str) -> Iterator[Ranks]:
    """This process's place by torchrun's variables; one process where there are none.

    Host values travel by gloo, device tensors by nccl on a GPU.

    Raises:
        UserError: more ranks on this machine than it has GPUs.
    """
    size = int(os.environ.get("WORLD_SIZE", 1)) if "RANK" in os.environ else 1
    if size == 1:
        yield Ranks()
        return
    rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    place, backend = None, "gloo"
    if device == "cuda":
        if local >= torch.cuda.device_count():
            raise UserError(
                f"rank {rank} wants GPU {local} of {os.uname().nodename}, which has "
                f"{torch.cuda.device_count()}; set runtime.gpus (or --ranks) to what there is"
            )
        place, backend = torch.device("cuda", local), "cpu:gloo,cuda:nccl"
        torch.cuda.set_device(place)
    with _together():
        dist.init_process_group(backend, timeout=PATIENCE, device_id=place)
    yield Ranks(rank, size)
    # not where something failed: it would wait for ranks that have gone
    dist.destroy_process_group()
