"""What a plugin, an agent's driver or a helper task of ours does wrong costs its own work, and the session nothing more."""

import logging
from pathlib import Path
from typing import Any

import pytest
import trio

from core_agents import FakeDecoder, FakeDriver, Scripted, events_of, extension, only, open_fake
from nucleic_core import BackendBroken, BadSettings, StartFailed
from nucleic_core._background import background
from nucleic_core._faults import failure_of
from nucleic_core.events import ApprovalResolved, AssistantText, Error, Notice, Raw, RunFinished
from nucleic_core.hookspecs import hookimpl

ASKS = 'prompt(); tell("ask", key="1", tool="Bash", input={}); answer = hear(); done(text=str(answer["allow"]))'
QUITS = [SystemExit(3), BaseExceptionGroup("several", [SystemExit(3), ValueError()]), BaseException("odd")]


@pytest.fixture(params=QUITS, ids=["exit", "group", "base"])
def quits(request: Any) -> BaseException:
    error: BaseException = request.param
    return error


@pytest.fixture(autouse=True)
def _short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nucleic_core._session.machine.INTERRUPT_GRACE", 0.3)


class Policy:
    name = "mine"

    def __init__(self, raised: BaseException) -> None:
        self._raised = raised

    async def decide(self, request: Any) -> Any:
        raise self._raised


# -- plugins that try to end the program ---------------------------------------------------------------------------------


async def test_a_policy_that_quits_has_failed(tmp_path: Path, quits: BaseException) -> None:
    policies = ["allow", Policy(quits)]
    async with open_fake(Scripted(ASKS), cwd=tmp_path, policies=policies, responder="deny") as session:
        events = await events_of(session)
    resolved = only(events, ApprovalResolved)
    assert resolved.cause == "no_responder"
    assert [trace.verdict for trace in resolved.trace] == ["pass", "allow", "failed"]
    assert only(events, RunFinished).outcome == "completed"


async def test_an_observer_that_quits_is_left_behind(tmp_path: Path, quits: BaseException) -> None:
    class Quits:
        NUCLEIC_API = 1

        @hookimpl
        def nucleic_observer(self) -> Any:
            return self

        async def observe(self, events: Any) -> None:
            raise quits

    async with open_fake(Scripted("prompt(); done(text='x')"), "go", extension(Quits()), cwd=tmp_path) as session:
        events = await events_of(session)
    assert only(events, Notice).topic == "observer"
    assert only(events, RunFinished).outcome == "completed"


async def test_a_decoder_that_quits_costs_one_message_its_meaning(tmp_path: Path, quits: BaseException) -> None:
    class Quits(FakeDecoder):
        def received(self, message: Any, out: Any, channel: str = "stdout") -> None:
            if message["t"] == "boom":
                raise quits
            super().received(message, out, channel)

        def ended(self, returncode: int | None, out: Any) -> None:
            raise quits

    script = "prompt(); tell('boom'); tell('say', text='fine'); done(text='x')"
    async with open_fake(Scripted(script, decoder=Quits), cwd=tmp_path) as session:
        events = await events_of(session)
    assert only(events, Raw).value == {"t": "boom"}
    assert only(events, AssistantText).text == "fine"


@pytest.mark.parametrize("hook", ["decoder", "driver", "spawn"])
async def test_a_hook_that_quits_breaks_its_backend(tmp_path: Path, hook: str, quits: BaseException) -> None:
    def impl(self: Any) -> Any:
        raise quits

    plugin = type("Quits", (Scripted,), {f"nucleic_{hook}": hookimpl(impl)})()
    with pytest.raises(BackendBroken, match="cannot be used"):
        async with open_fake(plugin, cwd=tmp_path):
            pass


async def test_a_driver_that_quits_on_entry_or_in_the_handshake_failed_to_start(
    tmp_path: Path, quits: BaseException
) -> None:
    class OnEntry(FakeDriver):
        async def __aenter__(self) -> Any:
            raise quits

    class InHandshake(FakeDriver):
        async def converse(self, link: Any, *, task_status: Any = trio.TASK_STATUS_IGNORED) -> None:
            raise quits

    with pytest.raises(Exception, match=r"SystemExit|odd") as raised:
        async with open_fake(Scripted(driver=OnEntry), cwd=tmp_path):
            pass
    assert not isinstance(raised.value, BaseExceptionGroup)
    with pytest.raises(StartFailed, match="The driver of fake failed"):
        async with open_fake(Scripted(driver=InHandshake), cwd=tmp_path):
            pass


async def test_a_driver_that_quits_in_the_run_ends_it_as_errored(tmp_path: Path, quits: BaseException) -> None:
    class Quits(FakeDriver):
        async def converse(self, link: Any, *, task_status: Any = trio.TASK_STATUS_IGNORED) -> None:
            self.link = link
            task_status.started()
            async for batch in link.batches():
                link.received(batch)
                raise quits

    async with open_fake(Scripted("prompt(); stay()", driver=Quits), cwd=tmp_path) as session:
        assert (await session.result()).outcome == "errored"
        events = await events_of(session)
    assert not only(events, Error).recoverable


@pytest.mark.parametrize("step", ["send", "interrupt", "finish", "__aexit__"])
async def test_a_driver_that_quits_at_any_step_raises_no_more_than_a_plain_exception(
    tmp_path: Path, step: str, quits: BaseException
) -> None:
    async def quit_(self: Any, *_: Any, **__: Any) -> None:
        raise quits

    driver = type("Quits", (FakeDriver,), {step: quit_})
    try:
        async with open_fake(Scripted("prompt(); stay()", driver=driver), None, cwd=tmp_path) as session:
            await session.send("go")
            await trio.sleep(0.1)
            await session.interrupt()
    except Exception as exc:
        assert step in ("send", "interrupt")
        assert not isinstance(exc, ExceptionGroup)
    else:
        assert step in ("finish", "__aexit__")


def test_a_cancellation_and_ctrl_c_are_nobodys_failure() -> None:
    for passing in (KeyboardInterrupt(), GeneratorExit()):
        with pytest.raises(type(passing)):
            failure_of(passing)
        with pytest.raises(BaseExceptionGroup) as raised:
            failure_of(BaseExceptionGroup("several", [ValueError(), passing]))
        assert raised.value.exceptions == (passing,)


async def test_a_policy_that_is_cancelled_in_a_group_is_not_waited_for(tmp_path: Path) -> None:
    class Slow:
        name = "slow"

        async def decide(self, request: Any) -> Any:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.sleep_forever)
                await trio.sleep_forever()

    async with open_fake(Scripted(ASKS), cwd=tmp_path, policies=[Slow()]) as session:
        while not session.open_asks:
            await trio.sleep(0.01)
        with trio.fail_after(1.5):  # before the policies' own deadline
            await session.interrupt()
    assert only(await events_of(session), ApprovalResolved).cause == "interrupted"


# -- extensions that cannot be loaded -----------------------------------------------------------------------------------


def _no_module() -> Any:
    raise ImportError("no module named corp")


class Nothing:
    """An extension that does nothing."""

    NUCLEIC_API = 1


@pytest.mark.parametrize(
    "broken", [[extension(_no_module, "corp")], [extension(Nothing(), "corp"), extension(Nothing(), "corp")]]
)
async def test_an_extension_that_cannot_be_loaded_withdraws_every_allow_since_it_might_have_denied(
    tmp_path: Path, broken: Any
) -> None:
    async with open_fake(Scripted(ASKS), "go", *broken, cwd=tmp_path, policies=["allow"], responder="deny") as session:
        events = await events_of(session)
    resolved = only(events, ApprovalResolved)
    assert (resolved.cause, resolved.decided_by) == ("no_responder", "nucleic")
    (failed,) = [trace for trace in resolved.trace if trace.verdict == "failed"]
    assert failed.policy == "corp"
    assert "not loaded" in failed.why
    assert "corp is not loaded" in only(events, Notice).text


async def test_beside_an_extension_that_cannot_be_loaded_denials_still_count(tmp_path: Path) -> None:
    lost = extension(_no_module, "corp")
    async with open_fake(Scripted(ASKS), "go", lost, cwd=tmp_path, policies=["deny"]) as session:
        events = await events_of(session)
    assert only(events, ApprovalResolved).decided_by == "policy:deny"


async def test_an_extension_that_cannot_be_loaded_cannot_be_named(tmp_path: Path, home: Path) -> None:
    with pytest.raises(BadSettings, match="ImportError: no module named corp"):
        async with open_fake(Scripted(ASKS), "go", extension(_no_module, "corp"), cwd=tmp_path, policies=["corp"]):
            pass
    assert not (home / "sessions").exists()


# -- helper tasks -------------------------------------------------------------------------------------------------------


async def test_a_helper_task_that_fails_is_logged_and_the_body_goes_on(
    quits: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    async def fails() -> None:
        raise quits

    async with background() as tasks:
        tasks.start_soon(fails)
        await trio.sleep(0.01)
        await trio.lowlevel.checkpoint()
    assert "fails raised" in caplog.text


async def test_a_cancelled_body_passes_whatever_a_helper_task_did(caplog: pytest.LogCaptureFixture) -> None:
    async def fails() -> None:
        raise ValueError("a bug of ours")

    with trio.move_on_after(0.05) as scope:
        async with background() as tasks:
            tasks.start_soon(fails)
            await trio.sleep_forever()
    assert scope.cancelled_caught


# -- logs ---------------------------------------------------------------------------------------------------------------


async def test_no_log_holds_what_an_exception_of_foreign_code_says(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Such a text often quotes what the code was working on."""
    payload = ValueError("the agent's own words")

    class Decoder(FakeDecoder):
        def received(self, message: Any, out: Any, channel: str = "stdout") -> None:
            if message["t"] == "boom":
                raise payload
            super().received(message, out, channel)

    class Driver(FakeDriver):
        async def interrupt(self) -> None:
            raise payload

        async def finish(self) -> None:
            raise payload

    class Watches:
        NUCLEIC_API = 1

        @hookimpl
        def nucleic_observer(self) -> Any:
            return self

        @hookimpl
        def nucleic_approval_policy(self) -> Any:
            raise payload

        async def observe(self, events: Any) -> None:
            raise payload

    script = f"tell('boom'); {ASKS}; stay()"
    with caplog.at_level(logging.DEBUG):
        plugin = Scripted(script, decoder=Decoder, driver=Driver)
        async with open_fake(plugin, "go", extension(Watches()), cwd=tmp_path, policies=[Policy(payload)]) as session:
            while not session.open_asks:
                await trio.sleep(0.01)
            await trio.sleep(0.05)
    assert "ValueError" in caplog.text
    assert "own words" not in caplog.text
