"""Carries one conversation with a `codex app-server`: the handshake, turns, steering, interrupts and answers.

One process a session, one thread in it that is ours (the root); threads of sub-agents live in the same process. It reads
nothing but the replies to its own requests and which turns run, because a message must not be sent as a turn while one
does: Codex would steer (docs/wire-truth.md).
"""

import signal
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import version
from types import TracebackType
from typing import Self

import trio

from nucleic_codex.app_server.decode import AppServerDecoder
from nucleic_codex.app_server.probe import AppServerProber
from nucleic_codex.app_server.settings import Settings
from nucleic_codex.app_server.spawn import (
    environment,
    mcp_servers,
    sandbox_policy,
    spawn,
    thread_params,
    turn_params,
    user_input,
)
from nucleic_codex.fields import mapping
from nucleic_codex.hook import HookServer, arguments, untrusted
from nucleic_codex.program import NEWEST, Program, find, spoken
from nucleic_core.errors import AgentGone, AgentRefused, AgentSilent, StartFailed, Unsupported
from nucleic_core.lowlevel import JSON, RpcDriver
from nucleic_core.specs import AgentInput, ProcessSpec, RunSpec

CALL_DEADLINE = 30.0
"""Seconds for the app-server to answer a request of ours; it answers within a moment unless it hangs."""

INTERRUPT_DEADLINE = 5.0
"""Seconds for the app-server to answer an interrupt, before its group gets SIGINT, which ends it."""

EXCLUDES_TURNS = (0, 171, 0)
"""From here on a resumed thread may be had without its turns; 0.146.0 refuses that as experimental."""

QUEUE = "queue"
"""The channel on which decoder and transcript are told of messages that wait for the end of the running turn."""


class AppServerDriver(RpcDriver):
    """The driver of one run. The settings are checked here, the program is found when it is entered."""

    header = False

    def __init__(self, run: RunSpec, decoder: AppServerDecoder) -> None:
        self._run = run
        self._decoder = decoder
        self._settings = Settings.read(run.settings)
        self._servers = mcp_servers(run.cwd / run.mcp_config if run.mcp_config else None)
        self._hook = HookServer() if self._settings.approvals == "hook" else None
        self._program: Program | None = None
        self._policy: JSON = None
        self._root = ""
        self._turns: dict[str, str] = {}  # the running turn of each thread
        self._begins = False  # a turn of ours was asked for and has not begun
        self._queue: deque[AgentInput] = deque()

    async def __aenter__(self) -> Self:
        self._program = await find(self._settings.executable, environment(self._run))
        if self._hook:
            await self._hook.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._hook:
            await self._hook.__aexit__(kind, error, trace)

    def process(self) -> ProcessSpec:
        """The process to start; the driver must be entered."""
        assert self._program is not None
        if self._hook:
            return spawn(self._run, self._program, arguments(), self._hook.env)
        return spawn(self._run, self._program)

    # -- the handshake ----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Initialize, look what the user's settings say, and open the thread."""
        assert self._program is not None
        client = {"name": "nucleic", "title": "Nucleic", "version": version("nucleic-codex")}
        await self._call("initialize", {"clientInfo": client, "capabilities": {"experimentalApi": False}})
        self.peer.notify("initialized")
        config = mapping(await self._call("config/read", {"cwd": str(self._run.cwd), "includeLayers": False}))
        self._policy = sandbox_policy(self._run, mapping(config.get("config")))
        if self._hook:
            await self._trust_hook(self._hook)
        opened = mapping(await self._open())
        self._root = str(mapping(opened.get("thread")).get("id", ""))
        found = self._program.version
        if found > NEWEST:
            text = f"{self._program} is untested: the newest version that was looked at is {spoken(NEWEST)}."
            self.link.notice("version", text)
        self.link.prove(AppServerProber().declared(spoken(found), self._run))

    async def _trust_hook(self, hook: HookServer) -> None:
        """See that Codex will run our hook: one that it does not trust, it leaves out without a word."""
        if wrong := untrusted(await self._call("hooks/list", {"cwds": [str(self._run.cwd)]})):
            raise StartFailed(
                f"{self._program} would not run Nucleic's hook ({wrong}), so nothing would be asked. "
                "Leave the setting approvals = hook out, or use a version of Codex that was tested."
            )
        hook.link = self.link

    async def _open(self) -> JSON:
        run, params = self._run, thread_params(self._run, self._policy, self._servers)
        if run.native_resume is None:
            return await self._call("thread/start", {**params, "ephemeral": run.ephemeral})
        if run.fork:
            return await self._call(
                "thread/fork", {**params, "threadId": run.native_resume, "ephemeral": run.ephemeral}
            )
        if run.ephemeral:
            raise Unsupported("codex cannot resume a session without a trace; fork it, or leave ephemeral out.")
        assert self._program is not None
        short = {"excludeTurns": True} if self._program.version >= EXCLUDES_TURNS else {}
        return await self._call("thread/resume", {**params, **short, "threadId": run.native_resume})

    # -- turns ------------------------------------------------------------------------------------------------------

    def heard(self, messages: Sequence[JSON]) -> None:
        """Keep account of the turns that run, and begin the next one when ours ends."""
        for message in messages:
            match message:
                case {"method": "turn/started", "params": {"threadId": str(thread), "turn": {"id": str(turn)}}}:
                    self._turns[thread] = turn
                    if thread == self._root:
                        self._begins = False
                case {"method": "turn/completed", "params": {"threadId": str(thread)}}:
                    self._turns.pop(thread, None)
                    self._begin_next()
                case {"method": str(), "id": request} if self._decoder.answered_by_hook(message):
                    self.peer.reply(request, {"decision": "accept"})

    @property
    def _busy(self) -> bool:
        return self._begins or self._root in self._turns

    async def send(self, message: AgentInput, *, steer: bool = False) -> None:
        """One user message: a turn of its own, now or after the running one; with `steer` a part of the running one."""
        if steer and self._root in self._turns:
            await self._steer(message, self._turns[self._root])
        elif self._busy or self._queue:
            self._queue.append(message)
            self.link.sent({"id": message.id}, QUEUE)
            await trio.lowlevel.checkpoint()
        else:
            await self._begin(message)

    def _begin_next(self) -> None:
        """Begin the turn of the oldest message that waits, when nothing stands in its way."""
        if self._queue and not self._busy:
            self._begins = True
            self.tasks.start_soon(self._begin_queued, self._queue.popleft())

    async def _begin(self, message: AgentInput) -> None:
        """Ask for a turn. It has begun when `turn/started` says so, which may be before or after the reply."""
        self._begins = True
        try:
            await self._call(
                "turn/start",
                {
                    "threadId": self._root,
                    "input": user_input(message),
                    "clientUserMessageId": message.id,
                    **turn_params(self._run, self._policy),
                },
            )
        except BaseException:
            self._begins = False
            self._begin_next()
            raise

    async def _begin_queued(self, message: AgentInput) -> None:
        with suppress(AgentGone):  # the end of the process is told elsewhere
            try:
                await self._begin(message)
            except AgentRefused:
                pass  # the decoder has seen the refusal
            except AgentSilent as failure:
                self.link.sent({"id": message.id, "refused": str(failure)}, QUEUE)

    async def _steer(self, message: AgentInput, turn: str) -> None:
        await self._call(
            "turn/steer",
            {
                "threadId": self._root,
                "expectedTurnId": turn,
                "input": user_input(message),
                "clientUserMessageId": message.id,
            },
        )

    async def interrupt(self) -> None:
        """Stop every turn that runs, those of sub-agents too: Codex leaves them running when the root's is stopped."""
        async with trio.open_nursery() as nursery:
            for thread, turn in sorted(self._turns.items(), key=lambda running: running[0] != self._root):
                nursery.start_soon(self._stop, thread, turn)

    async def _stop(self, thread: str, turn: str) -> None:
        try:
            await self.peer.call("turn/interrupt", {"threadId": thread, "turnId": turn}, deadline=INTERRUPT_DEADLINE)
        except AgentSilent:
            if self._turns.get(thread) == turn:  # 0.146 leaves an interrupt unanswered whose turn just ended
                self.link.signal(signal.SIGINT)
        except (AgentGone, AgentRefused):
            pass  # it has ended by itself

    async def _call(self, method: str, params: JSON) -> JSON:
        return await self.peer.call(method, params, deadline=CALL_DEADLINE)
