"""From the opening of a session to an agent that is ready: what may take long, what may be given up, who may ask meanwhile."""

import contextlib
import functools
import threading
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from core_agents import Entry, FakeDriver, Scripted, events_of, extension, open_fake
from nucleic_core import AgentGone, AgentInput, HandshakeTimeout, Session, open_host, open_session
from nucleic_core.events import AssistantText
from nucleic_core.hookspecs import hookimpl
from nucleic_core.lowlevel import LineDriver, RpcDriver


@contextlib.asynccontextmanager
async def full_thread_pool() -> Any:
    """All of trio's default threads are busy, with work of the application."""
    over = threading.Event()
    async with trio.open_nursery() as nursery:
        for _ in range(int(trio.to_thread.current_default_thread_limiter().total_tokens)):
            nursery.start_soon(functools.partial(trio.to_thread.run_sync, over.wait))
        try:
            await trio.testing.wait_all_tasks_blocked()
            yield
        finally:
            over.set()


@pytest.fixture
def quick_git(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nucleic_core._store.git._DEADLINE", 0.05)


async def test_a_session_runs_while_the_application_keeps_all_threads_busy(tmp_path: Path, quick_git: None) -> None:
    with trio.fail_after(10):
        async with full_thread_pool(), open_session("demo", "say hi", cwd=tmp_path) as session:
            assert (await session.result()).outcome == "completed"


@pytest.mark.parametrize("stuck", ["nucleic_core._host.Guard.start", "nucleic_core._wire.process.ChildProcess.start"])
async def test_leaving_while_a_process_is_being_started_gives_it_up(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, stuck: str
) -> None:
    async def never(*_: Any, **__: Any) -> None:
        await trio.sleep_forever()

    monkeypatch.setattr(stuck, never)
    with trio.fail_after(5), trio.move_on_after(0.2) as scope:
        async with open_session("demo", "say hi", cwd=tmp_path):
            pytest.fail("it never got ready")
    assert scope.cancelled_caught
    (transcript,) = home.glob("sessions/*/transcript.jsonl")
    assert b'"interrupted"' in transcript.read_bytes()


async def test_a_drivers_entry_that_never_ends_is_a_timeout_that_names_the_step(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nucleic_core._session.machine.ENTRY", 0.1)

    class Slow(FakeDriver):
        async def __aenter__(self) -> Any:
            await trio.sleep_forever()

    with trio.fail_after(5), pytest.raises(HandshakeTimeout, match="within 0.1 s.*__aenter__"):
        async with open_fake(Scripted(driver=Slow), cwd=tmp_path):
            pass
    (transcript,) = home.glob("sessions/*/transcript.jsonl")
    assert b'"errored"' in transcript.read_bytes()


async def test_a_driver_that_was_quick_to_enter_may_take_its_time_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nucleic_core._session.machine.ENTRY", 0.2)
    script = "prompt(); time.sleep(0.4); done(text='x')"
    async with open_fake(Scripted(script), cwd=tmp_path) as session:
        assert (await session.result()).outcome == "completed"


# -- before it is ready -------------------------------------------------------------------------------------------------


class Waits(FakeDriver):
    """Is not ready before the test says so."""

    go = trio.Event()

    async def converse(self, link: Any, *, task_status: Any = trio.TASK_STATUS_IGNORED) -> None:
        await self.go.wait()
        await super().converse(link, task_status=task_status)


async def test_a_session_that_is_not_ready_takes_no_message_and_says_so(tmp_path: Path, nursery: trio.Nursery) -> None:
    """The control socket knows a session before its caller does."""

    class Driver(Waits):
        go = trio.Event()

    outcomes: list[str] = []

    async def opens(host: Any) -> None:
        async with open_session("fake", "go", host=host, cwd=tmp_path) as session:
            outcomes.append((await session.result()).outcome)

    async with open_host(plugins=[Entry(Scripted("prompt(); done(text='x')", driver=Driver))]) as host:
        nursery.start_soon(opens, host)
        while not host.sessions:
            await trio.sleep(0.01)
        (session,) = host.sessions.values()
        assert isinstance(session, Session)
        with pytest.raises(AgentGone, match="not ready yet"):
            await session.send("too early")
        await session.interrupt()
        Driver.go.set()
        while host.sessions:
            await trio.sleep(0.01)
    assert outcomes == ["completed"]


@pytest.mark.parametrize("step", ["send", "interrupt", "finish"])
async def test_a_driver_without_a_conversation_has_nobody_to_carry_to(step: str) -> None:
    class Driver(RpcDriver):
        async def send(self, message: Any, *, steer: bool = False) -> None:
            await self.peer.call("prompt")

        async def interrupt(self) -> None:
            self.peer.notify("stop")

    for driver in (LineDriver(), Driver()):
        with pytest.raises(AgentGone, match="not ready yet"):
            await getattr(driver, step)(*([AgentInput.of("hi")] if step == "send" else []))


async def test_a_start_that_is_given_up_logs_no_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Driver(Waits):
        go = trio.Event()

    with trio.move_on_after(0.3):
        async with open_fake(Scripted("stay()", driver=Driver), cwd=tmp_path):
            pytest.fail("it never got ready")
    assert caplog.text == ""


# -- secrets ------------------------------------------------------------------------------------------------------------


async def test_secrets_that_backend_wrapper_or_driver_bring_along_are_redacted_as_well(tmp_path: Path) -> None:
    import attrs

    class Wraps:
        NUCLEIC_API = 1

        @hookimpl(wrapper=True)
        def nucleic_spawn(self, run: Any) -> Any:
            spec = yield
            return attrs.evolve(spec, env={**spec.env, "BOX_TOKEN": "wrapper-secret"})

    class Driver(FakeDriver):
        async def converse(self, link: Any, *, task_status: Any = trio.TASK_STATUS_IGNORED) -> None:
            link.conceal("driver-secret")
            await super().converse(link, task_status=task_status)

    script = """prompt(); tell("say", text=" ".join(os.environ[n] for n in ("A_KEY", "BOX_TOKEN", "PLAIN")) + " driver-secret")
done(text="x")"""
    plugin = Scripted(script, driver=Driver, env={"A_KEY": "backend-secret", "PLAIN": "plain-value"})
    async with open_fake(plugin, "go", extension(Wraps()), cwd=tmp_path) as session:
        said = [event.data.text for event in await events_of(session) if isinstance(event.data, AssistantText)]
    assert said == ["[redacted] [redacted] plain-value [redacted]"]
