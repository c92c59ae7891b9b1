"""What `hook/completed` says: hooks that spoke up or failed, and calls that one of them stopped.

A call that a hook stops has no item (wire truth A19). All that the wire has of it is the end of the run id, the call's own:
`pre-tool-use:0:/etc/codex/config.toml:call_1`. Where our own hook stopped it, the channel `hook` told all (`hooked.py`).
A hook that fails lets the call go on (wire truth A18): that is an error and no notice.
"""

from nucleic_codex.app_server.calls import Call, Calls
from nucleic_codex.app_server.hooked import HookedCalls
from nucleic_codex.app_server.threads import Thread
from nucleic_codex.fields import mapping, sequence, string
from nucleic_codex.tools import UNKNOWN
from nucleic_core.backend import Out
from nucleic_core.events import Error, Notice, ToolResult
from nucleic_core.lowlevel import JSON

_GATES = ("preToolUse", "permissionRequest")


class Hooks:
    """The hooks of one process."""

    def __init__(self, calls: Calls, ours: HookedCalls) -> None:
        self._calls, self._ours = calls, ours
        self._stopped: set[tuple[str | None, str]] = set()

    def completed(self, thread: Thread, params: dict[str, JSON], native: str, out: Out) -> bool:
        """One `hook/completed`; False if it is not understood."""
        run = mapping(params.get("run"))
        event, status = string(run.get("eventName")), string(run.get("status"))
        if event is None or status is None:
            return False
        texts = (string(mapping(entry).get("text")) for entry in sequence(run.get("entries")))
        said = "; ".join(text for text in texts if text)
        if event == "preToolUse" and status == "blocked":
            self._stop(thread, run, said or "A hook stopped it.", native, out)
        elif event in _GATES and status == "failed":
            text = f"A hook ({event}) failed, so what it guards goes on without it: {said}"
            out.event(Error(text, code="hook_failed", detail=run), native, thread.parent)
        elif status != "completed" or said:
            if event == "userPromptSubmit" and status in ("blocked", "stopped") and thread.turn is not None:
                thread.turn.blocked = f"a hook kept it from the model: {said}"
            how = "" if status == "completed" else f" {status}"
            out.event(Notice("hook", f"A hook ({event}){how}: {said}", run), native, thread.parent)
        return True

    def _stop(self, thread: Thread, run: dict[str, JSON], why: str, native: str, out: Out) -> None:
        """A call that never got an item: it is shown, with the hook's words as its result."""
        call_id = (string(run.get("id")) or "").rpartition(":")[2]
        if call_id in self._ours.denied:
            return
        key = None if thread.turn is None else thread.turn.id, call_id
        if key in self._stopped:
            out.event(Notice("hook", f"Another hook stopped the same call: {why}", run), native, thread.parent)
            return
        self._stopped.add(key)
        self._calls.completed(thread, Call(call_id, UNKNOWN), native, out)
        self._calls.ended(thread, ToolResult(call_id, why, is_error=True), native, out)
        detail = {"tool_call": call_id, "hook": run.get("id")}
        out.event(
            Error(f"A hook stopped a call: {why}", code="permission_denied", detail=detail), native, thread.parent
        )
