"""Write parquet shards in FineWeb's format, of any size, to build at scale without the hub.

    python tests/data/make_fineweb_like.py FOLDER --shards 80 --megabytes 50

Made-up text with FineWeb's columns, one file after the other, the same for the same seed: lengths
are log-normal (a quarter of the documents is over 4096 bytes), one document in 200 is a copy of
another file's, one in 500 is null and one in 500 empty. Slices of one long text, each with a number
before it: making it must not take longer than building it.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

POOL_BYTES = 1 << 26
ROW_GROUP = 1000
PACKED = 0.4  # bytes on disk a byte of text, roughly


def pool(rng: np.random.Generator) -> bytes:
    """A long text of made-up words, common ones more often, a few of them not ASCII."""
    letters = np.array(list("etaoinshrdlucmfwypvbgkqjxzéü日"))
    lengths = rng.integers(1, 12, 50_000)
    words = ["".join(rng.choice(letters[: rng.integers(3, 30)], n)) for n in lengths]
    ranks = np.minimum(rng.zipf(1.2, POOL_BYTES // 7), len(words)) - 1
    return " ".join(words[rank] for rank in ranks.tolist()).encode()[:POOL_BYTES]


def rows(text: bytes, size: int, shard: int, seed: int) -> dict[str, list]:
    """The columns of a shard with about `size` bytes of text."""
    rng = np.random.default_rng([seed, shard])
    texts: list[str | None] = []
    made = 0
    while made < size:
        kind = rng.random()
        if kind < 0.004:
            texts.append(None if kind < 0.002 else "")
            continue
        if kind < 0.009:  # from few, so that other shards have them too
            pick = np.random.default_rng([seed, int(rng.integers(1000))])
            head = f"copy {pick.integers(1000)} "
        else:
            pick, head = rng, f"{shard}.{len(texts)} "
        length = int(np.exp(pick.normal(7.5, 1.2)))
        start = int(pick.integers(max(1, len(text) - length)))
        texts.append(head + text[start : start + length].decode("utf-8", "ignore"))
        made += length
    n = len(texts)
    return {
        "text": texts,
        "id": [f"<urn:uuid:{shard:08d}-{i:012d}>" for i in range(n)],
        "dump": ["CC-MAIN-2024-18"] * n,
        "url": [f"https://example.org/{shard}/{i}" for i in range(n)],
        "date": ["2024-04-12T00:00:00Z"] * n,
        "file_path": [f"s3://commoncrawl/{shard}.warc.gz"] * n,
        "language": ["en"] * n,
        "language_score": rng.uniform(0.65, 1, n).tolist(),
        "token_count": [len(t or "") // 4 for t in texts],
    }


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--shards", type=int, default=80)
    parser.add_argument("--megabytes", type=float, default=50, help="of a shard on disk, roughly")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    args.folder.mkdir(parents=True, exist_ok=True)
    text = pool(np.random.default_rng(args.seed))
    for shard in range(args.shards):
        table = pa.table(rows(text, int(args.megabytes * 1e6 / PACKED), shard, args.seed))
        path = args.folder / f"000_{shard:05d}.parquet"
        pq.write_table(table, path, row_group_size=ROW_GROUP, compression="snappy")


if __name__ == "__main__":
    main(sys.argv[1:])
