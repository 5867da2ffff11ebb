"""Text: the byte stores that everything is trained and scored on."""


# Declared: the manifest, which is written last. The byte store beside it is the command's own.
rule build_data:
    input:
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
        config=f"{RESULTS}/configs/data/{{data}}.yaml",
    shell:
        "exec python -m rltok_core data build --config {params.config:q} --out $(dirname {output.manifest:q})"
        " > {log:q} 2>&1"
