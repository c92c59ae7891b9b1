import functools
import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
import trio

from nucleic_core._wire.descendants import Descendants
from nucleic_core._wire.framing import Oversize, Unparsed
from nucleic_core._wire.process import ChildProcess, child_environment
from nucleic_core.errors import AgentGone, BackendMissing, BadDirectory, StartFailed

NO_GRACE = (0.0, 0.0)


def within(seconds):
    """Bounds a test: a hang is a failure, and a nursery's group of one is taken off."""

    def decorate(test):
        @functools.wraps(test)
        async def bounded(*args, **kwargs):
            with trio.fail_after(seconds):
                await test(*args, **kwargs)

        return bounded

    return decorate


@pytest.fixture
def cookie():
    return os.urandom(8).hex()


async def spawn(nursery, cookie, script, *, stdin="pipe", **kwargs):
    argv = [sys.executable, "-I", "-S", "-c", "import os, signal, sys, time\n" + textwrap.dedent(script)]
    return await ChildProcess.start(
        nursery, argv, env=environment(cookie), cwd=None, stdin=stdin, cookie=cookie, **kwargs
    )


def environment(cookie):
    return child_environment(os.environ, inherit=(), extra={}, cookie=cookie)


async def read_all(child):
    return [message async for batch in child.batches() for message in batch]


async def first_message(child):
    async for batch in child.batches():
        return batch[0]
    return None


def lives(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


SETSID_SLEEPER = """
import subprocess
left = subprocess.Popen(
    [sys.executable, "-I", "-S", "-c",
     "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(600)"],
    start_new_session=True, stdout=subprocess.PIPE)
left.stdout.readline()
"""


# Lines both ways


@within(20)
async def test_lines_go_in_and_messages_come_out_in_order(nursery, cookie):
    child = await spawn(nursery, cookie, "for line in sys.stdin: print(line, end='', flush=True)")
    for number in range(50):
        child.write(b'{"n":%d}' % number)
    child.close_stdin()
    assert await read_all(child) == [{"n": number} for number in range(50)]
    assert await child.wait() == 0
    with pytest.raises(AgentGone, match="ended"):
        child.write(b"1")


@within(20)
async def test_end_of_file_comes_after_all_that_was_queued_and_nothing_can_be_written_then(nursery, cookie):
    child = await spawn(nursery, cookie, "print(len(sys.stdin.read()))")
    child.write(b"x" * 3_000_000)
    child.close_stdin()
    with pytest.raises(AgentGone, match="input is closed"):
        child.write(b"1")
    assert await read_all(child) == [3_000_001]


@within(20)
async def test_bytes_for_stdin_reach_the_child_whole_and_are_followed_by_end_of_file(nursery, cookie):
    given = b"two\nlines, " + b"x" * 300_000
    child = await spawn(nursery, cookie, "print(len(sys.stdin.buffer.read()))", stdin=given)
    assert [message async for batch in child.batches() for message in batch] == [len(given)]
    with pytest.raises(AgentGone):
        child.write(b"more")


async def test_without_stdin_the_child_reads_end_of_file_at_once(nursery, cookie):
    child = await spawn(nursery, cookie, "print(repr(sys.stdin.read()))", stdin="null")
    with pytest.raises(AgentGone):
        child.write(b"1")
    assert await read_all(child) == [Unparsed("''")]


@within(20)
async def test_the_last_line_needs_no_newline_and_junk_does_not_stop_the_stream(nursery, cookie):
    script = r"""
    sys.stdout.buffer.write(b'\xff\xfe\nApplying migration\n{"a":NaN}\n\n' + b'x' * 5000 + b'\n{"half"')
    """
    child = await spawn(nursery, cookie, script, max_line=4000)
    junk, migration, value, long, half = await read_all(child)
    assert (junk, migration, value) == (Unparsed("\ufffd\ufffd"), Unparsed("Applying migration"), {"a": None})
    assert isinstance(long, Oversize)
    assert long.size == 5000
    assert half == Unparsed('{"half"')


@within(20)
async def test_a_child_that_dies_before_it_reads_two_megabytes_of_stdin_is_no_error(nursery, cookie):
    child = await spawn(nursery, cookie, "print(1, flush=True); os._exit(3)")
    child.write(b"x" * 2_000_000)
    assert await read_all(child) == [1]
    assert await child.wait() == 3
    await child.end(NO_GRACE)


@within(20)
async def test_a_child_that_closes_its_stdin_and_lives_on_is_still_read(nursery, cookie):
    child = await spawn(nursery, cookie, "os.close(0); print(1, flush=True); time.sleep(600)")
    assert await first_message(child) == 1
    child.write(b"x" * 2_000_000)
    with pytest.raises(AgentGone, match="input is closed"):
        while True:
            child.write(b"1")
            await trio.sleep(0.01)
    assert child.returncode is None
    await child.end(NO_GRACE)


@within(30)
async def test_a_child_that_floods_stdout_and_never_reads_stdin_blocks_nobody(nursery, cookie):
    script = "line = b'1' * 1000 + b'\\n'\nwhile True: sys.stdout.buffer.write(line)"
    child = await spawn(nursery, cookie, script)
    turns = 0

    async def other_task():
        nonlocal turns
        while True:
            await trio.sleep(0)
            turns += 1

    nursery.start_soon(other_task)
    batches = 0
    async for batch in child.batches():
        assert len(batch) <= 300
        child.write(b"x" * 10_000)
        batches += 1
        if batches == 100:
            break
    assert turns >= 100
    await child.end(NO_GRACE)
    nursery.cancel_scope.cancel()


@within(20)
async def test_stderr_is_drained_while_nobody_looks_and_its_head_and_tail_are_kept(nursery, cookie):
    script = """
    sys.stderr.write("first words\\n" + "x" * 10_000_000 + "\\nlast words")
    sys.stderr.flush()
    for n in range(3): print(n)
    """
    child = await spawn(nursery, cookie, script)
    assert await read_all(child) == [0, 1, 2]
    assert await child.wait() == 0
    text = child.stderr.text()
    assert text.startswith("first words\n")
    assert text.endswith("\nlast words")
    assert f"{10_000_023 - 40 * 1024} bytes of stderr left out" in text
    assert len(text) < 42_000


@within(20)
async def test_protocol_lines_on_stderr_are_no_messages(nursery, cookie):
    child = await spawn(nursery, cookie, "print('{\"a\":1}', file=sys.stderr); print('{\"b\":2}')")
    assert await read_all(child) == [{"b": 2}]
    await child.wait()
    assert child.stderr.text() == '{"a":1}\n'


@within(20)
async def test_a_reader_that_comes_long_after_the_end_finds_everything(nursery, cookie):
    child = await spawn(nursery, cookie, "print([7] * 10_000); print('[8')")
    await child.wait()
    await child.end(NO_GRACE)
    assert await read_all(child) == [[7] * 10_000, Unparsed("[8")]
    assert await read_all(child) == []


# The end


@pytest.mark.parametrize(
    ("script", "status"),
    [
        ("pass", 0),
        ("sys.exit(7)", 7),
        ("os.kill(os.getpid(), signal.SIGKILL)", -9),
        ("os.kill(os.getpid(), signal.SIGTERM)", -15),
        ("sys.exit(143)", 143),
    ],
)
@within(20)
async def test_the_status_says_how_the_child_ended(nursery, cookie, script, status):
    child = await spawn(nursery, cookie, script)
    assert await child.wait() == status
    assert child.returncode == status


@within(20)
async def test_a_status_that_somebody_else_took_is_unknown_and_not_success(nursery, cookie):
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # as some applications do: the system reaps by itself
    try:
        child = await spawn(nursery, cookie, "sys.exit(7)")
        assert await child.wait() is None
        await child.end(NO_GRACE)
    finally:
        signal.signal(signal.SIGCHLD, before)


@within(20)
async def test_many_tasks_may_wait(nursery, cookie):
    child = await spawn(nursery, cookie, "input()")
    statuses = []

    async def wait():
        statuses.append(await child.wait())

    async with trio.open_nursery() as waiting:
        for _ in range(3):
            waiting.start_soon(wait)
        child.close_stdin()
    assert statuses == [1, 1, 1]


@within(20)
async def test_a_child_killed_in_the_middle_of_a_line_leaves_that_half_line(nursery, cookie):
    child = await spawn(nursery, cookie, "sys.stdout.write('1\\n{\"a\":'); sys.stdout.flush(); time.sleep(600)")
    assert await first_message(child) == 1
    child.signal(signal.SIGKILL)
    assert await read_all(child) == [Unparsed('{"a":')]
    assert await child.wait() == -9


@within(20)
async def test_a_child_that_ignores_end_of_file_and_sigterm_is_killed(nursery, cookie):
    script = "signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True)\nwhile True: time.sleep(600)"
    child = await spawn(nursery, cookie, script)
    assert await first_message(child) == 1
    child.close_stdin()
    await child.end((0.1, 0.1))
    assert child.returncode == -9
    assert Descendants([cookie]).scan() == set()


@within(20)
async def test_a_child_that_ends_at_end_of_file_is_not_signalled(nursery, cookie):
    child = await spawn(nursery, cookie, "sys.stdin.read(); print('bye')")
    child.close_stdin()
    await child.end((15.0, 15.0))
    assert child.returncode == 0
    assert await read_all(child) == [Unparsed("bye")]


@within(20)
async def test_a_child_gets_sigterm_and_its_grace_before_sigkill(nursery, cookie):
    script = """
    def leave(*_): os.write(1, b"cleaning up\\n"); os._exit(5)
    signal.signal(signal.SIGTERM, leave); print(1, flush=True); time.sleep(600)
    """
    child = await spawn(nursery, cookie, script)
    assert await first_message(child) == 1
    await child.end((0.0, 15.0))
    assert child.returncode == 5
    assert await read_all(child) == [Unparsed("cleaning up")]


@within(20)
async def test_end_may_be_called_twice_and_at_once(nursery, cookie):
    child = await spawn(nursery, cookie, "time.sleep(600)")
    with trio.CancelScope(shield=True):
        async with trio.open_nursery() as ending:
            ending.start_soon(child.end, NO_GRACE)
            ending.start_soon(child.end, (5.0, 5.0))
        await child.end((5.0, 5.0))
    assert child.returncode in (-15, -9)
    child.signal(signal.SIGTERM)


@within(20)
async def test_a_grandchild_that_holds_stdout_does_not_keep_the_stream_open(nursery, cookie):
    script = SETSID_SLEEPER.replace("stdout=subprocess.PIPE", "stdin=subprocess.PIPE").replace(
        "left.stdout.readline()", ""
    )
    child = await spawn(nursery, cookie, script + "sys.stdout.write('2\\n{\"half'); sys.stdout.flush()")
    messages = await read_all(child)
    assert 2 in messages
    assert await child.wait() == 0
    await child.end(NO_GRACE)
    assert Descendants([cookie]).scan() == set()


@within(20)
async def test_a_grandchild_that_floods_stdout_does_not_keep_the_stream_open(nursery, cookie):
    script = """
    import subprocess
    subprocess.Popen([sys.executable, "-I", "-S", "-c", "while True: print('[1]')"], start_new_session=True)
    print(2, flush=True)
    """
    child = await spawn(nursery, cookie, script)
    assert 2 in await read_all(child)
    await child.end(NO_GRACE)
    assert Descendants([cookie]).scan() == set()


@within(20)
async def test_the_rest_of_the_group_ends_with_the_child(nursery, cookie):
    argv = ["sh", "-c", "sleep 1000 & sleep 1000 & echo 1"]
    child = await ChildProcess.start(nursery, argv, env=environment(cookie), cwd=None, stdin="null", cookie=cookie)
    assert await read_all(child) == [1]
    await child.end(NO_GRACE)
    assert Descendants([cookie]).scan() == set()


@pytest.mark.parametrize("child_ends", ["first", "with end()"])
@within(20)
async def test_a_descendant_in_a_session_of_its_own_that_ignores_sigterm_is_gone_at_the_end(
    nursery, cookie, child_ends
):
    script = SETSID_SLEEPER + "print(left.pid, flush=True)\n" + ("" if child_ends == "first" else "time.sleep(600)")
    child = await spawn(nursery, cookie, script)
    left = await first_message(child)
    if child_ends == "first":
        await child.wait()
    assert left in Descendants([cookie]).scan()
    await child.end(NO_GRACE)
    assert Descendants([cookie]).scan() == set()
    assert not lives(left)


@within(20)
async def test_a_descendant_that_cleaned_its_environment_is_gone_at_the_end(nursery, cookie):
    script = SETSID_SLEEPER.replace("start_new_session=True", "start_new_session=True, env={}")
    child = await spawn(nursery, cookie, script + "print(left.pid, flush=True); time.sleep(600)")
    left = await first_message(child)
    await child.end(NO_GRACE)
    assert not lives(left)


@within(20)
async def test_a_child_whose_nursery_is_cancelled_leaves_nothing(cookie):
    async with trio.open_nursery() as nursery:
        child = await spawn(nursery, cookie, SETSID_SLEEPER + "print(left.pid, flush=True); time.sleep(600)")
        left = await first_message(child)
        child.write(b"x" * 2_000_000)
        nursery.cancel_scope.cancel()
    assert child.returncode == -9
    assert Descendants([cookie]).scan() == set()
    assert not lives(left)


@within(20)
async def test_a_child_started_in_a_nursery_that_is_already_cancelled_leaves_nothing(cookie):
    async with trio.open_nursery() as nursery:
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            child = await spawn(nursery, cookie, "time.sleep(600)")
    assert child.returncode == -9
    assert Descendants([cookie]).scan() == set()


@within(20)
async def test_a_start_that_is_cancelled_halfway_still_hands_the_child_to_the_nursery(cookie, monkeypatch):
    cancelled = threading.Event()

    class SlowPopen(subprocess.Popen):
        def __init__(self, *args, **kwargs):
            cancelled.wait(10)
            super().__init__(*args, **kwargs)

    monkeypatch.setattr(subprocess, "Popen", SlowPopen)
    async with trio.open_nursery() as nursery:

        async def cancel():
            nursery.cancel_scope.cancel()
            cancelled.set()

        nursery.start_soon(cancel)
        child = await spawn(nursery, cookie, "time.sleep(600)")
    assert child.returncode == -9
    assert Descendants([cookie]).scan() == set()


@within(30)
async def test_children_leave_no_zombie_and_no_open_file(cookie):
    async def one_life():
        async with trio.open_nursery() as nursery:
            child = await spawn(nursery, cookie, "print(1)")
            child.write(b"1")
            if len(os.listdir("/proc/self/fd")) % 2:
                await read_all(child)
            await child.end(NO_GRACE)
        return child.pid

    await one_life()
    gc.collect()
    before = os.listdir("/proc/self/fd")
    pids = [await one_life() for _ in range(5)]
    gc.collect()
    assert os.listdir("/proc/self/fd") == before
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


@pytest.mark.parametrize("missing", [("pidfd_open",), ("pidfd_open", "waitid")])
@within(20)
async def test_where_the_system_lacks_pidfd_or_waitid_the_exit_is_still_seen(nursery, cookie, monkeypatch, missing):
    child = await spawn(nursery, cookie, "sys.stdin.read(); sys.exit(7)")
    for name in missing:
        monkeypatch.delattr(os, name)
    other = await spawn(nursery, cookie, "sys.stdin.read(); sys.exit(8)")
    child.close_stdin()
    other.close_stdin()
    assert (await child.wait(), await other.wait()) == (7, 8)
    monkeypatch.undo()
    await child.end(NO_GRACE)
    await other.end(NO_GRACE)


# The start


async def start(nursery, cookie, argv, *, cwd=None, env=None):
    env = environment(cookie) if env is None else env
    with trio.fail_after(10):
        return await ChildProcess.start(nursery, argv, env=env, cwd=cwd, stdin="null", cookie=cookie)


async def test_a_program_that_is_not_there_is_named_with_the_path_that_was_searched(nursery, cookie):
    with pytest.raises(BackendMissing, match=r"'no-such-agent'.*PATH \(/nowhere\).*Install it"):
        await start(nursery, cookie, ["no-such-agent"], env={"PATH": "/nowhere"})
    with pytest.raises(BackendMissing, match="there is no such file"):
        await start(nursery, cookie, ["./no-such-agent"])


async def test_a_directory_that_is_not_there_is_named(nursery, cookie, tmp_path):
    with pytest.raises(BadDirectory, match="missing"):
        await start(nursery, cookie, ["true"], cwd=tmp_path / "missing")
    (tmp_path / "file").touch()
    with pytest.raises(BadDirectory, match="file"):
        await start(nursery, cookie, ["true"], cwd=tmp_path / "file")


async def test_a_program_that_cannot_run_says_why_and_what_to_do(nursery, cookie, tmp_path):
    program = tmp_path / "agent"
    program.write_text("#!/nowhere/node\n")
    with pytest.raises(StartFailed, match="chmod"):
        await start(nursery, cookie, [str(program)])
    program.chmod(0o755)
    with pytest.raises(StartFailed, match="interpreter"):
        await start(nursery, cookie, [str(program)])
    with pytest.raises(StartFailed, match="interpreter"):
        await start(nursery, cookie, ["agent"], env={"PATH": str(tmp_path)})
    program.write_bytes(b"\x00\x01\x02")
    with pytest.raises(StartFailed, match="`#!` line"):
        await start(nursery, cookie, [str(program)])
    with pytest.raises(StartFailed, match="over stdin"):
        await start(nursery, cookie, ["/bin/true", "x" * 3_000_000])
    with pytest.raises(StartFailed, match="null byte"):
        await start(nursery, cookie, ["true", "a\0b"])


async def test_a_start_that_failed_leaves_no_open_file(nursery, cookie):
    before = os.listdir("/proc/self/fd")
    with pytest.raises(BackendMissing):
        await ChildProcess.start(nursery, ["no-such"], env={}, cwd=None, stdin="pipe", cookie=cookie)
    assert os.listdir("/proc/self/fd") == before


async def test_the_child_runs_in_the_given_directory_and_inherits_no_open_file(nursery, cookie, tmp_path):
    with (tmp_path / "secret").open("w") as secret:
        os.set_inheritable(secret.fileno(), True)
        child = await start(nursery, cookie, ["sh", "-c", "pwd; ls /proc/self/fd | wc -l"], cwd=tmp_path)
        messages = await read_all(child)
    assert messages == [Unparsed(str(tmp_path)), 4]
    await child.end(NO_GRACE)


# Its environment


def test_the_environment_is_an_allow_list_and_what_was_asked_for():
    base = {
        "PATH": "/bin", "HOME": "/h", "LC_ALL": "C", "XDG_CONFIG_HOME": "/x", "https_proxy": "p", "HTTPS_PROXY": "q",
        "NODE_EXTRA_CA_CERTS": "/ca", "CLAUDECODE": "1", "CLAUDE_CODE_ENTRYPOINT": "cli", "API_KEY": "k", "OTHER_KEY": "k",
    }  # fmt: skip
    passed = {name: base[name] for name in list(base)[:7]}
    assert child_environment(base, inherit=(), extra={}, cookie="c") == {**passed, "NUCLEIC_RUN": "c"}
    asked = child_environment(
        base, inherit=("API_KEY", "NOT_SET"), extra={"CLAUDECODE": "0", "HOME": "/else"}, cookie="c"
    )
    assert asked == {**passed, "HOME": "/else", "API_KEY": "k", "CLAUDECODE": "0", "NUCLEIC_RUN": "c"}


def test_a_run_inside_a_run_carries_both_cookies():
    assert child_environment({"NUCLEIC_RUN": "outer"}, inherit=(), extra={}, cookie="inner") == {
        "NUCLEIC_RUN": "outer:inner"
    }


# What does not end


@within(20)
async def test_what_sigkill_does_not_end_is_given_up_and_said(cookie, monkeypatch, unkillable):
    monkeypatch.setattr("nucleic_core._wire.process.HUNT_LIMIT", 0.2)
    async with trio.open_nursery() as nursery:
        child = await spawn(nursery, cookie, "time.sleep(600)")
        unkillable(child)
        await child.end(NO_GRACE)
        assert child.given_up
        assert await child.wait() is None
        with pytest.raises(AgentGone):
            child.write(b"1")


@within(20)
async def test_a_cancelled_nursery_does_not_wait_for_what_sigkill_does_not_end(cookie, monkeypatch, unkillable):
    monkeypatch.setattr("nucleic_core._wire.process.HUNT_LIMIT", 0.2)
    async with trio.open_nursery() as nursery:
        child = await spawn(nursery, cookie, "time.sleep(600)")
        unkillable(child)
        nursery.cancel_scope.cancel()
    assert child.given_up


@within(20)
async def test_what_ends_is_not_given_up(nursery, cookie):
    child = await spawn(nursery, cookie, "time.sleep(600)")
    await child.end(NO_GRACE)
    assert not child.given_up


@pytest.fixture
def unkillable(monkeypatch):
    """Makes a child look as if it were stuck in the kernel."""
    children = []

    def stuck(child):
        children.append(child)
        monkeypatch.setattr(child, "signal", lambda signum: None)
        monkeypatch.setattr(child._descendants, "signal", lambda signum: None)

    yield stuck
    for child in children:
        child._popen.kill()
        child._popen.wait()
