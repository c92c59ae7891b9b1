"""For authors of backends: ready-made drivers and decoders, the MCP server, framing. Plugins import this, never an underscore.

`nucleic_core._demo` is the backend to copy; it is written on this surface alone.
"""

import importlib
import json
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self

import trio

from nucleic_core._faults import failure_of
from nucleic_core._values import JSON
from nucleic_core._wire.framing import LineFramer, Oversize, Unparsed, parse
from nucleic_core._wire.jsonrpc import NO_SUCH_METHOD, Handler, Peer, RpcError, request_key
from nucleic_core.backend import Ask, Link, Out, Reply
from nucleic_core.errors import AgentGone, AgentRefused, AgentSilent, StartFailed
from nucleic_core.specs import AgentInput, plain_text

if TYPE_CHECKING:
    from nucleic_core._wire.mcp_config import mcp_config
    from nucleic_core._wire.mcp_protocol import McpTool
    from nucleic_core._wire.mcp_server import McpServer, ToolCall
    from nucleic_core._wire.own_tools import OwnTools

__all__ = [
    "JSON",
    "BaseDecoder",
    "LineDriver",
    "LineFramer",
    "McpServer",
    "McpTool",
    "Oversize",
    "OwnTools",
    "Peer",
    "RpcDriver",
    "RpcError",
    "RpcHandler",
    "ToolCall",
    "Unparsed",
    "mcp_config",
    "parse",
    "request_key",
]

RpcHandler = Handler

_MCP = {
    "McpServer": "mcp_server",
    "McpTool": "mcp_protocol",
    "OwnTools": "own_tools",
    "ToolCall": "mcp_server",
    "mcp_config": "mcp_config",
}


def __getattr__(name: str) -> object:
    """The MCP server and its HTTP cost 12 ms to import, and most runs serve nothing: they come when asked for."""
    if name not in _MCP:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"nucleic_core._wire.{_MCP[name]}"), name)


class BaseDecoder:
    """A decoder that has nothing to say about what was sent and about the end; override `received`."""

    def received(self, message: JSON, out: Out, channel: str = "stdout") -> None:
        """See `Decoder.received`."""
        raise NotImplementedError

    def sent(self, message: JSON, out: Out, channel: str = "stdin") -> None:
        """See `Decoder.sent`."""

    def ended(self, returncode: int | None, out: Out) -> None:
        """See `Decoder.ended`."""


class _ChildDriver:
    """What drivers of one child have in common: nothing to put away, and end of file as the word that no more comes."""

    _link: Link | None = None

    @property
    def link(self) -> Link:
        """The link of the conversation, as `converse` got it. Raises AgentGone as long as there is none."""
        if self._link is None:
            raise AgentGone("The agent is not ready yet, so nothing can be sent to it.")
        return self._link

    @link.setter
    def link(self, link: Link) -> None:
        self._link = link

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    async def finish(self) -> None:
        """See `Driver.finish`."""
        self.link.close_stdin()
        await trio.lowlevel.checkpoint()


class LineDriver(_ChildDriver):
    """Drives an agent that reads and writes JSON lines and needs no handshake.

    Override `prompt` (a user message as the agent reads it), `envelope` (the answer to an ask) and `stop` (the message
    that interrupts a turn; None: the process group gets SIGINT).
    """

    def prompt(self, message: AgentInput) -> JSON:
        """The line that carries a user message."""
        return {"prompt": plain_text(message)}

    def envelope(self, ask: Ask, reply: Reply | None) -> JSON:
        """The line that answers an ask; `reply` None: refused, because it was not understood."""
        raise NotImplementedError

    def stop(self) -> JSON:
        """The line that interrupts the running turn, or None."""
        return None

    async def converse(self, link: Link, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """See `Driver.converse`."""
        self.link = link
        task_status.started()
        async for batch in link.batches():
            link.received(batch)

    async def send(self, message: AgentInput, *, steer: bool = False) -> None:
        """See `Driver.send`. Cancelled, it either has sent the message or has not."""
        await trio.lowlevel.checkpoint_if_cancelled()
        self.link.write(self.prompt(message))
        await trio.lowlevel.cancel_shielded_checkpoint()

    async def interrupt(self) -> None:
        """See `Driver.interrupt`."""
        line = self.stop()
        if line is None:
            self.link.signal(signal.SIGINT)
        else:
            with suppress(AgentGone):  # then there is nothing left to stop
                self.link.write(line)
        await trio.lowlevel.checkpoint()

    def answer(self, ask: Ask, reply: Reply | None) -> None:
        """See `Driver.answer`."""
        with suppress(AgentGone):
            self.link.write(self.envelope(ask, reply))


class RpcDriver(_ChildDriver):
    """Drives an agent that speaks JSON-RPC over lines, both ways.

    Override `start` (the handshake), `send` and `interrupt`; they speak through `self.peer`. `header`: whether messages
    say `"jsonrpc": "2.0"`. `handlers`: the agent's requests that are no asks, by method; the decoder keeps silent about
    those. For every other request, understood or not, the decoder gives `Ask(request_key(message["id"]), message)`: the
    mapper's reply to it is the result that goes back, and None is answered as a method that does not exist.
    """

    header = True
    tasks: trio.Nursery
    """Where a driver may start what runs beside the conversation, and ends with it."""
    _peer: Peer | None = None

    @property
    def peer(self) -> Peer:
        """Our end of the conversation. Raises AgentGone as long as there is none."""
        if self._peer is None:
            raise AgentGone("The agent is not ready yet, so nothing can be sent to it.")
        return self._peer

    @property
    def handlers(self) -> Mapping[str, RpcHandler]:
        """Who serves the agent's requests that are no asks."""
        return {}

    async def start(self) -> None:
        """Shake hands. What the agent refuses here, or does not answer, fails the start."""

    def heard(self, messages: Sequence[JSON]) -> None:
        """Follow along: messages that were just committed, before whoever waits for a reply among them is woken."""

    async def send(self, message: AgentInput, *, steer: bool = False) -> None:
        """See `Driver.send`."""
        raise NotImplementedError

    async def interrupt(self) -> None:
        """See `Driver.interrupt`."""
        raise NotImplementedError

    async def converse(self, link: Link, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Shake hands beside reading, then read on to the end. See `Driver.converse`."""
        self.link = link
        ready = trio.Event()
        failed: list[Exception] = []
        async with trio.open_nursery() as nursery:
            self.tasks = nursery
            peer = self._peer = Peer(
                link.write,
                header=self.header,
                notice=link.notice,
                handlers=self.handlers,
                start_soon=nursery.start_soon,
            )

            async def shake_hands() -> None:
                try:
                    await self._shake_hands()
                except AgentGone:
                    pass  # the end of the process is reported with its stderr, which says more
                except BaseException as failure:
                    failed.append(failure_of(failure))
                    nursery.cancel_scope.cancel()
                else:
                    ready.set()
                    task_status.started()

            nursery.start_soon(shake_hands)
            try:
                async for batch in link.batches():
                    messages = peer.unpack(batch)
                    link.received(messages)
                    self.heard(messages)
                    peer.feed(messages)
            finally:
                peer.close("The agent has ended its output, so no answer can come. Resume the session to go on.")
            nursery.cancel_scope.cancel()
        if failed:
            raise failed[0]
        if not ready.is_set():
            raise AgentGone("The agent ended its output before it was ready.")

    async def _shake_hands(self) -> None:
        try:
            await self.start()
        except (AgentRefused, AgentSilent) as failure:
            raise StartFailed(f"The agent could not be made ready. {failure}") from failure

    def answer(self, ask: Ask, reply: Reply | None) -> None:
        """See `Driver.answer`. The first answer goes out; nothing happens when the agent has taken its request back."""
        request_id = json.loads(ask.key)
        if reply is None:
            self.peer.refuse(request_id, NO_SUCH_METHOD, "Nucleic does not understand this request.")
        else:
            self.peer.reply(request_id, reply.message)
