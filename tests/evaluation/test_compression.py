"""Round trips through a model, their size against evaluation's bits, and what is refused."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from rltok_core.boundaries.contract import HintReader
from rltok_core.cli import main
from rltok_core.config.experiment import load_estimator
from rltok_core.config.schema import EstimatorEntry
from rltok_core.data.store import ByteStore
from rltok_core.errors import UserError
from rltok_core.evaluation import compression
from rltok_core.evaluation.compression import Header, compress, decompress, evaluation_bits
from rltok_core.evaluation.subject import Subject
from rltok_core.evaluation.text import text_windows

SMALL = {"window": 3, "gamma": 0.9, "softcap": 6.0}
POLICY = load_estimator(EstimatorEntry(name="score_function", params=SMALL))
METHODS = {
    "uniform": ("rltok_core.boundaries.uniform:Uniform", {}),
    "score_function": (POLICY.cls, POLICY.params),
    "hnet": ("rltok_core.boundaries.hnet:HNet", {"ratio_weight": 0.03}),
    "pooling": (
        "rltok_core.boundaries.pooling:Pooling",
        {"temperature": 1.0, "prior_weight": 1.0},
    ),
}
BPE = {"max_vocabulary": 300, "train_bytes": 1000, "sequence_bytes": 0}
TEXT = ("The cat sat on the mat; añ日👍 " * 9).encode() + b"\x80\x00\xff"


@pytest.fixture
def subject_of(make_run, network):
    def build(method="uniform", cls=None, params=None, **run):
        cls, params = METHODS[method] if cls is None else (cls, params)
        config = make_run(cls, params, **run)
        return Subject(config, network(config), config.id, method, None, {"seconds": 1})

    return build


def last_is_space(documents):
    whole = np.frombuffer(b"".join(documents), np.uint8)
    return whole == 32


HINTS = HintReader(last_is_space, lambda prefix: prefix[-1:] == b" ")


@pytest.mark.parametrize("method", METHODS)
def test_the_file_comes_back_and_its_size_is_evaluations(method, subject_of):
    subject = subject_of(method)
    header, code = compress(subject, None, TEXT)
    assert decompress(subject, None, header + code) == TEXT
    bits = evaluation_bits(subject, None, TEXT)
    assert 8 * len(code) == pytest.approx(bits, rel=5e-3)
    assert len(header) == 8 + 2 + 32


@pytest.mark.parametrize("size", [0, 1, 31, 32, 62, 63])
def test_every_length_around_a_window(size, subject_of):
    """seq_len 32 is 31 bytes a window."""
    subject = subject_of("score_function")
    header, code = compress(subject, None, TEXT[:size])
    assert decompress(subject, None, header + code) == TEXT[:size]


def test_windows_in_several_groups(monkeypatch, subject_of):
    monkeypatch.setattr(compression, "GROUP", 2)
    subject = subject_of()
    header, code = compress(subject, None, TEXT)
    assert decompress(subject, None, header + code) == TEXT


def test_hints_are_read_from_the_text_before(subject_of):
    cls = "rltok_core.boundaries.bpe_causal:BpeCausal"
    subject = subject_of("bpe_causal", cls, BPE)
    header, code = compress(subject, HINTS, TEXT)
    assert decompress(subject, HINTS, header + code) == TEXT
    assert 8 * len(code) == pytest.approx(evaluation_bits(subject, HINTS, TEXT), rel=5e-3)
    # the hints matter: without any of them it is another code
    nothing = HintReader(lambda d: last_is_space(d) & False, lambda prefix: False)
    assert compress(subject, nothing, TEXT)[1] != code


def test_evaluation_bits_are_those_of_the_evaluation_command(
    subject_of, write_data, finish_run, capsys, tmp_path
):
    """One document as the whole test split, scored by `rltok evaluate`."""
    subject = subject_of("score_function")
    data = write_data(subject.run, [TEXT])
    run = finish_run(subject.run, data, subject.model)
    out = tmp_path / "scores"
    assert main(["evaluate", "--run", str(run), "--data", str(data), "--out", str(out)]) == 0
    line = (out / "documents.csv").read_text().splitlines()[1].split(",")
    assert int(line[1]) == len(TEXT)
    assert float(line[2]) == pytest.approx(evaluation_bits(subject, None, TEXT), rel=1e-6)
    # and the two commands, through files
    (tmp_path / "text").write_bytes(TEXT)
    arguments = ["--run", str(run)]
    packed, back = tmp_path / "text.rltok", tmp_path / "back"
    text = str(tmp_path / "text")
    assert main(["compress", text, *arguments, "--out", str(packed)]) == 0
    assert "header" in capsys.readouterr().out
    assert main(["decompress", str(packed), *arguments, "--out", str(back)]) == 0
    assert back.read_bytes() == TEXT


def test_a_uniform_model_needs_8_bits_a_byte(subject_of):
    subject = subject_of()
    with torch.no_grad():
        subject.model.head.weight.zero_()
    _, code = compress(subject, None, TEXT)
    assert 8 * len(code) == pytest.approx(8 * len(TEXT), abs=9)


def test_what_looks_ahead_is_refused_with_its_name(subject_of):
    subject = subject_of("bpe", "rltok_core.boundaries.bpe:Bpe", BPE)
    for work in (compress, decompress):
        with pytest.raises(UserError, match="bpe looks ahead"):
            work(subject, HINTS, TEXT)


def test_other_files_and_other_models_are_refused(subject_of):
    subject = subject_of()
    header, code = compress(subject, None, TEXT)
    with pytest.raises(UserError, match="not a file"):
        decompress(subject, None, b"PK" + header + code)
    with pytest.raises(UserError, match="within its header"):
        decompress(subject, None, header[:-1])
    with pytest.raises(UserError, match="another model"):
        decompress(subject_of(seed=1), None, header + code)
    seeded = dataclasses.replace(
        subject,
        run=subject.run.model_copy(
            update={"evaluation": subject.run.evaluation.model_copy(update={"stream_seed": 1})}
        ),
    )
    with pytest.raises(UserError, match="another stream seed"):
        decompress(seeded, None, header + code)


def test_damage_never_passes_for_the_file(subject_of):
    subject = subject_of()
    header, code = compress(subject, None, TEXT)
    flipped = bytes([code[0] ^ 64]) + code[1:]
    for damaged in (flipped, code[: len(code) // 2]):
        with pytest.raises(UserError, match="not the ones that were coded"):
            decompress(subject, None, header + damaged)


@pytest.mark.parametrize("length", [1 << 62, 1 << 70])
def test_a_damaged_length_is_no_traceback(length, subject_of):
    subject = subject_of()
    header = Header(compression.model_tag(subject), length, bytes(32))
    with pytest.raises(UserError, match=f"the file: damaged: its header says {length} bytes"):
        decompress(subject, None, header.pack())


def test_a_header_of_any_length_comes_back():
    for length in (0, 1, 127, 128, 129, 16384, 10**12):
        header = Header(b"abcd", length, bytes(range(32)))
        assert Header.unpack(header.pack() + b"rest", "f") == (header, b"rest")


def test_windows_of_text_are_evaluations(make_run):
    windows = text_windows([TEXT, b"", b"xy"], make_run(windows="first"), None)
    whole = 31
    size_W = windows.places(range(len(windows)))[2]
    assert size_W.sum() == len(TEXT) + 2 and windows.skipped == 1
    assert len(windows) == math.ceil(len(TEXT) / whole) + 1
    assert isinstance(windows.store, ByteStore)
