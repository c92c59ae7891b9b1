"""Asks: the control protocol on stdin and stdout, and the approve calls that come over our MCP server.

| line                                     | gives                                                                     |
|---                                       |---                                                                        |
| control_request can_use_tool             | an ask; `context.plan` for ExitPlanMode, which in 332 does not name it    |
| control_request of any other kind        | raw, and an ask that no mapper reads, so that it is refused aloud         |
| control_cancel_request                   | a withdrawal                                                              |
| control_response                         | nothing: the reply to a request of ours, or ours repeated; a notice where |
|                                          | a request was refused                                                     |
| mcp: tools/call                          | an ask                                                                    |
| mcp: notifications/cancelled             | a withdrawal                                                              |

An HTTP ask may overtake the line of its call: the call is then told from the ask. Which sub-agent asks is known by `agent_id`,
which the HTTP ask lacks, and by the call, if that is known already.
"""

from collections.abc import Callable

from nucleic_claude.calls import Calls
from nucleic_claude.fields import mapping, string
from nucleic_claude.tasks import Tasks
from nucleic_core.backend import Ask, Out
from nucleic_core.events import Notice, Outcome, Raw
from nucleic_core.lowlevel import JSON


class Asks:
    """Both channels of asks of one process, and what we sent that ends a turn."""

    def __init__(
        self, calls: Calls, tasks: Tasks, last_text: Callable[[], str | None], own_tools: frozenset[str] = frozenset()
    ) -> None:
        self._calls = calls
        self._tasks = tasks
        self._last_text = last_text
        self._own_tools = own_tools
        self._requests: dict[str, str] = {}
        self.stopped: Outcome | None = None
        """What we sent to end the turn: an interrupt, or else a deny that interrupts."""

    def control_request(self, line: JSON, out: Out) -> bool:
        """A request of the CLI."""
        key, request = string(line.get("request_id")), line.get("request")
        if key is None:
            return False
        subtype = mapping(request).get("subtype")
        native = f"control_request/{subtype}" if isinstance(subtype, str) else "control_request"
        if subtype == "can_use_tool":
            self._ask(key, request, line, native, self._tasks.agent_call(request.get("agent_id")), out)
        else:
            out.event(Raw(line), native)
            out.ask(Ask(key, request), native)
        return True

    def control_cancel(self, line: JSON, out: Out) -> bool:
        """The CLI takes a request back."""
        return self._withdraw(line.get("request_id"), "the agent took it back", out)

    def control_response(self, line: JSON, out: Out) -> bool:
        """A reply to a request of ours. With `--replay-user-messages` our own replies come back, too (wire fact 90)."""
        response = line.get("response")
        if not isinstance(response, dict):
            return False
        key, error = response.get("request_id"), response.get("error")
        what = self._requests.pop(key, "a request") if isinstance(key, str) else "a request"
        if response.get("subtype") == "error" and isinstance(error, str) and not self._calls.was_answered(key):
            out.event(Notice("control", f"The agent refused {what}: {error}"), "control_response/error")
        return True

    def mcp(self, message: JSON, out: Out) -> bool:
        """A message of our MCP server: `method`, `key`, and the call's `arguments` or the `reason`."""
        key, method = string(message.get("key")), message.get("method")
        if key is None:
            return False
        if method == "notifications/cancelled":
            return self._withdraw(key, string(message.get("reason")) or "the agent hung up", out)
        if method != "tools/call":
            return False
        self._ask(key, message.get("arguments"), message, "mcp/tools/call", None, out)
        return True

    def requested(self, message: JSON) -> None:
        """A request of ours goes out."""
        subtype = string(mapping(message.get("request")).get("subtype"))
        if isinstance(key := message.get("request_id"), str):
            self._requests[key] = subtype or "a request"
        if subtype == "interrupt":
            self.stopped = "interrupted"

    def replied(self, key: JSON, reply: JSON) -> None:
        """A reply of ours goes out; the decision may stand in an envelope."""
        if not isinstance(key, str):
            return
        self._calls.answered(key)
        for content in (reply, *reply.values()):
            if mapping(content).get("behavior") == "deny" and content.get("interrupt") is True and self.stopped is None:
                self.stopped = "denied"

    def _withdraw(self, key: JSON, reason: str, out: Out) -> bool:
        if not isinstance(key, str):
            return False
        self._calls.withdrawn(key)
        out.withdraw(key, reason)
        return True

    def _ask(self, key: str, request: JSON, line: JSON, native: str, parent: str | None, out: Out) -> None:
        fields = mapping(request)
        tool_call, name, given = string(fields.get("tool_use_id")), string(fields.get("tool_name")), fields.get("input")
        context = None
        if name is None or not isinstance(given, dict):
            out.event(Raw(line), native)  # the mapper does not read it either
        elif tool_call is not None:
            call = self._calls.get(tool_call)
            if call is None or not call.completed:
                self._calls.completed(tool_call, name, given, parent, out, native)
                call = self._calls.get(tool_call)
            parent = call.parent if call is not None else parent
            if name == "ExitPlanMode":
                plan = string(mapping(call.input).get("plan")) if call is not None else None
                context = {"plan": plan or self._last_text()}
        self._calls.asked(key, tool_call)
        out.ask(Ask(key, request, context, name in self._own_tools), native, parent)
