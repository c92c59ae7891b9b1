"""Runs the command line as people do: as a process of its own, with a home and a configuration of its own."""

import json
import os
import select
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-m", "nucleic_core"]
PATIENCE = 20.0

_ON_A_TERMINAL = """
import os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
for n in range(3):
    os.dup2(fd, n)
os.execv(sys.argv[2], sys.argv[2:])
"""


class Started:
    """A command that runs; `events` reads its NDJSON as it comes."""

    def __init__(self, process):
        self.process = process
        self.events = []
        # Reading has no deadline of its own; a command that hangs must fail its test and no more.
        self._watchdog = threading.Timer(3 * PATIENCE, process.kill)
        self._watchdog.daemon = True
        self._watchdog.start()

    def until(self, found):
        """Read events until one is found; that one."""
        for line in self.process.stdout:
            self.events.append(json.loads(line))
            if found(self.events[-1]):
                return self.events[-1]
        raise AssertionError(f"it never came; stderr: {self.process.stderr.read()}")

    def next_ask(self):
        """The id of the next approval or question."""
        event = self.until(lambda e: e["kind"] in ("approval_requested", "question_asked"))
        return (event.get("request") or event.get("question"))["id"]

    def end(self):
        """Read to the end; the exit code."""
        self.events += map(json.loads, self.process.stdout)
        code = self.process.wait(PATIENCE)
        self._watchdog.cancel()
        return code


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, arguments, env, cwd):
        self._fd, slave = os.openpty()
        argv = [sys.executable, "-c", _ON_A_TERMINAL, os.ttyname(slave), *COMMAND, *arguments]
        self.process = subprocess.Popen(argv, env=env, cwd=cwd, start_new_session=True)
        self._slave = slave
        self.screen = ""
        self._seen = 0

    def expect(self, text):
        """Wait until a text stands on the screen, after what was expected before."""
        deadline = time.monotonic() + PATIENCE
        while (at := self.screen.find(text, self._seen)) < 0:
            running = self._read()
            assert running, f"no {text!r} on the screen:\n{self.screen}"
            assert time.monotonic() < deadline, f"no {text!r} on the screen:\n{self.screen}"
        self._seen = at + len(text)

    def type(self, text):
        """Type a text."""
        os.write(self._fd, text.encode())

    def end(self):
        """Let the command end; its exit code."""
        deadline = time.monotonic() + PATIENCE
        while self.process.poll() is None:
            self._read(0.05)
            assert time.monotonic() < deadline, self.screen
        while self._read(0):
            pass
        return self.process.returncode

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._fd)
        os.close(self._slave)

    def _read(self, patience=1.0):
        readable, _, _ = select.select([self._fd], [], [], patience)
        if readable:
            self.screen += os.read(self._fd, 65536).decode()
        return bool(readable) or self.process.poll() is None


class Nucleic:
    """Calls the command line; `env` and `cwd` may be changed before a call."""

    def __init__(self, path):
        self.home = path / "home"
        self.cwd = path / "work"
        self.cwd.mkdir()
        self.config = path / "config.toml"
        self.config.write_text("")
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("NUCLEIC_", "EDITOR", "VISUAL"))
        }
        self.env = {
            **kept,
            "NUCLEIC_HOME": str(self.home),
            "NUCLEIC_CONFIG": str(self.config),
            "NUCLEIC_PLUGINS": "demo",
            "TERM": "xterm",
        }
        self._open = []

    def __call__(self, *arguments, stdin=""):
        """Run to the end."""
        return subprocess.run(
            [*COMMAND, *arguments], input=stdin, capture_output=True, text=True, env=self.env, cwd=self.cwd, timeout=60
        )

    def events(self, *arguments):
        """Run with --json; the events."""
        done = self(*arguments, "--json")
        assert done.stderr == ""
        return [json.loads(line) for line in done.stdout.splitlines()]

    def start(self, *arguments):
        """Start with pipes."""
        process = subprocess.Popen(
            [*COMMAND, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.env,
            cwd=self.cwd,
        )
        self._open.append(process)
        return Started(process)

    def terminal(self, *arguments):
        """Start on a terminal."""
        terminal = Terminal(arguments, self.env, self.cwd)
        self._open.append(terminal)
        return terminal

    def transcript(self):
        """The events in the one transcript there is."""
        (path,) = self.home.glob("sessions/*/transcript.jsonl")
        return [json.loads(line) for line in path.read_text().splitlines()[1:]]

    def close(self):
        for opened in self._open:
            if isinstance(opened, Terminal):
                opened.close()
                continue
            if opened.poll() is None:
                opened.kill()
                opened.wait()
            opened.stdout.close()
            opened.stderr.close()


@pytest.fixture
def nucleic(tmp_path):
    made = Nucleic(tmp_path)
    yield made
    made.close()


@pytest.fixture
def package(tmp_path, nucleic):
    """Install a package of one module with entry points, for the commands that `nucleic` runs."""
    site = tmp_path / "site"
    site.mkdir()
    nucleic.env["PYTHONPATH"] = str(site)
    del nucleic.env["NUCLEIC_PLUGINS"]

    def install(name: str, group: str, source: str, entry: str) -> Path:
        module = name.replace("-", "_")
        (site / f"{module}.py").write_text(source)
        info = site / f"{module}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{group}]\n{entry}\n")
        return Path(site / f"{module}.py")

    return install
