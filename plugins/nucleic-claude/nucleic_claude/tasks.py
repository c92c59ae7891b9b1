"""Background work: which of it still runs, so that a turn's end can say whether more follows.

A background task that ends makes the CLI begin a turn by itself. 238+ lists the running ones (`background_tasks_changed`);
167 does not, and there only the result that launched a task says that it runs in the background: foreground shells of some
seconds have `task_started` lines too, without a mark (wire facts 71, 72).
"""

from nucleic_claude.fields import integer, mapping, number, string
from nucleic_core.backend import Out
from nucleic_core.events import Notice, ToolOutput
from nucleic_core.lowlevel import JSON

_OVER = frozenset({"completed", "failed", "killed", "stopped", "cancelled"})


class Tasks:
    """The background tasks and the sub-agents of one process."""

    def __init__(self) -> None:
        self._running: set[str] = set()
        self._over: set[str] = set()
        self._calls: dict[str, str] = {}
        self.reported = False
        """Whether a background task has reported since the last turn began: the next turn is the agent's own."""

    @property
    def more_follows(self) -> bool:
        """Whether background work runs."""
        return bool(self._running)

    def agent_call(self, agent: JSON) -> str | None:
        """The tool call of a sub-agent, by its `agent_id`: the id of its task."""
        return self._calls.get(agent) if isinstance(agent, str) else None

    def launched(self, native: JSON) -> None:
        """A `tool_use_result`, which tells when its call goes on in the background."""
        result = mapping(native)
        task = result.get("agentId") if result.get("isAsync") is True else result.get("backgroundTaskId")
        if isinstance(task, str):
            self._running.add(task)

    def changed(self, line: JSON, out: Out) -> bool:  # one signature for the decoder's table
        """`background_tasks_changed`: the whole list."""
        tasks = line.get("tasks")
        if not isinstance(tasks, list):
            return False
        running = {task for one in tasks if (task := string(mapping(one).get("task_id"))) is not None}
        self._over |= self._running - running
        self._running = running
        return True

    def started(self, line: JSON, out: Out) -> bool:
        """`task_started`: state only; the tool call says it already."""
        task, call = string(line.get("task_id")), string(line.get("tool_use_id"))
        if task is None:
            return False
        if call is not None:
            self._calls[task] = call
        if line.get("is_backgrounded") is True:
            self._running.add(task)
        return True

    def updated(self, line: JSON, out: Out) -> bool:
        """`task_updated`: state only; `task_notification` follows."""
        task = string(line.get("task_id"))
        if task is None:
            return False
        if mapping(line.get("patch")).get("status") in _OVER and task in self._running:
            self._running.discard(task)
            self._over.add(task)
        return True

    def progress(self, line: JSON, out: Out) -> bool:
        """`task_progress`: output of the call that runs the task."""
        call, text = string(line.get("tool_use_id")), string(line.get("description"))
        if call is None or text is None:
            return False
        elapsed = integer(mapping(line.get("usage")).get("duration_ms"))
        out.event(ToolOutput(call, text, None if elapsed is None else elapsed / 1000), "system/task_progress")
        return True

    def notified(self, line: JSON, out: Out) -> bool:
        """`task_notification`: a notice for background work; the result of a foreground call says the same."""
        task, summary = string(line.get("task_id")), string(line.get("summary"))
        if task is None or summary is None:
            return False
        in_background = task in self._running or task in self._over
        self._running.discard(task)
        self._over.discard(task)
        self._calls.pop(task, None)
        if in_background:
            self.reported = True
            detail = {
                "status": line.get("status"),
                "tool_call": line.get("tool_use_id"),
                "file": line.get("output_file"),
            }
            out.event(Notice("background", summary, detail), "system/task_notification")
        return True


def tool_progress(line: JSON, out: Out) -> bool:
    """`tool_progress`: the heartbeat of a tool over 30 s names the call as its parent (wire fact 67)."""
    heartbeat = line.get("heartbeat") is True
    call = string(line.get("parent_tool_use_id" if heartbeat else "tool_use_id"))
    elapsed = number(line.get("elapsed_time_seconds"))
    parent = None if heartbeat else string(line.get("parent_tool_use_id"))
    if call is None or elapsed is None:
        return False
    out.event(ToolOutput(call, elapsed=elapsed), "tool_progress", parent)
    return True
