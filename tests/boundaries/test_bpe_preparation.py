"""`rltok prepare` end to end on awkward bytes, and the rate that it reports against a count."""

import json
import resource
from pathlib import Path

import numpy as np
import pytest

from rltok_core.boundaries import preparation
from rltok_core.boundaries.bpe import Bpe
from rltok_core.boundaries.bpe_causal import BpeCausal
from rltok_core.boundaries.bpe_merges import PRETOKEN, boundary_ranks, train_merges
from rltok_core.boundaries.bpe_preparation import prepare
from rltok_core.boundaries.preparation import rates, sample_documents, write_hints
from rltok_core.cli import main
from rltok_core.config.experiment import load_experiment, write_run
from rltok_core.data.store import ByteStore
from rltok_core.errors import UserError

CONFIGS = Path(__file__).parents[2] / "configs"
PARAMS = {"max_vocabulary": 2000, "train_bytes": 100_000, "sequence_bytes": 0}
WORDS = "the cat sat on a mat and then there was another rat 天地玄黄 宇宙 👍 né".encode().split()


def text(words, seed):
    rng = np.random.default_rng(seed)
    return b" ".join(WORDS[i] for i in rng.integers(len(WORDS), size=words))


SPLITS = {
    "train": [text(60, i) for i in range(40)] + [b""],
    "validation": [text(60, 100 + i) for i in range(10)],
    "test": [text(30, 200), b"", b"\x00", b"\x80\xff\xfe the\x00\x00 \xc3", b" \n\n  the  end \n"],
}


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "data"
    for split, documents in SPLITS.items():
        (folder / split).mkdir(parents=True)
        (folder / split / "bytes.bin").write_bytes(b"".join(documents))
        offsets = np.cumsum([0, *map(len, documents)]).astype(np.int64)
        np.save(folder / split / "offsets.npy", offsets)
    (folder / "manifest.json").write_text('{"content_hash": "abc"}')
    return folder


def run_yaml(path, estimator="bpe", **params):
    values = {
        "name": "test",
        "figures": "figures",
        "training": {"target_rate": 0.25},
        "matrix": [
            {
                "data": "planted_tiny",
                "size": "tiny",
                "estimators": [{"name": estimator, "params": params}],
            }
        ],
    }
    write_run(load_experiment(values, "test", CONFIGS)[1][0], path)
    return path


@pytest.mark.parametrize("name", ["bpe", "bpe_causal"])
def test_the_command_writes_hints_for_every_split(name, data, tmp_path):
    out = tmp_path / "out"
    config = run_yaml(tmp_path / "run.yaml", name, **PARAMS)
    arguments = ["--config", str(config), "--data", str(data), "--out", str(out)]
    assert main(["prepare", *arguments]) == 0
    report = json.loads((out / "preparation.json").read_text())
    assert report["causal"] == (name == "bpe_causal") and report["data_hash"] == "abc"
    assert report["requested_rate"] == 0.25 and report["params"] == PARAMS
    assert report["train_documents"] == 41 and report["measured_on"] == "validation"
    assert report["rate_flag"] == (abs(report["measured_rate"] / 0.25 - 1) > 0.1)
    assert len((out / "merges.txt").read_text("utf-8").splitlines()) == report["vocabulary"] - 256
    for split, documents in SPLITS.items():
        hints = np.load(out / f"{split}.hints.npy")
        assert hints.dtype == np.uint8 and set(hints.tolist()) <= {0, 1}
        assert len(hints) == sum(map(len, documents))
        assert hints.mean() == pytest.approx(report["tokens_per_byte"][split])
        starts = np.cumsum([0, *map(len, documents)])[:-1][[len(d) > 0 for d in documents]]
        assert hints[starts].all()  # the first byte of a document always starts a token
    assert report["tokens_per_byte"]["validation"] == pytest.approx(report["measured_rate"])
    if name == "bpe":
        assert report["measured_rate"] == pytest.approx(0.25, rel=0.02)
    assert not list(out.glob("*.partial"))


def test_a_rate_out_of_reach_is_flagged(data, tmp_path):
    report = prepare(data, tmp_path / "out", PARAMS, 0.01, causal=False)
    words = [len(PRETOKEN.findall(document)) for document in SPLITS["validation"]]
    floor = sum(words) / sum(map(len, SPLITS["validation"]))
    assert report["rate_flag"] and report["measured_rate"] == pytest.approx(floor)


def test_max_vocabulary_is_a_limit(data, tmp_path):
    report = prepare(data, tmp_path / "out", PARAMS | {"max_vocabulary": 280}, 0.01, causal=False)
    assert report["vocabulary"] <= 280 and report["rate_flag"]


@pytest.mark.parametrize("sequence", [0, 7, 50, 10_000])
def test_rates_count_forced_ends_of_every_sequence(sequence):
    documents = [b"", text(12, 1), b"x", text(30, 2), b""]
    merges = train_merges(documents, 330)
    ranks = boundary_ranks(merges, documents, causal=False)
    rate = rates(ranks, len(merges), [len(d) for d in documents], sequence)
    assert rate.shape == (len(merges) + 1,) and (np.diff(rate) <= 0).all()
    for count in (0, 5, len(merges)):
        boundaries = positions = at = 0
        for document in documents:
            starts = (ranks[at : at + len(document)] >= count).tolist()
            at += len(document)
            for begin in range(0, len(document), sequence or len(document) or 1):
                window = starts[begin : begin + (sequence or len(document))]
                if sequence:
                    window = [True, *window[:-1], True]
                boundaries += sum(window)
                positions += len(window)
        assert rate[count] == pytest.approx(boundaries / positions)


def test_chunks_of_documents_make_no_difference(data, tmp_path, monkeypatch):
    store = ByteStore.open(data / "test")
    merges = train_merges(SPLITS["train"], 500)
    whole, parts = tmp_path / "whole.npy", tmp_path / "parts.npy"

    def decide(documents):
        return boundary_ranks(merges, documents, causal=True) >= len(merges)

    rate = write_hints(store, decide, whole)
    monkeypatch.setattr(preparation, "CHUNK_BYTES", 3)
    assert write_hints(store, decide, parts) == rate
    assert np.array_equal(np.load(whole), np.load(parts))


def test_a_full_disk_is_said_and_leaves_no_half(data, tmp_path):
    """The kernel itself refuses the write (a mapped file would end the process by a signal)."""
    store, path = ByteStore.open(data / "train"), tmp_path / "train.hints.npy"
    path.write_bytes(b"before")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    assert len(store.bytes) > 2000
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(UserError, match=r"train\.hints\.npy: not written, File too large"):
            write_hints(store, lambda documents: np.ones(sum(map(len, documents)), bool), path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == b"before"
    assert not list(tmp_path.glob("*.partial"))


def test_an_empty_split_has_no_rate(data, tmp_path):
    (data / "test" / "bytes.bin").write_bytes(b"")
    np.save(data / "test" / "offsets.npy", np.zeros(1, np.int64))
    report = prepare(data, tmp_path / "out", PARAMS, 0.25, causal=False)
    assert report["tokens_per_byte"]["test"] is None
    assert np.load(tmp_path / "out" / "test.hints.npy").shape == (0,)


def test_the_sample_is_whole_documents_up_to_the_budget(data):
    store = ByteStore.open(data / "train")
    sample = sample_documents(store, 1000)
    assert set(sample) <= set(SPLITS["train"]) and sample == sample_documents(store, 1000)
    assert sum(map(len, sample)) >= 1000 > sum(map(len, sample[:-1]))
    assert sorted(sample_documents(store, 10**9)) == sorted(SPLITS["train"])


def test_faults_are_one_message(data, tmp_path, capsys):
    config = run_yaml(tmp_path / "run.yaml", "bpe", **PARAMS)
    nothing = run_yaml(tmp_path / "uniform.yaml", "uniform")
    wrong = run_yaml(tmp_path / "wrong.yaml", "bpe", max_vocabulary=100)
    for path, folder, message in (
        (nothing, data, "'uniform' has nothing to prepare"),
        (wrong, data, "max_vocabulary must be at least 256, got 100"),
        (config, tmp_path / "nowhere", "nowhere/manifest.json"),
    ):
        arguments = ["--config", str(path), "--data", str(folder), "--out", str(tmp_path / "o")]
        assert main(["prepare", *arguments]) == 2
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1
    (data / "train" / "bytes.bin").write_bytes(b"")
    np.save(data / "train" / "offsets.npy", np.zeros(1, np.int64))
    with pytest.raises(UserError, match="no bytes to train on"):
        prepare(data, tmp_path / "o", PARAMS, 0.25, causal=False)
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize("name", ["bpe", "bpe_causal"])
def test_what_was_written_reads_other_text_the_same(name, data, tmp_path):
    """The test split's documents, as if they were new."""
    out = tmp_path / name
    cls = {"bpe": Bpe, "bpe_causal": BpeCausal}[name]
    cls.prepare(data, out, PARAMS, 0.3)
    reader, hints = cls.hint_reader(PARAMS, None, out), np.load(out / "test.hints.npy")
    assert reader.whole(SPLITS["test"]).tolist() == (hints != 0).tolist()
    if name == "bpe":
        assert reader.last is None
    else:
        found = [reader.last(d[: i + 1]) for d in SPLITS["test"] for i in range(len(d))]
        assert found == (hints != 0).tolist()


def test_a_missing_or_damaged_list_of_merges_is_named(tmp_path):
    with pytest.raises(UserError, match="Bpe needs --prepared"):
        Bpe.hint_reader(PARAMS, None, None)
    with pytest.raises(UserError, match="merges.txt: missing"):
        Bpe.hint_reader(PARAMS, None, tmp_path)
    (tmp_path / "merges.txt").write_text("a b\nab cd\n")
    with pytest.raises(UserError, match="line 2: joins a token that isn't made"):
        Bpe.hint_reader(PARAMS, None, tmp_path)
