"""Nucleic drives any coding-agent CLI as a child process.

async with nucleic_core.open_session("claude", "Fix the failing test", cwd=repo) as session:
    async for event in session:
        match event.data:
            case ApprovalRequested(request):
                await session.respond(request.id, Allow())
            case AssistantText(text=text):
                print(text, end="")
"""

from nucleic_core._host import Host, open_host
from nucleic_core._opening import RunOptions, open_session, run
from nucleic_core._session.session import RunResult, Session
from nucleic_core.approvals import (
    Allow,
    AllowAlways,
    Answers,
    ApprovalPolicy,
    ApprovalRequest,
    CancelRun,
    Decision,
    Deny,
    Escalate,
    Question,
    QuestionItem,
    Risk,
    Rule,
    Scope,
    Verdict,
)
from nucleic_core.capabilities import BackendCapabilities, ProbeReport
from nucleic_core.errors import (
    AgentFailed,
    AgentGone,
    AgentRefused,
    AgentSilent,
    ApprovalClosed,
    BackendBroken,
    BackendMissing,
    BadDirectory,
    BadSettings,
    HandshakeTimeout,
    NucleicError,
    SessionBusy,
    SessionNotFound,
    StartFailed,
    TranscriptFailed,
    Unsupported,
)
from nucleic_core.events import AgentEvent, EventData
from nucleic_core.specs import AgentInput, Context, Image, Text

__all__ = [
    "AgentEvent",
    "AgentFailed",
    "AgentGone",
    "AgentInput",
    "AgentRefused",
    "AgentSilent",
    "Allow",
    "AllowAlways",
    "Answers",
    "ApprovalClosed",
    "ApprovalPolicy",
    "ApprovalRequest",
    "BackendBroken",
    "BackendCapabilities",
    "BackendMissing",
    "BadDirectory",
    "BadSettings",
    "CancelRun",
    "Context",
    "Decision",
    "Deny",
    "Escalate",
    "EventData",
    "HandshakeTimeout",
    "Host",
    "Image",
    "NucleicError",
    "ProbeReport",
    "Question",
    "QuestionItem",
    "Risk",
    "Rule",
    "RunOptions",
    "RunResult",
    "Scope",
    "Session",
    "SessionBusy",
    "SessionNotFound",
    "StartFailed",
    "Text",
    "TranscriptFailed",
    "Unsupported",
    "Verdict",
    "open_host",
    "open_session",
    "run",
]
