"""The reference implementations of tests/reference: one copy, for the tests and for `rltok bench`.

They are plain and obviously right, as a method is usually written, and belong to the checkout, not
to the installed package.
"""

import importlib.util
import sys
from functools import lru_cache
from pathlib import Path
from types import ModuleType

from rltok_core.errors import UserError

FOLDER = Path(__file__).resolve().parents[2] / "tests" / "reference"


@lru_cache
def reference(name: str, folder: Path = FOLDER) -> ModuleType:
    """The module tests/reference/NAME.py.

    Raises:
        UserError: this installed copy comes without its checkout, or with an incomplete one.
    """
    path = folder / f"{name}.py"
    if not path.is_file():
        raise UserError(
            f"{path} is missing: rltok bench compares with the reference implementations in the "
            "repository's tests/reference, so install from a checkout (pip install -e .)"
        )
    spec = importlib.util.spec_from_file_location(f"rltok_reference_{name}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
