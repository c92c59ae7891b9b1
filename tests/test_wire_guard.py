import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import trio

from nucleic_core._background import background
from nucleic_core._wire.descendants import Descendants
from nucleic_core._wire.guard import Guard
from nucleic_core._wire.process import child_environment

AGENT = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(600)"
for env in (None, {}):
    tool = subprocess.Popen([sys.executable, "-I", "-S", "-c", stubborn], start_new_session=True, stdout=subprocess.PIPE, env=env)
    tool.stdout.readline()
    print(tool.pid, flush=True)
time.sleep(600)
"""

HOST = """
import json, os, sys, time, trio
from nucleic_core._background import Background
from nucleic_core._wire.guard import Guard
from nucleic_core._wire.process import ChildProcess, child_environment

async def main(cookie, agent, mode):
    async with trio.open_nursery() as nursery:
        guard = await Guard.start(Background(nursery), notice=print)
        guard.watch(cookie)
        env = child_environment(os.environ, inherit=(), extra={}, cookie=cookie)
        child = await ChildProcess.start(
            nursery, [sys.executable, "-I", "-S", "-c", agent], env=env, cwd=None, stdin="pipe", cookie=cookie)
        pids = [child.pid]
        async for batch in child.batches():
            pids += batch
            if len(pids) == 3:
                break
        if mode == "forgets":
            guard.forget(cookie)
        if mode == "forks" and os.fork() == 0:
            time.sleep(600)
        print(json.dumps({"guard": guard._process.pid, "agent": pids}), flush=True)
        await trio.sleep_forever()

trio.run(main, *sys.argv[1:])
"""


@pytest.fixture
def cookie():
    return os.urandom(8).hex()


@pytest.fixture
async def tasks():
    async with background() as tasks:
        yield tasks


@pytest.fixture
def host():
    """Starts a host that runs an agent under a guard; gives the host and its process ids."""
    hosts = []

    def start(cookie, mode="plain"):
        host = subprocess.Popen(
            [sys.executable, "-c", HOST, cookie, AGENT, mode], stdout=subprocess.PIPE, start_new_session=True
        )
        hosts.append(host)
        return host, json.loads(host.stdout.readline())

    yield start
    for host in hosts:
        host.stdout.close()
        with suppress(ProcessLookupError):
            os.killpg(host.pid, signal.SIGKILL)  # the leader is unreaped, or a fork of it lives in the group
        host.wait()


def lives(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


async def until(condition):
    with trio.fail_after(15):
        while not condition():
            await trio.sleep(0.02)


@pytest.mark.parametrize("mode", ["plain", "forks"])
async def test_kill_9_of_the_host_leaves_nothing_of_its_runs_nor_the_guard(host, cookie, mode):
    process, pids = host(cookie, mode)
    assert len(pids["agent"]) == 3
    assert all(lives(pid) for pid in pids["agent"])
    process.kill()
    await until(lambda: not any(lives(pid) for pid in pids["agent"]))
    await until(lambda: not lives(pids["guard"]))
    assert Descendants([cookie]).scan() == set()


async def test_a_run_that_was_forgotten_is_none_of_the_guards_business(host, cookie):
    process, pids = host(cookie, "forgets")
    process.kill()
    await until(lambda: not lives(pids["guard"]))
    assert Descendants([cookie]).scan() >= set(pids["agent"][:2])
    for pid in pids["agent"]:
        os.kill(pid, signal.SIGKILL)


async def test_the_guard_outlives_the_signals_of_a_terminal(host, cookie):
    process, pids = host(cookie)
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        os.kill(pids["guard"], signum)
    process.kill()
    await until(lambda: Descendants([cookie]).scan() == set())
    await until(lambda: not lives(pids["guard"]))


@pytest.fixture
def stray(cookie):
    """A process of the run that nobody ends."""
    env = child_environment({}, inherit=(), extra={}, cookie=cookie)
    child = subprocess.Popen([sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"], env=env)
    yield child
    child.kill()
    child.wait()


async def test_the_guard_holds_nothing_of_the_host_and_goes_when_the_host_closes(tasks, tmp_path):
    with (tmp_path / "held").open("w") as held:
        os.set_inheritable(held.fileno(), True)
        guard = await Guard.start(tasks, notice=pytest.fail)
        pid = guard._process.pid
        # Only its three standard streams, once the interpreter has read the program.
        await until(lambda: os.listdir(f"/proc/{pid}/fd") == ["0", "1", "2"])
        assert os.readlink(f"/proc/{pid}/cwd") == "/"
        assert os.getsid(pid) == pid
    with trio.fail_after(15):
        await guard.close()
    assert not Path(f"/proc/{pid}").exists()


async def test_what_is_watched_at_the_close_is_ended(tasks, cookie, stray):
    guard = await Guard.start(tasks, notice=pytest.fail)
    guard.watch("other")
    guard.watch(cookie)
    guard.forget("other")
    with trio.fail_after(15):
        await guard.close()
    assert stray.wait() == -15


async def test_a_guard_whose_host_is_left_without_close_ends_all_the_same(cookie, stray):
    async with background() as tasks:
        guard = await Guard.start(tasks, notice=pytest.fail)
        guard.watch(cookie)
        pid = guard._process.pid
    assert not Path(f"/proc/{pid}").exists()
    assert stray.wait() == -15
    await guard.close()


async def test_a_guard_that_ended_by_itself_is_replaced_and_told_what_to_watch(tasks, cookie, stray):
    notices = []
    guard = await Guard.start(tasks, notice=notices.append)
    guard.watch(cookie)
    first = guard._process.pid
    os.kill(first, signal.SIGKILL)
    await until(lambda: guard._process.pid != first)
    assert notices == ["The guard ended by itself (status -9) and is started again."]
    with trio.fail_after(15):
        await guard.close()
    assert stray.wait() == -15


async def test_a_guard_that_does_not_listen_is_replaced(tasks, cookie, stray):
    notices = []
    guard = await Guard.start(tasks, notice=notices.append)
    os.kill(guard._process.pid, signal.SIGSTOP)
    for number in range(5000):
        guard.watch(f"run-{number}")
        guard.forget(f"run-{number}")
    guard.watch(cookie)
    await until(lambda: notices)
    with trio.fail_after(15):
        await guard.close()
    assert stray.wait() == -15


async def test_a_guard_that_keeps_ending_is_given_up_and_that_is_said(tasks):
    notices = []
    guard = await Guard.start(tasks, notice=notices.append)
    for count in (1, 2, 3):
        os.kill(guard._process.pid, signal.SIGKILL)
        await until(lambda count=count: len(notices) == count and (count == 3 or lives(guard._process.pid)))
    assert "not started again" in notices[2]
    guard.watch("run")
    with trio.fail_after(15):
        await guard.close()


async def test_a_guard_that_cannot_be_started_is_said_and_no_error(tasks, monkeypatch):
    notices = []
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    guard = await Guard.start(tasks, notice=notices.append)
    guard.watch("run")
    guard.forget("run")
    assert len(notices) == 1
    assert "end them by hand" in notices[0]
    with trio.fail_after(15):
        await guard.close()
