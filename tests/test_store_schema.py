"""The shipped JSON Schema is made from the classes, is not stale, and takes what we write."""

import json
import types
import typing
from collections.abc import Mapping
from pathlib import Path

import attrs
import jsonschema
import pytest

from nucleic_core import _schema
from nucleic_core._store.header import Header
from nucleic_core.events import KINDS, AgentEvent

SHIPPED = json.loads(_schema.PATH.read_text("utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(SHIPPED)


def samples(kind):
    """A few values of a field type, every branch of it among them."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return [*args]
    if origin in (typing.Union, types.UnionType):
        return [value for arg in args for value in samples(arg)]
    if origin is tuple and args[-1] is Ellipsis:
        return [(), tuple(samples(args[0]))]
    if origin is tuple:
        return [tuple(samples(arg)[0] for arg in args)]
    if origin is Mapping:
        return [{}, {"a": samples(args[1])[0]}]
    if attrs.has(kind):
        choices = {field.name: samples(field.type) for field in attrs.fields(kind)}
        most = max(map(len, choices.values()))
        return [kind(**{name: values[i % len(values)] for name, values in choices.items()}) for i in range(most)]
    if kind is typing.Any:
        return [None, {"x": [1, "y"]}]
    return {str: ["text"], int: [7], float: [0.5, 3], bool: [True], types.NoneType: [None], Path: [Path("/p")]}[kind]


EVENTS = [
    AgentEvent(1, at, "s", "demo", native, None, data)
    for cls in KINDS.values()
    for data in samples(cls)
    for at, native in [(None, "x"), ("2026-01-01T00:00:00.000000Z", None)]
]


def test_the_shipped_file_is_not_stale():
    assert _schema.PATH.read_text("utf-8") == _schema.text(), "run `python -m nucleic_core._schema`"


def test_the_schema_is_a_valid_schema():
    jsonschema.Draft202012Validator.check_schema(SHIPPED)


def test_every_event_that_we_write_is_valid_and_of_its_kind_alone():
    assert {event.kind for event in EVENTS} == set(KINDS)
    for event in EVENTS:
        VALIDATOR.validate(event.to_json())


def test_a_header_is_valid():
    header = Header(nucleic_version="0.1.0", session="s", backend="demo", cwd="/", created_at="2026-01-01T00:00:00Z")
    VALIDATOR.validate(json.loads(header.to_line()))


@pytest.mark.parametrize("changes", [{"seq": "1"}, {"kind": "telepathy"}, {"text": 5}, {"partial": None}])
def test_an_odd_event_is_not_valid(changes):
    good = {"seq": 1, "at": None, "session": "s", "backend": "b", "native": None, "parent": None, "kind": "thinking"}
    good |= {"text": "", "message_id": None, "block": None, "partial": False}
    VALIDATOR.validate(good)
    assert not VALIDATOR.is_valid(good | changes)


def test_every_payload_has_a_description():
    assert all(SHIPPED["$defs"][kind]["description"] for kind in KINDS)
