"""One child process from its start to the end of its last descendant.

`ChildProcess` carries lines both ways and knows nothing of what they say. One task, in the nursery it was started with,
sees to everything: it feeds stdin, drains stderr, notices the exit, and leaves no process of the run behind, whether the
child ends by itself, is ended with `end()`, or the nursery is cancelled. `docs/processes.md` tells the whole story.

Three rules shape it. Nobody waits on anybody: writing is a queue, reading is the caller's, stderr is always drained.
A process group is signalled only while its leader is unreaped, since its id may belong to strangers afterwards. And
nothing here changes the host process: no subreaper, no PR_SET_PDEATHSIG, no waitpid(-1), no signal handler.
"""

import errno
import math
import os
import shutil
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Literal, Self

import trio

from nucleic_core._values import JSON
from nucleic_core._wire.descendants import COOKIE_VARIABLE, Descendants
from nucleic_core._wire.framing import LINE_LIMIT, LineFramer, Oversize, Unparsed, parse
from nucleic_core._wire.pipes import ReadEnd, StderrLog
from nucleic_core.errors import AgentGone, BackendMissing, BadDirectory, StartFailed

DRAIN_GRACE = 1.0
"""Seconds that output is awaited from whoever holds the pipes after the child itself is gone."""

HUNT_LIMIT = 5.0
"""Seconds until what SIGKILL does not end is given up: it is stuck in the kernel, or another user's."""

_left_behind: list[subprocess.Popen[bytes]] = []
"""Children that were given up; one that does end after all is reaped when the next child starts."""

_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
_PASSED = frozenset(
    ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TERM", "TZ", "TMPDIR", "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS")
) | {name for proxy in _PROXIES for name in (proxy, proxy.upper())}
_PASSED_PREFIXES = ("LC_", "XDG_")


def child_environment(
    base: Mapping[str, str], *, inherit: Iterable[str], extra: Mapping[str, str], cookie: str
) -> dict[str, str]:
    """The child's whole environment: what of `base` any program needs, the names in `inherit`, `extra`, the cookie.

    Nothing else gets through: not the host's keys, and not the marks of an agent that the host itself may run in.
    """
    wanted = _PASSED.union(inherit)
    passed = {name: value for name, value in base.items() if name in wanted or name.startswith(_PASSED_PREFIXES)}
    around = base.get(COOKIE_VARIABLE)
    return {**passed, **extra, COOKIE_VARIABLE: f"{around}:{cookie}" if around else cookie}


class Batches:
    """What a child prints, as messages: an iterator over lists, one for each read that completed a line."""

    def __init__(self, stdout: ReadEnd, framer: LineFramer) -> None:
        self._stdout = stdout
        self._framer = framer

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[JSON | Unparsed | Oversize]:
        while chunk := await self._stdout.read():
            if messages := parse(self._framer.feed(chunk)):
                return messages
        if messages := parse(self._framer.finish()):
            return messages
        raise StopAsyncIteration


class ChildProcess:
    """A running child, made by `start`. It leads a session and a process group of its own; `pid` is the id of all three."""

    def __init__(
        self, popen: subprocess.Popen[bytes], stdin: int | None, stdout: int, stderr: int, cookie: str, max_line: int
    ) -> None:
        self.pid = popen.pid
        self.stderr = StderrLog()
        self.returncode: int | None = None
        self.given_up = False
        """Whether something of it was left behind: the child or a descendant that SIGKILL did not end in time."""
        self._popen = popen
        self._reaped = False
        self._queue, self._queued = trio.open_memory_channel[bytes](math.inf)
        self._stdin = None if stdin is None else trio.lowlevel.FdStream(stdin)
        if stdin is None:
            self._queue.close()
        self._stdout = ReadEnd(stdout)
        self._stderr = ReadEnd(stderr)
        self._batches = Batches(self._stdout, LineFramer(max_line))
        self._descendants = Descendants([cookie])
        # Not one of the default threads: the application may keep all of them busy when a run must end.
        self._thread = trio.CapacityLimiter(1)
        self._exited = trio.Event()
        self._reaping = trio.CancelScope()
        self._draining = trio.CancelScope()
        self._over = trio.Event()

    @classmethod
    async def start(
        cls,
        nursery: trio.Nursery,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str | os.PathLike[str] | None,
        stdin: Literal["pipe", "null"] | bytes,
        cookie: str,
        max_line: int = LINE_LIMIT,
    ) -> Self:
        """Start a program; `env` is its whole environment and carries `cookie` (see `child_environment`).

        `stdin`: open for `write`, nothing, or bytes that it gets whole, followed by end of file.

        The program is looked up on the PATH of `env`. Lines over `max_line` bytes become `Oversize`. Raises
        BackendMissing when there is no such program, BadDirectory for `cwd`, and StartFailed for any other reason.
        """

        def spawn() -> subprocess.Popen[bytes]:
            return subprocess.Popen(
                argv,
                stdin=their_stdin,
                stdout=their_stdout,
                stderr=their_stderr,
                env=env,
                cwd=cwd,
                start_new_session=True,
            )

        _left_behind[:] = [left for left in _left_behind if left.poll() is None]
        try:
            with ExitStack() as theirs, ExitStack() as ours:
                their_stdin, our_stdin = _pipe(theirs, ours) if stdin != "null" else (subprocess.DEVNULL, None)
                our_stdout, their_stdout = _pipe(ours, theirs)
                our_stderr, their_stderr = _pipe(ours, theirs)
                # Cannot be cancelled once it began, so a started child always finds its way into the nursery.
                popen = await trio.to_thread.run_sync(spawn, limiter=trio.CapacityLimiter(1))
                ours.pop_all()
        except (OSError, ValueError) as problem:
            raise _start_error(argv[0], env, cwd, problem) from problem
        child = cls(popen, our_stdin, our_stdout, our_stderr, cookie, max_line)
        if isinstance(stdin, bytes):
            child._queue.send_nowait(stdin)
            child.close_stdin()
        nursery.start_soon(child._serve, name=f"child {child.pid}")
        return child

    def batches(self) -> Batches:
        """What the child prints, framed and parsed; the same iterator each time, for one reader.

        It ends at the end of stdout: at the latest DRAIN_GRACE seconds after the child, when a grandchild holds the
        pipe open. Whatever the child itself had written by its end is delivered, however late it is asked for.
        """
        return self._batches

    def check_writable(self) -> None:
        """Raise AgentGone when nothing can be sent any more."""
        queue = self._queue.statistics()
        if not queue.open_send_channels or not queue.open_receive_channels:
            state = "The agent's process has ended" if self._exited.is_set() else "The agent's input is closed"
            raise AgentGone(f"{state}, so nothing can be sent to it. Resume the session to go on.")

    def write(self, line: bytes) -> None:
        """Queue one line for stdin, without its newline. Never waits. Raises AgentGone when nothing can be sent."""
        assert b"\n" not in line
        self.check_writable()
        self._queue.send_nowait(line + b"\n")

    def close_stdin(self) -> None:
        """End of file for the child, after all that was queued before."""
        self._queue.close()

    def signal(self, signum: int) -> None:
        """Signal the process group; nothing happens when the child is gone."""
        if not self._reaped:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signum)

    async def wait(self) -> int | None:
        """Wait for the child's exit; all it wrote to stderr is in `stderr` then. Any number of tasks may wait.

        Returns the status as Popen gives it (negative: a signal); None when somebody else in this process reaped the
        child, or made the system do so, or when it was given up: its status is lost then.
        """
        await self._exited.wait()
        return self.returncode

    async def end(self, grace: tuple[float, float]) -> None:
        """End the child and all its descendants; returns when none is left. May be called twice, and shielded.

        The caller has closed stdin. After grace[0] seconds the group gets SIGTERM, after grace[1] more SIGKILL. What even
        that does not end within HUNT_LIMIT is given up, which `given_up` says.
        """
        for seconds, signum in zip(grace, (signal.SIGTERM, signal.SIGKILL), strict=True):
            # Looked up while parents live: a descendant that cleaned its environment is known by its parent alone.
            if not self._exited.is_set():
                await self._look_for_descendants()
            with trio.move_on_after(seconds):
                await self._exited.wait()
            if not self._exited.is_set():
                self.signal(signum)
        with trio.move_on_after(HUNT_LIMIT):
            await self._exited.wait()
        self._reaping.cancel()
        self._draining.cancel()
        await self._over.wait()

    async def _serve(self) -> None:
        """The life of the child; when this returns or raises, nothing of it is left."""
        try:
            async with trio.open_nursery() as tasks:
                tasks.start_soon(self._feed_stdin)
                tasks.start_soon(self._drain_stderr)
                with self._reaping:
                    await self._reap()
                self._draining.deadline = trio.current_time() + DRAIN_GRACE
                with self._draining:
                    await self._stdout.at_end.wait()
                    await self._stderr.at_end.wait()
                tasks.cancel_scope.cancel()
        finally:
            with trio.CancelScope(shield=True):
                await self._clear_up()

    async def _clear_up(self) -> None:
        try:
            if not self._exited.is_set() and not self._reaping.cancel_called:  # the nursery was cancelled
                await self._look_for_descendants()
                self.signal(signal.SIGKILL)
                with trio.move_on_after(HUNT_LIMIT):
                    await self._reap()
            self.given_up = True
            with trio.move_on_after(HUNT_LIMIT):
                while await self._look_for_descendants():
                    self._descendants.signal(signal.SIGKILL)
                    await trio.sleep(0.01)
                self.given_up = not self._exited.is_set()
        finally:
            if not self._exited.is_set():
                _left_behind.append(self._popen)
            self._queue.close()
            self._exited.set()
            self.stderr.add(self._stderr.take())
            self._stderr.close()
            self._stdout.close()
            self._over.set()

    async def _reap(self) -> None:
        """Wait for the exit, kill the rest of the group, and only then reap: until then the group's id stays taken."""
        self.returncode = await exit_status(self._popen)
        if self.returncode is not None:
            self.signal(signal.SIGKILL)
        self._popen.poll()
        self._reaped = True
        self._queue.close()
        self.stderr.add(self._stderr.take())
        self._exited.set()

    async def _feed_stdin(self) -> None:
        if self._stdin is not None:
            # A broken pipe is no news of its own: the child closed its stdin, or stdout will tell of its end.
            async with self._stdin, self._queued:
                with suppress(trio.BrokenResourceError):
                    async for line in self._queued:
                        await self._stdin.send_all(line)

    async def _drain_stderr(self) -> None:
        while chunk := await self._stderr.read():
            self.stderr.add(chunk)

    async def _look_for_descendants(self) -> set[int]:
        return await trio.to_thread.run_sync(self._descendants.scan, limiter=self._thread)


async def exit_status(popen: subprocess.Popen[bytes]) -> int | None:
    """Wait until the child has exited, without reaping it; its status, or None when somebody else reaped it.

    Without pidfd (not Linux, or a sandbox) it is polled; without waitid (macOS before Python 3.13) it is reaped.
    """
    with suppress(AttributeError, OSError):
        pidfd = os.pidfd_open(popen.pid)
        try:
            await trio.lowlevel.wait_readable(pidfd)
        finally:
            os.close(pidfd)
    if not hasattr(os, "waitid"):
        while popen.poll() is None:  # noqa: ASYNC110
            await trio.sleep(0.02)
        return popen.returncode
    try:
        while (exit_ := os.waitid(os.P_PID, popen.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)) is None:  # noqa: ASYNC110, ASYNC222
            await trio.sleep(0.02)
    except ChildProcessError:
        return None
    return exit_.si_status if exit_.si_code == os.CLD_EXITED else -exit_.si_status


def _pipe(reader: ExitStack, writer: ExitStack) -> tuple[int, int]:
    """A pipe whose ends are closed with the stacks of their sides. Children inherit neither unless it is given to them."""
    read, write = os.pipe()
    reader.callback(os.close, read)
    writer.callback(os.close, write)
    return read, write


_HINTS = {
    errno.EACCES: "Make it executable (chmod +x), or check the permissions of its directories.",
    errno.ENOEXEC: "It is no program for this machine; a script needs a `#!` line.",
    errno.E2BIG: "Arguments and environment are too long together; a long prompt has to go over stdin.",
    errno.EMFILE: "This process has too many files open; raise its limit (ulimit -n).",
}


def _start_error(
    program: str, env: Mapping[str, str], cwd: str | os.PathLike[str] | None, problem: OSError | ValueError
) -> StartFailed | BackendMissing | BadDirectory:
    # os.path, not pathlib, whose questions raise where a directory may not be searched.
    if cwd is not None and not os.path.isdir(cwd):  # noqa: PTH112
        return BadDirectory(f"The directory {os.fspath(cwd)!r} does not exist. Create it, or choose another.")
    if isinstance(problem, ValueError):
        return StartFailed(f"The program {program!r} cannot get an argument or environment value as it is: {problem}.")
    path = env.get("PATH", os.defpath)
    if os.path.dirname(program):  # noqa: PTH120 - exec's own rule: a slash means a path
        file = os.path.join(cwd or ".", program)  # noqa: PTH118
        missing = problem.errno in (errno.ENOENT, errno.ENOTDIR) and not os.path.exists(file)  # noqa: PTH110
        where = "there is no such file"
    else:
        # Also when the search ended with EACCES, which any unreadable directory on PATH is enough for.
        missing = shutil.which(program, os.F_OK, path) is None
        where = f"it is not on PATH ({path})"
    if missing:
        return BackendMissing(
            f"The program {program!r} was not found: {where}. Install it, or name it by its full path."
        )
    if problem.errno == errno.ENOENT:
        return StartFailed(
            f"The program {program!r} could not be started: the interpreter its `#!` line names is missing."
        )
    hint = _HINTS.get(problem.errno or 0, "Try to run it by hand.")
    return StartFailed(f"The program {program!r} could not be started: {problem.strerror}. {hint}")
