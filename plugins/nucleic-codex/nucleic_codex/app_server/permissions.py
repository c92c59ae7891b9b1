"""Sets of permissions, as `item/permissions/requestApproval` asks for them: which paths they name, and how they may shrink.

A set is `{"network": {"enabled"}, "fileSystem": {"read", "write": [path], "entries": [{"path", "access"}]}}` (wire truth A13). An
entry's path is `{"type": "path", "path"}`, a pattern, or a place with a name, such as the root.
"""

from nucleic_codex.fields import mapping, sequence, string
from nucleic_core.lowlevel import JSON


def paths_of(wanted: JSON) -> list[str]:
    """Every path that a set names, patterns too."""
    files = mapping(mapping(wanted).get("fileSystem"))
    found = [*sequence(files.get("read")), *sequence(files.get("write"))]
    for entry in sequence(files.get("entries")):
        place = mapping(mapping(entry).get("path"))
        found.append(string(place.get("path")) or string(place.get("pattern")))
    return list(dict.fromkeys(path for path in found if isinstance(path, str) and path))


def granted(wanted: JSON, given: JSON) -> JSON:
    """An edited set, where it is part of what was asked for; nothing at all where any of it is not."""
    return given if isinstance(given, dict) and _within(given, wanted) else {}


def _within(given: JSON, wanted: JSON) -> bool:
    """Whether a value is no more than another: fewer fields, fewer elements, false or nothing instead of a value."""
    if given == wanted:
        return True
    if isinstance(given, dict) and isinstance(wanted, dict):
        dropped = any(_limits(value) and name not in given for name, value in wanted.items())
        return not dropped and all(_within(value, wanted.get(name)) for name, value in given.items())
    if isinstance(given, list) and isinstance(wanted, list):
        dropped = any(_limits(entry) and entry not in given for entry in wanted)
        return not dropped and all(entry in wanted for entry in given)
    return (given is None or given is False) and not _limits(wanted)


def _limits(value: JSON) -> bool:
    """Whether something in a set takes away, as a denied path or a depth do: without it the rest would grant more."""
    if isinstance(value, dict):
        return value.get("access") == "deny" or any(map(_limits, value.values()))
    return any(map(_limits, value)) if isinstance(value, list) else type(value) is int
