"""The control socket of a host: how another terminal, or a program, answers asks and sends messages.

One JSON object a line in, one out. The socket is 0600 in a 0700 directory of its own outside NUCLEIC_HOME, and a peer
must be of our user. A peer that descends from a run may not use it: an agent's own shell must not approve itself
(`docs/security.md` says what this does not stop).
"""

import logging
import os
import re
import shutil
import socket
import struct
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import orjson
import trio

from nucleic_core._faults import log_failure
from nucleic_core._session.session import Session
from nucleic_core._values import JSON, unicode_text
from nucleic_core._wire.descendants import COOKIE_VARIABLE, carried_cookies, lives
from nucleic_core._wire.framing import LineFramer, Oversize
from nucleic_core.approvals import Allow, AllowAlways, Answers, CancelRun, Decision, Deny
from nucleic_core.errors import ApprovalClosed, NucleicError, SessionNotFound
from nucleic_core.events import plain

log = logging.getLogger("nucleic.socket")

_LONGEST = 4 * 1024 * 1024
_MAX_CLIENTS = 64
_REFUSED_PATIENCE = 1.0  # seconds
_LONGEST_PLACE = 60  # bytes; a socket's whole path ends at 107
_CLIENT_NAME = re.compile(r"[\w.:@-]{1,64}")


def decision_from_json(value: JSON) -> Decision | Answers:
    """A decision in its JSON shape (`{"type": "allow", ...}`); ValueError says what is wrong."""
    if not isinstance(value, dict):
        raise ValueError("a decision is an object with a type")
    reason = value.get("reason", "")
    if not isinstance(reason, str):
        raise ValueError("a reason is a text")
    match value.get("type"):
        case "allow":
            return Allow(value.get("updated_input"))
        case "allow_always":
            scope: Literal["session", "tool_name", "tool_name_with_pattern"]
            scope, pattern = value.get("scope", "session"), value.get("pattern")
            if scope not in ("session", "tool_name", "tool_name_with_pattern"):
                raise ValueError(f"no scope is called {scope!r}")
            if not isinstance(pattern, str | None):
                raise ValueError("a pattern is a text")
            return AllowAlways(scope, pattern)
        case "deny":
            return Deny(reason)
        case "cancel_run":
            return CancelRun(reason)
        case "answers":
            answers = value.get("answers")
            if answers is not None and not (
                isinstance(answers, dict) and all(isinstance(text, str) for text in answers.values())
            ):
                raise ValueError("answers are an object of texts, or null")
            return Answers(answers)
        case other:
            raise ValueError(f"no decision is called {other!r}")


class ControlSocket:
    """Listens for one host; `sessions` is looked up at each request."""

    def __init__(self, sessions: Mapping[str, Session]) -> None:
        self._sessions = sessions
        self._directory = Path(tempfile.mkdtemp(prefix="nucleic-", dir=_place()))
        self.path = self._directory / "control"
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # No umask: it is the whole process's, and a child that starts meanwhile would inherit it. The directory is ours.
            listener.bind(str(self.path))
            self.path.chmod(0o600)
            listener.listen(128)  # beyond it, a client that does not block gets a socket that is not connected
        except OSError:
            listener.close()
            shutil.rmtree(self._directory, ignore_errors=True)
            raise
        self._socket = trio.socket.from_stdlib_socket(listener)

    async def serve(self) -> None:
        """Serve until cancelled, then remove the socket."""
        try:
            await self._accept()
        finally:
            self._socket.close()
            shutil.rmtree(self._directory, ignore_errors=True)

    async def _accept(self) -> None:
        places = trio.Semaphore(_MAX_CLIENTS)
        async with trio.open_nursery() as nursery:
            while True:
                await places.acquire()
                try:
                    peer, _ = await self._socket.accept()
                except OSError as exc:  # out of descriptors, most likely: the next one may fare better
                    log.warning("control socket: %r", exc)
                    places.release()
                    await trio.sleep(0.1)
                else:
                    nursery.start_soon(self._serve_one, trio.SocketStream(peer), places)

    async def _serve_one(self, stream: trio.SocketStream, places: trio.Semaphore) -> None:
        try:
            async with stream:
                if refusal := _refusal(stream.socket):
                    # Not left waiting: whoever is refused must not be able to take all the places.
                    with trio.move_on_after(_REFUSED_PATIENCE):
                        await stream.receive_some()  # what is unread when a socket closes costs the peer our answer
                        await stream.send_all(orjson.dumps({"error": refusal, "kind": "Refused"}) + b"\n")
                    return
                framer = LineFramer(_LONGEST)
                while chunk := await stream.receive_some():
                    for line in framer.feed(chunk):
                        answer = await self._handle(line)
                        await stream.send_all(orjson.dumps(answer, default=plain) + b"\n")
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
            pass  # the client has gone
        except Exception as exc:
            log_failure(log, "control socket: a client's request", exc)
        finally:
            places.release()

    async def _handle(self, line: bytes | Oversize) -> JSON:
        try:
            if isinstance(line, Oversize):
                raise ValueError(f"a request may have {_LONGEST} bytes")
            request = orjson.loads(line)
            if not isinstance(request, dict):
                raise ValueError("a request is an object with a verb")
            return {"ok": True, **await self._verb(request)}
        except Exception as exc:  # a driver's own error among them: the client is to hear of it
            if not isinstance(exc, NucleicError | ValueError):
                log_failure(log, "control socket: a request", exc)
            extra = {"by": exc.by} if isinstance(exc, ApprovalClosed) else {}
            return {"error": str(exc), "kind": type(exc).__name__, **extra}

    async def _verb(self, request: dict[str, JSON]) -> dict[str, JSON]:
        client = str(request.get("client", "client"))
        if not _CLIENT_NAME.fullmatch(client):
            raise ValueError("a client name is up to 64 letters, digits and . : @ _ -")
        match request.get("verb"):
            case "asks":
                return {"asks": [{"session": s.id, "ask": ask} for s in self._sessions.values() for ask in s.open_asks]}
            case "answer":
                ask = str(request.get("ask"))
                decision = decision_from_json(request.get("decision"))
                await self._session_of(ask).respond(ask, decision, by=f"socket:{client}")
                return {}
            case "send":
                text = request.get("text")
                if not isinstance(text, str) or not text:
                    raise ValueError("a message is a text")
                return {"input": await self._session(request).send(text, steer=request.get("steer") is True)}
            case "interrupt":
                await self._session(request).interrupt()
                return {}
            case other:
                raise ValueError(f"no verb is called {other!r}")

    def _session(self, request: dict[str, JSON]) -> Session:
        session = self._sessions.get(str(request.get("session")))
        if session is None:
            raise SessionNotFound(f"No session {request.get('session')!r} is open in this host.")
        return session

    def _session_of(self, ask: str) -> Session:
        for session in self._sessions.values():
            if session.knows_ask(ask):
                return session
        raise ApprovalClosed(f"No ask {ask} is open in this host.")


def _refusal(peer: trio.socket.SocketType) -> str:
    """Why this peer may not use the socket; empty when it may."""
    if not hasattr(socket, "SO_PEERCRED"):
        return ""  # the directory's mode keeps other users out; who of ours it is cannot be told here
    pid, uid, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    if uid != os.getuid():
        return "This socket answers only to the user who runs Nucleic."
    own = set(os.environ.get(COOKIE_VARIABLE, "").split(":"))
    if carried_cookies(pid) - own or not lives(pid):  # of one that has gone, nobody can say whose it was
        return "An agent's own processes may not answer asks or steer sessions."
    return ""


def _place() -> str:
    """Where the socket's directory goes: the runtime directory, unless that is missing, no text, or too long for a path."""
    for place in (os.environ.get("XDG_RUNTIME_DIR"), tempfile.gettempdir()):
        fits = place is not None and unicode_text(place) == place and 0 < len(os.fsencode(place)) <= _LONGEST_PLACE
        if place and fits and os.access(place, os.W_OK | os.X_OK):
            return place
    return "/tmp"  # noqa: S108
