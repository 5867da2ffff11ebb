"""docs/tables-and-figures.md names every table and figure that there is, and no other."""

import re
from pathlib import Path

from rltok_core.report.products import PRODUCTS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tables-and-figures.md"


def test_every_product_is_in_the_list():
    tables = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line[:1] == "|"]
    named = set(re.findall(r"`(\w+)`", "\n".join(tables)))
    assert set(PRODUCTS) <= named
