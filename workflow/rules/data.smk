"""Configuration and text: the matrix resolved into one YAML a run, and the byte stores."""


# One job writes them all. Everything downstream takes them as ancient(): a run's identity is in its
# name, so a rewritten YAML is no reason to train again.
rule resolve:
    output:
        experiment=f"{RESULTS}/configs/experiments/{EXPERIMENT.name}.yaml",
        runs=expand(f"{RESULTS}/configs/{{run}}.yaml", run=RUNS),
        data=expand(f"{RESULTS}/configs/data/{{data}}.yaml", data=DATA),
        prepared=expand(f"{RESULTS}/configs/prepared/{{prepared}}.yaml", prepared=PREPARED),
    log:
        f"{RESULTS}/logs/resolve/{EXPERIMENT.name}.log",
    params:
        hash=digest(
            [EXPERIMENT.model_dump(mode="json"), [r.model_dump(mode="json") for r in MATRIX]]
        ),
        configs=str(HOME / "configs"),
        experiment=json.dumps(EXPERIMENT.model_dump(mode="json")),
    shell:
        "python -m rltok_core resolve --experiment - --configs {params.configs:q}"
        " --out $(dirname {output.runs[0]:q}) <<< {params.experiment:q} > {log:q} 2>&1"


# Declared: the manifest, which is written last. The byte store beside it is the command's own.
rule build_data:
    input:
        config=ancient(f"{RESULTS}/configs/data/{{data}}.yaml"),
        files=lambda wildcards: data_files(DATA[wildcards.data]),
    output:
        manifest=f"{RESULTS}/data/{{data}}/manifest.json",
    log:
        f"{RESULTS}/logs/data/{{data}}.log",
    priority: 10**9
    resources:
        mem_mb=4000,
        runtime=720,
    params:
        hash=lambda wildcards: DATA[wildcards.data].hash,
    shell:
        "python -m rltok_core data build --config {input.config:q} --out $(dirname {output.manifest:q})"
        " > {log:q} 2>&1"
