"""TOML files that people write, read into classes; every mistake is told with its line."""

import tomllib
from pathlib import Path
from typing import TypeVar

import attrs

from nucleic_core._structure import strict_converter
from nucleic_core._values import JSON
from nucleic_core.errors import BadSettings

_T = TypeVar("_T")
_Place = tuple[str | int, ...]


def read_toml(path: Path, cls: type[_T]) -> _T:
    """The file as an instance of an attrs class, without coercion and without unknown keys. Raises BadSettings."""
    try:
        text = path.read_bytes().decode()
        content = tomllib.loads(text)
    except OSError as exc:
        raise BadSettings(f"cannot read {path}: {exc.strerror}.") from exc
    except ValueError as exc:  # tomllib's names the line itself
        raise BadSettings(f"{path} is no valid TOML: {exc}.") from exc
    from cattrs import BaseValidationError

    try:
        return strict_converter(known_keys_only=True).structure(content, cls)
    except BaseValidationError as exc:
        place, what = _first_mistake(exc, ())
        raise mistake(path, place, what) from exc


def mistake(path: Path, place: _Place, what: str) -> BadSettings:
    """The error for a value at this place of a file that could be parsed; a place that is not there means its table."""
    text = path.read_text("utf-8")
    return BadSettings(f"{path}, line {_line(text, place)}: {what}.")


def _first_mistake(exc: BaseException, above: _Place) -> tuple[_Place, str]:
    from cattrs import AttributeValidationNote, BaseValidationError, ForbiddenExtraKeysError, IterableValidationNote

    place = above
    for note in reversed(getattr(exc, "__notes__", [])):
        if isinstance(note, AttributeValidationNote):
            place += (note.name,)
        elif isinstance(note, IterableValidationNote):
            place += (note.index,)
    match exc:
        case BaseValidationError():
            # A misspelt key explains a missing one.
            misspelt = (sub for sub in exc.exceptions if isinstance(sub, ForbiddenExtraKeysError))
            return _first_mistake(next(misspelt, exc.exceptions[0]), place)
        case ForbiddenExtraKeysError():
            key = min(exc.extra_fields)
            known = ", ".join(field.name for field in attrs.fields(exc.cl))
            return (*place, key), f"unknown key `{key}`; known here are {known}"
        case KeyError():
            return place[:-1], f"`{place[-1]}` is missing"
        case _:
            return place, f"`{place[-1]}` {exc}"


def _line(text: str, place: _Place) -> int:
    """The line where the value begins; tomllib does not say, so it is asked when the value first appears."""
    lines = text.splitlines()
    begin = 1
    for n in range(1, len(lines) + 1):
        try:
            content = tomllib.loads("\n".join(lines[:n]))
        except ValueError:
            continue  # in the midst of a value of several lines
        if _has(content, place):
            return begin
        begin = n + 1
    return _line(text, place[:-1]) if place else 1


def _has(content: JSON, place: _Place) -> bool:
    for step in place:
        try:
            content = content[step]
        except (LookupError, TypeError):
            return False
    return True
