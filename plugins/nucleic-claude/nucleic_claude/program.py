"""Finds the `claude` program and its version, which must be known before there is a command line."""

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from subprocess import DEVNULL

import attrs
import trio

from nucleic_core.errors import BackendMissing

OLDEST = (2, 1, 167)
"""The oldest version whose flags and messages are known to work."""

NEWEST = (2, 1, 332)
"""The newest version that was looked at; newer ones are used, with a notice."""

VERSION_DEADLINE = 60.0
"""Seconds for `claude --version`: a moment on an idle machine, 25 s were seen on a loaded one."""

INSTALL = "Install it with `npm install -g @anthropic-ai/claude-code`"


@attrs.frozen
class Program:
    """The program of a run: an absolute path, and the version that it says it is."""

    path: str
    version: tuple[int, ...]

    def __str__(self) -> str:
        return f"claude {spoken(self.version)}"


def spoken(version: tuple[int, ...]) -> str:
    """A version as people write it."""
    return ".".join(map(str, version))


def parse(said: str) -> tuple[int, ...] | None:
    """The version in what `claude --version` prints, such as `2.1.332 (Claude Code)`."""
    found = re.match(r"\s*(\d+)\.(\d+)\.(\d+)", said)
    return tuple(map(int, found.groups())) if found else None


def config_dir(env: Mapping[str, str]) -> Path:
    """Where the CLI keeps its log-in and its own transcripts."""
    return Path(env.get("CLAUDE_CONFIG_DIR") or Path(env.get("HOME", "/"), ".claude"))


async def find(executable: str, env: Mapping[str, str]) -> Program:
    """Find the program on the PATH of `env` and ask it for its version.

    Raises BackendMissing when it is not there, does not say a version, or is too old to be driven.
    """
    path = _located(executable, env.get("PATH"))
    if path is None:
        raise BackendMissing(
            f"Claude Code is not installed: there is no program {executable!r} on the PATH. {INSTALL}, "
            "or name the program in the setting executable of claude."
        )
    version = await _version(path, env)
    if version < OLDEST:
        raise BackendMissing(
            f"{path} is claude {spoken(version)}, which is too old: Nucleic drives {spoken(OLDEST)} and newer. "
            "Run `claude update`, or name a newer program in the setting executable of claude."
        )
    return Program(path, version)


def _located(executable: str, path: str | None) -> str | None:
    found = shutil.which(Path(executable).expanduser(), path=path)
    return None if found is None else str(Path(found).absolute())


_known: dict[tuple[str, int, int], tuple[int, ...]] = {}
"""Versions by path, time of change in ns and size in bytes of the program, so that each is asked once a process."""


async def _version(path: str, env: Mapping[str, str]) -> tuple[int, ...]:
    status = await trio.Path(path).stat()
    key = (path, status.st_mtime_ns, status.st_size)
    if key not in _known:
        _known[key] = await _ask(path, env)
    return _known[key]


async def _ask(path: str, env: Mapping[str, str]) -> tuple[int, ...]:
    few = {name: env[name] for name in ("HOME", "PATH", "LANG", "TMPDIR") if name in env}
    try:
        with trio.fail_after(VERSION_DEADLINE):
            done = await trio.run_process(
                [path, "--version"],
                env=few,
                capture_stdout=True,
                stdin=DEVNULL,
                stderr=DEVNULL,
                check=False,
                cwd=os.sep,
            )
    except trio.TooSlowError as late:
        raise BackendMissing(
            f"`{path} --version` said nothing within {VERSION_DEADLINE:.0f} s. Run it by hand."
        ) from late
    except OSError as error:
        raise BackendMissing(f"{path} cannot be started: {error}. {INSTALL}.") from error
    said = done.stdout.decode("utf-8", "replace")
    version = parse(said)
    if version is None:
        first = said.strip().partition("\n")[0][:80]
        raise BackendMissing(f"`{path} --version` said {first!r}, which is no version of Claude Code. {INSTALL}.")
    return version
