"""The four tasks of the paper's main table: `snakemake downstream`. Needs the extra `downstream`, so
not part of `all`; the report shows what is there."""

DOWNSTREAM = [id for id, run in RUNS.items() if run.data.source.kind != "planted"]


rule downstream:
    input:
        expand(f"{RESULTS}/downstream/{{run}}.json", run=DOWNSTREAM),


rule downstream_run:
    input:
        model=f"{RESULTS}/runs/{{run}}/final.pt",
        data=lambda wildcards: data_manifest(RUNS[wildcards.run]),
        prepared=lambda wildcards: preparation(RUNS[wildcards.run]),
    output:
        scores=f"{RESULTS}/downstream/{{run}}.json",
    log:
        f"{RESULTS}/logs/downstream/{{run}}.log",
    threads: lambda wildcards: RUNS[wildcards.run].runtime.threads
    resources:
        gpu=lambda wildcards: min(1, RUNS[wildcards.run].runtime.gpus),
        cpus_per_task=lambda wildcards: RUNS[wildcards.run].runtime.threads,
        mem_mb=lambda wildcards, attempt: 2000 + memory_mb(RUNS[wildcards.run], attempt),
        runtime=240,
    params:
        run=lambda wildcards, input: option("--run", [input.model]),
        data=lambda wildcards, input: option("--data", [input.data]),
        prepared=lambda wildcards, input: option("--prepared", input.prepared),
        source=EXPERIMENT.downstream.source,
        limit=f"--limit {EXPERIMENT.downstream.limit}" if EXPERIMENT.downstream.limit else "",
    shell:
        "exec python -m rltok_core downstream {params.run} {params.data} {params.prepared}"
        " --source {params.source} {params.limit} --out {output.scores:q} > {log:q} 2>&1"
