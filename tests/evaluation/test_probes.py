"""The suite of texts and the edits: by hand on rules whose boundaries are known."""

from functools import partial

import numpy as np
import pytest

from rltok_core.evaluation import probes
from rltok_core.evaluation.probes import SUITE, stability, suite_texts
from rltok_core.evaluation.score import score_windows

WHITESPACE = "rltok_core.boundaries.whitespace:Whitespace"
STRIDE = "rltok_core.boundaries.stride:Stride"
PROSE = b"the cat sat on a mat"


@pytest.fixture
def scorer(network):
    def build(run):
        return partial(score_windows, network(run), stream_seed=0, target_rate=0.2, batch_size=4)

    return build


def test_the_suite_is_what_it_says():
    assert [probe.name for probe in SUITE] == [
        "one_byte", "number", "url", "licence", "indentation", "prose", "chinese",
    ]  # fmt: skip
    for probe in SUITE:
        first, last = probe.span
        assert probe.text[first:last].decode() == probe.subject
    one = SUITE[0]
    assert set(one.text[slice(*one.span)]) == {ord("a")}
    assert probes.suite_hash() == probes.suite_hash() and len(probes.suite_hash()) == 64


@pytest.mark.parametrize("seq_len", [64, 256])
def test_texts_are_scored_byte_by_byte_in_windows(seq_len, make_run, scorer):
    run = make_run(STRIDE, seq_len=seq_len)
    found = {text["name"]: text for text in suite_texts(run, None, scorer(run))}
    assert set(found) == {probe.name for probe in SUITE}
    for probe in SUITE:
        text = found[probe.name]
        n = len(probe.text)
        assert [len(text[k]) for k in ("bytes", "prob", "boundary", "bits")] == [n] * 4
        step = seq_len - 1
        place = np.arange(n) % step
        # position p of a window is byte p - 1; stride 5 counts from bos
        due = ((place + 1) % 5 == 0) | (place == step - 1) | (np.arange(n) == n - 1)
        assert text["boundary"] == due.astype(int).tolist()
        free = ~((place == step - 1) | (np.arange(n) == n - 1))
        inside = slice(*probe.span)
        assert text["rate"] == pytest.approx(due[inside][free[inside]].mean())


def test_edits_keep_what_a_rule_keeps(make_run, scorer):
    """Neither upper case nor a letter for a letter moves a word's first byte, or a stride."""
    for cls in (WHITESPACE, STRIDE):
        run = make_run(cls)
        upper, typo = stability([PROSE, b"ab 12"], run, None, scorer(run))
        assert upper["kept"] == typo["kept"] == typo["kept_after"] == 1.0
        assert (upper["cases"], typo["cases"]) == (2, 8 + 2)


def test_a_moved_boundary_is_counted(make_run):
    """A method whose boundaries are the letter b and, later on, whatever a b came before."""
    run = make_run()

    def score(windows, indices, streams):
        for i in indices:
            text = np.asarray(windows.store[i])
            yield type("W", (), {"boundary": (text == ord("b")) | (np.arange(len(text)) == 1)})

    upper, typo = stability([b"bxb b"], run, None, score)
    # before: 0, 1, 2 (4 is the forced end's place); upper case: 1 alone
    assert upper["kept"] == pytest.approx(2 * 1 / (3 + 1))
    # typos at 0, 1, 2, 4; none moves anything but itself
    assert typo["cases"] == 4 and typo["kept"] == 1.0


def test_typos_use_the_stream_of_the_text_before(make_run):
    asked = []

    def score(windows, indices, streams):
        for i in indices:
            asked.append((windows.store[i].tobytes(), streams.store[i].tobytes()))
            yield type("W", (), {"boundary": np.zeros(windows.places([i])[2], bool)})

    stability([b"ab"], make_run(), None, score)
    assert (b"AB", b"ab") in asked and (b"bb", b"ab") in asked and (b"ac", b"ab") in asked
    assert {stream for _, stream in asked} == {b"ab"}


@pytest.mark.parametrize("letter, other", [("a", "b"), ("z", "a"), ("Z", "A"), ("m", "n")])
def test_the_next_letter(letter, other):
    assert chr(probes._neighbour(ord(letter))) == other
