"""One process's life: enter the driver, spawn, shake hands, carry, wind down, report.

There is one way down, whatever the reason. The machine runs as a shielded task beside the caller's body, so that a
cancellation of the caller does not tear the wires out: it only says that the caller has left.
"""

import logging
import math
import os
import secrets
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar

import trio

from nucleic_core._approvals.coordinator import Coordinator
from nucleic_core._faults import failure_of, log_failure
from nucleic_core._plugins import Hooks
from nucleic_core._session.link import ProcessLink
from nucleic_core._session.pipeline import Pipeline
from nucleic_core._store.redaction import secrets_of
from nucleic_core._wire.guard import Guard
from nucleic_core._wire.process import ChildProcess, child_environment
from nucleic_core.approvals import CancelRun
from nucleic_core.backend import Decoder, Driver
from nucleic_core.capabilities import BackendCapabilities
from nucleic_core.errors import AgentGone, BackendBroken, HandshakeTimeout, NucleicError, StartFailed, TranscriptFailed
from nucleic_core.events import Error, Notice, RunFinished
from nucleic_core.specs import ProcessSpec, RunSpec

log = logging.getLogger("nucleic.session")

_T = TypeVar("_T")

Ending: TypeAlias = Literal["idle", "left", "gone", "failed"]
"""Why the wind-down began: the run is idle for good, the caller left, the process ended, or something of ours failed."""

INTERRUPT_GRACE = 3.0
"""Seconds that a running turn has to end in band when the caller leaves, before stdin is closed and signals follow."""

LAST_READ = 10.0
"""Seconds that a driver has to read to the end once the process is gone."""

ENTRY = 120.0
"""Seconds that a driver's entry may take: a look for the program and its version, a port, a hook's hash."""

FAREWELL = 10.0
"""Seconds that a driver has to put its things away."""


class Machine:
    """Runs one process for a session. `ready` is set when it took up work or failed to; then look at `failure`."""

    def __init__(
        self,
        run: RunSpec,
        hooks: Hooks,
        decoder: Decoder,
        pipeline: Pipeline,
        coordinator: Coordinator,
        guard: Callable[[], Awaitable[Guard]],
        prove: Callable[[BackendCapabilities], None],
    ) -> None:
        self._run = run
        self._hooks = hooks
        self._decoder = decoder
        self._pipeline = pipeline
        self._coordinator = coordinator
        self._guard = guard
        self._prove = prove
        self.ready = trio.Event()
        self.failure: Exception | None = None
        self.driver: Driver | None = None
        self._started = False
        self._ending = trio.Event()
        self._why: Ending = "failed"
        self._turn_ended = trio.Event()
        self._interrupt_wanted = False
        self._start_step: trio.CancelScope | None = None
        self._nursery: trio.Nursery | None = None

    # -- for the session ---------------------------------------------------------------------------------------------

    def end(self, why: Ending) -> None:
        """Begin the wind-down, or give up a start that is not through; the first reason counts."""
        if self._ending.is_set():
            return
        self._why = why
        self._ending.set()
        if self._start_step is not None:
            self._start_step.cancel()

    def check_started(self) -> None:
        """Raise what kept the agent from starting."""
        if not self._started and self.failure is not None:
            raise self.failure

    @property
    def started(self) -> bool:
        """Whether the agent ever got ready."""
        return self._started

    @property
    def ending(self) -> bool:
        """Whether the wind-down has begun: nothing new is taken up."""
        return self._ending.is_set()

    async def interrupt(self) -> None:
        """Stop the running turn, or the one that is about to begin, as soon as it has."""
        ledger = self._pipeline.ledger
        if ledger.turn_running and self.driver is not None:
            ledger.interrupted = True
            try:
                await self.driver.interrupt()
            except BaseException as exc:
                raise failure_of(exc) from exc.__cause__
        else:
            self._interrupt_wanted = ledger.input_waits
            await trio.lowlevel.checkpoint()

    def turn_started(self) -> None:
        """A turn began; an interrupt that waited for it goes out."""
        if self._interrupt_wanted:
            self._interrupt_wanted = False
            self.start_soon(self.interrupt)

    def turn_ended(self) -> None:
        """A turn was completed; a wind-down that waits for it goes on."""
        self._turn_ended.set()

    def start_soon(self, task: Callable[..., Awaitable[object]], *args: object) -> None:
        """Run a task while the process lives; a failure of it is logged and ends nothing else."""
        if self._nursery is not None:
            self._nursery.start_soon(self._isolated, task, args)

    async def run(self) -> None:
        """Everything from the driver's entry to the run's end. Never raises: `failure` says what went wrong."""
        try:
            await self._whole_life()
        except BaseException as exc:
            failure = failure_of(exc)
            if self.failure is None:
                self.failure = failure
            else:
                log_failure(log, "the driver's exit", failure)
        finally:
            self._report_failure()
            self.ready.set()

    # -- the life ----------------------------------------------------------------------------------------------------

    async def _whole_life(self) -> None:
        driver = self._hooks.driver(self._run, self._decoder)
        # The driver's entry may be given up; once it is through, its tasks live in this scope and it is cancelled no more.
        with trio.move_on_after(ENTRY) as step:
            self._start_step = step
            if self._ending.is_set():
                step.cancel()
            async with driver:
                self._start_step = None
                step.deadline = math.inf
                try:
                    if not self._ending.is_set():
                        await self._with_process(driver)
                except BaseException as exc:
                    self.failure = failure_of(exc)  # now: a driver that hangs in its exit must not hide it
                finally:
                    step.deadline = trio.current_time() + FAREWELL
        if step.cancelled_caught and not (self._started or self._ending.is_set() or self.failure):
            raise HandshakeTimeout(
                f"The driver of {self._run.backend} did not get ready within {ENTRY:g} s, in what it does before the agent's "
                "process is started (Driver.__aenter__)."
            )

    async def _unless_left(self, step: Callable[[], Awaitable[_T]]) -> _T | None:
        """A step of the start, which is given up when the caller leaves; None then."""
        with trio.CancelScope() as scope:
            self._start_step = scope
            if self._ending.is_set():
                scope.cancel()
            return await step()
        return None

    async def _with_process(self, driver: Driver) -> None:
        spec = self._hooks.spawn(self._run, driver)
        self.driver = driver
        cookie = secrets.token_hex(16)
        env = child_environment(
            os.environ, inherit=spec.inherit_env, extra={**spec.env, **self._run.env}, cookie=cookie
        )
        self._pipeline.conceal(secrets_of(env))
        guard = await self._unless_left(self._guard)
        if guard is None:
            return
        guard.watch(cookie)
        child: ChildProcess | None = None
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                start = partial(ChildProcess.start, nursery, spec.argv, env=env, stdin=spec.stdin, cookie=cookie)
                child = await self._unless_left(partial(start, cwd=spec.cwd or self._run.cwd))
                if child is not None:
                    await self._serve(nursery, driver, child, spec)
                nursery.cancel_scope.cancel()
        finally:
            self._nursery = None
            if child is not None and child.given_up:
                text = "Something of the agent's process does not end, even by SIGKILL; it is left to the kernel."
                log.warning("process %d: %s", child.pid, text)
                self._pipeline.mention(Notice("process", text, {"pid": child.pid}))
            else:
                guard.forget(cookie)
        if self._pipeline.failure is None and child is not None and self._started:
            self._coordinator.close_all("agent_gone", "the agent's process is gone", for_good=True)
            if self.failure is not None:
                self._pipeline.mention(_fatal(self.failure))
            description = last_words(child) if self.failure is None else str(self.failure)
            self._pipeline.ended(child.returncode, description, failed=self.failure is not None)

    async def _serve(self, nursery: trio.Nursery, driver: Driver, child: ChildProcess, spec: ProcessSpec) -> None:
        link = ProcessLink(self._run, child, self._pipeline, driver.answer, self._prove, contained=spec.contained)
        carried = trio.Event()

        async def carry(*, task_status: trio.TaskStatus[None]) -> None:
            try:
                await driver.converse(link, task_status=task_status)
                with trio.move_on_after(spec.grace[0]):
                    await child.wait()
                if self._started:  # else it is a start that failed
                    self.end("gone")
            except BaseException as exc:
                if not self._started:
                    raise
                failure = self._driver_failure(failure_of(exc))
                if isinstance(failure, AgentGone):
                    self.end("gone")
                else:
                    log_failure(
                        log, "the driver", failure.__cause__ if isinstance(failure.__cause__, Exception) else failure
                    )
                    self.failure = failure
                    self.end("failed")
            finally:
                carried.set()

        async def notice_the_end() -> None:
            await child.wait()
            self._turn_ended.set()
            with trio.move_on_after(LAST_READ):
                await carried.wait()
            self.end("gone")

        try:
            await self._shake_hands(nursery, carry, child, spec)
            if self._started:
                self.ready.set()
                if carried.is_set():  # in the very moment of being ready
                    self.end("gone")
                nursery.start_soon(notice_the_end)
                await self._ending.wait()
        finally:
            with trio.CancelScope(shield=True):
                await self._wind_down(driver, child, spec)
                if self._started:
                    with trio.move_on_after(spec.grace[1]):
                        await carried.wait()

    async def _shake_hands(
        self, nursery: trio.Nursery, carry: Callable[..., Awaitable[None]], child: ChildProcess, spec: ProcessSpec
    ) -> None:
        """Start the driver's conversation, unless the caller leaves, the process ends or the deadline passes first."""
        if self._ending.is_set():
            return

        async def give_up_at_exit(scope: trio.CancelScope) -> None:
            await child.wait()
            scope.cancel()

        with trio.move_on_after(spec.start_timeout) as self._start_step:
            async with trio.open_nursery() as watcher:
                watcher.start_soon(give_up_at_exit, self._start_step)
                try:
                    await nursery.start(carry)
                    self._started = True
                except BaseException as raised:
                    exc = failure_of(raised)
                    if isinstance(exc, NucleicError) and not isinstance(exc, AgentGone):
                        raise exc from exc.__cause__
                    with trio.move_on_after(1.0):  # a driver often fails because the process just has: that tells more
                        await child.wait()
                    if child.returncode is None:
                        raise self._start_failure(exc) from exc
                watcher.cancel_scope.cancel()
        self._start_step = None
        if self._started or (self._ending.is_set() and self._why == "left"):
            return
        if self._ending.is_set():  # it said its last before it was ready; its exit and its stderr say why
            with trio.move_on_after(1.0):
                await child.wait()
        name = Path(spec.argv[0]).name
        if child.returncode is None and not self._ending.is_set():
            said = child.stderr.text().strip() or "nothing on stderr"
            raise HandshakeTimeout(f"{name} did not get ready within {spec.start_timeout:g} s. It said: {said}")
        raise StartFailed(f"{name} ended before it was ready: {last_words(child)}")

    async def _wind_down(self, driver: Driver, child: ChildProcess, spec: ProcessSpec) -> None:
        """Interrupt in band, close stdin, then the process's own grace, signals and the last descendant."""
        if self._why in ("left", "failed"):
            self._pipeline.ledger.stopping = self._why == "left"
            self._close_asks(CancelRun("the session ended"))
            if self._started and self.failure is None:
                await self._end_turns(child)
        elif self._why == "idle":
            self._close_asks(None)
            self._finish_run()
        with trio.move_on_after(spec.grace[0]):
            await self._quietly(driver.finish())
        child.close_stdin()
        await child.end(spec.grace)

    def _close_asks(self, told: CancelRun | None) -> None:
        with suppress(TranscriptFailed):  # the wire has its denials all the same, and the end goes on in order
            self._coordinator.close_all("session_ended", "the session ended", reply=told, for_good=True)

    async def _end_turns(self, child: ChildProcess) -> None:
        """Stop the turn in band, and those that queued inputs are about to begin, and wait a moment for their end."""
        ledger = self._pipeline.ledger
        with trio.move_on_after(INTERRUPT_GRACE):
            while child.returncode is None and (ledger.turn_running or ledger.input_waits):
                self._turn_ended = trio.Event()
                await self._quietly(self.interrupt())
                if self._pipeline.failure is not None:
                    return  # nobody would hear of its end
                await self._turn_ended.wait()

    def _finish_run(self) -> None:
        """The run is over when the backend is idle for good; how long its process lingers is another matter.

        Where an input never became a turn, the process's end will say more than we know now.
        """
        ledger = self._pipeline.ledger
        outcome = "completed" if ledger.untouched else ledger.last_turn.outcome if ledger.last_turn else None
        if outcome is not None:
            self._pipeline.mention(RunFinished(outcome))

    def _report_failure(self) -> None:
        """A start that failed, or was given up, stands in the transcript too."""
        if self._pipeline.failure is not None:
            self.failure = self.failure or self._pipeline.failure
        elif not self._pipeline.ledger.finished:
            if self.failure is None:
                text = "The run was given up before the agent was ready."
                self._pipeline.mention(RunFinished("interrupted", error=text))
            else:
                self._pipeline.mention(_fatal(self.failure))
                self._pipeline.mention(RunFinished("errored", error=str(self.failure)))
            self.failure = self.failure or self._pipeline.failure

    def _driver_failure(self, failure: Exception) -> Exception:
        """What a driver raised, as an error of ours."""
        if isinstance(failure, NucleicError):
            return failure
        text = f"The driver of {self._run.backend} failed: {failure!r}."
        wrapped = BackendBroken(text) if self._started else StartFailed(text)
        wrapped.__cause__ = failure
        return wrapped

    def _start_failure(self, failure: Exception) -> Exception:
        """What a driver raised before it was ready. A process that lives on without talking has not started either."""
        failure = self._driver_failure(failure)
        return StartFailed(str(failure)) if isinstance(failure, AgentGone) else failure

    async def _quietly(self, step: Awaitable[None]) -> None:
        """A step of the wind-down that may fail without stopping it."""
        try:
            await step
        except AgentGone:
            pass  # then there is nothing to end
        except BaseException as exc:
            log_failure(log, "a step of the session's end", failure_of(exc))

    async def _isolated(self, task: Callable[..., Awaitable[object]], args: tuple[object, ...]) -> None:
        try:
            await task(*args)
        except BaseException as exc:
            log_failure(log, "a task of the session", failure_of(exc))


def last_words(child: ChildProcess) -> str:
    """How a process ended, with what it said on stderr unless it ended well."""
    said = child.stderr.text().strip() if child.returncode != 0 else ""
    return f"{describe_exit(child.returncode)}, saying: {said}" if said else describe_exit(child.returncode)


def describe_exit(returncode: int | None) -> str:
    """An exit status for people: a code, or the signal's name."""
    if returncode is None:
        return "its exit status is unknown"
    if returncode >= 0:
        return f"exit code {returncode}"
    try:
        return f"killed by {signal.Signals(-returncode).name}"
    except ValueError:
        return f"killed by signal {-returncode}"


def _fatal(failure: Exception) -> Error:
    return Error(str(failure), recoverable=False, code=type(failure).__name__)
