"""The JSON Schema of transcripts and event streams, made from the classes and shipped as `events.schema.json`.

`python -m nucleic_core._schema` writes the file anew; a test fails while it is stale. It describes what we write: every
field is present. Readers should let pass fields and kinds that they do not know, for later versions add some.
"""

import json
import typing
from collections.abc import Mapping
from pathlib import Path
from types import NoneType, UnionType

import attrs

from nucleic_core._store.header import Header
from nucleic_core._values import JSON
from nucleic_core.events import DECISION_TYPES, KINDS, AgentEvent

PATH = Path(__file__).with_name("events.schema.json")

_SIMPLE: Mapping[type, JSON] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": ["number", "null"]},  # JSON has no NaN
    bool: {"type": "boolean"},
    NoneType: {"type": "null"},
    Path: {"type": "string"},
}


def schema() -> dict[str, JSON]:
    """A schema of one line: the header, or an event, whose payload is told apart by `kind`."""
    values: dict[str, JSON] = {}
    event: JSON = AgentEvent  # attrs.fields does not take what only dataclass_transform made
    envelope = {field.name: _of(field.type, values) for field in attrs.fields(event) if field.name != "data"}
    payloads = {kind: _object(cls, {**envelope, "kind": {"const": kind}}, values) for kind, cls in KINDS.items()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A line of a Nucleic transcript",
        "description": "Line 0 of a transcript is the header; every other line, and every line of `--json`, is an event.",
        "oneOf": [{"$ref": "#/$defs/header"}, {"$ref": "#/$defs/event"}],
        "$defs": {
            "header": _object(Header, {}, values),
            "event": {"description": _doc(AgentEvent), "oneOf": [{"$ref": f"#/$defs/{kind}"} for kind in payloads]},
            **payloads,
            **values,
        },
    }


def _object(cls: type, first: Mapping[str, JSON], defs: dict[str, JSON]) -> JSON:
    properties = {**first, **{field.name: _of(field.type, defs) for field in attrs.fields(cls)}}
    return {"type": "object", "description": _doc(cls), "properties": properties, "required": [*properties]}


def _of(kind: JSON, defs: dict[str, JSON]) -> JSON:
    """The schema of a field's type; classes on the way go to `defs`."""
    origin: JSON = typing.get_origin(kind)
    args = typing.get_args(kind)
    if kind is typing.Any:
        return {}
    if origin is typing.Literal:
        return {"enum": [*args]}
    if origin in (typing.Union, UnionType):
        options = [_of(arg, defs) for arg in args]
        plain = all(option.keys() == {"type"} and isinstance(option["type"], str) for option in options)
        return {"type": [option["type"] for option in options]} if plain else {"anyOf": options}
    if origin is tuple and args[-1] is Ellipsis:
        return {"type": "array", "items": _of(args[0], defs)}
    if origin is tuple:
        return {"type": "array", "prefixItems": [_of(arg, defs) for arg in args], "minItems": len(args), "items": False}
    if origin is Mapping:
        return {"type": "object", "additionalProperties": _of(args[1], defs)}
    if attrs.has(kind):
        name = kind.__name__
        if name not in defs:
            defs[name] = {}  # taken, should it come up again below
            tag = DECISION_TYPES.get(kind)
            defs[name] = _object(kind, {"type": {"const": tag}} if tag else {}, defs)
        return {"$ref": f"#/$defs/{name}"}
    return dict(_SIMPLE[kind])


def _doc(cls: type) -> str:
    return " ".join((cls.__doc__ or "").split())


def text() -> str:
    """The schema as the file holds it."""
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    PATH.write_text(text(), "utf-8")
