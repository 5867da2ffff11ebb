"""Entropy boundaries of a corpus. Declared: the summary, written last."""


rule prepare_entropy:
    input:
        data=lambda wildcards: data_manifest(PREPARED[wildcards.prepared]),
    output:
        summary=f"{RESULTS}/prepared/{{prepared}}/preparation.json",
    log:
        f"{RESULTS}/logs/prepare/{{prepared}}.log",
    wildcard_constraints:
        prepared=prepared_by("entropy.smk"),
    priority: 10**8
    resources:
        mem_mb=4000,
        runtime=720,
    params:
        hash=lambda wildcards: PREPARED[wildcards.prepared].preparation_hash,
        config=f"{RESULTS}/configs/prepared/{{prepared}}.yaml",
        data=lambda wildcards, input: option("--data", [input.data]),
    shell:
        "exec python -m rltok_core prepare --config {params.config:q} {params.data}"
        " --out $(dirname {output.summary:q}) > {log:q} 2>&1"
