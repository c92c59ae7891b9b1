"""However a caller leaves a session, nothing is left running, nothing is left open, and errors come out plain."""

import gc
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest
import trio

from core_agents import Entry, Scripted, alive, events_of, gone, kinds, only, open_fake, wait_for
from nucleic_core import Allow, ApprovalClosed, TranscriptFailed, open_host, open_session
from nucleic_core.events import (
    ApprovalRequested,
    AssistantText,
    Raw,
    RunFinished,
    TurnStarted,
)

PID = "tell('pid', pid=os.getpid()); "
ASKING = (
    PID
    + """prompt(); tell("call", id="c1", tool="Bash", input={}); tell("ask", key="1", tool="Bash", input={}, call="c1")
while True:
    message = hear(); tell("heard", message=message)
    if "stop" in message: done("interrupted")"""
)


@pytest.fixture(autouse=True)
def _short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nucleic_core._session.machine.INTERRUPT_GRACE", 0.5)


def transcript(session: Any) -> list[Any]:
    path = Path(os.environ["NUCLEIC_HOME"]) / "sessions" / session.id / "transcript.jsonl"
    return [orjson.loads(line) for line in path.read_bytes().splitlines()[1:]]


async def asked(session: Any) -> int:
    """The child's pid, once its ask is open."""
    pid = (await wait_for(session, Raw)).value["pid"]
    await wait_for(session, ApprovalRequested)
    return int(pid)


def check_orderly_end(session: Any, pid: int) -> None:
    """The child is gone, and its ask, its call and its run are closed."""
    assert not alive(pid)
    events = transcript(session)
    (resolved,) = [e for e in events if e["kind"] == "approval_resolved"]
    assert (resolved["cause"], resolved["decided_by"]) == ("session_ended", "nucleic")
    heard = [e["value"]["message"] for e in events if e["kind"] == "raw" and e["value"]["t"] == "heard"]
    assert heard == [{"key": "1", "allow": False, "reason": "the session ended"}, {"stop": True}]
    assert [e["kind"] for e in events].count("tool_result") == 1
    assert events[-1]["kind"] == "run_finished"
    assert events[-1]["outcome"] == "interrupted"


# -- leaving ------------------------------------------------------------------------------------------------------------


async def test_an_error_in_the_body_comes_out_plain_and_nothing_is_left(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="^mine$") as raised:
        async with open_fake(Scripted(ASKING), cwd=tmp_path) as session:
            pid = await asked(session)
            raise ValueError("mine")
    assert type(raised.value) is ValueError
    check_orderly_end(session, pid)


async def test_breaking_out_of_the_loop_ends_the_run_in_order(tmp_path: Path) -> None:
    async with open_fake(Scripted(ASKING), cwd=tmp_path) as session:
        async for event in session:
            if isinstance(event.data, Raw):
                pid = event.data.value["pid"]
            if isinstance(event.data, ApprovalRequested):
                break
    check_orderly_end(session, pid)
    gc.collect()  # an abandoned generator would warn now


async def test_a_cancellation_from_outside_still_ends_the_run_in_order(tmp_path: Path) -> None:
    with trio.CancelScope() as scope:
        async with open_fake(Scripted(ASKING), cwd=tmp_path) as session:
            pid = await asked(session)
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught
    check_orderly_end(session, pid)


async def test_an_error_beside_a_session_in_a_nursery_ends_it(tmp_path: Path) -> None:
    sessions: list[Any] = []

    async def serve() -> None:
        async with open_fake(Scripted(ASKING), cwd=tmp_path) as session:
            sessions.append((session, await asked(session)))
            ready.set()
            await session.result()

    ready = trio.Event()
    with pytest.raises(ExceptionGroup) as raised:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve)
            await ready.wait()
            raise KeyError("beside")
    assert raised.group_contains(KeyError)
    check_orderly_end(*sessions[0])


async def test_an_error_in_the_body_survives_a_deadline_that_passes_during_the_way_down(tmp_path: Path) -> None:
    stubborn = PID + "signal.signal(signal.SIGTERM, signal.SIG_IGN); prompt()\nwhile True: time.sleep(600)"
    with trio.move_on_after(0.6), pytest.raises(ValueError, match="mine"):
        async with open_fake(Scripted(stubborn, grace=(0.5, 0.5)), cwd=tmp_path) as session:
            await wait_for(session, TurnStarted)
            raise ValueError("mine")


async def test_leaving_after_the_end_is_quick_and_quiet(tmp_path: Path) -> None:
    async with open_fake(Scripted("prompt(); done(text='x')"), cwd=tmp_path) as session:
        await session.result()
    assert kinds(await events_of(session))[-1] == "run_finished"
    assert session.status == "finished"


async def test_leaving_with_a_prompt_on_its_way_stops_its_turn(tmp_path: Path) -> None:
    script = """time.sleep(0.2); prompt(); heard = hear(); tell("heard", message=heard)
done("interrupted"); stay()"""
    async with open_fake(Scripted(script), cwd=tmp_path) as session:
        pass
    events = transcript(session)
    assert [e["value"]["message"] for e in events if e["kind"] == "raw"] == [{"stop": True}]
    assert events[-1]["outcome"] == "interrupted"


async def test_leaving_stops_queued_prompts_as_well(tmp_path: Path) -> None:
    script = """while True:
    prompt()
    while "stop" not in hear(): pass
    done("interrupted")"""
    async with open_fake(Scripted(script, grace=(5.0, 5.0)), cwd=tmp_path) as session:
        await wait_for(session, TurnStarted)
        await session.send("two")
    assert [e["outcome"] for e in transcript(session) if e["kind"] == "turn_completed"][-1] == "interrupted"


async def test_a_run_that_is_left_between_turns_keeps_its_outcome(tmp_path: Path) -> None:
    async with open_fake(Scripted("prompt(); done(text='x'); stay()"), cwd=tmp_path, keep_open=True) as session:
        while session.status != "awaiting_input":
            await trio.sleep(0.01)
    assert transcript(session)[-1]["outcome"] == "completed"


async def test_a_response_that_is_cancelled_has_answered_or_has_not(tmp_path: Path) -> None:
    async with open_fake(Scripted(ASKING), cwd=tmp_path) as session:
        await asked(session)
        ask = session.open_asks[0].id
        with trio.CancelScope() as scope:
            scope.cancel()
            await session.respond(ask, Allow())
        assert scope.cancelled_caught
        assert session.open_asks
        await session.respond(ask, Allow())
        with pytest.raises(ApprovalClosed):
            await session.respond(ask, Allow())


async def test_a_host_may_serve_on_after_a_session_of_it_failed(tmp_path: Path) -> None:
    async with open_host() as host:
        with pytest.raises(ValueError, match="mine"):
            async with open_session("demo", "sleep 60", cwd=tmp_path, host=host):
                raise ValueError("mine")
        async with open_session("demo", "say hi", cwd=tmp_path, host=host) as session:
            assert (await session.result()).outcome == "completed"


async def test_no_file_descriptor_is_left_open(tmp_path: Path) -> None:
    async def once() -> None:
        async with open_session("demo", "say hi", cwd=tmp_path) as session:
            await session.result()

    await once()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        await once()
    assert len(os.listdir("/proc/self/fd")) == before


async def test_nothing_is_left_in_the_directories_for_sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = Path(f"/tmp/nucleic-test-{os.getpid()}")
    runtime.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    try:
        async with open_session("demo", "say hi", cwd=tmp_path):
            (folder,) = runtime.iterdir()
            assert folder.stat().st_mode & 0o777 == 0o700
            assert (folder / "control").stat().st_mode & 0o777 == 0o600
        assert list(runtime.iterdir()) == []
    finally:
        runtime.rmdir()


# -- the host itself ----------------------------------------------------------------------------------------------------

HOST = """
import os, sys, trio
sys.path.insert(0, {tests!r})
from core_agents import Scripted, open_fake, wait_for
from nucleic_core.events import ApprovalRequested, Raw
async def main():
    async with open_fake(Scripted({script!r}), cwd={cwd!r}) as session:
        pid = (await wait_for(session, Raw)).value["pid"]
        await wait_for(session, ApprovalRequested)
        print(session.id, pid, flush=True)
        {then}
trio.run(main)
"""


def start_host(tmp_path: Path, then: str = "await trio.sleep_forever()", script: str = ASKING) -> subprocess.Popen[str]:
    code = HOST.format(tests=str(Path(__file__).parent), script=script, cwd=str(tmp_path), then=then)
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


async def test_a_host_that_is_killed_takes_its_agents_with_it(tmp_path: Path) -> None:
    with start_host(tmp_path) as host:
        assert host.stdout is not None
        _, pid = host.stdout.readline().split()
        assert alive(int(pid))
        host.kill()
        host.wait()
        assert await gone(int(pid))


async def test_ctrl_c_comes_out_as_keyboard_interrupt_and_leaves_nothing(tmp_path: Path) -> None:
    with start_host(tmp_path) as host:
        assert host.stdout is not None
        _, pid = host.stdout.readline().split()
        host.send_signal(signal.SIGINT)
        _, said = host.communicate()
        assert "KeyboardInterrupt" in said
        assert not alive(int(pid))


# -- a transcript that cannot be written --------------------------------------------------------------------------------

FULL = """import resource, signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        size = os.stat(os.path.join(os.environ["NUCLEIC_HOME"], "sessions", session.id, "transcript.jsonl")).st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, resource.RLIM_INFINITY))
        from nucleic_core import Allow, TranscriptFailed
        try:
            await session.respond(session.open_asks[0].id, Allow())
        except TranscriptFailed as failure:
            print("respond:", failure)
        with trio.fail_after(20):
            events = [event async for event in session]
        print("the stream ended:", events[-1].kind)
        try:
            await session.result()
        except TranscriptFailed as failure:
            print("result:", type(failure).__name__)
        print("asks:", session.open_asks, flush=True)"""


async def test_a_disk_that_is_full_denies_the_ask_ends_the_run_and_says_so(tmp_path: Path) -> None:
    heard = tmp_path / "heard"
    script = (
        PID
        + f"""prompt(); tell("ask", key="1", tool="Bash", input={{}})
while True:
    line = sys.stdin.readline()
    if not line: break
    open({str(heard)!r}, "a").write(line)"""
    )
    with start_host(tmp_path, FULL, script) as host:
        out, said = host.communicate()
    _, pid = out.splitlines()[0].split()
    assert "respond: cannot write the transcript" in out, said
    assert "the stream ended: approval_requested" in out
    assert "result: TranscriptFailed" in out
    assert "asks: ()" in out
    assert said.splitlines()[-1].startswith("nucleic_core.errors.TranscriptFailed")
    assert "ExceptionGroup" not in said
    assert '"allow":false' in heard.read_text()
    assert '"allow":true' not in heard.read_text()
    assert not alive(int(pid))


async def test_a_transcript_that_fails_in_the_middle_of_the_stream_ends_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = """prompt(); tell("ask", key="1", tool="Bash", input={}); tell("say", text="one"); hear()
for n in range(100): tell("say", text="more"); time.sleep(0.01)"""
    from nucleic_core._store import transcript as store

    def full(fd: int, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    async def responder(what: Any) -> Any:
        monkeypatch.setattr(store, "_write_all", full)
        return Allow()

    with pytest.raises(TranscriptFailed, match="No space left"):
        async with open_fake(Scripted(script), cwd=tmp_path, responder=responder) as session:
            with trio.fail_after(10):
                events = await events_of(session)
            assert kinds(events)[-1] != "run_finished"


async def test_a_transcript_that_fails_on_the_way_down_skips_nothing_of_an_orderly_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = f"""prompt(); tell("ask", key="1", tool="Bash", input={{}})
while line := sys.stdin.readline(): open({str(tmp_path / "heard")!r}, "a").write(line)
open({str(tmp_path / "heard")!r}, "a").write("end of input")"""
    from nucleic_core._store import transcript as store

    def full(fd: int, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(TranscriptFailed, match="No space left"):
        async with open_fake(Scripted(script, grace=(5.0, 5.0)), cwd=tmp_path) as session:
            await wait_for(session, ApprovalRequested)
            monkeypatch.setattr(store, "_write_all", full)
    heard = (tmp_path / "heard").read_text()
    assert '"allow":false' in heard
    assert heard.endswith("end of input")


@pytest.mark.parametrize("when", ["all along", "at the end"])
async def test_a_sync_that_fails_is_told_at_the_end_of_a_run_that_knew_of_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    def fails(fd: int) -> None:
        raise OSError(5, "Input/output error")

    if when == "all along":
        monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(TranscriptFailed, match="Input/output error") as raised:
        async with open_fake(Scripted("prompt(); done(text='x')"), cwd=tmp_path) as session:
            assert (await session.result()).outcome == "completed"
            monkeypatch.setattr(os, "fsync", fails)
    assert raised.value.__context__ is None
    with pytest.raises(ValueError, match="mine"):
        async with open_fake(Scripted("prompt(); done(text='x')"), cwd=tmp_path) as session:
            await session.result()
            raise ValueError("mine")


async def test_an_agent_that_cannot_be_killed_is_told_and_left_to_the_guard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nucleic_core._wire.process.HUNT_LIMIT", 0.2)
    monkeypatch.setattr("nucleic_core._wire.process.ChildProcess.signal", lambda self, signum: None)
    monkeypatch.setattr("nucleic_core._wire.descendants.Descendants.signal", lambda self, signum: None)
    script = PID + "signal.signal(signal.SIGTERM, signal.SIG_IGN); prompt(); done(text='x'); time.sleep(600)"
    async with open_host(plugins=[Entry(Scripted(script))]) as host:
        async with open_session("fake", "go", cwd=tmp_path, host=host) as session:
            pid = (await wait_for(session, Raw)).value["pid"]
            assert (await session.result()).outcome == "completed"
        assert alive(pid)
        assert [e["topic"] for e in transcript(session) if e["kind"] == "notice"] == ["process"]
    assert await gone(pid)  # the guard was not told to forget it


async def test_a_host_whose_card_cannot_be_removed_still_lets_its_guard_go(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_host() as host:
        async with open_session("demo", "say hi", cwd=tmp_path, host=host) as session:
            await session.result()
        guard = (await host.guard())._process
        assert guard is not None

        def stuck(self: Path, missing_ok: bool = False) -> None:
            raise OSError(30, "Read-only file system")

        monkeypatch.setattr(Path, "unlink", stuck)
    monkeypatch.undo()
    assert not alive(guard.pid)
    assert "Read-only file system" in caplog.text


# -- reports ------------------------------------------------------------------------------------------------------------


async def test_a_result_may_be_waited_for_by_many(tmp_path: Path) -> None:
    async with open_fake(Scripted("prompt(); tell('say', text='a'); done(text='x')"), cwd=tmp_path) as session:
        outcomes: list[str] = []

        async def wait() -> None:
            outcomes.append((await session.result()).outcome)

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(wait)
    assert outcomes == ["completed"] * 5
    events = await events_of(session)
    assert only(events, AssistantText).text == "a"
    assert only(events, RunFinished).outcome == "completed"


async def test_what_was_open_is_closed_in_the_order_ask_call_turn_run(tmp_path: Path) -> None:
    async with open_fake(Scripted(ASKING), cwd=tmp_path) as session:
        await asked(session)
    closing = [e["kind"] for e in transcript(session) if e["kind"] not in ("raw", "error")][-4:]
    assert closing == ["approval_resolved", "tool_result", "turn_completed", "run_finished"]
