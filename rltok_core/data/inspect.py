"""What is in a data folder, as text: manifest, check of the hashes, samples, lengths, scripts.

Everything is read a piece at a time, so a folder larger than memory can be inspected.
"""

import codecs
import json
import unicodedata
from collections import Counter
from pathlib import Path

import numpy as np

from rltok_core.data.overlap import WINDOW, measure
from rltok_core.data.shards import COUNTS
from rltok_core.data.store import PIECE, SPLITS, ByteStore
from rltok_core.errors import UserError

BAR = 40  # characters of the longest bar
SCRIPT_BYTES = 1 << 22  # looked at for scripts
SOURCES = 6  # shown


def inspect(folder: Path, samples: int = 3, sample_bytes: int = 160) -> str:
    """Describe a data folder; the stored bytes are hashed and compared with the manifest.

    Raises:
        UserError: no manifest, a damaged file, or bytes that aren't the manifest's.
    """
    folder = Path(folder)
    manifest = read_manifest(folder)
    stores = {split: ByteStore.open(folder / split) for split in SPLITS}
    lines = _manifest(manifest)
    for split, store in stores.items():
        if store.sha256() != manifest["splits"][split]["sha256"]:
            raise UserError(f"{folder / split}: damaged: its bytes are not those of the manifest")
        lines += ["", f"{split}: {len(store):,} documents, {len(store.bytes):,} bytes"]
        lines.append(f"  sha256 {manifest['splits'][split]['sha256']}")
        if len(store.bytes):
            lines.append(f"  non-ASCII bytes {_non_ascii(store.bytes):.2%}")
            lines += [f"  {_scripts(store)}", *_histogram(lengths(store))]
        names = store.first_names(samples)
        for i, name in enumerate(names):
            # a character that the cut goes through is left out; invalid bytes are shown
            decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
            text = decoder.decode(store[i][:sample_bytes].tobytes())
            lines += [f"  [{i}] {name}", f"      {text!r}"]
    return "\n".join([*lines, "", *_overlap(stores)])


def _manifest(manifest: dict) -> list[str]:
    """The manifest in words."""
    config, counts = manifest["config"], manifest["counts"]
    lines = [f"{manifest['id']}   content {manifest['content_hash'][:16]}", ""]
    for source in manifest["sources"][:SOURCES]:
        version = f" {source['version']}" if source.get("version") else ""
        digest = f"  sha256 {source['sha256'][:16]}" if source["sha256"] else ""
        lines.append(f"source  {source['name']}{version}{digest}")
    if len(manifest["sources"]) > SOURCES:
        lines.append(f"source  and {len(manifest['sources']) - SOURCES:,} more, in manifest.json")
    limits = {key: config["source"].get(key) for key in ("max_documents", "max_bytes")}
    limits = "".join(f", {key} {value:,}" for key, value in limits.items() if value)
    lines.append(f"filters min_bytes {config['min_bytes']:,}{limits}; exact duplicates")
    split = config["split"]
    lines.append(
        f"split   {split['scheme']}, seed {split['seed']}, test {split['test']:g}, validation "
        f"{split['validation']:g}"
    )
    lines.append(
        "counts  " + "  ".join(f"{key} {counts[key]:,}" for key in COUNTS if key in counts)
    )
    notes = [f"{key} {value:,}" for key, value in counts.items() if key not in COUNTS]
    lines.append(f"kept as they are: {', '.join(notes)}")
    tools = ", ".join(f"{name} {version}" for name, version in manifest["tool_versions"].items())
    lines.append(f"built with {tools}")
    if manifest["planted"]:
        rate = manifest["planted"]["entropy_bits_per_byte"]
        lines.append(f"planted entropy rate {rate:.4f} bits per byte; the true model scores")
        for name, bits in manifest["planted"]["true_model_bits_per_byte"].items():
            lines.append(f"        {bits:.4f} on {name}")
    return lines


def read_manifest(folder: Path) -> dict:
    """The manifest of a data folder. Raises UserError if it is missing or damaged."""
    path = Path(folder) / "manifest.json"
    if not path.is_file():
        raise UserError(f"{path}: no such file; build the data with `rltok data build`")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path}: damaged: {error}") from None


def _non_ascii(data: np.ndarray) -> float:
    """Share of bytes of 128 and above."""
    pieces = (data[start : start + PIECE] for start in range(0, len(data), PIECE))
    return sum(int((piece >= 128).sum()) for piece in pieces) / len(data)


def _scripts(store: ByteStore) -> str:
    """The commonest scripts of the letters, by the first word of their Unicode names."""
    data = store.bytes[:SCRIPT_BYTES].tobytes()
    counts: Counter = Counter()
    for character, number in Counter(data.decode("utf-8", "ignore")).items():
        if character.isalpha():
            counts[unicodedata.name(character, "UNNAMED").split()[0]] += number
    total = sum(counts.values())
    if not total:
        return "no letters"
    shown = ", ".join(f"{name} {n / total:.1%}" for name, n in counts.most_common(4))
    where = "" if len(data) == len(store.bytes) else f" of the first {len(data) / 1e6:.1f} MB"
    return f"scripts of the letters{where}: {shown}"


def lengths(store: ByteStore, per_octave: int = 1) -> np.ndarray:
    """Documents by length: entry k counts 2^(k / per_octave) bytes up to the next k's."""
    counts = np.zeros(64 * per_octave, dtype=np.int64)
    for start in range(0, len(store), PIECE):
        sizes = np.diff(store.offsets[start : start + PIECE + 1])
        bins = np.floor(np.log2(np.maximum(sizes, 1)) * per_octave).astype(np.int64)
        counts += np.bincount(bins, minlength=len(counts))
    return counts


def _histogram(counts: np.ndarray) -> list[str]:
    """Document lengths by powers of two."""
    return [
        f"  {1 << k:>10,} .. {(2 << k) - 1:<10,} {n:>9,} {'#' * -(-BAR * n // counts.max())}"
        for k, n in enumerate(counts.tolist())
        if n
    ]


def _overlap(stores: dict[str, ByteStore]) -> list[str]:
    """How much of test is in train word for word."""
    found = measure(stores["test"], stores["train"])
    if not found.windows:
        return [f"overlap: no test document of {WINDOW} bytes"]
    whole = found.train_bytes == len(stores["train"].bytes)
    where = "train" if whole else f"the first {found.train_bytes / 1e9:.1f} GB of train"
    return [
        f"overlap: {found.shared / found.windows:.2%} of {found.windows:,} windows of {WINDOW} "
        f"bytes in {found.documents:,} test documents are in {where} too; of "
        f"{found.mostly_shared:,} documents at least half"
    ]


def picture(folder: Path, path: Path) -> None:
    """Draw the lengths of the documents of each split, by half powers of two.

    Raises:
        UserError: no manifest, or a damaged file.
    """
    from matplotlib.figure import Figure

    manifest = read_manifest(folder)
    stores = {split: ByteStore.open(folder / split) for split in SPLITS}
    stores = {split: store for split, store in stores.items() if len(store)}
    figure = Figure(figsize=(6.75, 1.1 + 1.25 * len(stores)), layout="constrained")
    axes = figure.subplots(len(stores), sharex=True, squeeze=False)[:, 0]
    shown = {split: lengths(store, per_octave=2) for split, store in stores.items()}
    used = np.flatnonzero(sum(shown.values()))
    for ax, (split, counts) in zip(axes, shown.items(), strict=True):
        edges = 2 ** (np.arange(len(counts) + 1) / 2)
        ax.bar(edges[:-1], counts, width=np.diff(edges), align="edge", color="#0072b2")
        ax.set_xscale("log", base=2)
        words = f"{len(stores[split]):,} documents, {len(stores[split].bytes) / 1e6:,.2f} MB"
        ax.set_title(f"{split}: {words}", loc="left", fontsize=9)
        ax.set_ylabel("documents", fontsize=8)
        ax.tick_params(labelsize=8)
        ax.spines[["top", "right"]].set_visible(False)
    axes[-1].set_xlim(edges[used[0]] / 2**0.25, edges[used[-1] + 1] * 2**0.25)
    axes[-1].xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}")
    axes[-1].set_xlabel("bytes of a document", fontsize=8)
    figure.suptitle(manifest["id"], x=0.01, ha="left", fontsize=10, fontweight="bold")
    figure.savefig(path, dpi=150, metadata={"Software": None})
