"""Prepare BPE boundaries for a data folder: train, choose the number of merges, write hints.

Beside what preparation.py writes: merges.txt (GPT-2's format).
"""

import importlib.metadata
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rltok_core.boundaries.bpe_merges import boundary_ranks, gpt2_alphabet, spell, train_merges
from rltok_core.boundaries.preparation import Choice, prepare_hints, rates
from rltok_core.errors import UserError
from rltok_core.files import write_whole


@dataclass(frozen=True)
class Params:
    """See configs/estimators/bpe.yaml."""

    max_vocabulary: int
    train_bytes: int
    sequence_bytes: int

    def __post_init__(self):
        if self.max_vocabulary < 256:
            raise ValueError(f"max_vocabulary must be at least 256, got {self.max_vocabulary}")
        if self.train_bytes < 1:
            raise ValueError(f"train_bytes must be positive, got {self.train_bytes}")
        if self.sequence_bytes < 0:
            raise ValueError(f"sequence_bytes must not be negative, got {self.sequence_bytes}")


def choose_merges(
    merges_N2: np.ndarray, documents: list[bytes], sequence: int, causal: bool, target_rate: float
) -> tuple[np.ndarray, float]:
    """The first merges, as many as bring the rate on `documents` nearest to the target; the rate.

    A tokenizer fits its own training text, so these should be other documents.
    """
    ranks_J = boundary_ranks(merges_N2, documents, causal)
    rate_N = rates(ranks_J, len(merges_N2), [len(d) for d in documents], sequence)
    best = int(np.abs(rate_N - target_rate).argmin())
    return merges_N2[:best], float(rate_N[best])


def prepare(
    data: Path, out: Path, params: dict, target_rate: float, causal: bool
) -> dict[str, Any]:
    """Train on the train split, write the hints of every split, and return what was measured.

    Args:
        data: a data folder (train, validation, test).
        out: where the files go.
        params: of the estimator's YAML.
        target_rate: boundaries a position asked for, see `rates`.
        causal: whether boundaries are those of every prefix tokenized by itself.

    Raises:
        UserError: the data folder is missing or damaged, or its train split has no bytes.
    """
    params = Params(**params)

    def choose(documents: list[bytes], held_out: list[bytes]) -> Choice:
        merges_N2 = train_merges(documents, params.max_vocabulary)
        merges_N2, measured = choose_merges(
            merges_N2, held_out, params.sequence_bytes, causal, target_rate
        )
        table = gpt2_alphabet()
        text = ["".join(table[byte] for byte in token) for token in spell(merges_N2)]
        lines = [f"{text[left]} {text[right]}\n" for left, right in merges_N2]
        write_whole(out / "merges.txt", "".join(lines).encode())
        summary = {
            "kind": "bpe_causal" if causal else "bpe",
            "causal": causal,
            "params": asdict(params),
            "vocabulary": 256 + len(merges_N2),
            "tool_versions": {
                name: importlib.metadata.version(name) for name in ("tokenizers", "numba", "numpy")
            },
        }

        def decide(documents):
            return boundary_ranks(merges_N2, documents, causal) >= len(merges_N2)

        return Choice(decide, measured, summary)

    return prepare_hints(data, out, params.train_bytes, target_rate, choose)


def read_merges(name: str, prepared: Path | None) -> np.ndarray:
    """merges_N2 as prepare() wrote them; `name` is the estimator's, for messages.

    Raises:
        UserError: no folder, or a missing or damaged merges.txt.
    """
    if prepared is None:
        raise UserError(f"{name} needs --prepared DIR (see `rltok prepare`)")
    path = prepared / "merges.txt"
    table = gpt2_alphabet()
    known = {character: byte for byte, character in table.items()}
    merges = []
    try:
        lines = path.read_text(encoding="utf-8").split("\n")[:-1]
        for number, line in enumerate(lines, 1):
            left, right = line.split(" ")
            merges.append((known[left], known[right]))
            known[left + right] = 255 + number
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: missing or damaged: {error}") from None
    except KeyError:
        raise UserError(f"{path}: line {number}: joins a token that isn't made yet") from None
    return np.array(merges, np.int32).reshape(-1, 2)
