"""rltok, from text to tables: `snakemake --cores all` (README.md). `snakemake -n` shows the plan."""

from snakemake.utils import min_version

min_version("9.0")

# a file named on the command line or in a profile takes the default's place, whole
if not workflow.configfiles:

    configfile: f"{workflow.basedir}/configs/experiments/laptop.yaml"


include: "workflow/rules/common.smk"


# where Snakemake runs: on a cluster, the login node
localrules:
    all,
    report,
    downstream,


# Runs and scores are asked for beside the report: the committed edition of paper_figures would
# otherwise stand for runs that were never made here, and a score for a run that was removed.
rule all:
    default_target: True
    input:
        expand(f"{RESULTS}/runs/{{run}}/training.json", run=RUNS),
        expand(f"{RESULTS}/evaluations/{{run}}/evaluation.json", run=RUNS),
        f"{FIGURES}/report.html",


include: "workflow/rules/data.smk"


# a preparation's rule lies beside the YAML of the estimator that needs it
for path in PREPARATION_RULES:

    include: path


include: "workflow/rules/train.smk"
include: "workflow/rules/evaluate.smk"
include: "workflow/rules/downstream.smk"
include: "workflow/rules/figures.smk"
include: "workflow/rules/gradlab.smk"
