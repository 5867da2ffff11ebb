"""Strict reading of YAML into frozen pydantic models: unknown keys are errors with a suggestion."""

import difflib
import hashlib
import json
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from rltok_core.errors import UserError


class Strict(BaseModel):
    """Base of every configuration class: frozen, and an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


T = TypeVar("T", bound=BaseModel)


def nearest(name: str, valid: list[str]) -> str:
    """Return ' (did you mean X?)' for a misspelt name, or the list of valid names."""
    close = difflib.get_close_matches(str(name), valid, n=1, cutoff=0.6)
    return f" (did you mean {close[0]!r}?)" if close else f" (valid: {', '.join(sorted(valid))})"


def _keys_at(model: type[BaseModel], location: tuple) -> list[str]:
    """The valid keys of the model that `location` (a pydantic error path) lies in.

    A path holds field names, list indices and, in a union, the tag of the class that was meant.
    """
    choices = [model]
    for part in location[:-1]:
        if part in model.model_fields:
            choices = _models_in(model.model_fields[part].annotation)
        elif isinstance(part, str):
            choices = [m for m in choices if part in _tags(m)] or choices
        if len(choices) == 1:
            model = choices[0]
    return [field.alias or name for name, field in model.model_fields.items()]


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    """Every model class named in a type such as Optional[M], list[Annotated[M, ...]] or M | N."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in get_args(annotation) for model in _models_in(inner)]


def _tags(model: type[BaseModel]) -> tuple:
    """The values of a source's `kind`, which tell the classes of the union apart."""
    return get_args(model.model_fields["kind"].annotation) if "kind" in model.model_fields else ()


def parse(model: type[T], values: Any, where: str) -> T:
    """Validate `values` as `model`; `where` names the file for the error message.

    Raises:
        UserError: one message that names `where`, every offending key and what was expected.
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        problems = []
        for item in error.errors():
            key = ".".join(str(part) for part in item["loc"]) or "(top level)"
            if item["type"] == "extra_forbidden":
                hint = nearest(item["loc"][-1], _keys_at(model, item["loc"]))
                problems.append(f"unknown key {key!r}{hint}")
            elif item["type"] == "string_type":
                problems.append(
                    f"key {key!r}: expected text, got {item['input']!r}; quote it in YAML "
                    f"(on Snakemake's command line, which drops quotes: '{key}=!!str ...')"
                )
            else:
                problems.append(f"key {key!r}: {item['msg']} (got {item.get('input')!r})")
        raise UserError(f"{where}: " + "; ".join(problems)) from None


class _UniqueKeyLoader(yaml.SafeLoader):
    """SafeLoader that refuses a key given twice, where PyYAML would keep the last in silence."""

    def construct_mapping(self, node, deep=False):
        seen = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":  # <<: *anchor, which super() resolves
                continue
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, (str, int)) and key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {key!r} is given twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


def read_yaml(path: Path) -> dict:
    """Read a YAML mapping.

    Raises:
        UserError: the file is missing, is not YAML (with the line), or is not a mapping.
    """
    path = Path(path)
    if not path.is_file():
        siblings = [p.stem for p in path.parent.glob("*.yaml")] if path.parent.is_dir() else []
        hint = nearest(path.stem, siblings) if siblings else ""
        raise UserError(f"{path}: no such file{hint}")
    try:
        values = yaml.load(path.read_text(encoding="utf-8"), _UniqueKeyLoader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(values, dict):
        raise UserError(f"{path}: expected a mapping of keys, got {type(values).__name__}")
    return values


def merge(base: dict, over: dict) -> dict:
    """Return `base` with `over` laid on top, mappings merged key by key."""
    merged = dict(base)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = merge(merged[key], value) if both else value
    return merged


def digest(values: Any) -> str:
    """sha256 (hex) of the canonical JSON of `values`: key order and number spelling don't matter.

    1, 1.0 and 1e0 are one number, so that gamma: 1 and gamma: 1.0 are one run.
    """
    text = json.dumps(_canonical(values), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _canonical(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _canonical(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_canonical(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
