"""Fetches the pinned versions of the real `claude` CLI into the user's cache directory, once.

    python tests/live/fetch.py [VERSION ...]

The live tests and the fixture recorder call `fetch` themselves. What is in the cache already is never fetched again, so
a second run, or a clean clone on the same machine, needs no network. The package's install script is not run: it only
copies the program that the platform's own package brings, and that one is used where it lies.
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

import platformdirs

VERSIONS = ("2.1.167", "2.1.332")
"""The versions that are driven: the oldest that works, and the newest that was looked at."""

PACKAGE = "@anthropic-ai/claude-code"
FETCH_DEADLINE = 600.0
START_DEADLINE = 60.0


class FetchFailed(Exception):
    """The CLI is not here and could not be fetched; the message is one sentence that says why and what to do."""


class NoNpm(FetchFailed):
    """There is nothing to fetch it with."""


def cache() -> Path:
    """Where the versions lie, each in a directory of its own name."""
    return Path(platformdirs.user_cache_dir("nucleic")) / "live" / "claude"


def fetched(version: str) -> Path | None:
    """The program of a version that was fetched earlier."""
    program = cache() / version / "claude"
    return program if program.exists() else None


def fetch(version: str) -> Path:
    """The program of a version, fetched with npm when it is not in the cache yet.

    A half-done fetch is never seen: everything is put together beside its place and moved there in one step, and two
    runs at once wait for each other.
    """
    if program := fetched(version):
        return program
    npm = shutil.which("npm")
    if npm is None:
        raise NoNpm(f"claude {version} is not in {cache()} and there is no npm to fetch it with: install Node.js.")
    try:
        cache().mkdir(parents=True, exist_ok=True)
        with _alone(), tempfile.TemporaryDirectory(prefix=f".{version}-", dir=cache()) as half:
            if program := fetched(version):
                return program
            made = Path(half, "made")
            made.mkdir()
            _install(npm, version, made)
            (made / "claude").symlink_to(_program(made, version).relative_to(made))
            made.rename(cache() / version)
    except OSError as error:
        raise FetchFailed(f"claude {version} could not be put into {cache()}: {error}.") from error
    return cache() / version / "claude"


@contextmanager
def _alone() -> Iterator[None]:
    """Hold the cache's lock; it is let go when this process ends, however that may be."""
    with (cache() / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _install(npm: str, version: str, into: Path) -> None:
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
            [*command, f"{PACKAGE}@{version}"],
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
        raise FetchFailed(f"npm did not fetch claude {version} within {FETCH_DEADLINE:.0f} s; try again.") from late
    if done.returncode:
        said = " ".join(done.stdout.split())[-400:]
        raise FetchFailed(f"npm could not fetch claude {version} (exit code {done.returncode}): {said}")


def _program(into: Path, version: str) -> Path:
    """The one program of the platform's package that starts and says the right version."""
    found = sorted(into.glob(f"node_modules/{PACKAGE}-*/claude"))
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
        if re.match(re.escape(version) + r"\b", said):
            return program
    raise FetchFailed(
        f"npm fetched claude {version}, but none of the {len(found)} programs in it starts on this machine."
    )


def main(versions: list[str]) -> int:
    """Fetch the given versions, or all that are pinned; one line each. The exit code is 3 where npm is missing."""
    for version in versions or VERSIONS:
        here = fetched(version)
        try:
            program = here or fetch(version)
        except FetchFailed as error:
            print(error, file=sys.stderr)
            return 3 if isinstance(error, NoNpm) else 1
        print(f"claude {version}: {'was in the cache' if here else 'fetched'}: {program}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
