"""Configuration: unknown keys, types as YAML and the command line spell them, hashes."""

import errno

import pytest
import yaml

from rltok_core import files
from rltok_core.config.experiment import (
    load_estimator,
    load_experiment,
    read_run,
    write_run,
)
from rltok_core.config.schema import DataConfig, EstimatorEntry, ExperimentConfig, TrainingConfig
from rltok_core.config.strict import digest, merge, parse, read_yaml
from rltok_core.errors import UserError


def experiment(**over) -> dict:
    block = {"data": "planted_tiny", "size": "tiny", "estimators": ["uniform"]}
    return {"name": "t", "figures": "f", "matrix": [block], **over}


def runs(**over) -> list:
    return load_experiment(experiment(**over), "t.yaml")[1]


def ids(**over) -> list[str]:
    return [run.id for run in runs(**over)]


@pytest.mark.parametrize(
    ("values", "key", "meant"),
    [
        (experiment(seedz=[1]), "seedz", "seeds"),
        (experiment(training={"step": 3}), "training.step", "steps"),
        (experiment(runtime={"devise": "cpu"}), "runtime.devise", "device"),
        (experiment(matrix=[{**experiment()["matrix"][0], "sizes": "tiny"}]), "sizes", "size"),
        (
            experiment(matrix=[{**experiment()["matrix"][0], "estimators": [{"nam": "uniform"}]}]),
            "matrix.0.estimators.0.nam",
            "name",
        ),
        (experiment(training={"curriculum": {"begin": 0.5}}), "training.curriculum.begin", "start"),
    ],
)
def test_misspelt_key_is_named_with_the_nearest(values, key, meant):
    with pytest.raises(UserError) as error:
        load_experiment(values, "my.yaml")
    message = str(error.value)
    assert message.startswith("my.yaml") and key in message
    assert f"{meant!r}" in message or f" {meant}" in message


def test_misspelt_key_inside_a_source_suggests_that_sources_own_keys():
    values = {"name": "x", "source": {"kind": "packaged_prose", "block_byte": 300}}
    with pytest.raises(UserError, match="block_byte.*did you mean 'block_bytes'"):
        parse(DataConfig, values, "x.yaml")


@pytest.mark.parametrize(
    ("field", "value", "meant"),
    [("data", "planted_tny", "planted_tiny"), ("size", "tinny", "tiny")],
)
def test_promise_11_unknown_names_suggest_the_nearest(field, value, meant):
    block = {**experiment()["matrix"][0], field: value}
    with pytest.raises(UserError, match=f"did you mean '{meant}'"):
        load_experiment(experiment(matrix=[block]), "my.yaml")


def test_unknown_estimator_and_parameter_suggest_the_nearest():
    with pytest.raises(UserError, match="did you mean 'uniform'"):
        load_estimator(EstimatorEntry(name="uniforn"))
    with pytest.raises(UserError, match="gama.*did you mean 'gamma'"):
        load_estimator(EstimatorEntry(name="score_function", params={"gama": 1}))


def test_a_merged_mapping_is_yaml_and_the_own_key_wins(tmp_path):
    (tmp_path / "e.yaml").write_text("a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\n")
    assert read_yaml(tmp_path / "e.yaml")["b"] == {"x": 1, "y": 3}


def test_a_key_given_twice_and_broken_yaml_name_file_and_line(tmp_path):
    path = tmp_path / "e.yaml"
    path.write_text("name: a\nseeds: [1]\nname: b\n")
    with pytest.raises(UserError, match=r"e\.yaml.*'name' is given twice.*line 3"):
        read_yaml(path)
    path.write_text("name: [a\nb: c\n")
    with pytest.raises(UserError, match=r"e\.yaml: not valid YAML.*line"):
        read_yaml(path)
    path.write_text("- a\n")
    with pytest.raises(UserError, match="expected a mapping"):
        read_yaml(path)
    with pytest.raises(UserError, match="no such file.*did you mean 'e'"):
        read_yaml(tmp_path / "ee.yaml")


def test_K27_numbers_as_text_are_the_numbers():
    as_text = yaml.safe_load("lr: 1e-3")  # PyYAML leaves it a string
    assert as_text["lr"] == "1e-3"
    assert runs(training=as_text)[0].training.lr == 0.001
    assert ids(training=as_text) == ids(training={"lr": 0.001})
    assert (
        ids(training={"lr": "1e-5"}) == ids(training={"lr": 0.00001}) == ids(training={"lr": 1e-5})
    )
    assert ids(training={"lr": 1e-5}) != ids(training={"lr": 2e-5})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"gamma": 1}, {"gamma": 1.0}),
        ({"lam_pi": "1e-2"}, {"lam_pi": 0.01}),
        ({"window": "8"}, {"window": 8}),
        ({"batch_relative": "false"}, {"batch_relative": False}),
    ],
)
def test_K27_spelling_of_a_parameter_does_not_make_another_run(one, other):
    def run_id(params):
        block = {"data": "planted_tiny", "size": "tiny"}
        block["estimators"] = [{"name": "score_function", "params": params}]
        return ids(matrix=[block])

    assert run_id(one) == run_id(other)


@pytest.mark.parametrize(
    "params", [{"batch_relative": "maybe"}, {"gamma": "high"}, {"window": True}]
)
def test_parameter_of_another_type_is_an_error_that_names_it(params):
    with pytest.raises(UserError, match=f"parameter '{next(iter(params))}': expected"):
        load_estimator(EstimatorEntry(name="score_function", params=params))


def test_K27_seeds_however_they_are_spelt_are_one_run():
    assert ids(seeds=1) == ids(seeds=[1]) == ids(seeds=["1"]) == ids(seeds="1")
    assert len(ids(seeds=1)) == 1
    for wrong in (True, [True], "one", [], -1, 1.5):
        with pytest.raises(UserError, match="seeds"):
            runs(seeds=wrong)


def test_K27_text_that_became_a_number_is_refused():
    """Snakemake reads --config tag=147_1 as 1471: it must not pass for the text that was meant."""
    with pytest.raises(UserError, match="'tag': expected text, got 1471"):
        runs(tag=1471)
    assert load_experiment(experiment(tag="147_1"), "t")[0].tag == "147_1"


def test_not_a_number_and_values_out_of_range_are_errors():
    for training in ({"lr": float("nan")}, {"lr": 0}, {"steps": 0}, {"target_rate": 1.5}):
        with pytest.raises(UserError, match=next(iter(training))):
            runs(training=training)
    with pytest.raises(UserError, match="warmup_steps 30 must be less than steps 20"):
        runs(training={"steps": 20, "warmup_steps": 30})


def test_sizes_that_do_not_divide_are_an_error():
    block = {**experiment()["matrix"][0], "model": {"d_model": 50, "n_heads": 3}}
    with pytest.raises(UserError, match="d_model 50 must be n_heads 3 times an even head size"):
        runs(matrix=[block])


def test_names_that_would_break_a_folder_are_refused():
    for name in ("a/b", "", "../x", "a b", "{x}"):
        with pytest.raises(UserError, match="label"):
            load_estimator(EstimatorEntry(name="uniform").model_copy(update={"label": name}))


def test_what_is_hashed_into_a_run_and_what_is_not():
    base = ids()
    assert ids(runtime={"threads": 2}) == base
    assert ids(evaluation={"sequences": 3}) == base
    assert ids(title="another", tag="x") == base
    for change in (
        {"steps": 21},
        {"target_rate": 0.25},
        {"curriculum": {}},
        {"betas": [0.9, 0.95]},
    ):
        assert ids(training=change) != base
    assert runs(evaluation={"sequences": 3})[0].evaluation_hash != runs()[0].evaluation_hash


def test_digest_knows_no_order_and_no_spelling_but_keeps_differences():
    assert digest({"a": 1, "b": [2.0]}) == digest({"b": [2], "a": 1.0})
    assert digest({"a": True}) != digest({"a": 1})
    assert digest({"a": "1"}) != digest({"a": 1})
    assert digest({"a": 0.1}) != digest({"a": 0.1000001})


def test_merge_is_deep_and_leaves_its_arguments_alone():
    base, over = {"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": 5}, "e": 6}
    assert merge(base, over) == {"a": {"b": 5, "c": 2}, "d": 3, "e": 6}
    assert base == {"a": {"b": 1, "c": 2}, "d": 3}


def test_precedence_size_experiment_block_estimator():
    block = {
        "data": "planted_tiny",
        "size": "tiny",
        "training": {"steps": 40, "lr": 0.5},
        "estimators": [
            "uniform",
            {"name": "stride", "training": {"steps": 50}, "model": {"n_mid": 0}},
        ],
    }
    first, second = runs(matrix=[block], training={"steps": 30, "batch_size": 2})
    assert (first.training.steps, first.training.batch_size, first.training.lr) == (40, 2, 0.5)
    assert first.training.seq_len == 64  # the size's own
    assert (second.training.steps, second.training.lr, second.model.n_mid) == (50, 0.5, 0)


def test_a_run_read_back_is_the_same_run(tmp_path):
    (run,) = runs(training={"lr": 1e-5})
    path = tmp_path / "run.yaml"
    write_run(run, path)
    assert read_run(path) == run and read_run(path).hash == run.hash
    before = path.stat().st_mtime_ns
    write_run(run, path)
    assert path.stat().st_mtime_ns == before  # an unchanged file keeps its time


def test_a_run_that_cannot_be_written_stays_as_it_was(tmp_path, monkeypatch):
    """A half-written config.yaml would lock a run folder out of its own checkpoints."""
    (first,), (other,) = runs(training={"lr": 1e-5}), runs(training={"lr": 1e-4})
    path = tmp_path / "config.yaml"
    write_run(first, path)

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(UserError, match="config.yaml: not written, No space left"):
        write_run(other, path)
    assert read_run(path) == first
    assert [found.name for found in tmp_path.iterdir()] == ["config.yaml"]


def test_training_defaults_are_the_papers():
    training = TrainingConfig(steps=10, lr=1e-3)
    assert training.betas == (0.9, 0.999) and training.weight_decay == 0.01 and training.clip == 1.0
    assert (training.seq_len, training.target_rate, training.lam_early) == (4096, 0.2, 0.1)
    assert training.curriculum is None and training.controller is None


def test_experiment_needs_a_matrix():
    with pytest.raises(UserError, match="matrix"):
        parse(ExperimentConfig, {"name": "x", "figures": "f", "matrix": []}, "x.yaml")
