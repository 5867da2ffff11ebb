"""From a DataConfig to a data folder: read, filter, drop duplicates, split, write, rename.

Everything is written into a folder beside the target, which takes the target's name as the last
step: a build that fails or is killed leaves nothing that looks finished. Texts pass through a
spool on disk, so that memory doesn't grow with the corpus.
"""

import hashlib
import importlib.metadata
import json
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from rltok_core.config.schema import DataConfig, SplitConfig
from rltok_core.config.sources import PlantedSource
from rltok_core.data.documents import Document, Log
from rltok_core.data.files import read_files
from rltok_core.data.hub import read_hub
from rltok_core.data.packaged import read_code, read_prose
from rltok_core.data.planted import Language, read_planted
from rltok_core.data.scripts import read_script
from rltok_core.data.spool import Spool
from rltok_core.data.store import SPLITS, ByteStore, write_split
from rltok_core.errors import UserError

READERS: dict[str, Callable[..., Iterator[Document]]] = {
    "packaged_prose": read_prose,
    "packaged_code": read_code,
    "packaged_script": read_script,
    "planted": read_planted,
    "files": read_files,
    "hub": read_hub,
}
COUNTS = ("kept", "too_short", "empty", "whitespace_only", "null", "duplicate", "invalid_utf8")
TOOLS = ("numpy", "pyarrow", "datasets")
REPORT_EVERY = 200_000  # documents


def build(config: DataConfig, out: Path) -> dict:
    """Build the data folder `out` and return its manifest.

    Raises:
        UserError: bad input (named), no document left, splits that don't fit, a full disk. `out`
            is then as it was.
    """
    out = Path(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    _remove_dead_builds(out)
    aside = out.parent / f".{out.name}.building-{os.getpid()}"
    try:
        aside.mkdir()
        manifest = _build(config, aside)
        _replace(aside, out)
    except OSError as error:
        place = error.filename or aside
        raise UserError(f"can't build {out}: {place}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return manifest


def _build(config: DataConfig, aside: Path) -> dict:
    log = Log()
    spool = Spool(aside / "spool", config.split.seed)
    try:
        counts = _fill(spool, config, log)
    finally:
        spool.close()
    order = spool.shuffled()
    counts["kept"], counts["duplicate"] = len(order), len(spool) - len(order)
    parts = divide(order, spool, config.split, config.name)
    stores = {}
    for split in SPLITS:
        numbers = parts[split]
        documents = spool.read(numbers)
        stores[split] = write_split(
            aside / split, spool.sizes[numbers], documents, spool.with_truth
        )
    splits = {
        split: {"documents": len(store), "bytes": len(store.bytes), "sha256": store.sha256()}
        for split, store in stores.items()
    }
    text = "\n".join(f"{split} {splits[split]['sha256']}" for split in SPLITS)
    manifest = {
        "name": config.name,
        "id": config.id,
        "hash": config.hash,
        "content_hash": hashlib.sha256(text.encode()).hexdigest(),
        "config": config.model_dump(mode="json"),
        "sources": log.sources,
        "counts": counts,
        "splits": splits,
        "planted": _planted(config.source, stores),
        "tool_versions": {
            "python": platform.python_version(),
            **{tool: importlib.metadata.version(tool) for tool in TOOLS},
        },
    }
    shutil.rmtree(aside / "spool")
    with open(aside / "manifest.json", "w", encoding="utf-8") as file:
        json.dump(manifest, file, indent=2, allow_nan=False)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    return manifest


def _fill(spool: Spool, config: DataConfig, log: Log) -> dict[str, int]:
    """Read the source into the spool; count what is dropped and what is odd."""
    source = config.source
    counts = dict.fromkeys(COUNTS, 0)
    max_documents = getattr(source, "max_documents", 0) or sys.maxsize
    max_bytes = getattr(source, "max_bytes", 0) or sys.maxsize
    for document in READERS[source.kind](source, log):
        if not document.data:
            counts["empty"] += 1
        elif len(document.data) < config.min_bytes:
            counts["too_short"] += 1
        else:
            try:
                counts["whitespace_only"] += document.data.decode("utf-8").isspace()
            except UnicodeDecodeError:
                counts["invalid_utf8"] += 1
            spool.add(document)
            if len(spool) % REPORT_EVERY == 0:
                size = spool.total_bytes / 1e6
                print(f"{config.name}: {len(spool):,} documents, {size:,.0f} MB", file=sys.stderr)
        if len(spool) >= max_documents or spool.total_bytes >= max_bytes:
            break
    return counts | log.counts


def divide(order: np.ndarray, spool: Spool, split: SplitConfig, name: str) -> dict[str, np.ndarray]:
    """Document numbers of each split: declared ones first, the rest as the configuration says.

    Raises:
        UserError: test and validation leave nothing to train on, or `counts` aren't whole.
    """
    declared = {part: spool.declared(part)[order] for part in ("test", "validation")}
    parts = {part: order[mask] for part, mask in declared.items()}
    free = order[~(declared["test"] | declared["validation"])]
    start = 0
    for part in ("test", "validation"):
        if not len(parts[part]):
            size = _size(getattr(split, part), split.scheme, len(free), f"{name}: split.{part}")
            parts[part] = free[start : start + size]
            start += size
    parts["train"] = free[start:]
    if not len(parts["train"]):
        raise UserError(
            f"{name}: {len(free)} documents are left after filtering, the test and validation "
            f"splits ask for {start} of them, and nothing is left to train on"
        )
    return parts


def _size(asked: float, scheme: str, documents: int, key: str) -> int:
    """Documents of a split: a whole number, or a share (at least one document if above 0)."""
    if scheme == "counts":
        if asked != int(asked) or asked < 0:
            raise UserError(f"{key}: {asked} is not a number of documents (scheme: counts)")
        return int(asked)
    if not 0 <= asked < 1:
        raise UserError(f"{key}: {asked} is not a share in [0, 1) (scheme: fractions)")
    return max(int(asked * documents + 0.5), int(asked > 0))


def _planted(source, stores: dict[str, ByteStore]) -> dict | None:
    """The planted language's floors: the entropy rate, and what the true model scores.

    The second is what a perfect model would score on these very documents.
    """
    if not isinstance(source, PlantedSource):
        return None
    language = Language(source)
    true_model = {
        split: float(language.true_model_bits(stores[split].bytes, stores[split].offsets).mean())
        for split in ("validation", "test")
        if len(stores[split])
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


def _remove_dead_builds(out: Path) -> None:
    """Remove what a killed build left beside `out`; a running build's folder stays."""
    for folder in out.parent.glob(f".{out.name}.building-*"):
        try:
            os.kill(int(folder.name.rpartition("-")[2]), 0)
        except ProcessLookupError:
            shutil.rmtree(folder, ignore_errors=True)
