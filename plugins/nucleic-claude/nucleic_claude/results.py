"""What a tool's result says beyond its text: files changed, with the CLI's own diff, and an exit code.

`tool_use_result` beside a `tool_result` block is an object on success, and a string on failure (wire facts 40, 41):

| tool         | fields read                                                       | gives                                     |
|---           |---                                                                |---                                        |
| Write        | type create / update, filePath, content, structuredPatch          | add / update, diff                        |
| Edit         | filePath, structuredPatch                                         | update, diff                              |
| NotebookEdit | notebook_path, original_file, updated_file                        | update, diff                              |
| Bash (332)   | bashEditDiff: files of filePath, hunks, created; moreFiles        | add / update, diff where there are hunks  |

Lines of sub-agents often lack it; then a Write or Edit that succeeded is a change that we infer from its input
(`authoritative=False`). A change is told at the result: what was denied or failed changed nothing.
"""

import difflib
import os
import re
from collections.abc import Iterator
from pathlib import PurePath

from nucleic_claude.calls import Call
from nucleic_claude.fields import integer, mapping, row, sequence, string
from nucleic_core.events import EventData, FileChange, Notice, Raw
from nucleic_core.lowlevel import JSON

LARGEST_NOTEBOOK = 200_000
"""Characters of a notebook above which no diff is made: difflib's time grows faster than its input."""

_EXIT_CODE = re.compile(r"(?:Error: )?Exit code (\d{1,3})\b")


def exit_code(call: Call | None, is_error: bool, content: JSON) -> int | None:
    """The code in "Exit code N", with which the text of a failed shell command begins. A heuristic: it is on no wire."""
    if call is None or call.name != "Bash" or not is_error:
        return None
    text = content if isinstance(content, str) else mapping(next(iter(sequence(content)), None)).get("text")
    found = _EXIT_CODE.match(text) if isinstance(text, str) else None
    return int(found[1]) if found else None


def changes(call: Call, tool_call: str, native: JSON, content: JSON, cwd: str | None) -> Iterator[EventData]:
    """The files that a call which succeeded has changed."""
    if call.name == "Bash":
        yield from _shell_changes(mapping(mapping(native).get("bashEditDiff")), tool_call, cwd)
        return
    read = row(_EDITORS, call.name)
    if read is None:
        return
    change = read(native, tool_call, cwd) if isinstance(native, dict) else None
    if change is None:
        change = _inferred(call, tool_call, content, cwd)
    if change is not None:
        yield change


def _write(native: JSON, tool_call: str, cwd: str | None) -> FileChange | None:
    if native.get("type") != "create":
        return _edit(native, tool_call, cwd) if native.get("type") == "update" else None
    path, content = string(native.get("filePath")), string(native.get("content"))
    if path is None:
        return None
    path = absolute(path, cwd)
    diff = None if content is None else _whole(path, cwd, content)
    return FileChange("add", path, diff, authoritative=True, tool_call=tool_call)


def _edit(native: JSON, tool_call: str, cwd: str | None) -> FileChange | None:
    path = string(native.get("filePath"))
    if path is None:
        return None
    path = absolute(path, cwd)
    diff = _unified(path, cwd, native.get("structuredPatch"))
    return FileChange("update", path, diff, authoritative=True, tool_call=tool_call)


def _notebook(native: JSON, tool_call: str, cwd: str | None) -> FileChange | None:
    path, before, after = (string(native.get(field)) for field in ("notebook_path", "original_file", "updated_file"))
    if path is None or native.get("error"):
        return None
    path, diff = absolute(path, cwd), None
    if before is not None and after is not None and len(before) + len(after) <= LARGEST_NOTEBOOK:
        old, new = _headers(path, cwd)
        lines = difflib.unified_diff(before.split("\n"), after.split("\n"), old, new, lineterm="")
        diff = "\n".join((*lines, ""))
    return FileChange("update", path, diff, authoritative=True, tool_call=tool_call)


_EDITORS = {"Write": _write, "Edit": _edit, "NotebookEdit": _notebook}


def _shell_changes(edits: dict[str, JSON], tool_call: str, cwd: str | None) -> Iterator[EventData]:
    for file in sequence(edits.get("files")):
        path, hunks = string(mapping(file).get("filePath")), mapping(file).get("hunks")
        created = mapping(file).get("created") is True
        if path is None or not (created or hunks):
            yield Raw({"bashEditDiff": file})
            continue
        path = absolute(path, cwd)
        diff = _unified(path, cwd, hunks, created=created)
        yield FileChange("add" if created else "update", path, diff, authoritative=True, tool_call=tool_call)
    if more := integer(edits.get("moreFiles")):
        yield Notice(
            "files", f"The command changed {more} more files, which the agent did not list.", {"tool_call": tool_call}
        )


def _inferred(call: Call, tool_call: str, content: JSON, cwd: str | None) -> FileChange | None:
    """Without a native diff: the path from the input, and add or update from what the result's text begins with."""
    given = mapping(call.input)
    path = string(given.get("file_path")) or string(given.get("notebook_path"))
    if path is None:
        return None
    added = call.name == "Write" and isinstance(content, str) and content.startswith("File created")
    return FileChange("add" if added else "update", absolute(path, cwd), tool_call=tool_call)


def absolute(path: str, cwd: str | None) -> str:
    """A path as the model wrote it, from where the agent stands (wire fact 43)."""
    return os.path.normpath(os.path.join(cwd, path)) if cwd is not None else path  # noqa: PTH118  # text, no file asked


def _headers(path: str, cwd: str | None) -> tuple[str, str]:
    """`a/` and `b/` with the path from the agent's directory, or from the root where it lies outside."""
    pure = PurePath(path)
    if cwd is not None and pure.is_relative_to(cwd):
        pure = pure.relative_to(cwd)
    name = pure.as_posix().lstrip("/")
    return f"a/{name}", f"b/{name}"


def _unified(path: str, cwd: str | None, hunks: JSON, *, created: bool = False) -> str | None:
    """A `structuredPatch` as a unified diff; None if it has no hunks or is not understood."""
    old, new = _headers(path, cwd)
    lines = [f"--- {'/dev/null' if created else old}", f"+++ {new}"]
    for hunk in sequence(hunks):
        fields = mapping(hunk)
        numbers = [integer(fields.get(name)) for name in ("oldStart", "oldLines", "newStart", "newLines")]
        texts = sequence(fields.get("lines"))
        if None in numbers or not texts or not all(isinstance(text, str) for text in texts):
            return None
        lines.append("@@ -{},{} +{},{} @@".format(*numbers))
        lines += texts
    return "\n".join((*lines, "")) if len(lines) > 2 else None


def _whole(path: str, cwd: str | None, content: str) -> str | None:
    """The diff of a file that is new: its whole content."""
    if not content:
        return None
    ends_well = content.endswith("\n")
    added = "+" + (content[:-1] if ends_well else content).replace("\n", "\n+")
    count = content.count("\n") + (not ends_well)
    head = f"--- /dev/null\n+++ {_headers(path, cwd)[1]}\n@@ -0,0 +1,{count} @@\n"
    return f"{head}{added}\n" if ends_well else f"{head}{added}\n\\ No newline at end of file\n"
