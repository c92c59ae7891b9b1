"""Asks of the app-server in our words, and our answers as the results of its requests.

| request                               | Allow            | AllowAlways(session)       | Deny         | CancelRun        |
|---                                    |---               |---                         |---           |---               |
| item/commandExecution/requestApproval | `accept`         | `acceptForSession`         | `decline`    | `cancel`         |
| item/fileChange/requestApproval       | `accept`         | `acceptForSession`         | `decline`    | `cancel`         |
| item/permissions/requestApproval      | all, for a turn  | all, for the session       | `{}`         | `{}`, and stop   |
| mcpServer/elicitation/request of a    | `accept`         | `accept` and               | `decline`    | `cancel`, and    |
|   tool call (wire truth A14, A15)       |                  |   `_meta.persist: session` |              |   stop           |

Any other elicitation, and `item/tool/requestUserInput`, is a question: `questions.py`. Our hook's asks: `hooked.py`.

Codex remembers a session's decision by the exact command, by path, or by tool; a wider scope is our own rule and `accept` here.
What is kept on disk (`acceptWithExecpolicyAmendment`, `persist: "always"`; A11, A15) is shown as suggested and never
sent. No answer carries a reason, and none an edited input, but for permissions: an edit of them may leave some out. `cancel`
ends the turn that asked; where that is not the run's own, or does not end, the turn is stopped by other means too.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from nucleic_codex.app_server import hooked
from nucleic_codex.app_server.asks import ELICITATION, PERMISSION, USER_INPUT
from nucleic_codex.app_server.changes import destroys, edit_input, touched
from nucleic_codex.app_server.items import command_input
from nucleic_codex.app_server.permissions import granted, paths_of
from nucleic_codex.app_server.questions import answer_form, answer_input, read_form, read_input
from nucleic_codex.fields import mapping, row, sequence, string
from nucleic_codex.tools import BASH, EDIT, PERMISSIONS, mcp_name
from nucleic_core.approvals import (
    Allow,
    AllowAlways,
    Answers,
    ApprovalRequest,
    CancelRun,
    Decision,
    Question,
    Risk,
)
from nucleic_core.backend import Ask, Reply
from nucleic_core.lowlevel import JSON

COMMAND = "item/commandExecution/requestApproval"
FILE_CHANGE = "item/fileChange/requestApproval"

Params: TypeAlias = dict[str, JSON]

_TOOL_IN_WORDS = re.compile(r'run tool "?([^"?]+)"?\?')
_LONGEST_TITLE = 200


class CodexApprovals:
    """The approval mapper of the app-server; pure."""

    def read(self, ask: Ask) -> ApprovalRequest | Question | None:
        """See the module's table; None for every other request, which is then refused aloud."""
        native, context = mapping(ask.native), mapping(ask.context)
        if "call" in native:
            return hooked.read(ask)
        read = row(_READERS, native.get("method"))
        return None if read is None else read(mapping(native.get("params")), context)

    def reply(self, ask: Ask, decision: Decision | Answers) -> Reply:
        """See the module's table."""
        native, context = mapping(ask.native), mapping(ask.context)
        if "call" in native:
            assert not isinstance(decision, Answers)
            return hooked.reply(decision)
        params, method = mapping(native.get("params")), native.get("method")
        if method == PERMISSION:
            return _permission_reply(params, decision)
        if method == USER_INPUT:
            stops = isinstance(decision, CancelRun)
            answers = decision.answers if isinstance(decision, Answers) else None
            return Reply(answer_input(params, answers), interrupt=stops)
        if method == ELICITATION:
            if _is_tool_call(params):
                return _tool_reply(decision)
            answers = decision.answers if isinstance(decision, Answers) else None
            return Reply(answer_form(params, answers), interrupt=isinstance(decision, CancelRun))
        return _decision_reply(params, context, decision)


# -- commands and patches -----------------------------------------------------------------------------------------------


def _command(params: Params, context: Params) -> ApprovalRequest | None:
    """A command, or what it wants beyond its sandbox: a host, or paths."""
    item = mapping(context.get("item"))
    command = string(params.get("command")) or string(item.get("command"))
    network, more = mapping(params.get("networkApprovalContext")), mapping(params.get("additionalPermissions"))
    if command is None and not network:
        return None
    given = command_input(command or "", params.get("cwd") or item.get("cwd"))
    bare = string(given.get("command")) or None
    title = f"Run: {bare}" if bare else "Use the network"
    risk: Risk | None = None
    if network:
        given["network"] = network
        risk, title = "network", f"Reach {_host(network)}" + (f", for: {bare}" if bare else "")
    if more:
        given["additional_permissions"] = more
        title = f"Run with more permissions: {bare}"
    return ApprovalRequest(
        tool=BASH,
        input=given,
        title=_cut(title),
        tool_call=string(params.get("itemId")),
        reason=string(params.get("reason")),
        paths=tuple(map(Path, paths_of(more))),
        command=bare,
        risk=risk,
        suggested=_amendment(params),
    )


def _host(network: Params) -> str:
    host, protocol = string(network.get("host")) or "a host", string(network.get("protocol"))
    return f"{host} ({protocol})" if protocol else host


def _amendment(params: Params) -> tuple[JSON, ...]:
    prefix = sequence(params.get("proposedExecpolicyAmendment"))
    if not prefix or not all(isinstance(word, str) for word in prefix):
        return ()
    text = f"Always run commands that begin with {' '.join(prefix)}, outside the sandbox, in every session"
    native = {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": prefix}}
    return ({"text": text, "native": native},)


def _file_change(params: Params, context: Params) -> ApprovalRequest | None:
    """A patch. What it changes stands in its item; without that, nobody can know what an allow would do."""
    call, root = string(params.get("itemId")), string(params.get("grantRoot"))
    if call is None:
        return None
    changes = sequence(mapping(context.get("item")).get("changes"))
    given = edit_input(changes)
    paths = touched(given)
    title = f"Edit {', '.join(paths)}" if paths else "Edit files that Codex did not name"
    if root is not None:
        given["grant_root"], title = root, f"{title}, and write anything below {root}"
    risk: Risk = "write" if paths and root is None else "unknown"
    return ApprovalRequest(
        tool=EDIT,
        input=given,
        title=_cut(title),
        tool_call=call,
        reason=string(params.get("reason")),
        paths=tuple(Path(path) for path in (*paths, *filter(None, (root,)))),
        risk="destructive" if changes and destroys(given) else risk,
    )


def _decision_reply(params: Params, context: Params, decision: Decision | Answers) -> Reply:
    match decision:
        case Allow(updated_input=None):
            return Reply({"decision": "accept"})
        case AllowAlways(scope="session") if not _is_special(params):
            return Reply({"decision": "acceptForSession"})
        case AllowAlways():
            return Reply({"decision": "accept"})
        case CancelRun():
            return Reply({"decision": "cancel"}, interrupt=context.get("child") is True)
        case _:  # a deny; an edited input, which the wire cannot say
            return Reply({"decision": "decline"})


def _is_special(params: Params) -> bool:
    """Whether more is asked for than the call itself: nobody looked at how far Codex would remember that."""
    return any(params.get(name) for name in ("additionalPermissions", "networkApprovalContext", "grantRoot"))


# -- permissions --------------------------------------------------------------------------------------------------------


def _permission(params: Params, context: Params) -> ApprovalRequest | None:
    wanted = params.get("permissions")
    if not isinstance(wanted, dict):
        return None
    paths = paths_of(wanted)
    network = mapping(wanted.get("network")).get("enabled") is True
    what = [*(["the network"] if network else []), *paths]
    return ApprovalRequest(
        tool=PERMISSIONS,
        input={"permissions": wanted},
        title=_cut(f"Grant {', '.join(what) or 'permissions'} for this turn"),
        tool_call=string(params.get("itemId")),
        reason=string(params.get("reason")),
        paths=tuple(map(Path, paths)),
    )


def _permission_reply(params: Params, decision: Decision | Answers) -> Reply:
    wanted = mapping(params.get("permissions"))
    match decision:
        case Allow(updated_input=None):
            return Reply({"permissions": wanted, "scope": "turn"})
        case Allow(updated_input=edited):
            return Reply({"permissions": granted(wanted, mapping(edited).get("permissions")), "scope": "turn"})
        case AllowAlways(scope="session"):
            return Reply({"permissions": wanted, "scope": "session"})
        case AllowAlways():
            return Reply({"permissions": wanted, "scope": "turn"})
        case _:
            return Reply({"permissions": {}, "scope": "turn"}, interrupt=isinstance(decision, CancelRun))


# -- tools of MCP servers -----------------------------------------------------------------------------------------------


def _is_tool_call(params: Params) -> bool:
    return mapping(params.get("_meta")).get("codex_approval_kind") == "mcp_tool_call"


def _elicitation(params: Params, context: Params) -> ApprovalRequest | Question | None:
    """The approval of a tool call, or a server's own question. Other approvals in this guise are not understood."""
    meta, server = mapping(params.get("_meta")), string(params.get("serverName"))
    if "codex_approval_kind" not in meta:
        return read_form(params)
    if not _is_tool_call(params) or server is None:
        return None
    item = mapping(context.get("item"))
    message = string(params.get("message")) or ""
    tool = string(meta.get("tool_name")) or string(item.get("tool"))  # 0.141 names it in the message alone
    if tool is None and (found := _TOOL_IN_WORDS.search(message)):
        tool = found[1]
    if tool is None:
        return None
    given = meta["tool_params"] if "tool_params" in meta else item.get("arguments")
    keeps = "always" in sequence(meta.get("persist"))
    kept = {"text": f"Always allow {tool} of {server}, in every session (written to config.toml)", "native": "always"}
    return ApprovalRequest(
        tool=mcp_name(server, tool),
        input={} if given is None else given,
        title=_cut(message or f"Run the tool {tool} of {server}"),
        tool_call=string(item.get("id")),
        reason=string(meta.get("tool_description")),
        risk="destructive" if mapping(meta.get("tool_annotations")).get("destructiveHint") is True else None,
        suggested=(kept,) if keeps else (),
    )


def _tool_reply(decision: Decision | Answers) -> Reply:
    match decision:
        case Allow(updated_input=None):
            return Reply({"action": "accept", "content": {}})
        case AllowAlways(scope="session"):
            return Reply({"action": "accept", "content": {}, "_meta": {"persist": "session"}})
        case AllowAlways():
            return Reply({"action": "accept", "content": {}})
        case CancelRun():
            return Reply({"action": "cancel", "content": None}, interrupt=True)
        case _:
            return Reply({"action": "decline", "content": None})


def _user_input(params: Params, context: Params) -> Question | None:
    return read_input(params)


_READERS: dict[str, Callable[[Params, Params], ApprovalRequest | Question | None]] = {
    COMMAND: _command,
    FILE_CHANGE: _file_change,
    PERMISSION: _permission,
    ELICITATION: _elicitation,
    USER_INPUT: _user_input,
}


def _cut(title: str) -> str:
    """One line, cut where it gets long."""
    line = " ".join(title[: 4 * _LONGEST_TITLE].split())
    return line if len(line) <= _LONGEST_TITLE else f"{line[: _LONGEST_TITLE - 1]}…"
