"""The entropy rule: K17, the counted model against a loop, the threshold against all others."""

import json
import math
from collections import Counter, defaultdict
from functools import cache

import numpy as np
import pytest

from rltok_core.boundaries.entropy import Entropy, Params, choose_threshold
from rltok_core.boundaries.entropy_model import ByteModel, entropy_bits
from rltok_core.errors import UserError

PARAMS = {"order": 3, "min_count": 2, "train_bytes": 100_000, "sequence_bytes": 0}
WORDS = "the cat sat on a mat and then there was another rat 天地 👍 né".encode().split()


def text(words, seed):
    rng = np.random.default_rng(seed)
    return b" ".join(WORDS[i] for i in rng.integers(len(WORDS), size=words))


TRAIN = [text(40, i) for i in range(30)] + [b"", b"x", b"\xff\x00"]
HELD_OUT = [text(40, 100 + i) for i in range(3)]


def test_K17_entropy_of_logits():
    assert entropy_bits(np.array([0.0, 0.0, -np.inf])) == 1
    assert entropy_bits(np.array([65504, -65504], np.float16)) == 0
    assert entropy_bits(np.zeros(256)) == 8
    rows = entropy_bits(np.array([[0.0, 0.0, -np.inf, -np.inf], [5.0, 5.0, 5.0, 5.0]]))
    assert rows.tolist() == [1, 2]
    assert entropy_bits(np.log([0.5, 0.25, 0.125, 0.125])) == pytest.approx(1.75)


def loop_entropies(documents, order, min_count, read):
    """H of each byte of `read`, by the recursion as it is written, one byte value at a time."""
    followers = defaultdict(Counter)
    for document in documents:
        for i in range(len(document)):
            for k in range(min(i, order) + 1):
                followers[document[i - k : i]][document[i]] += 1

    def probability(context, byte):
        seen = followers[context]
        below = probability(context[1:], byte) if context else 1 / 256
        return (seen[byte] + len(seen) * below) / (sum(seen.values()) + len(seen))

    @cache
    def entropy(context):
        while context and sum(followers[context].values()) < min_count:
            context = context[1:]
        p = [probability(context, byte) for byte in range(256)]
        assert math.isclose(sum(p), 1)
        return -sum(q * math.log2(q) for q in p)

    found = []
    for document in read:
        found += [entropy(document[max(0, i - order) : i]) for i in range(len(document))]
    return found


@pytest.mark.parametrize(("order", "min_count"), [(1, 1), (2, 3), (4, 2)])
def test_the_model_equals_a_loop(order, min_count):
    documents = [text(12, 1), b"", b"a", text(9, 2)]
    read = [text(6, 3), b"", b"\x80q", documents[3][:20]]
    model = ByteModel.fit(documents, order, min_count)
    entropies = model.entropies()[model.nodes(read)]
    expected = loop_entropies(documents, order, min_count, read)
    assert entropies.tolist() == pytest.approx(expected, abs=1e-12)
    assert len(set(np.round(expected, 9))) > 5


@pytest.mark.parametrize("documents", [[b"a"], [b"", b"\x00"], [b"ab", b"ba"]])
def test_tiny_texts_are_counted_too(documents):
    model = ByteModel.fit(documents, 4, 2)
    expected = loop_entropies(documents, 4, 2, [b"abab", b"z"])
    assert model.entropies()[model.nodes([b"abab", b"z"])].tolist() == pytest.approx(expected)
    assert model.nodes([b""]).tolist() == []


@pytest.mark.parametrize(("target", "sequence"), [(0.1, 0), (0.3, 0), (0.3, 20), (0.9, 7)])
def test_no_other_threshold_comes_nearer_to_the_rate(target, sequence):
    params = Params(**PARAMS | {"sequence_bytes": sequence})
    choice = choose_threshold(TRAIN, HELD_OUT, params, target)
    entropies = loop_entropies(TRAIN, 3, 2, HELD_OUT)

    def rate(threshold):
        boundaries = positions = at = 0
        for document in HELD_OUT:
            starts = [h >= threshold for h in entropies[at : at + len(document)]]
            starts[0] = True
            at += len(document)
            for begin in range(0, len(document), sequence or len(document)):
                window = starts[begin : begin + (sequence or len(document))]
                if sequence:
                    window = [True, *window[:-1], True]
                boundaries += sum(window)
                positions += len(window)
        return boundaries / positions

    # between two levels: nothing hangs on the last digit of an entropy
    levels = np.unique(np.round(entropies, 9))
    best = min(abs(rate(t - 1e-6) - target) for t in [*levels, 9.0])
    assert abs(choice.measured_rate - target) == pytest.approx(best)
    assert rate(choice.summary["threshold_bits"] - 1e-6) == pytest.approx(choice.measured_rate)


def prepare(tmp_path, splits, target, **params):
    for split, documents in splits.items():
        (tmp_path / split).mkdir()
        (tmp_path / split / "bytes.bin").write_bytes(b"".join(documents))
        offsets = np.cumsum([0, *map(len, documents)]).astype(np.int64)
        np.save(tmp_path / split / "offsets.npy", offsets)
    (tmp_path / "manifest.json").write_text('{"content_hash": "abc"}')
    Entropy.prepare(tmp_path, tmp_path / "out", PARAMS | params, target)
    return json.loads((tmp_path / "out/preparation.json").read_text())


def test_K17_empty_and_one_byte_documents_and_the_measured_rate(tmp_path):
    test = [b"", b"q", b"", text(30, 200), b"\n"]
    splits = {"train": TRAIN, "validation": HELD_OUT, "test": test}
    report = prepare(tmp_path, splits, 0.3)
    assert report["empty_documents"] == {"train": 1, "validation": 0, "test": 2}
    assert report["requested_rate"] == 0.3 and report["measured_on"] == "validation"
    hints = {split: np.load(tmp_path / f"out/{split}.hints.npy") for split in splits}
    for split, documents in splits.items():
        assert hints[split].dtype == np.uint8 and len(hints[split]) == sum(map(len, documents))
        assert hints[split].mean() == pytest.approx(report["tokens_per_byte"][split])
    # a document of one byte is one token, and every document starts with one
    assert hints["test"][[0, 1, -1]].tolist() == [1, 1, 1]
    assert report["measured_rate"] == pytest.approx(hints["validation"].mean())
    assert report["deviation"] == pytest.approx(report["measured_rate"] / 0.3 - 1)
    assert not report["rate_flag"] and report["measured_rate"] == pytest.approx(0.3, rel=0.1)
    high = np.array(loop_entropies(TRAIN, 3, 2, test)) >= report["threshold_bits"] - 1e-9
    assert (hints["test"][1:-1] >= high[1:-1]).all()
    assert hints["test"][2:-1].tolist() == high[2:-1].astype(int).tolist()


def test_K17_a_rate_out_of_reach_is_flagged(tmp_path):
    """Every byte but the first is as certain as the others: all or nearly none."""
    documents = [b"a" * 50] * 4
    splits = {"train": documents, "validation": documents, "test": [b"a"]}
    report = prepare(tmp_path, splits, 0.3, order=1)
    assert report["rate_flag"] and abs(report["deviation"]) > 0.1


def test_the_text_that_was_counted_gets_about_the_same_rate(tmp_path):
    splits = {"train": TRAIN, "validation": HELD_OUT, "test": [text(40, 300 + i) for i in range(9)]}
    report = prepare(tmp_path, splits, 0.2)
    for rate in report["tokens_per_byte"].values():
        assert rate == pytest.approx(0.2, rel=0.2)


def test_what_was_written_reads_other_text_the_same(tmp_path):
    test = [b"q", text(30, 200), b"\n", text(5, 201)]
    prepare(tmp_path, {"train": TRAIN, "validation": HELD_OUT, "test": test}, 0.3)
    reader = Entropy.hint_reader(PARAMS, tmp_path, tmp_path / "out")
    hints = np.load(tmp_path / "out/test.hints.npy") != 0
    assert reader.whole(test).tolist() == hints.tolist()
    found = [reader.last(d[: i + 1]) for d in test for i in range(len(d))]
    assert found == hints.tolist()
    with pytest.raises(UserError, match="--data"):
        Entropy.hint_reader(PARAMS, None, tmp_path / "out")
    with pytest.raises(UserError, match="preparation.json: missing"):
        Entropy.hint_reader(PARAMS, tmp_path, tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [({"order": 7}, "order must be"), ({"min_count": 0}, "must be positive"),
     ({"sequence_bytes": -1}, "must not be negative")],
)  # fmt: skip
def test_wrong_parameters_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        Params(**PARAMS | change)
