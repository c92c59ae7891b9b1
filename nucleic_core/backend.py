"""What an author of a backend implements, and what the core gives it.

The decoder is the one stateful reader, the approval mapper is pure, the driver carries and never reads:

    child --lines--> Link.batches() --> driver --> Link.received() --> Decoder --> Out --> transcript
                                                                          | Ask
                     child <--lines-- Link.write() <-- Driver.answer() <-- ApprovalMapper.reply()

The core does, so that no author has to: risk, absolute canonical paths, closing of calls without a result, one
`session_started`, one `run_finished`, a `tool_call_completed` before each approval, redaction, logging.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeAlias

import attrs
import trio

from nucleic_core._values import JSON
from nucleic_core.approvals import Answers, ApprovalRequest, Decision, Question
from nucleic_core.capabilities import BackendCapabilities, ProbeReport
from nucleic_core.events import AgentEvent, EventData, Usage
from nucleic_core.specs import AgentInput, RunSpec


@attrs.frozen
class Ask:
    """The agent waits for an answer. `key` is its name on the wire; `context` what the decoder knew at that point.

    `own_tool`: it asks about a call of our own server's (`RunSpec.tools`), as the wire says under a key that names the MCP
    server, or in a name that no other server's tool can have. Such an ask is allowed unless a policy objects, so a bare
    `nucleic` anywhere else must not count.
    """

    key: str
    native: JSON
    context: JSON = None
    own_tool: bool = False


class Out(Protocol):
    """Where a decoder puts what it found. The order here is the order of the transcript."""

    def event(self, data: EventData, native: str | None = None, parent: str | None = None) -> None:
        """Add one event; `native` is the wire's name of the message, `parent` the sub-agent's tool-call id."""

    def ask(self, ask: Ask, native: str | None = None, parent: str | None = None) -> None:
        """The agent asks for a decision or an answer."""

    def withdraw(self, key: str, reason: str) -> None:
        """The agent took the ask of this key back. Unknown keys, and keys of closed asks, are ignored."""


class Decoder(Protocol):
    """The only stateful part that reads. Sees every message once, in order, of all channels, both ways. No I/O.

    What it does not understand it gives out as `Raw`. Lines that are no JSON never reach it. Should it raise, the
    message becomes `Raw` with a notice and the run goes on.
    """

    def received(self, message: JSON, out: Out, channel: str = "stdout") -> None:
        """One message from the agent."""

    def sent(self, message: JSON, out: Out, channel: str = "stdin") -> None:
        """One message to the agent, just before it is written."""

    def ended(self, returncode: int | None, out: Out) -> None:
        """The process is gone; `returncode` as Popen gives it (negative: a signal), None if it was never known.

        Here a decoder ends a turn that is still open (`TurnCompleted`); the core closes the rest.
        """


@attrs.frozen
class Reply:
    """What goes back for an ask, without the channel's envelope. `interrupt`: also stop the turn by other means."""

    message: JSON
    interrupt: bool = False


class ApprovalMapper(Protocol):
    """Pure and stateless: the agent's ask in our words, our decision in the agent's words."""

    def read(self, ask: Ask) -> ApprovalRequest | Question | None:
        """What is asked. None: not understood, so it is refused aloud."""

    def reply(self, ask: Ask, decision: Decision | Answers) -> Reply:
        """The answer. `AllowAlways` comes only with a scope in `BackendCapabilities.native_always`, else as `Allow`.

        Raise ValueError for an `updated_input` that the wire cannot carry: it is called once before such an allow is
        recorded, and the ask then stays open.
        """


Answer: TypeAlias = Callable[[Ask, Reply | None], None]
"""Puts a reply on the wire at once, without waiting. None: refuse as the protocol does. Must not raise if the peer is gone."""


class Link(Protocol):
    """What the core gives a driver: one child and its transcript. Everything but batches() and stderr() is synchronous."""

    @property
    def run(self) -> RunSpec:
        """The run this link serves."""

    @property
    def contained(self) -> bool:
        """Whether the process runs inside something that contains it, as the wrapper of its spawn says."""

    def received(self, messages: Iterable[JSON], channel: str = "stdout", answer: Answer | None = None) -> None:
        """Commit messages from the agent: decode, append, begin asks. `answer` replies to asks of these messages."""

    def write(self, message: JSON) -> None:
        """Send one message on stdin as a line of JSON. Never waits. Raises AgentGone, recording nothing, when stdin is closed."""

    def sent(self, message: JSON, channel: str) -> None:
        """Tell decoder and transcript of what went out elsewhere than on stdin; nothing is written."""

    def batches(self) -> AsyncIterator[Sequence[JSON]]:
        """The child's stdout, framed and parsed, in batches; ends at EOF. Give every batch to `received` whole."""

    async def stderr(self) -> str:
        """Wait until the child has ended; what it wrote to stderr (of much, the first 8 kB and the last 32 kB)."""

    def close_stdin(self) -> None:
        """No more input, once what was written is through."""

    def signal(self, signum: int) -> None:
        """Signal the child's process group; nothing happens when it is gone."""

    def notice(self, topic: str, text: str) -> None:
        """Put a notice into the transcript."""

    def conceal(self, secret: str) -> None:
        """Keep a secret of the driver's own, such as a token it made, out of the transcript from now on."""

    def prove(self, capabilities: BackendCapabilities) -> None:
        """Replace what was declared by what this run's agent can do, once its version is known."""


class Driver(AbstractAsyncContextManager["Driver", bool | None], Protocol):
    """Carries, never reads. Entered before the spawn (work that must precede argv), left after the last process is gone.

    The entry has two minutes, then the start has failed. Before `converse` has begun there is nobody to carry to: `send`,
    `interrupt` and `finish` raise AgentGone, or do nothing.
    """

    async def converse(self, link: Link, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Carry until the end: shake hands, call `task_status.started()`, pass every batch to `link.received`."""

    async def send(self, message: AgentInput, *, steer: bool = False) -> None:
        """Send one user message; the run's prompt comes this way too."""

    async def interrupt(self) -> None:
        """Stop the running turn in band where the protocol can; the session stays usable."""

    async def finish(self) -> None:
        """No more input. The core then waits for the exit, signals and kills."""

    def answer(self, ask: Ask, reply: Reply | None) -> None:
        """Put the reply to an ask on the wire, in the channel's envelope. None: refuse as the protocol does."""


class Prober(Protocol):
    """Says what a backend can do, and what of it is here."""

    def declared(self, version: str | None = None, run: RunSpec | None = None) -> BackendCapabilities:
        """What the given version can do; without one, what all tested versions can."""

    async def probe(self, env: Mapping[str, str]) -> ProbeReport:
        """Look for the program, its version and its log-in. No tokens spent, no file changed."""


class SessionView(Protocol):
    """A session as policies and observers see it: read-only."""

    @property
    def id(self) -> str:
        """Our session id."""

    @property
    def status(self) -> str:
        """idle, running, awaiting_approval, awaiting_input, finished or error."""

    @property
    def usage(self) -> Usage:
        """The sum over the run so far, live: turns that ended, and the messages of the running one."""


class Observer(Protocol):
    """Follows a session. Given all events in order; it can neither stop nor slow the run."""

    async def observe(self, events: AsyncIterator[AgentEvent]) -> None:
        """Read events until they end; after `run_finished` there are five seconds left. Raising only ends the observer."""
