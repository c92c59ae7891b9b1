"""The road from Codex's PreToolUse hook to the session: how the hook is given and trusted, and the socket it talks to.

    codex -- starts --> hook program -- socket --> HookServer -- Link.received(channel="hook") --> decoder, approval
          <- verdict --             <-- socket --            <-- the answer to that ask

The hook and the trust in it are given by `-c` alone; no file of the user's is touched. Its program is part of its
definition, which Codex trusts by hash, so nothing that the agent can write to changes what runs.
"""

import hashlib
import hmac
import json
import os
import secrets
import shlex
import shutil
import socket
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import orjson
import trio

from nucleic_codex.fields import mapping, sequence
from nucleic_core.backend import Ask, Link, Reply
from nucleic_core.lowlevel import JSON, LineFramer, Oversize

CHANNEL = "hook"
"""The channel on which decoder and transcript see the hook's calls and what was answered."""

MATCHER = "^(Bash|apply_patch)$"
TIMEOUT = 86400
"""Seconds until Codex would run the tool unasked; the hook's own deadline lies below it."""

KEY = "/<session-flags>/config.toml:pre_tool_use:0:0"
"""The name under which Codex knows the first hook that came by `-c`."""

_PROGRAM = Path(__file__).with_name("hook_program.py")
_LONGEST = 64 * 1024 * 1024
_LONGEST_PLACE = 60  # bytes; a socket's whole path ends at 107


def definition() -> JSON:
    """The hook as Codex's configuration holds it: the same for every run, so that its hash is."""
    command = shlex.join((sys.executable, "-I", "-S", "-c", _PROGRAM.read_text(encoding="utf-8")))
    return {"matcher": MATCHER, "hooks": [{"type": "command", "command": command, "timeout": TIMEOUT}]}


def trusted_hash(group: JSON) -> str:
    """The hash by which Codex knows a hook, as `hooks/list` reports it: the same in all versions that were looked at."""
    (handler,) = group["hooks"]
    identity = {"event_name": "pre_tool_use", "matcher": group["matcher"], "hooks": [{**handler, "async": False}]}
    text = json.dumps(identity, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def arguments() -> tuple[str, ...]:
    """The command-line arguments that give the hook and the trust in it."""
    group = definition()
    (handler,) = group["hooks"]
    fields = f'type="command",command={_toml(handler["command"])},timeout={handler["timeout"]}'
    hook = f"hooks.PreToolUse=[{{matcher={_toml(group['matcher'])},hooks=[{{{fields}}}]}}]"
    state = f"hooks.state={{{_toml(KEY)}={{trusted_hash={_toml(trusted_hash(group))}}}}}"
    return ("-c", hook, "-c", state)


def _toml(text: str) -> str:
    """A text as a TOML string, which JSON's escapes are but for DEL."""
    return json.dumps(text).replace("\x7f", "\\u007f")


def untrusted(listed: JSON) -> str:
    """What is wrong with our hook in the answer to `hooks/list`; empty when it will run."""
    hooks = [hook for entry in sequence(mapping(listed).get("data")) for hook in sequence(mapping(entry).get("hooks"))]
    ours = [hook for hook in hooks if mapping(hook).get("key") == KEY]
    if not ours:
        return "Codex does not list it"
    hook = mapping(ours[0])
    if hook.get("enabled") is not True:
        return "it is switched off"
    if hook.get("trustStatus") not in ("trusted", "managed"):
        return f"its trust is {hook.get('trustStatus')!r}"
    return ""


class HookServer:
    """Listens for the hook program while the block lasts; `link` is set once there is one."""

    link: Link | None = None

    def __init__(self) -> None:
        self._token = secrets.token_urlsafe(24)
        self._waiting: dict[str, _Call] = {}

    @property
    def env(self) -> Mapping[str, str]:
        """What the hook program needs to find us. The agent's shell sees it too; all it can do with it is ask."""
        return {"NUCLEIC_HOOK_SOCKET": str(self._path), "NUCLEIC_HOOK_TOKEN": self._token}

    async def __aenter__(self) -> Self:
        self._directory = Path(tempfile.mkdtemp(prefix="nucleic-hook-", dir=_place()))
        self._path = self._directory / "s"
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(str(self._path))
            self._path.chmod(0o600)
            listener.listen(128)
        except OSError:
            listener.close()
            shutil.rmtree(self._directory, ignore_errors=True)
            raise
        self._socket = trio.socket.from_stdlib_socket(listener)
        self._manager = trio.open_nursery()
        nursery = await self._manager.__aenter__()
        self._scope = nursery.cancel_scope
        nursery.start_soon(self._accept, nursery)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._scope.cancel()
        try:
            await self._manager.__aexit__(None, None, None)  # not the block's error: it must stay plain
        finally:
            self._socket.close()
            shutil.rmtree(self._directory, ignore_errors=True)

    async def _accept(self, nursery: trio.Nursery) -> None:
        while True:
            peer, _ = await self._socket.accept()
            nursery.start_soon(self._serve, trio.SocketStream(peer))

    async def _serve(self, stream: trio.SocketStream) -> None:
        """One call of the hook program: its question, then our verdict. It waits for as long as the decision takes."""
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError, OSError):
            async with stream:
                asked = await self._question(stream)
                if asked is not None and self.link is not None:
                    await self._decide(stream, self.link, asked)

    async def _question(self, stream: trio.SocketStream) -> JSON:
        framer = LineFramer(_LONGEST)
        while chunk := await stream.receive_some():
            for line in framer.feed(chunk):
                if isinstance(line, Oversize):
                    return None
                try:
                    question = mapping(orjson.loads(line))
                except orjson.JSONDecodeError:
                    return None
                token = question.get("token")
                if isinstance(token, str) and hmac.compare_digest(token.encode(), self._token.encode()):
                    return question.get("call")
                return None
        return None

    async def _decide(self, stream: trio.SocketStream, link: Link, asked: JSON) -> None:
        key = f"hook-{secrets.token_hex(8)}"
        call = self._waiting[key] = _Call()
        async with trio.open_nursery() as nursery:

            async def hang_up() -> None:
                """The hook program ended, or was ended, before there was a verdict."""
                with suppress(trio.BrokenResourceError, OSError):
                    await stream.receive_some()
                if not call.done.is_set():
                    call.done.set()  # first: an answer that comes now has nobody to go to
                    link.received([{"key": key, "withdrawn": True}], CHANNEL, self.answer)
                nursery.cancel_scope.cancel()

            try:
                link.received([{"key": key, "call": asked}], CHANNEL, self.answer)
                nursery.start_soon(hang_up)
                await call.done.wait()
                await stream.send_all(orjson.dumps({"verdict": call.verdict}) + b"\n")
                nursery.cancel_scope.cancel()
            finally:
                del self._waiting[key]

    def answer(self, ask: Ask, reply: Reply | None) -> None:
        """Hand the verdict to the hook program that waits for it; `None` is a denial."""
        call = self._waiting.get(ask.key)
        if call is None or call.done.is_set():
            return
        call.verdict = denial("Nucleic does not understand this call.") if reply is None else reply.message
        if self.link is not None:
            self.link.sent({"key": ask.key, "verdict": call.verdict}, CHANNEL)
        call.done.set()


class _Call:
    """A hook program that waits."""

    def __init__(self) -> None:
        self.done = trio.Event()
        self.verdict: JSON = None


def allowance(updated: JSON = None) -> JSON:
    """The verdict that lets a call go on to Codex's own rules, with another input where one is given."""
    if updated is None:
        return {}
    return {
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": "allow",
            "updatedInput": updated,
        }
    }


def denial(reason: str) -> JSON:
    """The verdict that stops a call; without a reason Codex would run it."""
    return {
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": "deny",
            "permissionDecisionReason": reason.strip() or "denied by the user",
        }
    }


def _place() -> str:
    """Where the socket's directory goes: the runtime directory, unless it is missing or too long for a socket's path."""
    for place in (os.environ.get("XDG_RUNTIME_DIR"), tempfile.gettempdir()):
        if place and len(os.fsencode(place)) <= _LONGEST_PLACE and os.access(place, os.W_OK | os.X_OK):
            return place
    return "/tmp"  # noqa: S108
