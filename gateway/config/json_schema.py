"""The JSON Schema of run.yaml, for editors: generated from the models, shipped as `schema.json` beside this file.

python -m gateway.config.json_schema        writes it anew
"""

import json
from collections.abc import Mapping
from pathlib import Path

from gateway.config.sections.run_file import RunFile

__all__ = ["SCHEMA_FILE", "generate_schema", "main"]

SCHEMA_FILE = Path(__file__).with_name("schema.json")

_SUBSTITUTION = {"type": "string", "pattern": r"^\$\{[^}]*\}$", "description": "A lone ${...} takes the field's type."}


def generate_schema() -> str:
    """The schema as text. Numbers, booleans and words may also be given as `${...}`."""
    schema = RunFile.model_json_schema()
    definitions = {name: _open(definition) for name, definition in schema.pop("$defs").items()}
    whole = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **_open(schema),
        "title": "run.yaml",
        "$defs": {**definitions, "Substitution": _SUBSTITUTION},
    }
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def _open(schema: Mapping[str, object]) -> dict[str, object]:
    """The schema, and all in it, with `${...}` allowed where something narrower than text stands."""
    opened = {key: _open_value(key, value) for key, value in schema.items()}
    if schema.get("type") not in ("integer", "number", "boolean") and not {"enum", "const"} & schema.keys():
        return opened
    outside: dict[str, object] = {key: opened.pop(key) for key in ("title", "description", "default") if key in opened}
    return {**outside, "anyOf": [opened, {"$ref": "#/$defs/Substitution"}]}


def _open_value(key: str, value: object) -> object:
    if isinstance(value, list):
        return [_open(item) if isinstance(item, dict) else item for item in value]
    if not isinstance(value, dict) or key == "discriminator":
        return value
    if key == "properties":
        return {name: _open(child) for name, child in value.items()}
    return _open(value)


def main() -> None:
    """Write the shipped copy."""
    SCHEMA_FILE.write_text(generate_schema(), encoding="utf-8")


if __name__ == "__main__":
    main()
