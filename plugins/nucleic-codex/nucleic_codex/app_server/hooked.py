"""Calls that come through our hook, as the decoder and the mapper see them, and what follows from their answers.

The hook asks before Codex does. When it was allowed, Codex may still make a request of its own for the same call, where its
sandbox or its rules want one: that request is answered from the decision, not asked again.
"""

from collections.abc import Mapping

from nucleic_codex.fields import mapping, string
from nucleic_codex.hook import allowance, denial
from nucleic_codex.tools import bare_command
from nucleic_core.approvals import Allow, AllowAlways, ApprovalRequest, CancelRun, Decision, Deny
from nucleic_core.backend import Ask, Out, Reply
from nucleic_core.events import Notice, ToolResult
from nucleic_core.lowlevel import JSON

NATIVE = "hook/PreToolUse"
_TOOLS = {"Bash": "Bash", "apply_patch": "Edit"}
_REQUESTS = ("item/commandExecution/requestApproval", "item/fileChange/requestApproval")


class HookedCalls:
    """The part of a decoder that reads the channel `hook`."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[str, JSON]] = {}
        self._allowed: dict[str, str | None] = {}  # by tool call: the command that was allowed, None for a patch
        self.denied: set[str] = set()
        """The tool calls that an answer to our hook has stopped."""

    def received(self, message: JSON, out: Out, parent: str | None = None) -> None:
        """A call, or the word that the hook has ended without an answer."""
        key = message["key"]
        if message.get("withdrawn"):
            self._waiting.pop(key, None)
            out.withdraw(key, "the hook was ended")
        else:
            self._waiting[key] = mapping(message["call"])
            out.ask(Ask(key, message), NATIVE, parent)

    def sent(self, message: JSON, out: Out, parent: str | None = None) -> None:
        """A verdict. A call that is stopped here never becomes an item of Codex's."""
        call = self._waiting.pop(message["key"], None)
        if call is None:
            return
        tool_call = string(call.get("tool_use_id")) or ""
        verdict = mapping(mapping(message["verdict"]).get("hookSpecificOutput"))
        if verdict.get("permissionDecision") == "deny":
            self.denied.add(tool_call)
            out.event(ToolResult(tool_call, verdict.get("permissionDecisionReason"), is_error=True), NATIVE, parent)
            return
        final = mapping(verdict.get("updatedInput") or call.get("tool_input"))
        self._allowed[tool_call] = string(final.get("command")) if call.get("tool_name") == "Bash" else None

    def settled(self, request: JSON) -> JSON:
        """The reply to a request whose call the hook's ask has decided; None: it must be asked."""
        if request.get("method") not in _REQUESTS:
            return None
        params = mapping(request.get("params"))
        call = string(params.get("itemId"))
        if call not in self._allowed:
            return None
        allowed = self._allowed[call]
        if allowed is not None and bare_command(string(params.get("command")) or "") != allowed:
            return None  # another command than the one that was shown
        return {"decision": "accept"}

    @staticmethod
    def told(out: Out, request: Mapping[str, JSON], parent: str | None = None) -> None:
        """Say in the transcript why a request was not asked."""
        out.event(Notice("hook", "Codex asked as well; the answer given in the hook holds."), request["method"], parent)


def read(ask: Ask) -> ApprovalRequest | None:
    """What the hook asks, in our words."""
    call = mapping(ask.native["call"])
    name, given = call.get("tool_name"), mapping(call.get("tool_input"))
    command = string(given.get("command"))
    if name not in _TOOLS or command is None:
        return None
    title = f"Run {command}" if name == "Bash" else "Apply a patch"
    return ApprovalRequest(
        _TOOLS[name],
        given,
        title,
        tool_call=string(call.get("tool_use_id")),
        command=command if name == "Bash" else None,
    )


def reply(decision: Decision) -> Reply:
    """The verdict for the hook program. `allow` alone says nothing to Codex, so a plain allow is an empty verdict."""
    match decision:
        case Deny(reason):
            return Reply(denial(reason))
        case CancelRun(reason):
            return Reply(denial(reason or "the user stopped the run"), interrupt=True)
        case AllowAlways():
            return Reply(allowance())
        case Allow(updated_input):
            if not isinstance(updated_input, dict | None):
                raise ValueError("Codex takes an object for a tool's input")
            return Reply(allowance(updated_input))
