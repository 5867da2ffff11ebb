"""Text: the byte stores that everything is trained and scored on."""


# One part of a large corpus. Its date doesn't count but its content does (common.smk, identities);
# what is made of it goes once the parts are joined.
rule data_shard:
    input:
        files=lambda wildcards: ancient(shard_files(wildcards.data, int(wildcards.shard))),
    output:
        summary=temp(f"{RESULTS}/data/.{{data}}.shards/{{shard}}/shard.json"),
    log:
        f"{RESULTS}/logs/data/{{data}}.{{shard}}.log",
    wildcard_constraints:
        shard=r"\d{5}",
    priority: 10**9
    resources:
        mem_mb=1500,
        runtime=lambda wildcards, attempt: 240 * attempt,
    params:
        hash=lambda wildcards: DATA[wildcards.data].hash,
        inputs=lambda wildcards: identities(wildcards.data, int(wildcards.shard)),
        config=f"{RESULTS}/configs/data/{{data}}.yaml",
        out=f"{RESULTS}/data/{{data}}",
        index=lambda wildcards: int(wildcards.shard),
    shell:
        "exec python -m rltok_core data shard --config {params.config:q} --out {params.out:q}"
        " --index {params.index} > {log:q} 2>&1"


# Declared: the manifest, which is written last. The byte store beside it is the command's own.
rule build_data:
    input:
        files=lambda wildcards: ancient(data_files(wildcards.data)),
        shards=lambda wildcards: data_shards(wildcards.data),
    output:
        manifest=f"{RESULTS}/data/{{data}}/manifest.json",
    log:
        f"{RESULTS}/logs/data/{{data}}.log",
    priority: 10**9
    resources:
        mem_mb=1500,
        runtime=1440,
    params:
        hash=lambda wildcards: DATA[wildcards.data].hash,
        inputs=lambda wildcards: identities(wildcards.data),
        config=f"{RESULTS}/configs/data/{{data}}.yaml",
    shell:
        "exec python -m rltok_core data build --config {params.config:q} --out $(dirname {output.manifest:q})"
        " > {log:q} 2>&1"
