"""Where a corpus comes from: one strict class a kind, told apart by the key `kind`."""

import string
from typing import Annotated, Literal

from pydantic import Field, model_validator

from rltok_core.config.strict import Strict

# printable, and disjoint from the fillers ("." and the digits)
CODE_ALPHABET = (string.ascii_letters).encode()
REPEATED_FILLER = b"."
RANDOM_FILLER = string.digits.encode()


class Limited(Strict):
    """What every source of real text has: a place to stop reading (0: never)."""

    max_documents: int = Field(0, ge=0, description="stop after this many long enough documents")
    max_bytes: int = Field(0, ge=0, description="stop after the document that reaches this size")


class ProseSource(Limited):
    """Public-domain English from three pinned PyPI packages, read and never imported."""

    kind: Literal["packaged_prose"]
    block_bytes: int = Field(16384, ge=256, description="books are cut into blocks near this size")


class CodeSource(Limited):
    """The .py files of pinned distributions that the project installs anyway."""

    kind: Literal["packaged_code"]
    distributions: dict[str, str] = Field(
        min_length=1, description="distribution name: exact version"
    )


class ScriptSource(Limited):
    """Text of another script, from pinned PyPI packages that are read and never imported."""

    kind: Literal["packaged_script"]
    language: Literal["chinese", "japanese", "hebrew", "turkish"]
    block_bytes: int = Field(16384, ge=256, description="texts are cut into blocks near this size")


class PlantedSource(Strict):
    """The planted language: known entropy, known boundaries (data/planted.py)."""

    kind: Literal["planted"]
    seed: int = Field(0, ge=0)
    documents: int = Field(gt=0)
    document_bytes: int = Field(gt=0)
    prefixes: int = Field(8, ge=1, description="word prefixes, each shared by `endings` words")
    endings: int = Field(3, ge=2)
    prefix_bytes: int = Field(2, ge=1, le=8)
    alphabet: int = Field(16, ge=2, le=len(CODE_ALPHABET))
    lag: int = Field(2, ge=1, description="the next word depends on the one this many back")
    filler: Literal["none", "repeated", "random"] = "repeated"
    filler_max: int = Field(13, ge=1, description="filler length is uniform on 1..filler_max")

    @model_validator(mode="after")
    def _fits(self):
        if self.prefixes > self.alphabet**self.prefix_bytes:
            raise ValueError(
                f"{self.prefixes} prefixes of {self.prefix_bytes} bytes don't fit an alphabet of "
                f"{self.alphabet}"
            )
        if self.endings > self.alphabet:
            raise ValueError(f"{self.endings} endings don't fit an alphabet of {self.alphabet}")
        return self


class FilesSource(Limited):
    """The user's own files. Paths are relative to the folder the command runs in."""

    kind: Literal["files"]
    paths: list[str] = Field(min_length=1, description="files or globs")
    format: Literal["txt", "lines", "jsonl", "parquet"] = Field(
        description="txt: a file is a document; lines: a line (split at LF alone) is one; "
        "jsonl, parquet: a row is one. Names that end in .gz or .zst are decompressed (not "
        "parquet)."
    )
    column: str = Field("text", description="field that holds the text (jsonl, parquet)")
    validation_paths: list[str] = Field(
        [], description="the declared validation split; if given, none of `paths` goes there"
    )
    test_paths: list[str] = Field([], description="the declared test split, likewise")
    sha256: dict[str, str] = Field({}, description="file (as in `paths`, or its name): its hash")


class HubSource(Limited):
    """A Hugging Face dataset, streamed through `datasets`.

    `path` may also be one of its own builders (parquet, json, arrow), with local `data_files`.
    """

    kind: Literal["hub"]
    path: str
    config: str | None = None
    split: str = "train"
    column: str = "text"
    revision: str | None = None
    data_files: list[str] = []
    shards: int = Field(
        1,
        ge=1,
        description="parts to read it in, each resumed by itself and, without a limit, "
        "a job of its own; at most as many as the dataset has files",
    )


Source = Annotated[
    ProseSource | CodeSource | ScriptSource | PlantedSource | FilesSource | HubSource,
    Field(discriminator="kind"),
]
