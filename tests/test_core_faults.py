"""What goes wrong with an agent: dying, lingering, flooding, talking junk. Real children, scripted (core_agents)."""

from pathlib import Path
from typing import Any

import pytest
import trio

from core_agents import (
    FakeDriver,
    Scripted,
    alive,
    events_of,
    only,
    open_fake,
    wait_for,
)
from nucleic_core import (
    Allow,
    ApprovalClosed,
    BackendMissing,
    BadDirectory,
    HandshakeTimeout,
    StartFailed,
)
from nucleic_core.events import (
    ApprovalRequested,
    ApprovalResolved,
    AssistantText,
    Error,
    Notice,
    Raw,
    RunFinished,
    ToolResult,
    TurnStarted,
)


@pytest.fixture(autouse=True)
def _short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nucleic_core._session.machine.INTERRUPT_GRACE", 0.5)


LONG_GRACE = (20.0, 20.0)
ASK = 'tell("ask", key="1", tool="Bash", input={"command": "ls"}, call="c1")'


# -- dying --------------------------------------------------------------------------------------------------------------


async def test_a_child_that_dies_during_an_approval_closes_it(tmp_path: Path) -> None:  # fault 8
    async with open_fake(Scripted(f"prompt(); {ASK}; time.sleep(0.1); sys.exit(7)"), cwd=tmp_path) as session:
        ask = (await wait_for(session, ApprovalRequested)).request.id
        result = await session.result()
        with pytest.raises(ApprovalClosed, match="agent gone"):
            await session.respond(ask, Allow())
        events = await events_of(session)
    assert only(events, ApprovalResolved).cause == "agent_gone"
    assert only(events, ToolResult).synthetic
    assert result.outcome == "errored"
    assert "exit code 7" in str(result.error)
    assert not [e for e in events if isinstance(e.data, Error)]


async def test_a_child_that_is_killed_in_the_middle_of_a_line_loses_nothing(tmp_path: Path) -> None:  # fault 9
    script = """prompt(); tell("say", text="one"); sys.stdout.write('{"t": "say", "te'); sys.stdout.flush()
os.kill(os.getpid(), signal.SIGKILL)"""
    async with open_fake(Scripted(script), cwd=tmp_path) as session:
        events = await events_of(session)
    assert only(events, AssistantText).text == "one"
    assert only(events, Raw).value == '{"t": "say", "te'
    assert "SIGKILL" in only(events, RunFinished).error  # F5-09
    assert only(events, RunFinished).returncode == -9


@pytest.mark.parametrize("code", [0, 3])
async def test_a_child_that_exits_at_once_is_an_error_with_its_last_words(tmp_path: Path, code: int) -> None:
    script = f"sys.stderr.write('no licence'); sys.exit({code})"
    async with open_fake(Scripted(script), cwd=tmp_path) as session:
        result = await session.result()
    assert result.outcome == "errored"
    assert f"exit code {code}" in str(result.error)
    assert ("no licence" in str(result.error)) == (code != 0)
    assert session.status == "error"


async def test_a_program_that_is_missing_is_a_missing_backend(tmp_path: Path) -> None:
    with pytest.raises(BackendMissing, match="no-such-agent"):
        async with open_fake(Scripted(argv=["no-such-agent"]), cwd=tmp_path):
            pass


async def test_a_working_directory_that_vanishes_before_the_spawn_is_said(tmp_path: Path) -> None:
    with pytest.raises(BadDirectory, match="gone"):
        async with open_fake(Scripted(cwd=tmp_path / "gone"), cwd=tmp_path):
            pass


async def test_a_failed_start_stands_in_the_transcript(tmp_path: Path, home: Path) -> None:
    with pytest.raises(BackendMissing):
        async with open_fake(Scripted(argv=["no-such-agent"]), cwd=tmp_path):
            pass
    (transcript,) = home.glob("sessions/*/transcript.jsonl")
    assert b'"run_finished"' in transcript.read_bytes()
    assert b"no-such-agent" in transcript.read_bytes()


# -- handshakes ---------------------------------------------------------------------------------------------------------


class Patient(FakeDriver):
    """Waits for a hello before it is ready."""

    async def converse(self, link: Any, *, task_status: Any = trio.TASK_STATUS_IGNORED) -> None:
        self.link = link
        async for batch in link.batches():
            link.received(batch)
            if any(isinstance(m, dict) and m.get("t") == "hello" for m in batch):
                task_status.started()


async def test_a_handshake_that_never_comes_is_a_timeout_with_stderr(tmp_path: Path) -> None:
    script = "sys.stderr.write('waiting for the proxy'); sys.stderr.flush(); stay()"
    with pytest.raises(HandshakeTimeout, match="waiting for the proxy"):
        async with open_fake(Scripted(script, driver=Patient, start_timeout=0.3), cwd=tmp_path):
            pass


async def test_a_child_that_ends_during_the_handshake_is_a_failed_start_with_stderr(tmp_path: Path) -> None:
    script = "sys.stderr.write('not logged in'); sys.exit(4)"
    with pytest.raises(StartFailed, match="exit code 4.*not logged in"):
        async with open_fake(Scripted(script, driver=Patient), cwd=tmp_path):
            pass


async def test_a_handshake_that_succeeds_does_not_bind_the_run_to_its_deadline(tmp_path: Path) -> None:
    script = 'tell("hello", id="n"); prompt(); time.sleep(0.6); done(text="x")'
    async with open_fake(Scripted(script, driver=Patient, start_timeout=0.5), cwd=tmp_path) as session:
        assert (await session.result()).outcome == "completed"


async def test_leaving_during_the_handshake_gives_the_run_up(tmp_path: Path, home: Path) -> None:
    with trio.move_on_after(0.2) as scope:
        async with open_fake(Scripted("stay()", driver=Patient), cwd=tmp_path):
            pytest.fail("it never got ready")
    assert scope.cancelled_caught
    (transcript,) = home.glob("sessions/*/transcript.jsonl")
    assert b'"interrupted"' in transcript.read_bytes()


async def test_leaving_during_the_drivers_entry_starts_no_process(tmp_path: Path) -> None:
    class Slow(FakeDriver):
        async def __aenter__(self) -> Any:
            await trio.sleep(60)

    with trio.move_on_after(0.1):
        async with open_fake(Scripted(f"open({str(tmp_path / 'ran')!r}, 'w')", driver=Slow), cwd=tmp_path):
            pytest.fail("it never got ready")
    assert not (tmp_path / "ran").exists()


async def test_a_cancelled_scope_opens_nothing(tmp_path: Path) -> None:
    with trio.CancelScope() as scope:
        scope.cancel()
        async with open_fake(Scripted(f"open({str(tmp_path / 'ran')!r}, 'w')"), cwd=tmp_path):
            await trio.lowlevel.checkpoint()
    assert scope.cancelled_caught
    assert not (tmp_path / "ran").exists()


# -- drivers at fault ---------------------------------------------------------------------------------------------------


async def test_a_driver_that_fails_to_enter_is_a_plain_error(tmp_path: Path) -> None:
    class Broken(FakeDriver):
        async def __aenter__(self) -> Any:
            raise StartFailed("the port is taken")

    with pytest.raises(StartFailed, match="port is taken"):
        async with open_fake(Scripted(driver=Broken), cwd=tmp_path):
            pass


async def test_a_driver_that_fails_in_the_handshake_is_a_failed_start(tmp_path: Path) -> None:
    class Broken(FakeDriver):
        async def converse(self, link: Any, *, task_status: Any = trio.TASK_STATUS_IGNORED) -> None:
            raise KeyError("version")

    with pytest.raises(StartFailed, match="version"):
        async with open_fake(Scripted(driver=Broken), cwd=tmp_path):
            pass


async def test_a_driver_that_fails_in_the_run_ends_it_as_errored(tmp_path: Path) -> None:
    class Broken(FakeDriver):
        async def converse(self, link: Any, *, task_status: Any = trio.TASK_STATUS_IGNORED) -> None:
            self.link = link
            task_status.started()
            async for batch in link.batches():
                link.received(batch)
                raise KeyError("oops")

    script = f"prompt(); {ASK}; stay()"
    async with open_fake(Scripted(script, driver=Broken, grace=LONG_GRACE), cwd=tmp_path) as session:
        result = await session.result()
        events = await events_of(session)
    assert result.outcome == "errored"
    assert "oops" in only(events, Error).message
    assert not only(events, Error).recoverable
    assert session.status == "error"


async def test_a_driver_that_ignores_the_end_of_the_process_does_not_hang_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nucleic_core._session.machine.LAST_READ", 0.2)

    class Deaf(FakeDriver):
        async def converse(self, link: Any, *, task_status: Any = trio.TASK_STATUS_IGNORED) -> None:
            self.link = link
            task_status.started()
            await trio.sleep_forever()

    async with open_fake(Scripted("prompt(); sys.exit(1)", driver=Deaf), cwd=tmp_path) as session:
        assert (await session.result()).outcome == "errored"


async def test_a_driver_that_hangs_in_its_exit_does_not_hang_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nucleic_core._session.machine.FAREWELL", 0.2)

    class Clinging(FakeDriver):
        async def __aexit__(self, *_: object) -> None:
            await trio.sleep_forever()

    async with open_fake(Scripted("prompt(); done(text='x'); stay()", driver=Clinging), cwd=tmp_path) as session:
        assert (await session.result()).outcome == "completed"


@pytest.mark.parametrize("step", ["finish", "interrupt"])
async def test_a_driver_that_hangs_while_ending_is_overridden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    monkeypatch.setattr("nucleic_core._session.machine.INTERRUPT_GRACE", 0.2)

    class Hanging(FakeDriver):
        pass

    async def hang(self: Any) -> None:
        await trio.sleep_forever()

    setattr(Hanging, step, hang)
    async with open_fake(
        Scripted("tell('pid', pid=os.getpid()); prompt(); stay()", driver=Hanging), cwd=tmp_path
    ) as session:
        pid = (await wait_for(session, Raw)).value["pid"]
        await wait_for(session, TurnStarted)
    assert not alive(pid)


# -- lingering ----------------------------------------------------------------------------------------------------------


STUBBORN = "signal.signal(signal.SIGTERM, signal.SIG_IGN); tell('pid', pid=os.getpid()); "


async def test_a_result_ends_the_run_however_long_the_process_lingers(tmp_path: Path) -> None:  # F5-03
    script = STUBBORN + "prompt(); done(text='x')\nwhile True: time.sleep(600)"
    async with open_fake(Scripted(script), cwd=tmp_path) as session:
        events = await events_of(session)
        pid = only(events, Raw).value["pid"]
        assert only(events, RunFinished).outcome == "completed"
        assert alive(pid)  # the end was told before the process had to go
    assert not alive(pid)


async def test_a_child_that_ignores_the_end_of_input_and_sigterm_is_killed(tmp_path: Path) -> None:  # fault 14
    async with open_fake(Scripted(STUBBORN + "prompt()\nwhile True: time.sleep(600)"), cwd=tmp_path) as session:
        pid = (await wait_for(session, Raw)).value["pid"]
    assert not alive(pid)


async def test_a_grandchild_that_holds_stdout_does_not_hold_up_the_end(tmp_path: Path) -> None:  # fault 15
    script = """import subprocess
prompt(); tell("say", text="bye")
grandchild = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
tell("pid", pid=grandchild.pid)
sys.exit(5)"""
    async with open_fake(Scripted(script), cwd=tmp_path) as session:
        with trio.fail_after(10):
            events = await events_of(session)
    assert only(events, AssistantText).text == "bye"
    assert only(events, RunFinished).outcome == "errored"
    assert not alive(only(events, Raw).value["pid"])


async def test_nothing_of_the_agents_tree_outlives_the_session(tmp_path: Path) -> None:  # F5-08
    script = """import subprocess
prompt()
pids = [subprocess.Popen(["sh", "-c", "sleep 1000 & echo $!; sleep 1000"], start_new_session=n % 2, stdout=subprocess.PIPE)
        for n in range(2)]
tell("pids", pids=[p.pid for p in pids] + [int(p.stdout.readline()) for p in pids])
stay()"""
    async with open_fake(Scripted(script), cwd=tmp_path) as session:
        pids = (await wait_for(session, Raw)).value["pids"]
        assert all(alive(pid) for pid in pids)
    assert [pid for pid in pids if alive(pid)] == []


# -- floods and junk ----------------------------------------------------------------------------------------------------

JUNK = [
    "plain text",
    '{"t": "say", "text":',
    "[1, 2",
    '{"t": "say"} trailing',
    "\\x1b[31mcolour\\x1b[0m",
    "{'t': 'say'}",
    "}",
    "\\ufeff{}x",
    "NaN,",
    "Segmentation fault (core dumped)",
]


async def test_junk_lines_become_raw_and_the_run_goes_on(tmp_path: Path) -> None:  # fault 12
    lines = "".join(
        f'print("{line}"); ' if '"' not in line else f"print('{line}'); " for line in JUNK if "'" not in line
    )
    script = (
        "prompt()\n"
        + lines
        + "print(\"{'t': 'say'}\"); print(); print('   '); tell('say', text='fine'); done(text='x')"
    )
    async with open_fake(Scripted(script), cwd=tmp_path) as session:
        events = await events_of(session)
        assert (await session.result()).outcome == "completed"
    assert [e.native for e in events if isinstance(e.data, Raw)] == ["unparsed"] * len(JUNK)
    assert only(events, AssistantText).text == "fine"


async def test_bytes_that_are_no_utf8_and_odd_json_are_kept(tmp_path: Path) -> None:
    script = r"""prompt()
out = sys.stdout.buffer
for line in (b'\xff\xfe\x00', b'{"t": "say", "text": "a\xffb"}', b'{"t": "say", "text": "\\ud800"}', b'{"t": "odd", "n": NaN}',
             b'{"t": "odd", "n": 123456789012345678901234567890}', b'null', b'5', b'"text"', b'[]', b'\x00'):
    out.write(line + b'\n')
out.flush(); done(text='x')"""
    async with open_fake(Scripted(script), cwd=tmp_path) as session:
        events = await events_of(session)
        assert (await session.result()).outcome == "completed"
    assert [e.data.text for e in events if isinstance(e.data, AssistantText)] == ["a\ufffdb", "\ufffd"]
    assert len([e for e in events if isinstance(e.data, Raw)]) == 8


async def test_messages_of_an_unknown_type_are_kept_whole(tmp_path: Path) -> None:  # fault 13
    script = "prompt(); tell('rate_limit_event', limit={'left': 3}); done(text='x')"
    async with open_fake(Scripted(script), cwd=tmp_path) as session:
        events = await events_of(session)
    assert only(events, Raw).value == {"t": "rate_limit_event", "limit": {"left": 3}}
    assert next(e.native for e in events if isinstance(e.data, Raw)) == "rate_limit_event"


async def test_a_decoder_that_fails_costs_one_message_its_meaning(tmp_path: Path, caplog: Any) -> None:
    script = "prompt(); tell('boom'); tell('say', text='fine'); done(text='x')"
    async with open_fake(Scripted(script), cwd=tmp_path) as session:
        events = await events_of(session)
        assert (await session.result()).outcome == "completed"
    assert only(events, Raw).value == {"t": "boom"}
    assert only(events, Notice).topic == "decoder"
    assert only(events, AssistantText).text == "fine"


async def test_a_line_of_twenty_megabytes_is_read(tmp_path: Path) -> None:  # fault 11
    async with open_fake(
        Scripted("prompt(); tell('say', text='x' * 20_000_000); done(text='y')"), cwd=tmp_path
    ) as session:
        events = await events_of(session)
    assert len(only(events, AssistantText).text) == 20_000_000
    assert only(events, RunFinished).outcome == "completed"


async def test_a_line_over_the_cap_is_a_notice_and_the_next_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nucleic_core._wire.framing import LineFramer

    monkeypatch.setattr("nucleic_core._wire.process.LineFramer", lambda limit: LineFramer(10_000))
    script = "prompt(); tell('say', text='x' * 20_000); tell('say', text='fine'); done(text='y')"
    async with open_fake(Scripted(script), cwd=tmp_path) as session:
        events = await events_of(session)
    notice = only(events, Notice)
    assert notice.topic == "oversize"
    assert notice.detail["size"] == 20_024
    assert only(events, AssistantText).text == "fine"


async def test_ten_megabytes_of_stderr_hold_nothing_up_and_are_not_kept(tmp_path: Path) -> None:  # fault 10, F5-01
    script = """for n in range(1000): sys.stderr.write('x' * 10_000)
sys.stderr.write('the end'); prompt(); tell("say", text="a"); tell("say", text="b"); tell("say", text="c"); sys.exit(1)"""
    async with open_fake(Scripted(script), cwd=tmp_path) as session:
        events = await events_of(session)
    assert [e.data.text for e in events if isinstance(e.data, AssistantText)] == ["a", "b", "c"]
    error = only(events, RunFinished).error
    assert "the end" in error
    assert len(error) < 100_000


async def test_fifty_thousand_messages_reach_a_slow_consumer_in_order(tmp_path: Path) -> None:  # fault 17
    script = """prompt()
for n in range(50_000): sys.stdout.write('{"t": "say", "text": "%d"}\\n' % n)
done(text="x")"""
    async with open_fake(Scripted(script), cwd=tmp_path) as session:
        expected, seq = 0, 0
        async for event in session:
            assert event.seq == seq + 1
            seq = event.seq
            if isinstance(event.data, AssistantText):
                assert event.data.text == str(expected)
                expected += 1
                if expected % 5000 == 0:
                    await trio.sleep(0.02)
        assert (await session.result()).outcome == "completed"
    assert expected == 50_000


async def test_a_consumer_that_stops_reading_holds_up_neither_the_agent_nor_an_approval(
    tmp_path: Path,
) -> None:  # fault 23
    script = f"""prompt()
for n in range(20_000): tell("say", text="x" * 100)
{ASK}; answer = hear(); tell("say", text=str(answer["allow"])); done(text="x")"""
    async with open_fake(Scripted(script), cwd=tmp_path) as session:
        stream = session.events()
        await anext(stream)  # and never again

        async def responder() -> None:
            while not session.open_asks:
                await trio.sleep(0.01)
            await session.respond(session.open_asks[0].id, Allow())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(responder)
            assert (await session.result()).outcome == "completed"
        rest = [event async for event in stream]
    assert len(rest) > 20_000
    assert [e.data.text for e in rest if isinstance(e.data, AssistantText)][-1] == "True"
