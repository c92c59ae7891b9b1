"""The world of a live test as its body sees it: sessions of the real `claude` in a fresh home and repository."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import trio
from messages_api import MessagesApi, Turn

import nucleic_core
from nucleic_core.approvals import Decision
from nucleic_core.events import AgentEvent, ApprovalRequested, EventData
from nucleic_core.specs import AgentInput

KEY = "sk-ant-test-key-of-the-live-tests"
"""The fake key that the CLI is given."""


@attrs.frozen
class World:
    """Where one test plays."""

    version: str
    program: Path
    home: Path
    cwd: Path
    api: MessagesApi
    settings: dict[str, Any]

    @asynccontextmanager
    async def open(
        self, prompt: str | AgentInput | None, *turns: Turn, within: float = 60, **options: Any
    ) -> AsyncIterator[nucleic_core.Session]:
        """Open a session in this world, with these turns at the end of the model's script.

        A test whose block takes longer than `within` seconds fails: what hangs must not hang the suite.
        """
        self.api.add(*turns)
        settings = {**self.settings, **options.pop("settings", {})}
        opened = nucleic_core.open_session("claude", prompt, cwd=self.cwd, settings=settings, **options)
        with trio.fail_after(within):
            async with opened as session:
                yield session


async def follow(
    session: nucleic_core.Session, decide: Callable[[ApprovalRequested], Decision | None] = lambda ask: None
) -> list[AgentEvent]:
    """All events of a session to its end, each ask answered as `decide` says, or left alone where it says nothing."""
    events = []
    async for event in session:
        events.append(event)
        if isinstance(event.data, ApprovalRequested) and (decision := decide(event.data)) is not None:
            await session.respond(event.data.request.id, decision)
    return events


def of(events: list[AgentEvent], kind: type[EventData]) -> list[Any]:
    """The payloads of one kind, in order."""
    return [event.data for event in events if isinstance(event.data, kind)]
