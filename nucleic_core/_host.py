"""What sessions of one process share: plugins, the fsync task, the guard, the control socket, the index.

    async with open_host() as host:
        async with open_session("claude", "...", host=host) as one: ...

A session without a host opens a private one.
"""

import logging
import os
import secrets
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import orjson
import trio

from nucleic_core._background import Background, background
from nucleic_core._plugins import Entry, Plugins
from nucleic_core._session.session import Session
from nucleic_core._socket import ControlSocket
from nucleic_core._store.home import hosts_dir, make_private, nucleic_home
from nucleic_core._store.syncing import Syncer
from nucleic_core._wire.descendants import pid_namespace
from nucleic_core._wire.guard import Guard

log = logging.getLogger("nucleic.host")


class Host:
    """Opened by `open_host`. `sessions` holds the sessions that are open now, by id."""

    def __init__(self, home: Path, plugins: Plugins, tasks: Background) -> None:
        self.home = home
        self.plugins = plugins
        self.tasks = tasks
        self.syncer = Syncer()
        self.sessions: dict[str, Session] = {}
        self.socket: ControlSocket | None = None
        self._guard: Guard | None = None
        self._guard_lock = trio.Lock()
        self._card = hosts_dir(home) / f"{os.getpid()}-{secrets.token_hex(4)}"  # a process may have several hosts

    def add(self, session: Session) -> None:
        """Make a session reachable through the control socket; the first one opens it."""
        if self.socket is None:
            try:
                self.socket = ControlSocket(self.sessions)
                self.tasks.start_soon(self.socket.serve)
            except OSError as exc:
                log.warning("no control socket: %s", exc)
        self.sessions[session.id] = session
        self._write_card()

    def remove(self, session: Session) -> None:
        """The session is closed."""
        self.sessions.pop(session.id, None)
        self._write_card()

    async def guard(self) -> Guard:
        """The guard; the first session that starts a process starts it."""
        async with self._guard_lock:
            if self._guard is None:
                self._guard = await Guard.start(self.tasks, notice=log.warning)
        return self._guard

    async def close(self) -> None:
        """Remove what names this host on disk, and let the guard go."""
        try:
            self._card.unlink(missing_ok=True)
        except OSError as exc:  # a client finds nobody at the socket, and takes it for what it is
            log.warning("cannot remove %s: %s", self._card, exc)
        if self._guard is not None:
            await self._guard.close()

    def _write_card(self) -> None:
        """`hosts/<pid>-<random>` names the socket and the sessions of a live host, for those who look for an ask or a session."""
        if self.socket is None:
            return
        card = {
            "pid": os.getpid(),
            "pid_namespace": pid_namespace(),
            "socket": str(self.socket.path),
            "sessions": sorted(self.sessions),
        }
        try:
            make_private(self._card.parent)
            new = self._card.with_suffix(".new")
            new.write_bytes(orjson.dumps(card) + b"\n")
            new.replace(self._card)
        except OSError as exc:
            log.warning("cannot write %s: %s", self._card, exc)


@asynccontextmanager
async def open_host(home: Path | None = None, plugins: Iterable[Entry] | None = None) -> AsyncIterator[Host]:
    """Open a host. `plugins`: entry points to use instead of the installed ones.

    Raises TranscriptFailed when nothing can be kept under `home` (or NUCLEIC_HOME).
    """
    where = nucleic_home(home)
    async with background() as tasks:
        host = Host(where, Plugins(plugins), tasks)
        tasks.start_soon(host.syncer.run)
        try:
            yield host
        finally:
            with trio.CancelScope(shield=True):
                await host.close()
