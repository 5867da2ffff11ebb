"""Tables and figures of whatever the experiment's runs have scored."""


# The report's own code counts as input (rerun-triggers leave code out): a restyled figure is drawn
# again, and nothing upstream is touched.
rule report:
    input:
        scores=expand(f"{RESULTS}/evaluations/{{run}}/evaluation.json", run=RUNS),
        summaries=expand(f"{RESULTS}/runs/{{run}}/training.json", run=RUNS),
        code=sorted((HOME / "rltok_core" / "report").glob("*.py")),
    output:
        **{
            name: report(f"{FIGURES}/{file}", caption=f"../report/{name}.rst", category=heading)
            for name, (heading, file) in REPORT_FILES.items()
        },
        markdown=f"{FIGURES}/main_table.md",
        latex=f"{FIGURES}/main_table.tex",
    log:
        f"{RESULTS}/logs/report/{EXPERIMENT.name}.log",
    resources:
        mem_mb=3000,
        runtime=60,
    params:
        hash=digest(EXPERIMENT.model_dump(mode="json")),
        experiment=f"{RESULTS}/configs/experiments/{EXPERIMENT.name}.yaml",
    shell:
        "exec python -m rltok_core report --experiment {params.experiment:q}"
        " --out $(dirname {output.table:q}) > {log:q} 2>&1"
