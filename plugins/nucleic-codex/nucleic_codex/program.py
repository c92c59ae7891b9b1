"""Finds the `codex` program and its version, which must be known before there is a command line.

What npm puts on the PATH is a Node.js script that starts the native program as a child. The native program is driven
instead: a process less to start, to signal and to wait for.
"""

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from subprocess import DEVNULL

import attrs
import trio

from nucleic_core.errors import BackendMissing

OLDEST = (0, 141, 0)
"""The oldest version whose flags and messages are known to work."""

NEWEST = (0, 171, 0)
"""The newest version that was looked at; newer ones are used, with a notice."""

VERSION_DEADLINE = 60.0
"""Seconds for `codex --version`: a moment on an idle machine."""

INSTALL = "Install it with `npm install -g @openai/codex`"


@attrs.frozen
class Program:
    """The program of a run: an absolute path, and the version that it says it is."""

    path: str
    version: tuple[int, ...]

    def __str__(self) -> str:
        return f"codex {spoken(self.version)}"


def spoken(version: tuple[int, ...]) -> str:
    """A version as people write it."""
    return ".".join(map(str, version))


def parse(said: str) -> tuple[int, ...] | None:
    """The version in what `codex --version` prints, such as `codex-cli 0.171.0`, or in words such as `0.171.0`."""
    found = re.match(r"\s*(?:codex\S*\s+)?(\d+)\.(\d+)\.(\d+)", said)
    return tuple(map(int, found.groups())) if found else None


def codex_home(env: Mapping[str, str]) -> Path:
    """Where the CLI keeps its settings, its log-in and its own transcripts."""
    return Path(env.get("CODEX_HOME") or Path(env.get("HOME", "/"), ".codex"))


async def find(executable: str, env: Mapping[str, str]) -> Program:
    """Find the program on the PATH of `env` and ask it for its version.

    Raises BackendMissing when it is not there, does not say a version, or is too old to be driven.
    """
    path = _located(executable, env.get("PATH"))
    if path is None:
        raise BackendMissing(
            f"Codex is not installed: there is no program {executable!r} on the PATH. {INSTALL}, "
            "or name the program in the setting executable of codex."
        )
    version = await _version(path, env)
    if version < OLDEST:
        raise BackendMissing(
            f"{path} is codex {spoken(version)}, which is too old: Nucleic drives {spoken(OLDEST)} and newer. "
            f"{INSTALL}@latest, or name a newer program in the setting executable of codex."
        )
    return Program(path, version)


def _located(executable: str, path: str | None) -> str | None:
    found = shutil.which(Path(executable).expanduser(), path=path)
    return None if found is None else str(_native(Path(found).absolute()))


def _native(program: Path) -> Path:
    """The native program behind npm's script, where it lies beside it as npm, pnpm and bun put it."""
    script = program.resolve()
    if script.name != "codex.js":
        return program
    package = script.parents[1]
    for place in (package.parent, package / "node_modules" / "@openai"):
        for native in sorted(place.glob("codex-*/vendor/*/*/codex")):
            if os.access(native, os.X_OK):
                return native
    return program


_known: dict[tuple[str, int, int], tuple[int, ...]] = {}
"""Versions by path, time of change in ns and size in bytes of the program, so that each is asked once a process."""


async def _version(path: str, env: Mapping[str, str]) -> tuple[int, ...]:
    status = await trio.Path(path).stat()
    key = (path, status.st_mtime_ns, status.st_size)
    if key not in _known:
        _known[key] = await _ask(path, env)
    return _known[key]


async def _ask(path: str, env: Mapping[str, str]) -> tuple[int, ...]:
    few = {name: env[name] for name in ("HOME", "PATH", "LANG", "TMPDIR", "CODEX_HOME") if name in env}
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
        raise BackendMissing(f"`{path} --version` said {first!r}, which is no version of Codex. {INSTALL}.")
    return version
