"""What the core gives a driver: one child and its transcript."""

import json
from collections.abc import AsyncIterator, Callable, Iterable, Sequence

import orjson

from nucleic_core._session.pipeline import Pipeline
from nucleic_core._values import JSON
from nucleic_core._wire.process import ChildProcess
from nucleic_core.backend import Answer
from nucleic_core.capabilities import BackendCapabilities
from nucleic_core.errors import TranscriptFailed
from nucleic_core.events import Notice
from nucleic_core.specs import RunSpec


class ProcessLink:
    """The `Link` of a session whose agent is a child process."""

    def __init__(
        self,
        run: RunSpec,
        child: ChildProcess,
        pipeline: Pipeline,
        answer: Answer,
        prove: Callable[[BackendCapabilities], None],
    ) -> None:
        self._run = run
        self._child = child
        self._pipeline = pipeline
        self._answer = answer
        self._prove = prove

    @property
    def run(self) -> RunSpec:
        """See `Link.run`."""
        return self._run

    def received(self, messages: Iterable[JSON], channel: str = "stdout", answer: Answer | None = None) -> None:
        """See `Link.received`."""
        try:
            self._pipeline.received(messages, channel, answer or self._answer)
        except TranscriptFailed:
            pass  # the asks among them were denied and the session is ending; the driver has nothing to mend

    def write(self, message: JSON) -> None:
        """See `Link.write`."""
        line = encode(message)
        self._child.check_writable()  # before the record: nobody is to believe what never went out
        if self._pipeline.failure is None:  # else only denials and farewells go out, which need no record
            self._pipeline.sent(message, "stdin", self._answer)
        self._child.write(line)

    def sent(self, message: JSON, channel: str) -> None:
        """See `Link.sent`."""
        self._pipeline.sent(message, channel, self._answer)

    def batches(self) -> AsyncIterator[Sequence[JSON]]:
        """See `Link.batches`."""
        return self._child.batches()

    async def stderr(self) -> str:
        """See `Link.stderr`."""
        await self._child.wait()
        return self._child.stderr.text()

    def close_stdin(self) -> None:
        """See `Link.close_stdin`."""
        self._child.close_stdin()

    def signal(self, signum: int) -> None:
        """See `Link.signal`."""
        self._child.signal(signum)

    def notice(self, topic: str, text: str) -> None:
        """See `Link.notice`."""
        self._pipeline.mention(Notice(topic, text))

    def conceal(self, secret: str) -> None:
        """See `Link.conceal`."""
        self._pipeline.conceal([secret])

    def prove(self, capabilities: BackendCapabilities) -> None:
        """See `Link.prove`."""
        self._prove(capabilities)


def encode(message: JSON) -> bytes:
    """A message as one line. What orjson cannot say (a lone surrogate, a huge number) goes out as ASCII escapes."""
    try:
        return orjson.dumps(message)
    except TypeError:
        return json.dumps(message, ensure_ascii=True, separators=(",", ":"), allow_nan=False).encode()
