"""Fetches the pinned versions of the real CLIs into the user's cache directory, once.

    python tests/live/fetch.py [CLI[@VERSION] ...]      such as codex, or claude@2.1.332

The live tests and the fixture recorders call `fetch` themselves. What is in the cache already is never fetched again, so
a second run, or a clean clone on the same machine, needs no network. A package's install script is not run: what is
wanted is the native program that the platform's own package brings, and that one is used where it lies, without the
Node.js wrapper that some packages put before it (a process more to signal and to wait for).
"""

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs
import platformdirs


@attrs.frozen
class Cli:
    """One CLI: its npm package, and where below `node_modules` its native program lies.

    `versions` are those that are driven: from the oldest that works to the newest that was looked at.
    """

    name: str
    package: str
    versions: tuple[str, ...]
    program: str


CLIS = {
    cli.name: cli
    for cli in (
        Cli("claude", "@anthropic-ai/claude-code", ("2.1.167", "2.1.332"), "@anthropic-ai/claude-code-*/claude"),
        Cli("codex", "@openai/codex", ("0.141.0", "0.146.0", "0.171.0"), "@openai/codex-*/vendor/*/*/codex"),
    )
}

FETCH_DEADLINE = 600.0
START_DEADLINE = 60.0


class FetchFailed(Exception):
    """The CLI is not here and could not be fetched; the message is one sentence that says why and what to do."""


def cache() -> Path:
    """Where they lie, each in `<cli>/<version>`."""
    return Path(platformdirs.user_cache_dir("nucleic")) / "live"


def fetched(cli: str, version: str, place: Path | None = None) -> Path | None:
    """The program of a version that was fetched earlier."""
    program = (place or cache()) / cli / version / cli
    return program if program.exists() else None


def fetch(cli: str, version: str, place: Path | None = None) -> Path:
    """The program of a version, fetched with npm when it is not in the cache (or `place`) yet.

    A half-done fetch is never seen: everything is put together beside its place and moved there in one step, and two
    runs at once wait for each other.
    """
    folder = (place or cache()) / cli
    if program := fetched(cli, version, place):
        return program
    npm = shutil.which("npm")
    if npm is None:
        raise FetchFailed(f"{cli} {version} is not in {folder} and there is no npm to fetch it with: install Node.js.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _alone(folder), tempfile.TemporaryDirectory(prefix=f".{version}-", dir=folder) as half:
            if program := fetched(cli, version, place):
                return program
            made = Path(half, "made")
            made.mkdir()
            _install(npm, CLIS[cli], version, made)
            (made / cli).symlink_to(_program(made, CLIS[cli], version).relative_to(made))
            made.rename(folder / version)
    except OSError as error:
        raise FetchFailed(f"{cli} {version} could not be put into {folder}: {error}.") from error
    return folder / version / cli


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the lock of a CLI's folder; it is let go when this process ends, however that may be."""
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _install(npm: str, cli: Cli, version: str, into: Path) -> None:
    command = [
        npm,
        "install",
        "--prefix",
        str(into),
        "--ignore-scripts",
        "--no-package-lock",
        "--no-audit",
        "--no-fund",
    ]
    try:
        done = subprocess.run(
            [*command, f"{cli.package}@{version}"],
            cwd=into,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=FETCH_DEADLINE,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        raise FetchFailed(f"npm did not fetch {cli.name} {version} within {FETCH_DEADLINE:.0f} s; try again.") from late
    if done.returncode:
        said = " ".join(done.stdout.split())[-400:]
        raise FetchFailed(f"npm could not fetch {cli.name} {version} (exit code {done.returncode}): {said}")


def _program(into: Path, cli: Cli, version: str) -> Path:
    """The one program of the platform's package that starts and says the right version."""
    found = sorted(into.glob(f"node_modules/{cli.program}"))
    for program in found:
        try:
            said = subprocess.run(
                [program, "--version"],
                env={"HOME": str(into), "PATH": os.defpath},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=START_DEADLINE,
                check=False,
            ).stdout
        except (OSError, subprocess.TimeoutExpired):
            continue
        if re.search(rf"(^|\s){re.escape(version)}\b", said):
            return program
    raise FetchFailed(
        f"npm fetched {cli.name} {version}, but none of the {len(found)} programs in it starts on this machine."
    )


def main(wanted: list[str]) -> int:
    """Fetch what is named, or everything that is pinned; one line each."""
    for name in wanted or CLIS:
        cli, _, only = name.partition("@")
        if cli not in CLIS:
            print(f"{cli} is not known here: {', '.join(CLIS)} are.", file=sys.stderr)
            return 2
        for version in (only,) if only else CLIS[cli].versions:
            here = fetched(cli, version)
            try:
                program = here or fetch(cli, version)
            except FetchFailed as error:
                print(error, file=sys.stderr)
                return 1
            print(f"{cli} {version}: {'was in the cache' if here else 'fetched'}: {program}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
