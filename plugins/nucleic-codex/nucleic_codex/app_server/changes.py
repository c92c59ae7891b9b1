"""Changes of files as Codex writes them, as our events and as unified diffs.

A change is `{path, kind: {type, move_path}, diff}` (wire truth A12). `diff` is the plain content of a file that is added or
deleted, and bare hunks of one that is updated; where it is moved too, with `Moved to: ...` below them.
"""

import os
from collections.abc import Iterator
from pathlib import PurePath

from nucleic_codex.fields import mapping, sequence, string
from nucleic_core.events import EventData, FileChange, Raw
from nucleic_core.lowlevel import JSON

_KINDS = ("add", "update", "delete")


def edit_input(changes: JSON) -> JSON:
    """The input of the call `Edit`: what is to change in which file, in the order of the patch."""
    return {"changes": [_plain(change) for change in sequence(changes)]}


def _plain(change: JSON) -> JSON:
    fields = mapping(change)
    kind = mapping(fields.get("kind"))
    moved = {"move_path": kind["move_path"]} if kind.get("move_path") else {}
    return {"path": fields.get("path"), "kind": kind.get("type"), **moved, "diff": fields.get("diff")}


def touched(given: JSON) -> list[str]:
    """Every path that an `Edit` with this input writes, moves to or deletes."""
    paths = [mapping(change).get(name) for change in sequence(mapping(given).get("changes")) for name in _PATHS]
    return list(dict.fromkeys(path for path in paths if isinstance(path, str) and path))


_PATHS = ("path", "move_path")


def destroys(given: JSON) -> bool:
    """Whether an `Edit` deletes a file, or moves one onto itself, which Codex carries out as a deletion."""
    for change in map(mapping, sequence(mapping(given).get("changes"))):
        path, target = string(change.get("path")), string(change.get("move_path"))
        if change.get("kind") not in ("add", "update"):
            return True
        if path is not None and target is not None and os.path.normpath(path) == os.path.normpath(target):
            return True
    return False


def file_changes(changes: JSON, tool_call: str, cwd: str | None) -> Iterator[EventData]:
    """One `file_change` for each change that was applied; what is not understood is raw."""
    for change in sequence(changes):
        fields = mapping(change)
        kind = mapping(fields.get("kind"))
        path, what, target = string(fields.get("path")), kind.get("type"), string(kind.get("move_path"))
        if path is None or what not in _KINDS:
            yield Raw({"change": change})
            continue
        diff = string(fields.get("diff")) or ""
        match what:
            case "add":
                told = FileChange("add", path, _whole(path, diff, cwd, "+"))
            case "delete":
                told = FileChange("delete", path, _whole(path, diff, cwd, "-"))
            case _ if target is None:
                told = FileChange("update", path, _hunks(path, path, diff, cwd))
            case _:
                hunks = diff.removesuffix(f"\n\nMoved to: {target}")
                told = FileChange("rename", target, _hunks(path, target, hunks, cwd), old_path=path)
        yield told.but(authoritative=True, tool_call=tool_call)


def _name(path: str, cwd: str | None) -> str:
    """A path from the agent's directory, or from the root where it lies outside."""
    pure = PurePath(path)
    if cwd is not None and pure.is_relative_to(cwd):
        pure = pure.relative_to(cwd)
    return pure.as_posix().lstrip("/")


def _hunks(old: str, new: str, hunks: str, cwd: str | None) -> str | None:
    if not hunks.strip():
        return None
    ends = "" if hunks.endswith("\n") else "\n"
    return f"--- a/{_name(old, cwd)}\n+++ b/{_name(new, cwd)}\n{hunks}{ends}"


def _whole(path: str, content: str, cwd: str | None, sign: str) -> str | None:
    """The diff of a file that came into being, or ceased to be: its whole content."""
    if not content:
        return None
    ends_well = content.endswith("\n")
    body = sign + (content[:-1] if ends_well else content).replace("\n", f"\n{sign}")
    count = content.count("\n") + (not ends_well)
    if sign == "+":
        head = f"--- /dev/null\n+++ b/{_name(path, cwd)}\n@@ -0,0 +1,{count} @@\n"
    else:
        head = f"--- a/{_name(path, cwd)}\n+++ /dev/null\n@@ -1,{count} +0,0 @@\n"
    return f"{head}{body}\n" if ends_well else f"{head}{body}\n\\ No newline at end of file\n"
