"""A client of the control sockets of live hosts, for commands that answer asks and steer sessions of other processes.

`hosts/<pid>-<random>` in NUCLEIC_HOME names each host's socket and sessions. One line of JSON goes out and one comes back;
`nucleic_core._socket` is the other end.
"""

import os
import socket
from pathlib import Path

import attrs
import orjson

from nucleic_core import errors
from nucleic_core._cli.exits import Refused
from nucleic_core._store.home import hosts_dir
from nucleic_core._values import JSON
from nucleic_core._wire.descendants import pid_namespace
from nucleic_core.errors import AgentGone, ApprovalClosed, NucleicError, SessionNotFound
from nucleic_core.events import plain

CLIENT = "cli"
_TIMEOUT = 30.0  # seconds; a host answers at once, unless it is stopped


@attrs.frozen
class HostCard:
    """One live host."""

    pid: int
    socket: str
    sessions: tuple[str, ...]


def live_hosts(home: Path) -> list[HostCard]:
    """The hosts of this home; what dead ones left behind is removed.

    Whether one in another container lives that shares this home cannot be told by its pid: it is taken for living.
    """
    hosts: list[HostCard] = []
    for path in sorted(hosts_dir(home).glob("[0-9]*")):
        if path.suffix:
            continue  # one that is being written
        try:
            card = orjson.loads(path.read_bytes())
            host = HostCard(card["pid"], card["socket"], tuple(card["sessions"]))
            ours = card["pid_namespace"] == pid_namespace()
        except (OSError, ValueError, LookupError, TypeError):
            continue  # removed meanwhile, or no card
        if ours and not _alive(host.pid):
            path.unlink(missing_ok=True)
        else:
            hosts.append(host)
    return hosts


def steer(home: Path, session: str, verb: str, **fields: JSON) -> JSON:
    """Ask the host of a session to do something with it. Raises SessionNotFound when no live host has it, else what it raised."""
    for host in live_hosts(home):
        if session in host.sessions:
            answer = _request(host, {"verb": verb, "session": session, **fields})
            if answer is not None:
                return _checked(answer)
    raise SessionNotFound(f"Session {session} is not running. Take it up with `nucleic resume {session[:8]}`.")


def answer(home: Path, ask: str, decision: JSON, *, who: str | None = None) -> None:
    """Answer an ask, whichever host has it; `who` tells one person from another where several votes are needed.

    Raises ApprovalClosed when it is not open, or what the host raised.
    """
    client = CLIENT if who is None else f"{CLIENT}:{who}"
    for host in live_hosts(home):
        reply = _request(host, {"verb": "answer", "ask": ask, "decision": decision, "client": client})
        if reply is None or (reply.get("kind") == "ApprovalClosed" and not reply.get("by")):
            continue  # not of this host
        if reply.get("kind") == "ApprovalClosed":
            raise ApprovalClosed(f"{ask} was already answered by {reply['by']}; nothing was changed.", by=reply["by"])
        _checked(reply)
        return
    raise ApprovalClosed(f"No ask {ask} is open. `nucleic sessions` shows which sessions wait for one.")


def open_ask(home: Path, ask: str) -> JSON:
    """The ask itself, as JSON; None when it is open nowhere."""
    for host in live_hosts(home):
        reply = _request(host, {"verb": "asks"})
        if reply is None:
            continue
        for entry in _checked(reply)["asks"]:
            if entry["ask"]["id"] == ask:
                return entry["ask"]
    return None


def _request(host: HostCard, request: JSON) -> dict[str, JSON] | None:
    """One request; None when nobody is there any more."""
    try:
        with socket.socket(socket.AF_UNIX) as peer:
            peer.settimeout(_TIMEOUT)
            peer.connect(host.socket)
            peer.sendall(orjson.dumps({"client": CLIENT, **request}, default=plain) + b"\n")
            with peer.makefile("rb") as lines:
                reply = orjson.loads(lines.readline())
    except TimeoutError as exc:
        raise AgentGone(f"The host, process {host.pid}, does not answer.") from exc
    except (OSError, ValueError):
        return None
    return reply if isinstance(reply, dict) else None


def _checked(reply: dict[str, JSON]) -> dict[str, JSON]:
    """The reply, or what the host raised, raised here."""
    if "error" not in reply:
        return reply
    cls = getattr(errors, str(reply.get("kind")), None)
    if isinstance(cls, type) and issubclass(cls, NucleicError):
        raise cls(str(reply["error"]))
    raise Refused(str(reply["error"]))


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
