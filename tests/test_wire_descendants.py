import errno
import os
import signal
import subprocess
import sys

import pytest

from nucleic_core._wire import descendants
from nucleic_core._wire.descendants import Descendants

SLEEPER = "print(1, flush=True); import time; time.sleep(600)"


@pytest.fixture
def cookie():
    return os.urandom(8).hex()


@pytest.fixture
def started():
    """Starts Python scripts that say when they are ready, and ends them after the test."""
    children = []

    def start(script, run):
        env = {"NUCLEIC_RUN": run} if run else {}
        child = subprocess.Popen([sys.executable, "-I", "-S", "-c", script], env=env, stdout=subprocess.PIPE)
        children.append(child)
        child.first_line = child.stdout.readline()
        return child

    yield start
    for child in children:
        child.kill()
        child.communicate()


def test_the_processes_of_a_run_are_those_that_carry_its_cookie(started, cookie):
    ours = started(SLEEPER, cookie)
    started(SLEEPER, None)
    started(SLEEPER, cookie[:-1])
    assert Descendants([cookie]).scan() == {ours.pid}


def test_a_run_inside_a_run_belongs_to_both(started, cookie):
    nested = started(SLEEPER, f"{cookie}:inner-{cookie}")
    assert Descendants([cookie]).scan() == Descendants([f"inner-{cookie}"]).scan() == {nested.pid}


def test_a_child_that_cleaned_its_environment_is_found_by_its_parent_and_remembered_without_it(started, cookie):
    script = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"], env={}, start_new_session=True)
print(child.pid, flush=True); time.sleep(600)
"""
    parent = started(script, cookie)
    child = int(parent.first_line)
    run = Descendants([cookie])
    assert run.scan() == {parent.pid, child}
    parent.kill()
    parent.wait()
    assert run.scan() == {child}
    assert Descendants([cookie]).scan() == set()
    run.signal(signal.SIGKILL)
    while run.scan():
        pass


def test_a_process_never_finds_itself(started, cookie):
    script = f"""
import importlib.util
spec = importlib.util.spec_from_file_location("descendants", {descendants.__file__!r})
module = importlib.util.module_from_spec(spec); spec.loader.exec_module(module)
print(module.Descendants([{cookie!r}]).scan())
"""
    assert started(script, cookie).first_line == b"set()\n"


def test_zombies_do_not_count(started, cookie):
    child = started("print(1)", cookie)
    while os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
        pass
    assert Descendants([cookie]).scan() == set()


def test_a_process_whose_first_thread_ended_still_lives(started, cookie):
    script = """
import ctypes, threading, time
threading.Thread(target=lambda: (time.sleep(0.05), print(1, flush=True), time.sleep(600))).start()
ctypes.CDLL(None).pthread_exit(None)
"""
    parent = f"""
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-I", "-S", "-c", {script!r}], stdout=subprocess.PIPE)
child.stdout.readline(); print(child.pid, flush=True); time.sleep(600)
"""
    started(parent, cookie)
    run = Descendants([cookie])
    assert len(run.scan()) == 2
    run.signal(signal.SIGKILL)
    while run.scan():
        pass


@pytest.mark.parametrize("pidfd", ["pidfd", "no pidfd"])
def test_a_process_id_that_has_changed_hands_is_not_signalled(started, cookie, monkeypatch, pidfd):
    if pidfd == "no pidfd":

        def refuse(_pid):
            raise OSError(errno.ENOSYS, "not on this kernel")

        monkeypatch.setattr(os, "pidfd_open", refuse)
    ours, stranger = started(SLEEPER, cookie), started(SLEEPER, None)
    run = Descendants([cookie])
    run.scan()
    run._known[stranger.pid] = 1  # as if an older process of this id had been ours
    run.signal(signal.SIGKILL)
    assert ours.wait() == -9
    assert stranger.poll() is None
    assert run.scan() == set()


def test_without_proc_nothing_is_found(monkeypatch, cookie):
    def refuse(_path):
        raise FileNotFoundError

    monkeypatch.setattr(os, "listdir", refuse)
    assert Descendants([cookie]).scan() == set()
