"""What is in a data folder, as text: manifest, check of the hashes, samples, lengths, scripts."""

import json
from pathlib import Path

import numpy as np

from rltok_core.data.store import SPLITS, ByteStore
from rltok_core.errors import UserError

BAR = 40  # characters of the longest bar
CHUNK = 1 << 24


def inspect(folder: Path, samples: int = 3, sample_bytes: int = 160) -> str:
    """Describe a data folder; the stored bytes are hashed and compared with the manifest.

    Raises:
        UserError: no manifest, a damaged file, or bytes that aren't the manifest's.
    """
    manifest = read_manifest(folder)
    lines = [f"{manifest['id']}   content {manifest['content_hash'][:16]}", ""]
    for source in manifest["sources"]:
        version = f" {source['version']}" if source.get("version") else ""
        digest = f"  sha256 {source['sha256'][:16]}" if source["sha256"] else ""
        lines.append(f"source  {source['name']}{version}{digest}")
    lines.append("counts  " + "  ".join(f"{k} {v:,}" for k, v in manifest["counts"].items()))
    if manifest["planted"]:
        rate = manifest["planted"]["entropy_bits_per_byte"]
        lines.append(f"planted entropy rate {rate:.4f} bits per byte; the true model scores")
        for split, bits in manifest["planted"]["true_model_bits_per_byte"].items():
            lines.append(f"        {bits:.4f} on {split}")
    for split in SPLITS:
        store = ByteStore.open(folder / split)
        want = manifest["splits"][split]["sha256"]
        if store.sha256() != want:
            raise UserError(f"{folder / split}: damaged: its bytes are not those of the manifest")
        lines += ["", f"{split}: {len(store):,} documents, {len(store.bytes):,} bytes"]
        if len(store.bytes):
            lines.append(f"  non-ASCII bytes {_non_ascii(store.bytes):.2%}")
            lines += _histogram(np.diff(store.offsets))
        for i in range(min(samples, len(store))):
            text = store[i][:sample_bytes].tobytes().decode("utf-8", "backslashreplace")
            lines += [f"  [{i}] {store.names[i]}", f"      {text!r}"]
    return "\n".join(lines)


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
    count = sum(
        int((data[start : start + CHUNK] >= 128).sum()) for start in range(0, len(data), CHUNK)
    )
    return count / len(data)


def _histogram(sizes: np.ndarray) -> list[str]:
    """Document lengths by powers of two."""
    bits = np.frexp(np.maximum(sizes, 1))[1] - 1
    counts = np.bincount(bits)
    return [
        f"  {1 << k:>10,} .. {(2 << k) - 1:<10,} {n:>9,} {'#' * -(-BAR * n // counts.max())}"
        for k, n in enumerate(counts.tolist())
        if n
    ]
