"""Reading fields of a wire whose types cannot be trusted: the value when it has the type, else nothing.

Whoever finds nothing where something must be leaves the message to `raw`; nobody raises.
"""

from collections.abc import Mapping
from typing import TypeVar

from nucleic_core.lowlevel import JSON

T = TypeVar("T")


def string(value: JSON) -> str | None:
    """A string, also an empty one."""
    return value if isinstance(value, str) else None


def integer(value: JSON) -> int | None:
    """A whole number; true and false are none."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def number(value: JSON) -> float | None:
    """Any number; true and false are none."""
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def mapping(value: JSON) -> dict[str, JSON]:
    """An object, or an empty one. Never written to."""
    return value if isinstance(value, dict) else {}


def sequence(value: JSON) -> list[JSON]:
    """A list, or an empty one. Never written to."""
    return value if isinstance(value, list) else []


def row(table: Mapping[str, T], key: JSON) -> T | None:
    """The row of a table, when the key is a string that has one."""
    return table.get(key) if isinstance(key, str) else None
