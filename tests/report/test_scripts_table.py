"""The scripts table: what a run recorded, only where characters are of several bytes."""

import pytest

from rltok_core.report.collect import collect
from rltok_core.report.edition import Edition, NothingToShow
from rltok_core.report.scripts_table import scripts_table


def recorded(characters: float, words: float, chance: float) -> dict:
    return {
        "character_starts": {"p": characters, "r": 0.5, "f1": 0.5},
        "character_chance": chance,
        "word_starts": {"p": words, "r": 0.25, "f1": 0.3},
        "word_chance": 0.14,
        "words_by": "jieba",
    }


def edition(lab, chance: float) -> Edition:
    for run in lab.plan([lab.block("prose", ["uniform", "hnet"])], seeds=[0, 1]):
        characters = {"uniform": 0.34, "hnet": 0.9}[run.estimator.label] + 0.02 * run.seed
        lab.finish(run, 1.5, segmentation=recorded(characters, 0.4, chance))
    return Edition(collect(lab.file, None))


def test_means_over_seeds_beside_chance(lab):
    table = scripts_table(edition(lab, 0.335))
    (block,) = table.blocks
    assert block.title.endswith("(words by jieba)")
    lines = {line[0].split()[0]: line for line in block.lines}
    assert lines["uniform"][4] == "0.35 / 0.34" and lines["hnet"][4] == "0.91 / 0.34"
    assert lines["hnet"][5:] == ["0.40 / 0.14", "0.25"]
    record = {record["estimator"]: record for record in table.records}["hnet"]
    assert record["characters_precision"] == pytest.approx(0.91) and record["n_seeds"] == 2


def test_text_of_one_byte_a_character_is_not_in_it(lab):
    with pytest.raises(NothingToShow, match="experiment scripts"):
        scripts_table(edition(lab, 0.99))
