"""Items (`item/started`, `item/completed`) as events: what is said, and every tool call with its result.

| item                                | started               | completed                                                     |
|---                                  |---                    |---                                                            |
| agentMessage, reasoning, plan       |                       | assistant_text, thinking, plan                                |
| userMessage                         | what became of ours; the prompt of a sub-agent is a notice                            |
| commandExecution, mcpToolCall,      | call                  | result; exit code as the wire has it                          |
|   dynamicToolCall, imageView, sleep |                       |                                                               |
| fileChange                          | call                  | result, and a file_change for each change that was applied    |
| webSearch, imageGeneration          | call without input    | call with its input, result                                   |
| collabAgentToolCall                 | call `Agent`          | result: the states of the agents                              |
| subAgentActivity                    | call `Agent`, if it   | result, at once: Codex does not wait for an agent that it     |
|                                     | started one           | started; of other activities a notice                         |
| functionCallOutput                  |                       | result of a call that was not shown                           |
| hookPrompt, contextCompaction,      |                       | notice                                                        |
|   entered-, exitedReviewMode        |                       |                                                               |

A completed item that never started is told as a call all the same (A20). Unknown types are raw.
"""

from collections.abc import Callable
from typing import TypeAlias

from nucleic_codex.app_server.blocks import PLAN, TEXT, THINKING, Blocks
from nucleic_codex.app_server.calls import Call, Calls
from nucleic_codex.app_server.changes import edit_input, file_changes
from nucleic_codex.app_server.inputs import Inputs
from nucleic_codex.app_server.threads import Thread, Threads
from nucleic_codex.fields import integer, mapping, row, sequence, string
from nucleic_codex.tools import AGENT, BASH, EDIT, READ, SEARCH, bare_command, mcp_name
from nucleic_core.backend import Out
from nucleic_core.events import Notice, ToolResult
from nucleic_core.lowlevel import JSON

Item: TypeAlias = dict[str, JSON]
Reader: TypeAlias = Callable[[Thread, Item, bool, str, Out], bool]
"""(thread, item, whether it is complete, native name, out). False: not understood."""


class Items:
    """The items of one process."""

    def __init__(self, threads: Threads, blocks: Blocks, calls: Calls, inputs: Inputs, cwd: str | None) -> None:
        self._threads, self._blocks, self._calls, self._inputs = threads, blocks, calls, inputs
        self.cwd = cwd
        self._types: dict[str, Reader] = {
            "userMessage": self._user_message,
            "agentMessage": self._agent_message,
            "reasoning": self._reasoning,
            "plan": self._plan,
            "commandExecution": self._command,
            "fileChange": self._file_change,
            "mcpToolCall": self._mcp,
            "dynamicToolCall": self._dynamic,
            "webSearch": self._search,
            "imageView": self._image_view,
            "imageGeneration": self._image_generation,
            "sleep": self._sleep,
            "collabAgentToolCall": self._collab,
            "subAgentActivity": self._activity,
            "functionCallOutput": self._function_output,
            "hookPrompt": self._hook_prompt,
            "contextCompaction": self._compaction,
            "enteredReviewMode": self._review,
            "exitedReviewMode": self._review,
        }

    def read(self, thread: Thread, params: Item, done: bool, method: str, out: Out) -> bool:
        """One notification with an item; False if it is not understood."""
        item = params.get("item")
        if not isinstance(item, dict) or not isinstance(item.get("id"), str):
            return False
        reader = row(self._types, item.get("type"))
        return reader is not None and reader(thread, item, done, f"{method}/{item['type']}", out)

    # -- words ------------------------------------------------------------------------------------------------------

    def _user_message(self, thread: Thread, item: Item, done: bool, native: str, out: Out) -> bool:
        content = item.get("content")
        if not isinstance(content, list):
            return False
        if thread is self._threads.root:
            if not done and thread.turn is not None and thread.turn.took_input:
                self._blocks.flush(thread, out)  # steered: what was being said is broken off, or complete already
            self._inputs.taken(string(item.get("clientId")), thread, native, out)
        elif done:
            texts = [text for part in content if (text := string(mapping(part).get("text"))) is not None]
            out.event(Notice("prompt", "\n".join(texts)), native, thread.parent)
        return True

    def _agent_message(self, thread: Thread, item: Item, done: bool, native: str, out: Out) -> bool:
        text = item.get("text")
        if not isinstance(text, str):
            return False
        if done:
            self._blocks.whole(thread, TEXT, item["id"], text, native, out)
        return True

    def _reasoning(self, thread: Thread, item: Item, done: bool, native: str, out: Out) -> bool:
        """Each part is a block; reasoning that is kept secret has none."""
        parts = {name: item.get(name) for name in ("summary", "content")}
        if not all(isinstance(texts, list) or texts is None for texts in parts.values()):
            return False
        for name, texts in parts.items():
            for number, text in enumerate(texts or ()):
                if not isinstance(text, str):
                    return False
                if done:
                    self._blocks.whole(thread, THINKING, f"{item['id']}/{name}/{number}", text, native, out)
        return True

    def _plan(self, thread: Thread, item: Item, done: bool, native: str, out: Out) -> bool:
        text = item.get("text")
        if done and isinstance(text, str):
            self._blocks.whole(thread, PLAN, item["id"], text, native, out)
        return isinstance(text, str)

    # -- tool calls -------------------------------------------------------------------------------------------------

    def _command(self, thread: Thread, item: Item, done: bool, native: str, out: Out) -> bool:
        command = item.get("command")
        if not isinstance(command, str):
            return False
        given = command_input(command, item.get("cwd"))
        call = self._call(thread, item, BASH, given, native, out)
        call.process = item.get("processId") is not None
        if done:
            output, code = string(item.get("aggregatedOutput")), integer(item.get("exitCode"))
            content = call.output if output is None else output
            self._result(thread, item, content or _unsaid(item), native, out, code=code)
        return True

    def _file_change(self, thread: Thread, item: Item, done: bool, native: str, out: Out) -> bool:
        changes = item.get("changes")
        if not isinstance(changes, list):
            return False
        self._call(thread, item, EDIT, edit_input(changes), native, out)
        if done:
            self._result(thread, item, _unsaid(item), native, out)
            if item.get("status") == "completed":
                for change in file_changes(changes, item["id"], self.cwd):
                    out.event(change, native, thread.parent)
        return True

    def patched(self, thread: Thread, params: Item, native: str, out: Out) -> bool:
        """`item/fileChange/patchUpdated`: the changes of a patch that is still being written."""
        call, changes = self._calls.get(thread, params.get("itemId")), params.get("changes")
        if call is None or not isinstance(changes, list):
            return False
        call.item = {**mapping(call.item), "changes": changes}
        return True

    def _mcp(self, thread: Thread, item: Item, done: bool, native: str, out: Out) -> bool:
        server, tool = item.get("server"), item.get("tool")
        if not isinstance(server, str) or not isinstance(tool, str):
            return False
        name = mcp_name(server, tool)
        self._call(thread, item, name, item.get("arguments"), native, out, f"{server}.{tool}")
        if done:
            error = string(mapping(item.get("error")).get("message"))
            content = mapping(item.get("result")).get("content") if error is None else error
            self._result(thread, item, content, native, out)
        return True

    def _dynamic(self, thread: Thread, item: Item, done: bool, native: str, out: Out) -> bool:
        tool, namespace = item.get("tool"), string(item.get("namespace"))
        if not isinstance(tool, str):
            return False
        name = f"{namespace}.{tool}" if namespace else tool
        self._call(thread, item, name, item.get("arguments"), native, out, name)
        if done:
            failed = item.get("success") is False
            self._result(thread, item, item.get("contentItems"), native, out, failed=failed)
        return True

    def _search(self, thread: Thread, item: Item, done: bool, native: str, out: Out) -> bool:
        query = item.get("query")
        if not isinstance(query, str):
            return False
        action = mapping(item.get("action"))
        given = {"query": query, **({"action": action} if action.get("type") != "other" else {})}
        self._late_input(thread, item, SEARCH, given, done, native, out)
        if done:
            self._result(thread, item, item.get("results"), native, out)
        return True

    def _image_view(self, thread: Thread, item: Item, done: bool, native: str, out: Out) -> bool:
        path = item.get("path")
        if not isinstance(path, str):
            return False
        self._call(thread, item, READ, {"file_path": path}, native, out)
        if done:
            self._result(thread, item, None, native, out)
        return True

    def _image_generation(self, thread: Thread, item: Item, done: bool, native: str, out: Out) -> bool:
        """The picture itself is left out where it lies in a file."""
        given = {"prompt": item.get("revisedPrompt")}
        self._late_input(thread, item, "imageGeneration", given, done, native, out)
        if done:
            where = item.get("savedPath") or item.get("fileId") or item.get("result")
            self._result(thread, item, where, native, out)
        return True

    def _sleep(self, thread: Thread, item: Item, done: bool, native: str, out: Out) -> bool:
        self._call(thread, item, "sleep", {"duration_ms": item.get("durationMs")}, native, out)
        if done:
            self._result(thread, item, None, native, out)
        return True

    # -- sub-agents -------------------------------------------------------------------------------------------------

    def _collab(self, thread: Thread, item: Item, done: bool, native: str, out: Out) -> bool:
        tool = item.get("tool")
        if not isinstance(tool, str):
            return False
        agents = sequence(item.get("receiverThreadIds"))
        if tool == "spawnAgent":
            for agent in agents:
                self._threads.explain(agent, item["id"], string(item.get("model")))
        given = {"action": tool, "agents": agents, "prompt": item.get("prompt"), "model": item.get("model")}
        given = {name: value for name, value in given.items() if value not in (None, [])}
        self._call(thread, item, AGENT, given, native, out, tool)
        if done:
            self._result(thread, item, item.get("agentsStates") or None, native, out)
        return True

    def _activity(self, thread: Thread, item: Item, done: bool, native: str, out: Out) -> bool:
        kind, agent, path = (string(item.get(name)) for name in ("kind", "agentThreadId", "agentPath"))
        if kind is None or agent is None:
            return False
        if kind == "started":
            model = string(item.get("model"))
            self._threads.explain(agent, item["id"], model)
            given = {"action": "spawnAgent", "agents": [agent], "name": path, "model": model}
            given = {name: value for name, value in given.items() if value is not None}
            self._call(thread, item, AGENT, given, native, out)
            if done:
                self._result(thread, item, f"Started {path or agent}; it goes on by itself.", native, out, failed=False)
        elif done:
            detail = {"thread": agent, "kind": kind}
            out.event(Notice("agent", f"Sub-agent {path or agent}: {kind}.", detail), native, thread.parent)
        return True

    # -- the rest ---------------------------------------------------------------------------------------------------

    def _function_output(self, thread: Thread, item: Item, done: bool, native: str, out: Out) -> bool:
        if done:
            self._calls.ended(thread, ToolResult(item["id"], item.get("output"), correlated=False), native, out)
        return "output" in item

    def _hook_prompt(self, thread: Thread, item: Item, done: bool, native: str, out: Out) -> bool:
        texts = [string(mapping(part).get("text")) for part in sequence(item.get("fragments"))]
        if not texts or None in texts:
            return False
        if done:
            out.event(Notice("hook", "\n".join(filter(None, texts))), native, thread.parent)
        return True

    def _compaction(self, thread: Thread, item: Item, done: bool, native: str, out: Out) -> bool:
        if done:
            out.event(Notice("compaction", "The conversation was compacted."), native, thread.parent)
        return True

    def _review(self, thread: Thread, item: Item, done: bool, native: str, out: Out) -> bool:
        if done:
            out.event(Notice("review", string(item.get("review")) or ""), native, thread.parent)
        return True

    def _call(
        self,
        thread: Thread,
        item: Item,
        name: str,
        given: JSON,
        native: str,
        out: Out,
        native_name: str | None = None,
    ) -> Call:
        call = Call(item["id"], name, given)
        call = self._calls.completed(thread, call, native, out, native_name or str(item["type"]))
        call.item = item
        return call

    def _late_input(
        self, thread: Thread, item: Item, name: str, given: JSON, done: bool, native: str, out: Out
    ) -> None:
        """A call whose input is known only when it is done."""
        if done:
            self._call(thread, item, name, given, native, out)
        else:
            self._calls.started(thread, Call(item["id"], name), native, out, str(item["type"]))

    def _result(
        self,
        thread: Thread,
        item: Item,
        content: JSON,
        native: str,
        out: Out,
        *,
        failed: bool | None = None,
        code: int | None = None,
    ) -> None:
        """The result of a call. Without a word of the wire's on it, what its status says."""
        if failed is not True:
            failed = item.get("status") in ("failed", "declined", "interrupted") if "status" in item else bool(failed)
        source = None if code is None else "literal"
        result = ToolResult(item["id"], content, failed, exit_code=code, exit_code_source=source)  # type: ignore[arg-type]
        self._calls.ended(thread, result, native, out)


def command_input(command: str, cwd: JSON) -> JSON:
    """The input of a `Bash` call, the same for the item and for the ask about it."""
    return {"command": bare_command(command), **({"cwd": cwd} if isinstance(cwd, str) else {})}


_UNSAID = {"declined": "It was not allowed, so it did not run.", "failed": "It failed, and the agent said no more."}


def _unsaid(item: Item) -> str | None:
    """What a result says where the wire is silent."""
    return row(_UNSAID, item.get("status"))
