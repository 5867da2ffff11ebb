"""`rltok evaluate` from its command line: exact scores, strict files, clear refusals, signals."""

import csv
import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch

from rltok_core import cli
from rltok_core.config.strict import read_yaml
from rltok_core.errors import EXIT_REQUEUE, EXIT_USER
from rltok_core.model.unet import UNet

ESTIMATORS = Path(__file__).parents[2] / "configs" / "estimators"
UNIFORM = "rltok_core.boundaries.uniform:Uniform"
STRIDE = "rltok_core.boundaries.stride:Stride"
WHITESPACE = "rltok_core.boundaries.whitespace:Whitespace"
ORACLE = "rltok_core.boundaries.oracle:Oracle"
NO_MID = "rltok_core.boundaries.no_mid:NoMid"
SCORE_FUNCTION = "rltok_core.boundaries.score_function:ScoreFunction"
SCORE_PARAMS = read_yaml(ESTIMATORS / "score_function.yaml")["params"]
PROSE = (
    "It was a bright cold day in April 🎉, and the clocks were striking\u2028thirteen.\n\n".encode()
    + b"\x00\x00 then \xff\xfe\x80 came, and \xf0\x9f cut short; \xed\xa0\x80\r\n"
) * 3
DOCUMENTS = [PROSE, b"x", b"\x00", "añ日👍".encode() + b"\x80", b" \n\t ", bytes(range(256))]


def strict(path):
    """Parse JSON that may hold no NaN and no infinity."""

    def refuse(constant):
        raise AssertionError(f"{path} holds {constant}")

    return json.loads(path.read_text(), parse_constant=refuse)


def rows(out) -> list[dict]:
    with open(out / "documents.csv", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def uniform_oracle(tmp_path, write_data, write_config):
    """uniform_oracle(run, documents, truth) -> evaluation.json's values, the folder."""

    def call(run, documents, truth=None):
        data, config, out = write_data(run, documents, truth), write_config(run), tmp_path / "out"
        arguments = ["--oracle", "uniform", "--config", config, "--data", data, "--out", out]
        assert cli.main(["evaluate", *map(str, arguments)]) == 0
        return strict(out / "evaluation.json"), out

    return call


@pytest.fixture
def evaluate_run(tmp_path, write_data, finish_run):
    """evaluate_run(run, documents, truth, model, *more) -> evaluation.json's values, the folder."""

    def call(run, documents, truth=None, model=None, *more):
        data = write_data(run, documents, truth)
        folder, out = finish_run(run, data, model), tmp_path / "out"
        arguments = ["--run", folder, "--data", data, "--out", out, *more]
        assert cli.main(["evaluate", *map(str, arguments)]) == 0
        return strict(out / "evaluation.json"), out

    return call


@pytest.mark.parametrize("cls", [UNIFORM, STRIDE, WHITESPACE])
@pytest.mark.parametrize("batch_size", [1, 16])
def test_equal_logits_score_eight_bits(uniform_oracle, make_run, cls, batch_size):
    """Promise 7, acceptance 5: any text, every head, every pass, every document."""
    run = make_run(cls, batch_size=batch_size)
    result, out = uniform_oracle(run, DOCUMENTS)
    for name in ("bpb", "bpb_early", "bpb_mean_documents", "bpb_threshold", "bpb_stale"):
        assert f"{result[name]:.6f}" == "8.000000", name
    assert f"{result['bpb_zeroed']:.6f}" == "8.000000"
    assert result["label"] == "uniform_oracle"
    assert result["scored_bytes"] == sum(map(len, DOCUMENTS))
    assert [int(row["bytes"]) for row in rows(out)] == list(map(len, DOCUMENTS))
    for row in rows(out):
        assert float(row["bits"]) == pytest.approx(8 * int(row["bytes"]), abs=1e-4)
    assert {f"{x:.6f}" for x in result["positions"]["bpb"]} == {"8.000000"}
    for document in strict(out / "heatmap.json")["documents"]:
        assert {f"{x:.6f}" for x in document["bits"]} == {"8.000000"}


def test_K05_nul_bytes_are_bytes(uniform_oracle, make_run):
    result, out = uniform_oracle(make_run(), [b"\0", b"ab\0", b"\0ab"])
    assert [int(row["bytes"]) for row in rows(out)] == [1, 3, 3]
    assert result["scored_bytes"] == 7
    assert f"{result['bpb']:.6f}" == "8.000000"
    shown = strict(out / "heatmap.json")["documents"]
    assert [document["bytes"] for document in shown] == [[0], [97, 98, 0]]


@pytest.mark.parametrize("cls", [UNIFORM, STRIDE, WHITESPACE, NO_MID, SCORE_FUNCTION])
def test_K19_eleven_bytes_for_every_method(evaluate_run, make_run, cls):
    run = make_run(cls, SCORE_PARAMS if cls == SCORE_FUNCTION else None)
    result, out = evaluate_run(run, ["añ日👍".encode() + b"\x80"])
    assert result["scored_bytes"] == 11
    assert float(rows(out)[0]["bits"]) / 11 == pytest.approx(result["bpb"], rel=1e-12)


def test_K13_all_boundaries_is_one_byte_a_token(uniform_oracle, make_run):
    result, _ = uniform_oracle(make_run(STRIDE, target_rate=1.0), [b"a", bytes(range(64))])
    assert result["bytes_per_token"] == 1.0
    assert result["token_lengths"] == {"1": 65}
    assert result["boundary_rate"] == result["boundary_rate_free"] == 1.0


def test_rate_and_lengths_of_a_stride(evaluate_run, make_run):
    """31 bytes are positions 0..31: boundaries at 0 4 .. 28 and the forced 31."""
    result, out = evaluate_run(make_run(STRIDE, target_rate=0.25), [bytes(31)])
    assert result["boundary_rate"] == 9 / 32
    assert rows(out)[0]["boundaries"] == "9"
    # bos's token holds bytes 0..2, six tokens hold 4, the one at position 28 three, the last one
    assert result["token_lengths"] == {"1": 1, "3": 2, "4": 6}
    assert result["bytes_per_token"] == 31 / 9
    assert result["rate_flag"] is False


def test_collapsed_rate_is_flagged(evaluate_run, make_run):
    result, _ = evaluate_run(make_run(NO_MID, target_rate=0.5), [bytes(31)])
    assert result["boundary_rate"] == 2 / 32 and result["rate_flag"] is True


def test_truth_floor_and_gap(evaluate_run, make_run):
    """The rule that is given the truth finds all of it; the floor comes from the manifest."""
    truth = np.random.default_rng(0).random(100) < 0.2
    run = make_run(ORACLE, boundary_tolerance=2)
    result, _ = evaluate_run(run, [bytes(60), bytes(40)], [truth[:60], truth[60:]])
    perfect = {"p": 1.0, "r": 1.0, "f1": 1.0}
    assert result["segmentation"]["truth"] == result["segmentation"]["truth_tolerant"] == perfect
    assert (result["floor_bpb"], result["true_model_bpb"]) == (0.25, 0.5)
    assert result["gap_bpb"] == pytest.approx(result["bpb"] - 0.25, abs=1e-15)


def test_truth_is_tolerant_of_late_boundaries_only(evaluate_run, make_run):
    """A stride of 4 marks bytes 3, 7, 11, 15; the last of 17 is forced."""
    truth = [[i in (2, 7, 12) for i in range(17)]]
    run = make_run(STRIDE, target_rate=0.25, boundary_tolerance=1)
    result, _ = evaluate_run(run, [bytes(17)], truth)
    assert result["segmentation"]["truth"] == {"p": 1 / 4, "r": 1 / 3, "f1": 2 / 7}
    assert result["segmentation"]["truth_tolerant"] == {"p": 2 / 4, "r": 2 / 3, "f1": 4 / 7}
    assert result["segmentation"]["bpe"] is None


def test_whitespace_rule_against_word_starts(evaluate_run, make_run):
    text = b"the cat  sat on\nthe mat and then it ran off to sea in a pea-green boat "
    result, _ = evaluate_run(make_run(WHITESPACE), [text])
    assert result["segmentation"]["word_starts"] == {"p": 1.0, "r": 1.0, "f1": 1.0}
    assert result["whitespace_share"] > 0.9  # the first of two spaces isn't marked
    rate = result["boundary_rate_free"]
    assert result["whitespace_chance"] == pytest.approx(1 - (1 - rate) ** 2, abs=1e-15)


def test_bpe_reference_and_its_length(evaluate_run, make_run, tmp_path, capsys):
    folder = tmp_path / "bpe"
    folder.mkdir()
    np.save(folder / "test.hints.npy", np.array([i % 4 == 3 for i in range(40)], np.uint8))
    run = make_run(STRIDE, seq_len=64, target_rate=0.25)
    result, _ = evaluate_run(run, [bytes(40)], None, None, "--bpe", folder)
    assert result["segmentation"]["bpe"] == {"p": 1.0, "r": 1.0, "f1": 1.0}
    np.save(folder / "test.hints.npy", np.zeros(39, np.uint8))
    with pytest.raises(AssertionError):
        evaluate_run(run, [bytes(40)], None, None, "--bpe", folder)
    assert "test.hints.npy" in capsys.readouterr().err


def test_zeroed_is_the_network_without_token_level(evaluate_run, make_run, network):
    """bpb_zeroed is the same weights with n_mid = 0; a threshold changes nothing for a rule."""
    documents = [PROSE, b"short one"]
    run = make_run(STRIDE)
    model = network(run)
    result, _ = evaluate_run(run, documents, None, model)
    assert result["bpb_threshold"] == result["bpb"]
    assert result["mid_usage"] == result["bpb_zeroed"] - result["bpb"]
    assert result["mid_stale"] == result["bpb_stale"] - result["bpb"]
    assert abs(result["mid_usage"]) > 1e-3 and abs(result["mid_stale"]) > 1e-3

    bare = make_run(STRIDE, model={"n_mid": 0})
    weights = {k: v for k, v in model.state_dict().items() if not k.startswith("mid.")}
    shallow = network(bare)
    shallow.load_state_dict(weights)
    floor, _ = evaluate_run(bare, documents, None, shallow)
    assert floor["bpb"] == pytest.approx(result["bpb_zeroed"], abs=1e-6)
    for name in ("bpb_stale", "bpb_zeroed", "mid_usage", "mid_stale"):
        assert floor[name] is None


def test_stale_needs_a_second_token(evaluate_run, make_run):
    """With the forced ends alone every scored byte has bos's token, stale or not."""
    result, _ = evaluate_run(make_run(NO_MID), [PROSE])
    assert result["bpb_stale"] == result["bpb"]
    assert abs(result["mid_usage"]) > 1e-3


def test_threshold_is_not_sampling(evaluate_run, make_run, network):
    """Probabilities near 0.2: sampling marks some bytes, the threshold of 0.5 none."""
    run = make_run(SCORE_FUNCTION, SCORE_PARAMS)
    model = network(run)
    sampled, _ = evaluate_run(run, [PROSE], None, model)
    assert 0.1 < sampled["boundary_rate_free"] < 0.4
    assert abs(sampled["bpb_threshold"] - sampled["bpb"]) > 1e-3
    none = make_run(NO_MID)
    ends = network(none)
    ends.load_state_dict({k: model.state_dict()[k] for k in ends.state_dict()})
    forced, _ = evaluate_run(none, [PROSE], None, ends)
    assert sampled["bpb_threshold"] == pytest.approx(forced["bpb"], abs=1e-6)


def test_positions_are_bins_of_the_window(evaluate_run, make_run):
    result, _ = evaluate_run(make_run(STRIDE, seq_len=101, target_rate=0.25), [bytes(250), b"ab"])
    positions = result["positions"]
    assert len(positions["index"]) == 64
    assert sum(positions["count"]) == result["scored_bytes"] == 252
    total = np.dot(positions["bpb"], positions["count"])
    assert total / 252 == pytest.approx(result["bpb"], rel=1e-9)
    mean = np.dot(positions["index"], positions["count"]) / 252
    assert mean == pytest.approx((sum(range(100)) * 2 + sum(range(50)) + 1) / 252, rel=1e-12)


def test_heatmap_is_the_evaluations_own_scores(evaluate_run, make_run):
    """Bits of a whole document add up to its line in documents.csv; indices wrap, once each."""
    documents = [PROSE, b"tiny", b"", PROSE[:40]]
    run = make_run(heatmap_documents=[0, 5, 1, 2], heatmap_bytes=len(PROSE), sequences=1000)
    result, out = evaluate_run(run, documents)
    shown = strict(out / "heatmap.json")["documents"]
    assert [(d["document"], d["requested"]) for d in shown] == [(0, [0]), (1, [5, 1]), (2, [2])]
    for document in shown:
        n = len(documents[document["document"]])
        assert bytes(document["bytes"]) == documents[document["document"]]
        assert {len(document[k]) for k in ("prob", "boundary", "bits")} == {n}
        assert set(document["boundary"]) <= {0, 1}
    scored = {int(row["document"]): row for row in rows(out)}
    assert set(scored) == {0, 1, 3} and result["documents"] == 3
    for i in (0, 1):
        # other batches, so equal to float32 rounding
        assert sum(shown[i]["bits"]) == pytest.approx(float(scored[i]["bits"]), rel=1e-6)
        windows = int(scored[i]["windows"])  # each adds bos's boundary, which is on no byte
        assert sum(shown[i]["boundary"]) + windows == int(scored[i]["boundaries"])


def test_heatmap_stops_at_its_bytes(evaluate_run, make_run):
    _, out = evaluate_run(make_run(windows="first", heatmap_bytes=40), [PROSE])
    [shown] = strict(out / "heatmap.json")["documents"]
    assert {len(shown[k]) for k in ("bytes", "prob", "boundary", "bits")} == {40}


def test_every_promised_key_is_there(evaluate_run, make_run):
    result, _ = evaluate_run(make_run(), [b"ab"])
    promised = """run_id run_hash evaluation_hash data_hash experiment data size label seed causal
    learned curriculum controller documents windows scored_bytes bpb bpb_early bpb_mean_documents
    bpb_threshold bpb_stale bpb_zeroed mid_usage mid_stale boundary_rate target_rate bytes_per_token
    token_lengths whitespace_share whitespace_chance segmentation floor_bpb gap_bpb positions
    rate_flag flops_paper flops_counted train_seconds bytes_per_second peak_memory_bytes status"""
    assert set(promised.split()) <= set(result)
    assert (result["whitespace_share"], result["floor_bpb"]) == (None, None)
    assert (result["train_seconds"], result["flops_counted"]) == (2.0, 4.0)


def failing(capsys, *arguments) -> str:
    assert cli.main(["evaluate", *map(str, arguments)]) == EXIT_USER
    return capsys.readouterr().err


def test_other_data_is_refused(make_run, write_data, finish_run, tmp_path, capsys):
    """Same configuration, other bytes; then another configuration."""
    run, out = make_run(), tmp_path / "out"
    folder = finish_run(run, write_data(run, [b"one text"]))
    data = write_data(run, [b"another text"])
    message = failing(capsys, "--run", folder, "--data", data, "--out", out)
    assert "content hash" in message and run.id in message and not out.exists()
    manifest = json.loads((data / "manifest.json").read_text())
    (data / "manifest.json").write_text(json.dumps(manifest | {"hash": "0" * 64}))
    message = failing(capsys, "--run", folder, "--data", data, "--out", out)
    assert "manifest.json" in message and not out.exists()


def test_damaged_or_unfinished_runs_are_refused(make_run, write_data, finish_run, tmp_path, capsys):
    run = make_run()
    data = write_data(run, [b"some text"])
    folder = finish_run(run, data)
    arguments = ("--run", folder, "--data", data, "--out", tmp_path / "out")
    whole = (folder / "final.pt").read_bytes()
    for part in (b"", whole[: len(whole) // 2], b"not a model"):
        (folder / "final.pt").write_bytes(part)
        assert "final.pt: damaged" in failing(capsys, *arguments)
    (folder / "final.pt").write_bytes(whole)
    (folder / "training.json").unlink()
    assert "training.json: no such file" in failing(capsys, *arguments)
    assert not (tmp_path / "out").exists()


def test_nothing_to_score_is_refused(make_run, write_data, write_config, tmp_path, capsys):
    run = make_run()
    data = write_data(run, [])
    arguments = ["--oracle", "uniform", "--config", write_config(run), "--data", data]
    message = failing(capsys, *arguments, "--out", tmp_path / "out")
    assert "test" in message and not (tmp_path / "out").exists()


def test_evaluation_section_can_be_newer(make_run, evaluate_run, write_config, capsys):
    """--config beside --run replaces the evaluation section, and must be the same run."""
    old, new = make_run(sequences=1), make_run(sequences=5)
    assert old.hash == new.hash
    few, _ = evaluate_run(old, [PROSE])
    more, _ = evaluate_run(old, [PROSE], None, None, "--config", write_config(new))
    assert (few["windows"], more["windows"]) == (1, 5)
    assert few["evaluation_hash"] != more["evaluation_hash"]
    other = make_run(seed=1)
    with pytest.raises(AssertionError):
        evaluate_run(old, [PROSE], None, None, "--config", write_config(other))
    assert "must be the same run" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_leaves_to_be_requeued(evaluate_run, make_run, monkeypatch, capsys, number):
    """Promise 4: in the middle of a pass; what was there before stays as it was."""
    run = make_run(batch_size=1)
    _, out = evaluate_run(run, [PROSE])
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    forward, calls = UNet.forward, []

    def forward_then_signal(self, *arguments, **keywords):
        calls.append(1)
        if len(calls) == 3:
            os.kill(os.getpid(), number)
        return forward(self, *arguments, **keywords)

    monkeypatch.setattr(UNet, "forward", forward_then_signal)
    code = cli.main(
        ["evaluate", "--run", str(out.parent / "runs" / run.id)]
        + ["--data", str(out.parent / "data"), "--out", str(out)]
    )
    assert code == EXIT_REQUEUE and len(calls) == 3
    assert signal.Signals(number).name in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_evaluation_json_is_never_older_than_its_companions(evaluate_run, make_run, monkeypatch):
    """A failure between the files leaves no evaluation.json that would look finished."""
    import rltok_core.evaluation.cli as command

    run = make_run()
    _, out = evaluate_run(run, [PROSE])

    def full_disk(path, values):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(command, "write_json", full_disk)
    with pytest.raises(OSError):
        evaluate_run(run, [PROSE])
    assert not (out / "evaluation.json").exists()


def test_twice_is_the_same(evaluate_run, make_run, network):
    run = make_run(SCORE_FUNCTION, SCORE_PARAMS)
    model = network(run)
    first, out = evaluate_run(run, DOCUMENTS, None, model)
    files = [(out / name).read_bytes() for name in ("documents.csv", "heatmap.json")]
    torch.manual_seed(1)
    second, _ = evaluate_run(run, DOCUMENTS, None, model)
    assert first == second
    assert files == [(out / name).read_bytes() for name in ("documents.csv", "heatmap.json")]


def test_draws_tell_the_spread_of_the_stream(evaluate_run, make_run):
    run = make_run(SCORE_FUNCTION, SCORE_PARAMS, draws=4)
    result, _ = evaluate_run(run, [PROSE])
    draws = result["draws"]
    assert draws["n"] == 4 and draws["drawn"] and draws["bpb"][0] == result["bpb"]
    assert len(set(draws["bpb"])) == 4
    assert draws["bpb_sd"] == pytest.approx(np.std(draws["bpb"], ddof=1))


@pytest.mark.parametrize("cls", [STRIDE, WHITESPACE])
def test_a_rule_that_draws_nothing_has_one_draw(evaluate_run, make_run, cls):
    result, _ = evaluate_run(make_run(cls), [PROSE])
    assert result["draws"] == {"n": 1, "drawn": False, "bpb": [result["bpb"]], "bpb_sd": None}


def test_enrichment_and_entropy_of_lengths_by_hand(evaluate_run, make_run):
    """Counted again from the heat map of one document that is one window."""
    text = bytes(range(40, 100))
    run = make_run(SCORE_FUNCTION, SCORE_PARAMS, seq_len=64, heatmap_documents=[0])
    result, out = evaluate_run(run, [text])
    (shown,) = strict(out / "heatmap.json")["documents"]
    boundary, bits = np.array(shown["boundary"], bool), np.array(shown["bits"])
    start, surprise = boundary[:-1], bits[1:]
    hard = np.sort(surprise)[::-1][: round(0.2 * len(surprise))].min() <= surprise
    assert result["enrichment"]["final"] == pytest.approx(start[hard].mean() / start.mean())
    lengths = np.diff([0, *np.flatnonzero(boundary), len(text)])
    lengths = lengths[lengths > 0]
    share = np.unique(lengths, return_counts=True)[1] / len(lengths)
    assert result["token_length_entropy"] == pytest.approx(-(share * np.log2(share)).sum())


def test_leak_and_probes_are_written(evaluate_run, make_run):
    result, out = evaluate_run(make_run(), [PROSE])
    assert result["leak"]["leaks"] is False and result["leak"]["hints"] is None
    asked = strict(out / "probes.json")
    assert asked["run_id"] == result["run_id"] and asked["reason"] is None
    assert [text["name"] for text in asked["texts"]][:2] == ["one_byte", "number"]
    assert {edit["edit"] for edit in asked["stability"]} == {"upper_case", "typo"}


def test_the_oracle_cannot_read_other_text_and_says_so(evaluate_run, make_run):
    result, out = evaluate_run(make_run(ORACLE), [b"abab"], [[0, 1, 0, 1]])
    asked = strict(out / "probes.json")
    assert asked["texts"] == [] and "planted corpus" in asked["reason"]
    assert result["leak"]["hints"] == "held" and not result["leak"]["leaks"]
