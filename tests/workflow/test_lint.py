"""`snakemake --lint` and snakefmt stay clean."""

import subprocess
import sys
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]


def test_lint_has_no_remark_but_the_explained_one():
    command = [
        sys.executable,
        "workflow/lint.py",
        "--configfile",
        "tests/scenarios/two_methods.yaml",
    ]
    done = subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "clean" in done.stdout
