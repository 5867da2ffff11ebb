"""The planted language: its grammar, its truth, and its entropy against independent counts."""

import math
from collections import Counter, defaultdict

import numpy as np
import pytest

from rltok_core.config.schema import DataConfig
from rltok_core.config.sources import PlantedSource
from rltok_core.data.build import build
from rltok_core.data.planted import Language
from rltok_core.data.store import ByteStore
from rltok_core.errors import UserError

FILLERS = ["none", "repeated", "random"]


def language(filler="repeated", document_bytes=255, **fields):
    fields = {"documents": 10} | fields
    return Language(
        PlantedSource(kind="planted", filler=filler, document_bytes=document_bytes, **fields)
    )


def offsets_of(data_ND):
    return np.arange(len(data_ND) + 1) * data_ND.shape[1]


def parse(lang, text: bytes) -> list[tuple[bytes, bytes]]:
    """(word, filler after it) from the start of a document, without the generator's help."""
    words = {bytes(word) for word in lang.words_WL}
    length = lang.words_WL.shape[1]
    parsed, i = [], 0
    while i + length <= len(text):
        word = text[i : i + length]
        assert word in words
        j = i + length
        while lang.filler_max and j < len(text) and text[j : j + 1] in b".0123456789":
            j += 1
        parsed.append((word, text[i + length : j]))
        i = j
    return parsed


@pytest.mark.parametrize("seed", range(5))
def test_every_proper_prefix_is_shared(seed):
    lang = language(seed=seed)
    words = [bytes(word) for word in lang.words_WL]
    assert len(set(words)) == 24 and {len(word) for word in words} == {3}
    for cut in (1, 2):
        counts = Counter(word[:cut] for word in words)
        assert min(counts.values()) >= 3  # nothing is known before the last byte
    assert set(Counter(word[:2] for word in words).values()) == {3}
    assert set(b"".join(words)) <= set(b"abcdefghijklmnop")
    first_W, second_W = lang.successor_2W
    assert sorted(first_W) == sorted(second_W) == list(range(24))
    assert (first_W != second_W).all()


def test_grammar_of_the_text():
    lang = language(document_bytes=600, lag=2)
    data_ND, _ = lang.sample(200, np.random.default_rng(0))
    number = {bytes(word): i for i, word in enumerate(lang.words_WL)}
    follows, starts, lengths = defaultdict(Counter), Counter(), Counter()
    for data in data_ND:
        parsed = parse(lang, data.tobytes())
        ids = [number[word] for word, _ in parsed]
        starts.update(ids[:2])
        lengths.update(len(filler) for _, filler in parsed[:-1])
        for past, now in zip(ids, ids[2:], strict=False):
            follows[past][now] += 1
    assert set(lengths) == set(range(1, 14))
    expected = sum(lengths.values()) / 13
    assert sum((n - expected) ** 2 / expected for n in lengths.values()) < 32.9  # 12 df, p .001
    expected = 400 / 24
    assert sum((starts[i] - expected) ** 2 / expected for i in range(24)) < 49.7  # 23 df, p .001
    for word in range(24):
        assert set(follows[word]) == set(lang.successor_2W[:, word].tolist())
        n, total = min(follows[word].values()), sum(follows[word].values())
        assert abs(n / total - 0.5) < 4 * 0.5 / math.sqrt(total)


@pytest.mark.parametrize("filler", FILLERS)
def test_truth_is_the_last_byte_of_each_word(filler):
    lang = language(filler, document_bytes=100)
    data_ND, truth_ND = lang.sample(50, np.random.default_rng(1))
    for data, truth in zip(data_ND, truth_ND, strict=True):
        ends, place = [], 0
        for word, gap in parse(lang, data.tobytes()):
            ends.append(place + len(word) - 1)
            place += len(word) + len(gap)
        assert np.nonzero(truth)[0].tolist() == ends


def forward_bits(lang, text: bytes) -> list[float]:
    """-log2 p of each byte by a forward pass over the generator's own states, in plain Python.

    A state is (words so far, filler length to come or None within a word, place within it).
    """
    words = [bytes(word) for word in lang.words_WL]
    lag, longest = lang.source.lag, lang.filler_max

    def next_words(past):
        if len(past) < lag:
            return {w: 1 / len(words) for w in range(len(words))}
        return {int(w): 0.5 for w in lang.successor_2W[:, past[-lag]]}

    states = {((w,), None, 0): p for w, p in next_words(()).items()}
    bits = []
    for byte in text:
        emitted, after = 0.0, defaultdict(float)
        for (past, gap, place), p in states.items():
            if gap is None:
                here = float(words[past[-1]][place] == byte)
            elif lang.source.filler == "repeated":
                here = float(byte == ord("."))
            else:
                here = 0.1 if byte in b"0123456789" else 0.0
            p *= here
            if not p:
                continue
            emitted += p
            if gap is None and place + 1 < len(words[past[-1]]):
                after[past, None, place + 1] += p
            elif gap is None and longest:
                for n in range(1, longest + 1):
                    after[past, n, 1] += p / longest
            elif gap is not None and place < gap:
                after[past, gap, place + 1] += p
            else:
                for w, q in next_words(past).items():
                    after[past + (w,), None, 0] += p * q
        bits.append(-math.log2(emitted))
        states = {state: p / emitted for state, p in after.items()}
    return bits


@pytest.mark.parametrize("filler", FILLERS)
@pytest.mark.parametrize("lag", [1, 2])
def test_true_model_is_the_generator_byte_by_byte(filler, lag):
    small = {"prefixes": 3, "endings": 2, "alphabet": 3, "filler_max": 4, "lag": lag}
    lang = language(filler, document_bytes=41, **small)
    data_ND, _ = lang.sample(12, np.random.default_rng(2))
    bits = lang.true_model_bits(data_ND.reshape(-1), offsets_of(data_ND)).reshape(data_ND.shape)
    for data, row in zip(data_ND, bits, strict=True):
        np.testing.assert_allclose(row, forward_bits(lang, data.tobytes()), atol=1e-9)


@pytest.mark.parametrize("filler", FILLERS)
def test_entropy_rate_is_the_true_models_long_run_mean(filler):
    lang = language(filler, document_bytes=40_000)
    data_ND, _ = lang.sample(40, np.random.default_rng(3))
    bits = lang.true_model_bits(data_ND.reshape(-1), offsets_of(data_ND))
    assert bits.mean() == pytest.approx(lang.entropy_bits_per_byte, rel=0.003)
    other = lang.true_model_bits(data_ND[::-1].reshape(-1), offsets_of(data_ND))
    assert other.sum() == pytest.approx(bits.sum())  # documents don't touch one another


def test_entropy_rates_of_laptop_md():
    assert language("none").entropy_bits_per_byte == pytest.approx(1 / 3)
    assert language("repeated").entropy_bits_per_byte == pytest.approx((1 + math.log2(13)) / 10)
    assert language("random").entropy_bits_per_byte == pytest.approx(2.795, abs=5e-4)
    assert language("repeated").mean_cycle_bytes == 10


def test_the_context_is_needed():
    """Without the past a word costs log2 24 bits: what the first words of a document cost."""
    lang = language("none", document_bytes=300)
    data_ND, _ = lang.sample(100, np.random.default_rng(4))
    bits = lang.true_model_bits(data_ND.reshape(-1), offsets_of(data_ND)).reshape(100, 100, 3)
    np.testing.assert_allclose(bits[:, :2].sum(2), math.log2(24))
    np.testing.assert_allclose(bits[:, 2:].sum(2), 1)


@pytest.mark.parametrize("filler", FILLERS)
def test_foreign_text_is_refused(filler):
    lang = language(filler)
    word = bytes(lang.words_WL[0])
    long = word + lang._filler * 14 + word
    for text in (
        b"zzz...",
        b"hello world",
        b"...",
        b"abc" * 20,
        word + b" ",
        word[:2] + b".",
        long,
    ):
        with pytest.raises(ValueError, match="not of the planted language"):
            lang.true_model_bits(np.frombuffer(text, np.uint8), np.array([0, len(text)]))


def test_built_data_carries_truth_and_floors(tmp_path):
    fields = {"kind": "planted", "documents": 300, "document_bytes": 63, "filler_max": 5}
    config = DataConfig(
        name="p", source=fields, split={"scheme": "fractions", "test": 0.2, "validation": 0.1}
    )
    manifest = build(config, tmp_path / "p")
    lang = Language(config.source)
    assert manifest["planted"]["entropy_bits_per_byte"] == lang.entropy_bits_per_byte
    assert manifest["splits"]["test"]["documents"] == 60
    for split in ("train", "validation", "test"):
        store = ByteStore.open(tmp_path / "p" / split)
        for i in range(len(store)):
            truth = store.truth[store.offsets[i] : store.offsets[i + 1]]
            words = parse(lang, store[i].tobytes())
            assert truth.sum() == len(words)
    bits = lang.true_model_bits(store.bytes, store.offsets)
    assert manifest["planted"]["true_model_bits_per_byte"]["test"] == pytest.approx(bits.mean())
    again = build(config, tmp_path / "q")
    assert again["content_hash"] == manifest["content_hash"]
    longer = config.model_copy(
        update={"source": config.source.model_copy(update={"documents": 400})}
    )
    build(longer, tmp_path / "r")
    first = {n for s in ("train", "validation", "test") for n in _texts(tmp_path / "p" / s)}
    more = {n for s in ("train", "validation", "test") for n in _texts(tmp_path / "r" / s)}
    assert first < more and len(more) == 400


def _texts(folder):
    store = ByteStore.open(folder)
    return [store[i].tobytes() for i in range(len(store))]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"prefixes": 300}, "300 prefixes of 2 bytes don't fit"),
        ({"endings": 17}, "17 endings don't fit"),
        ({"filler": "some"}, "filler"),
    ],
)
def test_impossible_settings(fields, message):
    from rltok_core.config.strict import parse as parse_config

    values = {"kind": "planted", "documents": 1, "document_bytes": 9} | fields
    with pytest.raises(UserError, match=message):
        parse_config(DataConfig, {"name": "p", "source": values}, "p.yaml")
