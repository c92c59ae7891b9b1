"""A cattrs converter that takes JSON as it is: cattrs coerces silently (`"1"` becomes 1, a string a tuple of letters).

Used where speed does not matter: settings, rules, transcripts read back. cattrs is imported on first use only.
"""

import typing
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from nucleic_core._values import JSON
from nucleic_core.approvals import Allow, AllowAlways, CancelRun, Decision, Deny
from nucleic_core.events import DECISION_TYPES

if TYPE_CHECKING:
    from cattrs import Converter

_WORDS = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "a table",
}


def _strictly(expected: type, *also: type) -> Callable[[JSON, JSON], JSON]:
    """A hook that passes exactly these types: `type is`, since bool is an int to isinstance."""
    accepted = (expected, *also)

    def check(value: JSON, _: JSON) -> JSON:
        if type(value) not in accepted:
            raise TypeError(f"must be {_WORDS[expected]}")
        return value

    return check


@cache
def strict_converter(*, known_keys_only: bool) -> "Converter":
    """The converter of files people write (`known_keys_only`: an unknown key is an error), or of our own older ones."""
    from cattrs import Converter  # 40 ms that a run never needs

    converter = Converter(forbid_extra_keys=known_keys_only, detailed_validation=known_keys_only)
    for kind in (str, int, bool):
        converter.register_structure_hook(kind, _strictly(kind))
    converter.register_structure_hook(float, _strictly(float, int))
    converter.register_structure_hook(Path, lambda value, _: Path(_strictly(str)(value, _)))
    converter.register_structure_hook(Decision, lambda value, _: _decision(converter, value))
    converter.register_structure_hook_factory(attrs.has, partial(_class_hook, converter))
    converter.register_structure_hook_func(lambda kind: _made_of(kind, typing.Literal), _literal)
    converter.register_structure_hook_factory(lambda kind: _made_of(kind, tuple), partial(_tuple_hook, converter))
    converter.register_structure_hook_factory(lambda kind: _made_of(kind, Mapping), partial(_mapping_hook, converter))
    return converter


def _made_of(kind: JSON, origin: JSON) -> bool:
    found: JSON = typing.get_origin(kind)
    return bool(found is origin)


def _literal(value: JSON, kind: JSON) -> JSON:
    words = typing.get_args(kind)
    if value not in words:
        raise ValueError(f"must be one of {', '.join(words)}")
    return value


def _class_hook(converter: "Converter", cls: JSON) -> Callable[[JSON, JSON], JSON]:
    from cattrs.gen import make_dict_structure_fn

    read = make_dict_structure_fn(
        cls,
        converter,
        _cattrs_forbid_extra_keys=converter.forbid_extra_keys,
        _cattrs_detailed_validation=converter.detailed_validation,
    )
    as_dict = _strictly(dict)
    return lambda value, kind: read(as_dict(value, kind), kind)


def _tuple_hook(converter: "Converter", kind: JSON) -> Callable[[JSON, JSON], JSON]:
    items = typing.get_args(kind)
    hooks = [(converter.get_structure_hook(item), item) for item in items if item is not Ellipsis]
    as_list = _strictly(list)

    def read(value: JSON, _: JSON) -> JSON:
        as_list(value, _)
        each = hooks * len(value) if items[-1] is Ellipsis else hooks
        return tuple(_at(i, *hook, x) for i, (x, hook) in enumerate(zip(value, each, strict=True)))

    return read


def _mapping_hook(converter: "Converter", kind: JSON) -> Callable[[JSON, JSON], JSON]:
    _, item = typing.get_args(kind)
    hook = converter.get_structure_hook(item)
    as_dict = _strictly(dict)

    def read(value: JSON, _: JSON) -> JSON:
        as_dict(value, _)
        return {key: _at(key, hook, item, x) for key, x in value.items()}

    return read


def _at(place: int | str, hook: Callable[[JSON, JSON], JSON], kind: JSON, value: JSON) -> JSON:
    """A member of a list or table; an error says which one, as cattrs' own hooks do."""
    try:
        return hook(value, kind)
    except Exception as exc:
        from cattrs import IterableValidationNote

        exc.add_note(IterableValidationNote(f"at {place!r}", place, kind))
        raise


_DECISIONS = {word: cls for cls, word in DECISION_TYPES.items() if cls in (Allow, AllowAlways, Deny, CancelRun)}


def _decision(converter: "Converter", value: JSON) -> JSON:
    return converter.structure(value, _DECISIONS[value["type"]])
