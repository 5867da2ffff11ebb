"""From an estimator's configuration to its class: the one place that imports estimators by name."""

import importlib
import importlib.util
import sys
from pathlib import Path

from rltok_core.boundaries.contract import Estimator
from rltok_core.config.schema import EstimatorConfig
from rltok_core.errors import UserError


def estimator_class(config: EstimatorConfig) -> type[Estimator]:
    """Import the class that `config.cls` names: 'package.module:Class' or '/path/file.py:Class'.

    Raises:
        UserError: the module or the class doesn't exist, or it isn't an Estimator.
    """
    module_name, _, class_name = config.cls.partition(":")
    try:
        if module_name.endswith(".py"):
            name = f"rltok_plugin_{Path(module_name).stem}"
            spec = importlib.util.spec_from_file_location(name, module_name)
            module = importlib.util.module_from_spec(spec)
            sys.modules[name] = module
            spec.loader.exec_module(module)
        else:
            module = importlib.import_module(module_name)
        cls = getattr(module, class_name)
    except (ImportError, FileNotFoundError, AttributeError) as error:
        raise UserError(
            f"estimator {config.label!r}: can't load class {config.cls!r}: {error}"
        ) from None
    if not (isinstance(cls, type) and issubclass(cls, Estimator)):
        raise UserError(f"estimator {config.label!r}: {config.cls!r} is not an Estimator")
    return cls


def build_estimator(
    config: EstimatorConfig, d_model: int, target_rate: float, seq_len: int
) -> Estimator:
    """Make the estimator that a run asks for. Raises UserError on wrong parameters."""
    cls = estimator_class(config)
    try:
        return cls(config.params, d_model, target_rate, seq_len)
    except (TypeError, ValueError) as error:
        raise UserError(f"estimator {config.label!r}: {error}") from None
