"""Scores of a trained run on held-out text."""


rule evaluate:
    input:
        model=f"{RESULTS}/runs/{{run}}/final.pt",
        data=lambda wildcards: data_manifest(RUNS[wildcards.run]),
        prepared=lambda wildcards: preparation(RUNS[wildcards.run]),
        bpe=lambda wildcards: bpe_reference(RUNS[wildcards.run]),
    output:
        scores=f"{RESULTS}/evaluations/{{run}}/evaluation.json",
        documents=f"{RESULTS}/evaluations/{{run}}/documents.csv",
        heatmap=f"{RESULTS}/evaluations/{{run}}/heatmap.json",
        probes=f"{RESULTS}/evaluations/{{run}}/probes.json",
    log:
        f"{RESULTS}/logs/evaluate/{{run}}.log",
    threads: lambda wildcards: RUNS[wildcards.run].runtime.threads
    resources:
        gpu=lambda wildcards: min(1, RUNS[wildcards.run].runtime.gpus),
        cpus_per_task=lambda wildcards: RUNS[wildcards.run].runtime.threads,
        mem_mb=lambda wildcards, attempt: memory_mb(RUNS[wildcards.run], attempt),
        runtime=lambda wildcards, attempt: 120 * attempt,
    params:
        hash=lambda wildcards: RUNS[wildcards.run].evaluation_hash,
        config=f"{RESULTS}/configs/{{run}}.yaml",
        run=lambda wildcards, input: option("--run", [input.model]),
        data=lambda wildcards, input: option("--data", [input.data]),
        prepared=lambda wildcards, input: option("--prepared", input.prepared),
        bpe=lambda wildcards, input: option("--bpe", input.bpe),
    shell:
        "exec python -m rltok_core evaluate --config {params.config:q} {params.run} {params.data} {params.prepared} {params.bpe}"
        " --out $(dirname {output.scores:q}) > {log:q} 2>&1"
