"""`nucleic show`: a session's transcript, told as a run is."""

import sys
from collections.abc import AsyncIterator, Iterator

import click
import trio

from nucleic_core._cli.console.output import Output
from nucleic_core._cli.console.screen import stdout_screen
from nucleic_core._cli.finding import find_session
from nucleic_core._cli.following import follow as follow_events
from nucleic_core._store.home import transcript_path
from nucleic_core._store.reader import Follower, read_transcript
from nucleic_core.events import AgentEvent
from nucleic_core.settings import load_settings


@click.command("show")
@click.argument("session")
@click.option("--follow", is_flag=True, help="Wait for more while the session runs, also in another process.")
@click.option("--json", "as_json", is_flag=True, help="The events as NDJSON.")
@click.option("--raw", is_flag=True, help="Also what the agent said that was not understood.")
def command(session: str, follow: bool, as_json: bool, raw: bool) -> None:
    """Show the transcript of SESSION; the beginning of its id is enough."""
    home = load_settings().home
    path = transcript_path(home, find_session(home, session))
    events = Follower(path) if follow else _Past(read_transcript(path)[1])
    sys.stdout.flush()
    trio.run(_show, events, as_json, raw)


async def _show(events: AsyncIterator[AgentEvent], as_json: bool, raw: bool) -> None:
    screen = stdout_screen(raw=raw)
    output = Output(1)

    async def as_line(event: AgentEvent) -> None:
        await output.write(event.to_line() + b"\n")

    await follow_events(events, as_line if as_json else screen.show, screen.pause)
    await screen.pause()


class _Past:
    """Events that are all there, for those who can wait for more."""

    def __init__(self, events: Iterator[AgentEvent]) -> None:
        self._events = events

    def __aiter__(self) -> "_Past":
        return self

    async def __anext__(self) -> AgentEvent:
        for event in self._events:
            return event
        raise StopAsyncIteration
