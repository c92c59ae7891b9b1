"""For tests of backends: an in-memory twin of the link, so that a driver is tested without a process and on a mock clock.

    link = FakeLink(run, decoder)
    await nursery.start(driver.converse, link)  # the test plays the agent:
    request = await link.heard()                # what the driver wrote
    link.say({"id": request["id"], "result": {}})
    assert link.events == [...]                 # what the decoder made of both directions

It imports no test framework.
"""

import math
from collections.abc import Iterable, Sequence

import orjson
import trio

from nucleic_core._session.decoding import Decoding, Found, FoundAsk, Withdrawn
from nucleic_core._session.ledger import Ledger
from nucleic_core._session.link import encode
from nucleic_core.backend import Answer, Ask, Decoder
from nucleic_core.capabilities import BackendCapabilities
from nucleic_core.errors import AgentGone
from nucleic_core.events import EventData
from nucleic_core.lowlevel import JSON
from nucleic_core.specs import RunSpec

__all__ = ["FakeLink"]


class FakeLink:
    """A `Link` whose agent is the test. Everything that goes through it is kept in lists, in order.

    `written` is what the agent gets on stdin, read back from the line it would be; `given` each call of `received`;
    `told` each of `sent`. With a decoder, `events`, `asks` and `withdrawn` are what the core would commit, exactly as in a
    session; asks are answered by the test, with `driver.answer`.
    """

    def __init__(self, run: RunSpec, decoder: Decoder | None = None) -> None:
        self._run = run
        self._decoding = None if decoder is None else Decoding(decoder, Ledger())
        self._say, self._said = trio.open_memory_channel[Sequence[JSON]](math.inf)
        self._write, self._heard = trio.open_memory_channel[JSON](math.inf)
        self.written: list[JSON] = []
        self.given: list[tuple[str, list[JSON], Answer | None]] = []
        self.told: list[tuple[str, JSON]] = []
        self.events: list[EventData] = []
        self.asks: list[Ask] = []
        self.withdrawn: list[str] = []
        self.notices: list[tuple[str, str]] = []
        self.signals: list[int] = []
        self.concealed: list[str] = []
        self.proved: BackendCapabilities | None = None
        self.stdin_open = True
        self.said_on_stderr = ""

    # -- the agent's side -------------------------------------------------------------------------------------------

    def say(self, *messages: JSON) -> None:
        """Print messages, as one batch."""
        self._say.send_nowait(list(messages))

    def hang_up(self) -> None:
        """End the output, as a process that ends does; what was said before is still read."""
        self._say.close()

    async def heard(self) -> JSON:
        """The next message on stdin that was not heard yet, as soon as it comes. After the last: trio.EndOfChannel."""
        return await self._heard.receive()

    # -- the driver's side ------------------------------------------------------------------------------------------

    @property
    def run(self) -> RunSpec:
        """See `Link.run`."""
        return self._run

    def received(self, messages: Iterable[JSON], channel: str = "stdout", answer: Answer | None = None) -> None:
        """See `Link.received`."""
        messages = list(messages)
        self.given.append((channel, messages, answer))
        if self._decoding is not None:
            self._keep(self._decoding.received(messages, channel))

    def write(self, message: JSON) -> None:
        """See `Link.write`."""
        line = encode(message)
        if not self.stdin_open:
            raise AgentGone("The agent's input is closed.")
        if self._decoding is not None:
            self._keep(self._decoding.sent(message, "stdin"))
        message = orjson.loads(line)
        self.written.append(message)
        self._write.send_nowait(message)

    def sent(self, message: JSON, channel: str) -> None:
        """See `Link.sent`."""
        self.told.append((channel, message))
        if self._decoding is not None:
            self._keep(self._decoding.sent(message, channel))

    def batches(self) -> trio.MemoryReceiveChannel[Sequence[JSON]]:
        """See `Link.batches`."""
        return self._said

    async def stderr(self) -> str:
        """See `Link.stderr`: what the test put into `said_on_stderr`, at once."""
        await trio.lowlevel.checkpoint()
        return self.said_on_stderr

    def close_stdin(self) -> None:
        """See `Link.close_stdin`."""
        self.stdin_open = False
        self._write.close()

    def signal(self, signum: int) -> None:
        """See `Link.signal`."""
        self.signals.append(signum)

    def notice(self, topic: str, text: str) -> None:
        """See `Link.notice`."""
        self.notices.append((topic, text))

    def conceal(self, secret: str) -> None:
        """See `Link.conceal`."""
        self.concealed.append(secret)

    def prove(self, capabilities: BackendCapabilities) -> None:
        """See `Link.prove`."""
        self.proved = capabilities

    def _keep(self, found: Iterable[Found]) -> None:
        for entry in found:
            match entry:
                case FoundAsk():
                    self.asks.append(entry.ask)
                case Withdrawn():
                    self.withdrawn.append(entry.key)
                case _:
                    self.events.append(entry[0])
