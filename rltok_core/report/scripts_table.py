"""Which tokens each method makes where a character is several bytes and words may have no spaces.

Two references (evaluation/words.py): the first bytes of characters, and those of words, by
whitespace or a segmenter. Beside the share of a method's boundaries that are on one stands the
share that boundaries strewn at random would have.
"""

from rltok_core.report.edition import Block, Edition, NothingToShow, Table
from rltok_core.report.reading import interval, method, number
from rltok_core.report.rows import Row

SEVERAL = 0.9  # at most so many characters a byte: else nearly every byte is one
HEADER = [
    *("method", "n", "BPB", "bytes / token", "on characters / chance", "on words / chance"),
    "words found",
]


def scripts_table(edition: Edition) -> Table:
    """Every method on every corpus whose characters are mostly of several bytes.

    Raises:
        NothingToShow: no run on such a corpus has recorded where characters start.
    """
    records, blocks = [], {}
    for row in edition.done:
        chance = row.mean("segmentation", "character_chance")
        if chance is None or chance > SEVERAL or not row.has_tokens:
            continue
        record = _record(row)
        records.append(record)
        title = f"{row.data}, {row.size} (words by {record['words_by']})"
        block = blocks.setdefault((row.data, row.size), Block(title, HEADER))
        block.add(_line(row, record), row)
    if not blocks:
        raise NothingToShow("runs on text of several bytes a character (experiment scripts)")
    caption = (
        f"{edition.title}: where boundaries are in other scripts, on test text. On characters: the "
        "share of boundaries that are on the first byte of a UTF-8 character; on words: on the "
        "first byte of a word; chance: the share of all bytes that are such a byte. Words found: "
        "the share of word starts that have a boundary. Forced boundaries are left out."
    )
    return Table(list(blocks.values()), caption, records)


def _record(row: Row) -> dict:
    def segmentation(*path: str) -> float | None:
        return row.mean("segmentation", *path)

    words = {result.evaluation["segmentation"]["words_by"] for result in row.done}
    return {
        "data": row.data,
        "size": row.size,
        "estimator": row.name,
        "n_seeds": len(row.done),
        "bpb": row.bpb.mean,
        "boundary_rate": row.mean("boundary_rate"),
        "bytes_per_token": row.mean("bytes_per_token"),
        "characters_precision": segmentation("character_starts", "p"),
        "characters_recall": segmentation("character_starts", "r"),
        "character_chance": segmentation("character_chance"),
        "words_precision": segmentation("word_starts", "p"),
        "words_recall": segmentation("word_starts", "r"),
        "words_f1": segmentation("word_starts", "f1"),
        "word_chance": segmentation("word_chance"),
        "words_by": " and ".join(sorted(words)),
    }


def _line(row: Row, record: dict) -> list[str]:
    return [
        method(row),
        str(record["n_seeds"]),
        interval(row.bpb),
        number(record["bytes_per_token"], 2),
        *(
            f"{number(record[f'{name}s_precision'], 2)} / {number(record[f'{name}_chance'], 2)}"
            for name in ("character", "word")
        ),
        number(record["words_recall"], 2),
    ]
