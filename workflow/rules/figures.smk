"""Tables and figures of whatever the experiment's runs have scored."""


# The report's own code counts as input (rerun-triggers leave code out): a restyled figure is drawn
# again, and nothing upstream is touched.
rule report:
    input:
        scores=expand(f"{RESULTS}/evaluations/{{run}}/evaluation.json", run=RUNS),
        summaries=expand(f"{RESULTS}/runs/{{run}}/training.json", run=RUNS),
        code=sorted((HOME / "rltok_core" / "report").glob("*.*")),
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


# Each table and figure under its own name (`snakemake main_table`), from whatever runs exist now:
# nothing is trained for it, and a missing run is a marked gap. No output is declared: the file is
# the report's, and whoever asks by name wants it drawn anew.
for NAME in PRODUCTS:

    rule:
        name:
            NAME
        log:
            f"{RESULTS}/logs/report/{EXPERIMENT.name}_{NAME}.log",
        localrule: True
        params:
            experiment=f"{RESULTS}/configs/experiments/{EXPERIMENT.name}.yaml",
            figures=FIGURES,
            only=NAME,
        shell:
            "python -m rltok_core report --experiment {params.experiment:q} --out {params.figures:q}"
            " --only {params.only:q} 2>&1 | tee {log:q}"
