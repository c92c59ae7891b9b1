"""For authors of backends: ready-made drivers and decoders, the MCP server, framing. Plugins import this, never an underscore.

`nucleic_core._demo` is the backend to copy; it is written on this surface alone.
"""

import importlib
import signal
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self

import trio

from nucleic_core._values import JSON
from nucleic_core._wire.framing import LineFramer, Oversize, Unparsed, parse
from nucleic_core.backend import Ask, Link, Out, Reply
from nucleic_core.errors import AgentGone
from nucleic_core.specs import AgentInput, plain_text

if TYPE_CHECKING:
    from nucleic_core._wire.mcp_config import mcp_config
    from nucleic_core._wire.mcp_protocol import McpTool
    from nucleic_core._wire.mcp_server import McpServer, ToolCall

__all__ = [
    "JSON",
    "BaseDecoder",
    "LineDriver",
    "LineFramer",
    "McpServer",
    "McpTool",
    "Oversize",
    "ToolCall",
    "Unparsed",
    "mcp_config",
    "parse",
]

_MCP = {"McpServer": "mcp_server", "McpTool": "mcp_protocol", "ToolCall": "mcp_server", "mcp_config": "mcp_config"}


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


class LineDriver:
    """Drives an agent that reads and writes JSON lines and needs no handshake.

    Override `prompt` (a user message as the agent reads it), `envelope` (the answer to an ask) and `stop` (the message
    that interrupts a turn; None: the process group gets SIGINT).
    """

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

    def prompt(self, message: AgentInput) -> JSON:
        """The line that carries a user message."""
        return {"prompt": plain_text(message)}

    def envelope(self, ask: Ask, reply: Reply | None) -> JSON:
        """The line that answers an ask; `reply` None: refused, because it was not understood."""
        raise NotImplementedError

    def stop(self) -> JSON:
        """The line that interrupts the running turn, or None."""
        return None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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

    async def finish(self) -> None:
        """See `Driver.finish`."""
        self.link.close_stdin()
        await trio.lowlevel.checkpoint()

    def answer(self, ask: Ask, reply: Reply | None) -> None:
        """See `Driver.answer`."""
        with suppress(AgentGone):
            self.link.write(self.envelope(ask, reply))
