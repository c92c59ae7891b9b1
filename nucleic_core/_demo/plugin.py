"""The demo backend, whole: the one to copy. It drives `agent.py` and uses only what every plugin may use."""

import sys
from collections.abc import Mapping
from pathlib import Path

from nucleic_core.approvals import Allow, Answers, ApprovalRequest, CancelRun, Decision, Deny, Question, QuestionItem
from nucleic_core.backend import ApprovalMapper, Ask, Decoder, Driver, Out, Prober, Reply
from nucleic_core.capabilities import BackendCapabilities, ProbeReport
from nucleic_core.errors import Unsupported
from nucleic_core.events import (
    AssistantText,
    FileChange,
    InputAccepted,
    Plan,
    Raw,
    SessionStarted,
    Thinking,
    ToolCallCompleted,
    ToolCallStarted,
    ToolResult,
    TurnCompleted,
    TurnStarted,
    Usage,
)
from nucleic_core.hookspecs import hookimpl
from nucleic_core.lowlevel import JSON, BaseDecoder, LineDriver
from nucleic_core.specs import AgentInput, ProcessSpec, RunSpec, plain_text

NUCLEIC_API = 1

AGENT = Path(__file__).with_name("agent.py")


class DemoDecoder(BaseDecoder):
    """The agent's lines as events. A line of a type that is not here becomes raw."""

    def __init__(self, cwd: Path) -> None:
        self._cwd = cwd

    def received(self, message: JSON, out: Out, channel: str = "stdout") -> None:
        """See `Decoder.received`."""
        kind = message.get("type") if isinstance(message, dict) else None
        match message:
            case {"type": "hello", "session": str(session), "version": str(version)}:
                out.event(
                    SessionStarted(session, cwd=str(self._cwd), tools=("Bash", "Write"), agent_version=version), kind
                )
            case {"type": "accepted", "id": str(input_id), "state": "queued"}:
                out.event(InputAccepted(input_id, "queued"), kind)
            case {"type": "turn", "input": str(input_id)}:
                out.event(InputAccepted(input_id, "delivered"), kind)
                out.event(TurnStarted(), kind)
            case {"type": "text", "block": str(block), "text": str(text), "partial": bool(partial)}:
                out.event(AssistantText(text, block=block, partial=partial), kind)
            case {"type": "thinking", "block": str(block), "text": str(text), "partial": bool(partial)}:
                out.event(Thinking(text, block=block, partial=partial), kind)
            case {"type": "plan", "steps": list(steps)}:
                out.event(Plan(tuple({"content": step, "status": "pending"} for step in steps)), kind)
            case {"type": "call", "id": str(call), "tool": str(tool), "input": arguments}:
                out.event(ToolCallStarted(call, tool), kind)
                out.event(ToolCallCompleted(call, tool, arguments), kind)
            case {"type": "ask" | "question", "id": str(key)}:
                out.ask(Ask(key, message), kind)
            case {"type": "result", "id": str(call), "error": bool(error), "text": str(text)}:
                exit_code = message.get("exit")
                source = None if exit_code is None else "literal"
                out.event(ToolResult(call, text, error, exit_code, source), kind)  # type: ignore[arg-type]
                if "written" in message:
                    path = str(self._cwd / message["written"])
                    out.event(FileChange("update", path, authoritative=False, tool_call=call), kind)
            case {"type": "done", "outcome": "completed" | "interrupted" | "errored" as outcome, "usage": usage}:
                spent = Usage("turn", input_tokens=usage.get("input"), output_tokens=usage.get("output"))
                error, text = message.get("error"), message.get("text")
                out.event(
                    TurnCompleted(outcome, error=error, final_text=text, duration_ms=message.get("ms"), usage=spent),
                    kind,
                )
            case _:
                out.event(Raw(message), kind if isinstance(kind, str) else None)


class DemoApprovals:
    """Asks of the demo agent, and what it wants to hear."""

    def read(self, ask: Ask) -> ApprovalRequest | Question | None:
        """See `ApprovalMapper.read`."""
        match ask.native:
            case {"type": "question", "text": str(text), "options": list(options)}:
                item = QuestionItem("answer", text, tuple((str(option), "") for option in options))
                return Question((item,))
            case {"type": "ask", "tool": "Bash", "call": str(call), "input": {"command": str(command)} as arguments}:
                return ApprovalRequest("Bash", arguments, f"Run: {command}", call, command=command)
            case {"type": "ask", "tool": "Write", "call": str(call), "input": {"path": str(path)} as arguments}:
                return ApprovalRequest("Write", arguments, f"Write {path}", call, paths=(Path(path),))
            case _:
                return None

    def reply(self, ask: Ask, decision: Decision | Answers) -> Reply:
        """See `ApprovalMapper.reply`."""
        match decision:
            case Answers(answers):
                return Reply({"answer": (answers or {}).get("answer")})
            case Deny(reason):
                return Reply({"allow": False, "reason": reason})
            case CancelRun(reason):
                return Reply({"allow": False, "reason": reason, "answer": None, "stop": True})
            case Allow(updated_input):
                if not isinstance(updated_input, dict | None):
                    raise ValueError("the demo agent takes an object")
                return Reply({"allow": True, "input": updated_input})
            case _:
                return Reply({"allow": True, "input": None})


class DemoDriver(LineDriver):
    """How prompts, answers and stops are written."""

    def prompt(self, message: AgentInput) -> JSON:
        """See `LineDriver.prompt`."""
        return {"type": "prompt", "id": message.id, "text": plain_text(message)}

    def envelope(self, ask: Ask, reply: Reply | None) -> JSON:
        """See `LineDriver.envelope`."""
        content = {"allow": False, "reason": "not understood"} if reply is None else reply.message
        return {"type": "answer", "id": ask.key, **content}

    def stop(self) -> JSON:
        """See `LineDriver.stop`."""
        return {"type": "stop"}


class DemoProber:
    """The demo agent is always there."""

    def declared(self, version: str | None = None, run: RunSpec | None = None) -> BackendCapabilities:
        """See `Prober.declared`."""
        return BackendCapabilities(
            interactive_approvals=True,
            questions=True,
            can_modify_tool_input=True,
            partial_message_streaming=True,
            emits_thinking=True,
            emits_file_change_events=True,
            native_resume=True,
            fork=True,
            images=False,
            deny_means="goes_on",
            deny_reason_reaches_model=True,
            follow_up=frozenset({"queue"}),
            honours=frozenset({"native_resume", "fork"}),
        )

    async def probe(self, env: Mapping[str, str]) -> ProbeReport:
        """See `Prober.probe`."""
        return ProbeReport(installed=True, version="1", logged_in=True)


@hookimpl
def nucleic_prober() -> Prober:
    """The prober."""
    return DemoProber()


@hookimpl
def nucleic_decoder(run: RunSpec) -> Decoder:
    """The decoder."""
    return DemoDecoder(run.cwd)


@hookimpl
def nucleic_approval_mapper() -> ApprovalMapper:
    """The mapper."""
    return DemoApprovals()


@hookimpl
def nucleic_driver() -> Driver:
    """The driver."""
    return DemoDriver()


@hookimpl
def nucleic_spawn(run: RunSpec) -> ProcessSpec:
    """The agent is started by path, isolated: `-m` would import this package and trio first."""
    if run.settings:
        raise Unsupported(f"The demo agent has no settings; leave out {', '.join(run.settings)}.")
    resumed = (run.native_resume,) if run.native_resume is not None and not run.fork else ()
    return ProcessSpec((sys.executable, "-I", "-S", str(AGENT), *resumed))
