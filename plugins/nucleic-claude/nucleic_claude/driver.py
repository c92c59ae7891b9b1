"""Carries one conversation with a `claude` process: the handshake, user messages, interrupts and answers.

It reads nothing but the replies to its own control requests. What the messages mean is the decoder's part, what an ask
is answered the mapper's; our own tools, and the asks of the channel `http`, come through the server in `server.py`.
"""

import base64
import itertools
import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import trio

from nucleic_claude.probe import ClaudeProber
from nucleic_claude.program import NEWEST, Program, find, spoken
from nucleic_claude.settings import Settings
from nucleic_claude.spawn import APPROVE_NAME, spawn
from nucleic_core.backend import Ask, Link, Reply
from nucleic_core.errors import AgentGone, StartFailed, Unsupported
from nucleic_core.lowlevel import JSON
from nucleic_core.specs import AgentInput, Context, Image, ProcessSpec, RunSpec, Text, render

if TYPE_CHECKING:
    from nucleic_claude.server import NucleicServer

INTERRUPT_DEADLINE = 5.0
"""Seconds for the CLI to answer an interrupt request, before its group gets SIGINT."""

CONNECT_DEADLINE = 40.0
"""Seconds for the CLI to connect to our server; it gives up itself after 30."""


class ClaudeDriver:
    """The driver of one run. The settings are checked here, the program is found when it is entered."""

    def __init__(self, run: RunSpec) -> None:
        self._run = run
        self._settings = Settings.read(run.settings)
        self._mcp_config = run.cwd / run.mcp_config if run.mcp_config else None
        self._server = _server(run, self._settings, self._mcp_config)
        self._program: Program | None = None
        self._link: Link | None = None
        self._requests = (f"nucleic-{number}" for number in itertools.count(1))
        self._calls: dict[str, _Call] = {}

    async def __aenter__(self) -> Self:
        self._program = await find(self._settings.executable, {**os.environ, **self._run.env})
        if self._server:
            await self._server.__aenter__()
            self._mcp_config = self._server.config
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._server.__aexit__(kind, error, trace) if self._server else None

    def process(self) -> ProcessSpec:
        """The process to start; the driver must be entered."""
        assert self._program is not None
        return spawn(self._run, self._program, self._settings.channel, self._mcp_config)

    async def converse(self, link: Link, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Shake hands beside reading, because the CLI's replies are among what is read."""
        self._link = link
        if self._server:
            self._server.serve(link)
        failed: list[StartFailed] = []
        async with trio.open_nursery() as nursery:

            async def shake_hands() -> None:
                try:
                    await self._get_ready(link)
                except AgentGone:
                    pass  # the end of the process is reported with its stderr, which says more
                except StartFailed as failure:
                    failed.append(failure)
                    nursery.cancel_scope.cancel()
                else:
                    task_status.started()

            nursery.start_soon(shake_hands)
            async for batch in link.batches():
                link.received(batch)
                self._settle(batch)
            nursery.cancel_scope.cancel()
        if failed:
            raise failed[0]

    async def _get_ready(self, link: Link) -> None:
        """Wait for the first sign of life; with a server of ours, until the CLI is connected to it as well.

        Without that a process dies, with no word on stdout, at its first gated tool; 2.1.167 starts its turn unconnected.
        """
        assert self._program is not None
        await self._call("initialize")
        if self._server:
            await self._connected()
        version = self._program.version
        if version > NEWEST:
            link.notice(
                "version", f"{self._program} is untested: the newest version that was looked at is {spoken(NEWEST)}."
            )
        link.prove(ClaudeProber().declared(spoken(version), self._run))

    async def _connected(self) -> None:
        status = None
        with trio.move_on_after(CONNECT_DEADLINE):
            while status not in ("connected", "failed"):
                await trio.sleep(0.05)
                reply = await self._call("mcp_status")
                servers = reply.get("mcpServers") or []
                status = next((server.get("status") for server in servers if server.get("name") == "nucleic"), None)
        if status != "connected":
            raise StartFailed(
                f"Claude did not connect to Nucleic's server on loopback (its state: {status or 'unknown'}). "
                "See that no proxy stands before 127.0.0.1; the setting channel = stdio without plugins' tools needs none."
            )

    async def send(self, message: AgentInput, *, steer: bool = False) -> None:
        """One user message. While a turn runs it is taken in at the next tool result (steer), or after the turn."""
        self._linked.write(
            {
                "type": "user",
                "message": {"role": "user", "content": [_block(part) for part in message.parts]},
                "parent_tool_use_id": None,
                "uuid": message.id,
                "priority": "next" if steer else "later",
            }
        )

    async def interrupt(self) -> None:
        """Stop the turn by a control request, after which the process lives on; by SIGINT, which ends it, if need be."""
        with trio.move_on_after(INTERRUPT_DEADLINE) as waiting:
            await self._call("interrupt")
        if waiting.cancelled_caught:
            self._linked.signal(signal.SIGINT)

    async def finish(self) -> None:
        """Close stdin: the CLI ends by itself when its turn and its background work are done."""
        self._linked.close_stdin()

    def answer(self, ask: Ask, reply: Reply | None) -> None:
        """Answer a control request of the CLI's. One that is not understood gets an error, upon which the CLI denies."""
        if reply is None:
            response = {"subtype": "error", "request_id": ask.key, "error": "not understood"}
        else:
            response = {"subtype": "success", "request_id": ask.key, "response": reply.message}
        with suppress(AgentGone):  # then nobody waits for it any more
            self._linked.write({"type": "control_response", "response": response})

    @property
    def _linked(self) -> Link:
        if self._link is None:
            raise AgentGone("Claude is not ready yet, so nothing can be sent to it.")
        return self._link

    async def _call(self, subtype: str) -> JSON:
        """Send a control request of ours and wait for its response, {} where that is an error."""
        key = next(self._requests)
        call = self._calls[key] = _Call()
        try:
            self._linked.write({"type": "control_request", "request_id": key, "request": {"subtype": subtype}})
            await call.done.wait()
        finally:
            del self._calls[key]
        return call.response

    def _settle(self, batch: Iterable[JSON]) -> None:
        """Wake who waits for one of these responses. The CLI repeats our own answers to it: those are nobody's."""
        if not self._calls:
            return
        for message in batch:
            match message:
                case {"type": "control_response", "response": {"request_id": str(key), **rest}} if key in self._calls:
                    call = self._calls[key]
                    response = rest.get("response")
                    call.response = response if isinstance(response, dict) else {}
                    call.done.set()


class _Call:
    """One control request on its way."""

    def __init__(self) -> None:
        self.done = trio.Event()
        self.response: JSON = {}


def _server(run: RunSpec, settings: Settings, own: Path | None) -> "NucleicServer | None":
    """The server that this run needs, if it needs one."""
    approve = settings.channel == "http"
    if not approve and not run.tools:
        return None
    if any(tool.name == APPROVE_NAME for tool in run.tools):
        raise Unsupported(f"A tool of a plugin is called {APPROVE_NAME}, as Claude's approval tool is; rename it.")
    from nucleic_claude.server import NucleicServer  # it brings the MCP server and HTTP along

    return NucleicServer(own, approve=approve, tools=run.tools)


def _block(part: Text | Context | Image) -> JSON:
    """One part of an input as a content block."""
    if isinstance(part, Image):
        data = base64.b64encode(part.data).decode("ascii")
        return {"type": "image", "source": {"type": "base64", "media_type": part.media_type, "data": data}}
    return {"type": "text", "text": render(part)}
