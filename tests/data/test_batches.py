"""Windows and the order of training: rows stand alone, order is a function of (seed, step)."""

from collections import Counter

import numpy as np
import pytest
import torch

from rltok_core.data import batches
from rltok_core.data.batches import Windows, permuted, training_indices
from rltok_core.data.documents import Document
from rltok_core.data.vocabulary import BOS, PAD
from rltok_core.errors import UserError

TEXTS = [b"\x00", b"abc", b"x" * 10 + b"\xff", b"ends in nul\x00", b"", b"0123456789abcdefghijklm"]


@pytest.fixture
def store(tmp_path, write_store):
    return write_store(tmp_path / "train", [Document(str(i), text) for i, text in enumerate(TEXTS)])


def test_first_is_one_window_a_document(store):
    windows = Windows(store, 9, "first")
    assert len(windows) == 5 and windows.skipped == 1
    document_B, start_B, size_B = windows.places(range(5))
    assert document_B.tolist() == [0, 1, 2, 3, 5]
    assert start_B.tolist() == [0] * 5
    assert size_B.tolist() == [1, 3, 8, 8, 8]


@pytest.mark.parametrize("seq_len", [2, 4, 9, 12, 24, 100])
def test_all_tiles_every_document_once(store, seq_len):
    windows = Windows(store, seq_len, "all")
    rebuilt = dict.fromkeys(range(len(TEXTS)), b"")
    for index in range(len(windows)):
        batch = windows.batch([index], [0])
        ids = batch.ids_BS[0]
        assert ids[0] == BOS and len(ids) == batch.length_B[0] <= seq_len
        ((document, start),) = batch.documents
        assert start == len(rebuilt[document])  # in order, from one document
        rebuilt[document] += bytes((ids[1:] - 64).tolist())
    assert rebuilt == dict(enumerate(TEXTS))


def test_K05_rows_do_not_depend_on_company_or_padding(store):
    windows = Windows(store, 9, "all", hints=np.arange(len(store.bytes), dtype=np.uint8) % 2)
    every = list(range(len(windows)))
    keys = [1000 + i for i in every]
    alone = [windows.batch([i], [keys[i]]) for i in every]
    for order in (every, every[::-1], every[1::2]):
        batch = windows.batch(order, [keys[i] for i in order], pad_to=13)
        assert batch.ids_BS.shape == (len(order), 13) and batch.ids_BS.dtype == torch.int64
        u_BS = batch.stream.uniform(13)
        for row, index in enumerate(order):
            n = int(alone[index].length_B[0])
            assert batch.length_B[row] == n
            assert torch.equal(batch.ids_BS[row, :n], alone[index].ids_BS[0])
            assert (batch.ids_BS[row, n:] == PAD).all()
            assert torch.equal(batch.hint_BS[row, :n], alone[index].hint_BS[0])
            assert not batch.hint_BS[row, n:].any()
            assert torch.equal(u_BS[row, :n], alone[index].stream.uniform(n)[0])
            assert batch.documents[row] == alone[index].documents[0]
    widest = windows.batch(every, keys)
    assert widest.ids_BS.shape[1] == int(windows.places(every)[2].max()) + 1
    assert int(widest.scored_BS.sum()) == sum(map(len, TEXTS))  # every byte is scored once


def test_targets_are_the_next_bytes(store):
    batch = Windows(store, 100, "first").batch([0, 2], [0, 0])
    assert batch.target_BS[1, :11].tolist() == list(TEXTS[2])
    assert batch.target_BS[0, 0] == 0 and batch.scored_BS[0].sum() == 1
    assert batch.scored_BS[1].sum() == 11


def test_hints_sit_on_their_byte(store):
    hints = np.zeros(len(store.bytes), np.uint8)
    place = TEXTS[5].index(b"c") + int(store.offsets[5])
    hints[place] = 1
    windows = Windows(store, 9, "all", hints)
    rows = list(windows.of_document(5))
    batch = windows.batch(rows, rows)
    assert int(batch.hint_BS.sum()) == 1
    assert batch.ids_BS[batch.hint_BS].item() == 64 + ord("c")
    with pytest.raises(UserError, match="5 boundary hints for"):
        Windows(store, 9, "all", hints[:5])


def test_constant_stream_thresholds(store):
    batch = Windows(store, 9, "first").batch([0], [1], constant=0.5)
    assert (batch.stream.uniform(7) == 0.5).all()


def test_evaluation_key_depends_on_the_document_alone(store, tmp_path, write_store):
    other = write_store(tmp_path / "o", [Document("elsewhere", TEXTS[5])])
    here, there = Windows(store, 9, "all"), Windows(other, 9, "all")
    first = here.of_document(5)[0]
    keys = [here.evaluation_key(first + i, 7) for i in range(3)]
    assert keys == [there.evaluation_key(i, 7) for i in range(3)]
    assert len({*keys, here.evaluation_key(first, 8), here.evaluation_key(first - 1, 7)}) == 5


@pytest.mark.parametrize(("n", "batch_size"), [(10, 4), (7, 7), (3, 8), (1, 2)])
def test_each_epoch_is_a_permutation(n, batch_size):
    sequence = sum((training_indices(n, batch_size, step, 5) for step in range(n)), [])
    for epoch in range(batch_size):
        assert sorted(sequence[epoch * n : (epoch + 1) * n]) == list(range(n))
    assert set(Counter(sequence).values()) == {batch_size}


def test_training_order_is_stateless():
    steps = [training_indices(50, 8, step, 3) for step in range(20)]
    # asked in reverse, as after a resume, and by a rank that takes its slice of the global batch
    assert [training_indices(50, 8, step, 3) for step in reversed(range(20))] == steps[::-1]
    assert len({tuple(step) for step in steps}) == 20
    assert training_indices(50, 8, 0, 4) != steps[0]
    # the same order in another process and on another machine
    assert training_indices(10, 5, 0, 0) + training_indices(10, 5, 1, 0) == [
        6, 1, 4, 2, 9, 8, 0, 3, 5, 7,
    ]  # fmt: skip


@pytest.mark.parametrize("n", [1, 2, 3, 100, 1000, 4097])
def test_a_permutation_without_a_table_takes_each_place_once(n):
    found = [permuted(place, n, key=7) for place in range(n)]
    assert sorted(found) == list(range(n))
    if n >= 100:
        other = [permuted(place, n, key=8) for place in range(n)]
        # of a random permutation about one place in n stays, or agrees with another permutation
        assert sum(a == b for a, b in zip(found, other, strict=True)) < 10
        assert sum(place == a for place, a in enumerate(found)) < 10
        assert abs(np.corrcoef(np.arange(n), found)[0, 1]) < 4 / n**0.5


def test_many_windows_are_ordered_without_a_table(monkeypatch):
    monkeypatch.setattr(batches, "LARGEST_SHUFFLED", 9)
    sequence = sum((training_indices(10, 4, step, 5) for step in range(5)), [])
    assert sorted(sequence[:10]) == sorted(sequence[10:]) == list(range(10))
    assert sequence[:10] != sequence[10:]


def test_training_without_windows_is_an_error():
    with pytest.raises(UserError, match="no sequence"):
        training_indices(0, 4, 0, 0)
