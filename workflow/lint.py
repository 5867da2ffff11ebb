"""`snakemake --lint`, less the one remark that doesn't apply here; exits 1 if any other is left.

Left out: "Specify a conda environment or container for each rule". Every rule runs one command of
this project, in the environment that pyproject.toml and constraints.txt pin.
"""

import re
import subprocess
import sys

EXPECTED = "Specify a conda environment or container for each rule."


def main() -> int:
    command = [sys.executable, "-m", "snakemake", "--lint", *sys.argv[1:]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    text = done.stdout + done.stderr  # it takes no format that a program could read
    where, left, seen = "", [], False
    for line in text.splitlines():
        if line.startswith("Lints for "):
            where = line.removeprefix("Lints for ")
        elif remark := re.match(r" {4}\* (.*?):?$", line):
            seen = True
            if remark[1] != EXPECTED:
                left.append(f"{where} {remark[1]}")
    if done.returncode and not seen:
        left = [text]
    print("\n".join(left) or "snakemake --lint: clean")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
