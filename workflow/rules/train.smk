"""Training. Snakemake deletes declared outputs before every attempt and after a failure: declared are
the final weights and their summary alone, so checkpoints and metrics outlive a retry."""


rule train:
    input:
        data=lambda wildcards: data_manifest(RUNS[wildcards.run]),
        prepared=lambda wildcards: preparation(RUNS[wildcards.run]),
    output:
        model=f"{RESULTS}/runs/{{run}}/final.pt",
        summary=f"{RESULTS}/runs/{{run}}/training.json",
    log:
        f"{RESULTS}/logs/train/{{run}}.log",
    # the longest first, so that none is left running alone at the end
    priority: lambda wildcards: training_flops(RUNS[wildcards.run]) / 1e9
    threads: lambda wildcards: processors(RUNS[wildcards.run])
    resources:
        gpu=lambda wildcards: RUNS[wildcards.run].runtime.gpus,
        nodes=1,
        # a resource and no parameter: how many ranks there are is no reason to train again
        ranks=lambda wildcards: ranks(RUNS[wildcards.run]),
        cpus_per_task=lambda wildcards: processors(RUNS[wildcards.run]),
        mem_mb=lambda wildcards, attempt: memory_mb(RUNS[wildcards.run], attempt),
        runtime=lambda wildcards, attempt: minutes(RUNS[wildcards.run], attempt),
    params:
        hash=lambda wildcards: RUNS[wildcards.run].hash,
        config=f"{RESULTS}/configs/{{run}}.yaml",
        data=lambda wildcards, input: option("--data", [input.data]),
        prepared=lambda wildcards, input: option("--prepared", input.prepared),
    shell:
        "exec python -m rltok_core train --config {params.config:q} {params.data} {params.prepared}"
        " --out $(dirname {output.model:q}) --ranks {resources.ranks} --requeue > {log:q} 2>&1"
