"""Peak memory of a run doesn't grow with its byte store: 4 GB against 4 MB, in a process each."""

import json
import os
import resource
import sys

import numpy as np
import pytest

from rltok_core.data.documents import Document
from rltok_core.data.store import ByteStore, SplitWriter, release
from rltok_core.training.loop import train

pytestmark = pytest.mark.usefixtures("warm")

DOCUMENT = 40_000  # bytes, of which a window is 63


def big_store(bench, size: int) -> None:
    """A training split of `size` bytes whose file has no blocks on the disk: every byte is 0."""
    folder = bench.data / "train"
    count = size // DOCUMENT
    np.save(folder / "offsets.npy", np.arange(count + 1, dtype=np.int64) * DOCUMENT)
    with open(folder / "bytes.bin", "wb") as file:
        file.truncate(count * DOCUMENT)
    (folder / "names.json").write_text(json.dumps([str(i) for i in range(count)]))


@pytest.mark.slow
@pytest.mark.parametrize("windows", ["first", "all"])
def test_peak_memory_does_not_grow_with_the_byte_store(make_bench, forked, windows):
    """66 million windows where every one is used: a table or a permutation would be 0.5 GB each.

    30 steps of 64 rows: every page that was read would be 120 MB with its neighbours.
    """
    peaks = []
    for size in (4_000_000, 4_000_000_000):
        bench = make_bench()
        big_store(bench, size)
        run = bench.run(steps=30, batch_size=64, runtime={"checkpoint_every": 30})
        run = run.model_copy(update={"data": run.data.model_copy(update={"windows": windows})})

        def work(run=run, bench=bench) -> int:
            code = train(run, bench.data, bench.folder / "run")
            print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, file=sys.stderr)
            return code

        code, text = forked(work)
        assert code == 0, text
        peaks.append(int(text.split()[-1]))
    print(f"peak memory, MB, with stores of 4 MB and 4 GB ({windows}): {peaks}", file=sys.stderr)
    assert peaks[1] < peaks[0] + 32, peaks


def test_pages_of_a_store_are_given_back(tmp_path):
    """What reading has mapped counts as ours until it is released; the bytes stay what they are."""

    def mapped() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[2]) * os.sysconf("SC_PAGE_SIZE")

    size = 64 << 20
    writer = SplitWriter(tmp_path / "s", 1, size, with_truth=False)
    writer.add(Document("x", bytes(size - 1) + b"\7"))
    writer.close()
    store = ByteStore.open(tmp_path / "s")
    before = mapped()
    assert int(store.bytes.sum()) == 7
    assert mapped() > before + size // 2
    release(store.bytes)
    assert mapped() < before + size // 8
    assert store.bytes[-1] == 7
