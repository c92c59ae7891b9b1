"""The world of a live test as its body sees it: sessions of a real CLI in a fresh home and repository."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import trio

import nucleic_core
from nucleic_core.approvals import Decision
from nucleic_core.events import AgentEvent, ApprovalRequested, EventData
from nucleic_core.specs import AgentInput

KEY = "sk-ant-test-key-of-the-live-tests"
"""The fake key that the CLI is given."""

CODEX_KEY = "sk-test-key-of-the-live-tests"
"""The fake key of the provider that Codex is given."""

FUNCTION_MODEL = "gpt-5.5"
"""A model that calls functions, in every version."""

CODE_MODEL = {"0.146.0": "gpt-5.6-sol", "0.171.0": "gpt-6.2-sol"}
"""A model in code mode, by version; 0.141.0 has none."""


def codex_options(base_url: str, tmp: Path, model: str = FUNCTION_MODEL) -> dict[str, Any]:
    """What every session of Codex is given: the scripted provider, and nothing that would call home.

    `tmp` becomes TMPDIR: Codex puts no helper programs below the temporary directory, where our home lies otherwise.
    """
    provider = {
        "name": "scripted",
        "base_url": base_url,
        "wire_api": "responses",
        "env_key": "SCRIPTED_KEY",
        "request_max_retries": 1,
        "stream_max_retries": 2,
    }
    fields = ",".join(f"{name}={value!r}".replace("'", '"') for name, value in provider.items())
    overrides = (f"model_providers.scripted={{{fields}}}", 'model_provider="scripted"', "analytics.enabled=false")
    return {
        "model": model,
        "env": {"SCRIPTED_KEY": CODEX_KEY, "TMPDIR": str(tmp)},
        "extra_args": tuple(arg for override in overrides for arg in ("-c", override)),
    }


@attrs.frozen
class World:
    """Where one test plays. `api` is the scripted model; `options` are given to every session."""

    version: str
    program: Path
    home: Path
    cwd: Path
    api: Any
    settings: dict[str, Any]
    backend: str = "claude"
    options: dict[str, Any] = attrs.field(factory=dict)

    @asynccontextmanager
    async def open(
        self, prompt: str | AgentInput | None, *turns: Any, within: float = 60, **options: Any
    ) -> AsyncIterator[nucleic_core.Session]:
        """Open a session in this world, with these turns at the end of the model's script.

        A test whose block takes longer than `within` seconds fails: what hangs must not hang the suite.
        """
        if turns:
            self.api.add(*turns)
        given = {**self.options, **options}
        for name in ("settings", "env"):
            given[name] = {**self.options.get(name, {}), **options.get(name, {})}
        given["settings"] = {**self.settings, **given["settings"]}
        given["extra_args"] = (*self.options.get("extra_args", ()), *options.get("extra_args", ()))
        opened = nucleic_core.open_session(self.backend, prompt, cwd=self.cwd, **given)
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
