"""Corpora of other scripts: whole, in their own letters, of the pinned versions."""

import re
import unicodedata
from collections import Counter

import pytest

from rltok_core.config.experiment import load_data
from rltok_core.data.documents import Log
from rltok_core.data.packaged import PROSE
from rltok_core.data.scripts import SCRIPTS, read_script

# language: MB and share of the script among letters; counted in the packages by other means
EXPECTED = {
    "chinese": (9.42, "CJK"),
    "japanese": (4.27, "HIRAGANA"),
    "hebrew": (5.40, "HEBREW"),
    "turkish": (2.45, "LATIN"),
}


@pytest.mark.parametrize("language", EXPECTED)
def test_corpus_is_whole_and_in_its_script(language):
    log = Log()
    documents = list(read_script(load_data(language).source, log))
    text = b"".join(document.data for document in documents)
    size, script = EXPECTED[language]
    assert len(text) / 1e6 == pytest.approx(size, rel=0.01)
    letters = [c for c in text.decode("utf-8")[:100_000] if c.isalpha()]
    found = Counter(unicodedata.name(c).split()[0] for c in letters)
    assert found.most_common(1)[0][0] == script
    (entry,) = log.sources
    assert entry["version"] == (SCRIPTS | PROSE)[entry["name"]]
    assert len({document.name for document in documents}) == len(documents)


def test_texts_that_everyone_knows():
    def text(language):
        return b"".join(d.data for d in read_script(load_data(language).source, Log())).decode()

    assert text("japanese").startswith("元始に神天地を創造たまへり\n")
    # an editor may put a letter's points and accents in another order: only letters are compared
    letters = "".join(c for c in text("hebrew")[:60] if not unicodedata.combining(c))
    assert letters.startswith("בראשית ברא אלהים את השמים")
    assert not re.search("<[a-z]+", text("hebrew"))
    assert "中华人民共和国" in text("chinese") and "Cumhuriyet" in text("turkish")
