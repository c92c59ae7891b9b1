"""The items of `codex exec --json` as events: what the agent says, and its tool calls.

| item              | started                  | updated      | completed                                   |
|-------------------|--------------------------|--------------|---------------------------------------------|
| agent_message     |                          |              | assistant_text                              |
| reasoning         |                          |              | thinking                                    |
| command_execution | call Bash                | tool_output  | its result, with the exit code              |
| file_change       | call Edit                |              | its result, a file_change for each path     |
| mcp_tool_call     | call mcp__server__tool   |              | its result                                  |
| web_search        | call WebSearch, begun    |              | its query, its result (the wire has none)   |
| todo_list         | plan                     | plan         | plan, when it changed                       |
| error             |                          |              | notice: a warning                           |

An item's id is its call's; calls are told apart by nothing else. Ids count from `item_0` in every process. A web search has
the key `id` twice (wire fact 68), and JSON's reader keeps the last, the provider's own: it is the same in both of its
messages, so they meet all the same.
"""

from collections.abc import Callable
from typing import TypeAlias

from nucleic_codex.exec.unseen import REFUSAL, Unseen, line_of, refused
from nucleic_codex.fields import integer, mapping, row, sequence, string
from nucleic_codex.tools import BASH, EDIT, SEARCH, mcp_name
from nucleic_core.backend import Out
from nucleic_core.events import (
    AssistantText,
    EventData,
    FileChange,
    Notice,
    Plan,
    Raw,
    Thinking,
    ToolCallCompleted,
    ToolCallStarted,
    ToolOutput,
    ToolResult,
)
from nucleic_core.lowlevel import JSON

Reader: TypeAlias = Callable[[str, dict[str, JSON], str, Out], bool]
"""Reads an item of one type: (phase, item, native name, out). False: not understood."""

STARTED, UPDATED, COMPLETED = "item.started", "item.updated", "item.completed"
CHANGES = frozenset({"add", "update", "delete"})


class Items:
    """The items of one process. `last_text` is the last message of the agent."""

    def __init__(self, unseen: Unseen) -> None:
        self._unseen = unseen
        self._begun: set[str] = set()
        self._output: dict[str, str] = {}
        self._plan: tuple[JSON, ...] | None = None
        self.last_text: str | None = None
        self._readers: dict[str, Reader] = {
            "agent_message": self._message,
            "reasoning": self._reasoning,
            "command_execution": self._command,
            "file_change": self._file_change,
            "mcp_tool_call": self._mcp,
            "web_search": self._search,
            "todo_list": self._todo,
            "error": self._warning,
        }

    def read(self, phase: str, item: JSON, out: Out) -> bool:
        """One item message; False when it is not understood."""
        fields = mapping(item)
        kind = fields.get("type")
        reader = row(self._readers, kind)
        if reader is None or not isinstance(fields.get("id"), str):
            return False
        return reader(phase, fields, f"{phase}/{kind}", out)

    # -- words ------------------------------------------------------------------------------------------------------

    def _message(self, phase: str, item: dict[str, JSON], native: str, out: Out) -> bool:
        text = item.get("text")
        if phase != COMPLETED or not isinstance(text, str):
            return False
        self.last_text = text
        out.event(AssistantText(text, block=item["id"]), native)
        return True

    def _reasoning(self, phase: str, item: dict[str, JSON], native: str, out: Out) -> bool:
        text = item.get("text")
        if phase != COMPLETED or not isinstance(text, str):
            return False
        out.event(Thinking(text, block=item["id"]), native)
        return True

    def _todo(self, phase: str, item: dict[str, JSON], native: str, out: Out) -> bool:
        """The whole list each time; at the turn's end it is repeated."""
        entries: list[JSON] = []
        for entry in sequence(item.get("items")):
            match entry:
                case {"text": str(text), "completed": bool(done)}:
                    entries.append({"content": text, "status": "completed" if done else "pending"})
                case _:
                    return False
        if tuple(entries) != self._plan:
            self._plan = tuple(entries)
            out.event(Plan(self._plan), native)
        return True

    def _warning(self, phase: str, item: dict[str, JSON], native: str, out: Out) -> bool:
        """Not an error of the turn, in spite of its name: odd settings, another model than before."""
        message = item.get("message")
        if phase != COMPLETED or not isinstance(message, str):
            return False
        out.event(Notice("warning", message), native)
        return True

    # -- tool calls -------------------------------------------------------------------------------------------------

    def _begin(self, call: ToolCallCompleted, native: str, out: Out) -> None:
        if call.tool_call not in self._begun:
            self._begun.add(call.tool_call)
            out.event(call, native)

    def _command(self, phase: str, item: dict[str, JSON], native: str, out: Out) -> bool:
        call, line = item["id"], line_of(item.get("command"))
        if line is None:
            return False
        if call not in self._begun:
            self._unseen.command(call, line)
        self._begin(ToolCallCompleted(call, BASH, {"command": line}, "command_execution"), native, out)
        output, code = string(item.get("aggregated_output")), integer(item.get("exit_code"))
        if phase == UPDATED:
            before, self._output[call] = self._output.get(call, ""), output or ""
            if output is not None and output != before:
                out.event(ToolOutput(call, output.removeprefix(before)), native)
        elif phase == COMPLETED:
            self._unseen.done(call)
            failed = item.get("status") != "completed"
            source = None if code is None else "literal"
            out.event(ToolResult(call, output, failed, exit_code=code, exit_code_source=source), native)  # type: ignore[arg-type]
        return True

    def _file_change(self, phase: str, item: dict[str, JSON], native: str, out: Out) -> bool:
        """What was changed, not how: exec has no diff."""
        call, changes = item["id"], item.get("changes")
        events: list[EventData] = []
        for change in sequence(changes):
            match change:
                case {"path": str(path), "kind": str(kind)} if kind in CHANGES:
                    events.append(FileChange(kind, path, authoritative=True, tool_call=call))  # type: ignore[arg-type]
                case _:
                    events.append(Raw(change))
        if not isinstance(changes, list):
            return False
        self._begin(ToolCallCompleted(call, EDIT, {"changes": changes}, "file_change"), native, out)
        if phase == COMPLETED:
            failed = item.get("status") != "completed"
            out.event(ToolResult(call, None, failed), native)
            for event in events:
                if not failed or isinstance(event, Raw):
                    out.event(event, native)
        return True

    def _mcp(self, phase: str, item: dict[str, JSON], native: str, out: Out) -> bool:
        call, server, tool = item["id"], item.get("server"), item.get("tool")
        if not isinstance(server, str) or not isinstance(tool, str):
            return False
        name = mcp_name(server, tool)
        self._begin(ToolCallCompleted(call, name, item.get("arguments"), f"{server}.{tool}"), native, out)
        if phase == COMPLETED:
            failed, result = item.get("status") != "completed", mapping(item.get("result"))
            error = string(mapping(item.get("error")).get("message"))
            out.event(ToolResult(call, result.get("content") if error is None else error, failed), native)
            if failed and error is not None and REFUSAL.search(error):
                refused(out, name, error, native, source="codex:exec:mcp_tool_call")
        return True

    def _search(self, phase: str, item: dict[str, JSON], native: str, out: Out) -> bool:
        """The provider searched. The query is empty until the search is over, and what was found is not told."""
        call, query = item["id"], item.get("query")
        if not isinstance(query, str):
            return False
        if phase != COMPLETED:
            out.event(ToolCallStarted(call, SEARCH, native_name="web_search"), native)
            return True
        given = {"query": query, "action": item["action"]} if "action" in item else {"query": query}
        out.event(ToolCallCompleted(call, SEARCH, given, "web_search"), native)
        out.event(ToolResult(call, None), native)
        return True
