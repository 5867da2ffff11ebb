"""From a DataConfig to a data folder: make the shards that are missing, join them, rename.

The folder is written beside the target, and takes the target's name as the last step: a build that
fails or is killed leaves nothing that looks finished, and loses no finished shard (shards.py).
Memory doesn't grow with the corpus: documents are sorted and merged on disk (runs.py).
"""

import hashlib
import importlib.metadata
import json
import os
import platform
import shutil
from pathlib import Path

import numpy as np

from rltok_core.config.schema import DataConfig, SplitConfig
from rltok_core.config.sources import PlantedSource
from rltok_core.data.meter import Meter
from rltok_core.data.planted import Language
from rltok_core.data.runs import DECLARED, document_of, fewer, merged, merged_index
from rltok_core.data.shards import (
    COUNTS,
    FORMAT,
    NOTES,
    Limit,
    Workshop,
    maker,
    remove_dead,
)
from rltok_core.data.store import SPLITS, ByteStore, SplitWriter
from rltok_core.errors import UserError
from rltok_core.files import write_json

TOOLS = ("numpy", "pyarrow", "datasets")
HELD_OUT = ("test", "validation")


def build(config: DataConfig, out: Path) -> dict:
    """Build the data folder `out`, unless it is there already, and return its manifest.

    Raises:
        UserError: bad input (named), no document left, splits that don't fit, a full disk. `out`
            is then as it was, and the shards that were finished are kept for the next try.
    """
    out = Path(out)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        remove_dead(out.parent, f".{out.name}.building-")
        shop = Workshop(config, out)
        try:
            return _finished(shop) or _build(shop)
        finally:
            shop.tidy()
    except OSError as error:
        place = error.filename or out
        raise UserError(f"can't build {out}: {place}: {error.strerror or error}") from error


def make_shard(config: DataConfig, out: Path, index: int) -> dict:
    """Make one shard of the data folder `out` alone, for build() to join; its shard.json.

    Raises:
        UserError: as build(); a corpus with a limit, whose shards depend on those before.
    """
    try:
        shop = Workshop(config, Path(out))
        if Limit.of(config.source) != Limit(None, None):
            raise UserError(
                f"{config.name}: max_documents and max_bytes are counted from the first shard on; "
                "build it as a whole (rltok data build), which goes on shard by shard too"
            )
        return shop.make(index)
    except OSError as error:
        place = error.filename or out
        raise UserError(f"can't make shard {index}: {place}: {error.strerror or error}") from error


def _finished(shop: Workshop) -> dict | None:
    """The manifest of the folder as it is, if it is whole and what would be built."""
    try:
        manifest = json.loads((shop.out / "manifest.json").read_text(encoding="utf-8"))
        if not shop.unchanged(manifest):
            return None
        for split in SPLITS:
            if ByteStore.open(shop.out / split).sha256() != manifest["splits"][split]["sha256"]:
                return None
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError):
        return None  # nothing there, or nothing that can be told: build it
    except UserError as error:
        if "damaged" in str(error) or "no such file" in str(error):
            return None
        raise
    shop.checksums.save()
    return manifest


def _build(shop: Workshop) -> dict:
    limit, made = Limit.of(shop.config.source), []
    for index in range(len(shop.shards)):
        made.append(shop.make(index, limit))
        limit = limit.less(made[-1]["documents"], made[-1]["bytes"])
        if limit.reached(0, 0):
            break
    aside = shop.out.parent / f".{shop.out.name}.building-{maker()}"
    try:
        aside.mkdir()
        manifest = _join(shop, made, aside)
        _replace(aside, shop.out)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    shop.remove()
    return manifest


def _join(shop: Workshop, made: list[dict], aside: Path) -> dict:
    """Write the splits and the manifest of finished shards into the folder `aside`."""
    config = shop.config
    runs = [shop.folder / f"{index:05d}" / "run" for index in range(len(made))]
    runs = fewer(runs, aside / "runs", keep=True)
    plan = Plan(runs, config.split, config.name)
    splits = _write(runs, plan, aside, config.name)
    shutil.rmtree(aside / "runs", ignore_errors=True)  # there only if shards were many
    counts = {name: sum(shard["counts"][name] for shard in made) for name in (*COUNTS, *NOTES)}
    counts["kept"] = plan.documents
    counts["duplicate"] = sum(shard["documents"] for shard in made) - plan.documents
    text = "\n".join(f"{split} {splits[split]['sha256']}" for split in SPLITS)
    sources = [source for shard in made for source in shard["sources"]]
    manifest = {
        "format": FORMAT,
        "name": config.name,
        "id": config.id,
        "hash": config.hash,
        "content_hash": hashlib.sha256(text.encode()).hexdigest(),
        "config": config.model_dump(mode="json"),
        # a hub dataset's parts are of one commit, or of the same files
        "sources": list({json.dumps(source): source for source in sources}.values()),
        "counts": counts,
        "splits": splits,
        "planted": _planted(config.source, aside),
        "tool_versions": {
            "python": platform.python_version(),
            **{tool: importlib.metadata.version(tool) for tool in TOOLS},
        },
    }
    write_json(aside / "manifest.json", manifest)
    return manifest


class Plan:
    """Which split each document goes to, decided from the records before any text is moved.

    Declared documents go where the source says. The others go, in the order of their keys, to
    test, then validation, then train: as many as the scheme asks for, or, by content, all whose
    key lies in the split's share of all keys. A declared split gets no other documents.

    Attributes:
        documents: that are kept.
        sizes: {split: [documents, bytes]}.
        with_truth: whether they carry boundaries.

    Raises:
        UserError: test and validation leave nothing to train on, or `counts` aren't whole.
    """

    def __init__(self, runs: list[Path], split: SplitConfig, name: str):
        present = np.zeros(len(DECLARED), dtype=np.int64)
        self.with_truth = False
        for record_N, _, first_N in merged_index(runs):
            present += np.bincount(record_N["declared"][first_N], minlength=len(DECLARED))
            self.with_truth |= bool(record_N["truth"].any())
        self.documents, free = int(present.sum()), int(present[DECLARED.index(None)])
        self._by_key = split.scheme == "content"
        self._bounds, self._rank = [0], 0
        for part in HELD_OUT:
            asked = 0
            if not present[DECLARED.index(part)]:
                key = f"{name}: split.{part}"
                asked = _asked(getattr(split, part), split.scheme, free, key)
            self._bounds.append(self._bounds[-1] + asked)
        self.sizes = {part: [0, 0] for part in SPLITS}
        for record_N, _, first_N in merged_index(runs):
            for record in record_N[first_N].tolist():
                size = self.sizes[self.split_of(record)]
                size[0] += 1
                size[1] += record[2]
        self._rank = 0
        if not self.sizes["train"][0]:
            held_out = "all" if self._by_key else self._bounds[-1]
            raise UserError(
                f"{name}: {free} documents are left after filtering, the test and validation "
                f"splits ask for {held_out} of them, and nothing is left to train on "
                "(max_documents and max_bytes count files declared for test or validation, "
                "too, and those first)"
            )

    def split_of(self, record: tuple) -> str:
        """The split of the next document; to be asked of all of them, in the order of keys."""
        declared = DECLARED[record[4]]
        if declared is not None:
            return declared
        place = record[0] if self._by_key else self._rank
        self._rank += 1
        _, first, second = self._bounds
        return "test" if place < first else "validation" if place < second else "train"


def _asked(asked: float, scheme: str, documents: int, key: str) -> int:
    """What a split gets: a number of documents (at least one for a share above 0), or of keys."""
    if scheme in ("counts", "paper"):
        if asked != int(asked) or asked < 0:
            raise UserError(f"{key}: {asked} is not a number of documents (scheme: {scheme})")
        return int(asked)
    if not 0 <= asked < 1:
        raise UserError(f"{key}: {asked} is not a share in [0, 1) (scheme: {scheme})")
    if scheme == "content":
        return int(asked * (1 << 64))
    return max(int(asked * documents + 0.5), int(asked > 0))


def _write(runs: list[Path], plan: Plan, aside: Path, name: str) -> dict[str, dict]:
    """Move the text; what the manifest says of each split."""
    writers: dict[str, SplitWriter] = {}
    meter = Meter(f"{name}: joining", sum(size for _, size in plan.sizes.values()))
    try:
        for split, (documents, size) in plan.sizes.items():
            writers[split] = SplitWriter(aside / split, documents, size, plan.with_truth)
        for record, body in merged(runs):
            writers[plan.split_of(record)].add(document_of(record, body))
            meter.add(1, record[2])
        meter.end()
        return {split: writer.close() for split, writer in writers.items()}
    finally:
        for writer in writers.values():
            writer.abort()


def _planted(source, folder: Path) -> dict | None:
    """The planted language's floors: the entropy rate, and what the true model scores.

    The second is what a perfect model would score on these very documents.
    """
    if not isinstance(source, PlantedSource):
        return None
    language = Language(source)
    stores = {split: ByteStore.open(folder / split) for split in ("validation", "test")}
    true_model = {
        split: float(language.true_model_bits(store.bytes, store.offsets).mean())
        for split, store in stores.items()
        if len(store)
    }
    return {
        "entropy_bits_per_byte": language.entropy_bits_per_byte,
        "true_model_bits_per_byte": true_model,
        "words": [bytes(word).decode() for word in language.words_WL],
        "mean_cycle_bytes": language.mean_cycle_bytes,
    }


def _replace(aside: Path, out: Path) -> None:
    """Give the finished folder its name; an older one at that name stops looking finished first."""
    if out.exists():
        # Snakemake deletes the manifest, its declared output, before it has a folder built anew
        known = {"manifest.json", *SPLITS}
        if not out.is_dir() or not {path.name for path in out.iterdir()} <= known:
            raise UserError(f"{out}: exists and is no data folder; remove it or choose another")
        (out / "manifest.json").unlink(missing_ok=True)
        shutil.rmtree(out)
    os.replace(aside, out)
