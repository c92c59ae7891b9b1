"""Requests of the app-server's: each becomes an ask, known or not, so that none is left without an answer.

The ask's `native` is the whole request, its key the id as JSON (0 and "0" are two). `context` is what the mapper cannot see
in the request itself:

| context       | what                                                                                                    |
|---            |---                                                                                                      |
| `item`        | the item that waits: the request names a patch, or an MCP call, without what is in it (A12, A14)     |
| `child`       | whether a sub-agent asks: cancelling its turn does not cancel the run                                    |

A request that has no item (permissions, questions; A13, A16) is shown as a call, with our answer as its result. An ask
is taken back by `serverRequest/resolved` and by the end of its turn. What was answered in our hook already is not asked again:
the driver answers it (`AppServerDecoder.answered_by_hook`).
"""

import attrs

from nucleic_codex.app_server.calls import Call, Calls
from nucleic_codex.app_server.hooked import HookedCalls
from nucleic_codex.app_server.threads import Thread, Turn
from nucleic_codex.fields import mapping, row, string
from nucleic_codex.tools import PERMISSIONS, QUESTION
from nucleic_core.backend import Ask, Out
from nucleic_core.events import ToolResult
from nucleic_core.lowlevel import JSON, request_key

PERMISSION = "item/permissions/requestApproval"
ELICITATION = "mcpServer/elicitation/request"
USER_INPUT = "item/tool/requestUserInput"

_WITHOUT_ITEM = {PERMISSION: (PERMISSIONS, "permissions"), USER_INPUT: (QUESTION, "questions")}
"""Requests that are the only sign of their call: its name with us, and the field that is its input."""


@attrs.frozen
class _Open:
    thread: Thread | None
    turn: str | None
    method: str
    call: str | None


class Asks:
    """The requests of one process that wait."""

    def __init__(self, calls: Calls, ours: HookedCalls) -> None:
        self._calls, self._ours = calls, ours
        self._open: dict[str, _Open] = {}
        self._elicited: set[tuple[str, str]] = set()

    def request(self, message: JSON, thread: Thread | None, out: Out) -> None:
        """A request, understood or not."""
        method, params = string(message.get("method")) or "", mapping(message.get("params"))
        parent = thread.parent if thread is not None else None
        call_id = string(params.get("itemId"))
        if self._ours.settled(message) is not None:
            self._ours.told(out, message, parent)
            return
        context: dict[str, JSON] = {"child": parent is not None}
        if thread is not None:
            call = self._calls.get(thread, call_id)
            if method == ELICITATION:
                call = self._mcp_call(thread, params)
            if (without := row(_WITHOUT_ITEM, method)) is not None and call is None and call_id is not None:
                name, field = without
                given = {field: params.get(field)}
                self._calls.completed(thread, Call(call_id, name, given), method, out, method.split("/")[-1])
            elif call is not None:
                context["item"] = call.item
        key = request_key(message.get("id"))
        self._open[key] = _Open(thread, string(params.get("turnId")), method, call_id)
        out.ask(Ask(key, message, context), method, parent)

    def replied(self, message: JSON, out: Out) -> None:
        """Our answer goes out."""
        if (entry := self._open.pop(request_key(message.get("id")), None)) is None:
            return
        if entry.method in _WITHOUT_ITEM and entry.thread is not None and entry.call is not None:
            if self._calls.get(entry.thread, entry.call) is None:
                return
            result = mapping(message.get("result"))
            content = result.get("answers" if entry.method == USER_INPUT else "permissions")
            refused = not content
            self._calls.ended(entry.thread, ToolResult(entry.call, content, refused), entry.method, out)

    def resolved(self, params: JSON, out: Out) -> bool:
        """`serverRequest/resolved`: answered, which our own answer has told already, or taken back."""
        if not isinstance(params.get("requestId"), str | int):
            return False
        key = request_key(params["requestId"])
        if self._open.pop(key, None) is not None:
            out.withdraw(key, "the agent no longer waits for it")
        return True

    def turn_ended(self, thread: Thread, turn: Turn, out: Out) -> None:
        """Whatever the turn asked is void."""
        for key, entry in list(self._open.items()):
            if entry.thread is thread and entry.turn in (turn.id, None):
                del self._open[key]
                out.withdraw(key, "the turn that asked is over")

    def _mcp_call(self, thread: Thread, params: dict[str, JSON]) -> Call | None:
        """The MCP call that an elicitation is about. It names no item: server, tool and arguments tell (A14)."""
        meta = mapping(params.get("_meta"))
        if meta.get("codex_approval_kind") != "mcp_tool_call":
            return None
        waiting = [
            call
            for call in self._calls.open(thread)
            if mapping(call.item).get("server") == params.get("serverName")
            and (thread.id, call.id) not in self._elicited
            and meta.get("tool_name") in (None, mapping(call.item).get("tool"))
        ]
        alike = [call for call in waiting if meta.get("tool_params") in (None, mapping(call.item).get("arguments"))]
        call = next(iter(alike or waiting), None)
        if call is not None:
            self._elicited.add((thread.id, call.id))
        return call
