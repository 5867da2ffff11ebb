"""The gradient laboratory: `snakemake gradlab --cores 1`. No part of an experiment, so not of `all`."""


rule gradlab:
    input:
        config=HOME / "configs" / "gradlab.yaml",
        estimators=sorted((HOME / "configs" / "estimators").glob("*.yaml")),
        code=sorted((HOME / "rltok_core").glob("[bg]*/*.py")),
    output:
        table="paper_figures/gradlab/table.csv",
        markdown="paper_figures/gradlab/table.md",
        caption="paper_figures/gradlab/caption.md",
        figure="paper_figures/gradlab/figure.png",
        pdf="paper_figures/gradlab/figure.pdf",
    log:
        f"{RESULTS}/logs/gradlab.log",
    resources:
        mem_mb=3000,
        runtime=30,
    shell:
        "OMP_NUM_THREADS=1 python -m rltok_core gradlab --config {input.config:q}"
        " --out $(dirname {output.table:q}) > {log:q} 2>&1"
