"""Where a working directory stands in git, as `nucleic sessions` shows it and the transcript's header records it.

git itself is asked, in a way that neither disturbs an agent's own git commands nor runs what the repository configures:
an agent can write `.git/config`, and this runs outside of its sandbox.
"""

import os
import subprocess
from pathlib import Path

import attrs
import trio

_DEADLINE = 2.0  # seconds; a huge tree on a cold disk is not worth more

_ASK = (
    *("git", "--no-optional-locks", "-c", "core.fsmonitor=false"),
    *("status", "--porcelain=v2", "--branch", "--untracked-files=no", "--ignore-submodules=all"),
    *("--", ".git"),  # a path that is never tracked: no file is compared, which may run filters and take seconds
)

# Set inside a git hook, where they would name the hook's repository instead of the one of `cwd`.
_REPOSITORY = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_PREFIX", "GIT_OBJECT_DIRECTORY")


@attrs.frozen
class GitPosition:
    """`branch` is None where HEAD is detached, `ahead` and `behind` where there is no upstream, `commit` before the first."""

    commit: str | None = None
    branch: str | None = None
    ahead: int | None = None
    behind: int | None = None


async def git_position(cwd: Path) -> GitPosition | None:
    """Ask git, for at most two seconds. None where there is no repository, no git, or no answer in time."""
    env = {name: value for name, value in os.environ.items() if name not in _REPOSITORY}
    env["GIT_ALLOW_PROTOCOL"] = "none"  # a partial clone would fetch what counting commits needs
    with trio.move_on_after(_DEADLINE):
        try:
            done = await trio.run_process(
                _ASK,
                cwd=cwd,
                env=env,
                capture_stdout=True,
                stderr=subprocess.DEVNULL,
                check=False,
                deliver_cancel=_kill,
            )
        except OSError:
            return None
        return _read(done.stdout.decode(errors="replace")) if done.returncode == 0 else None
    return None


async def _kill(process: trio.Process) -> None:
    process.kill()


def _read(status: str) -> GitPosition:
    """The `# branch.` lines of porcelain v2 (git-status(1), "Branch Headers")."""
    said = dict(line[len("# branch.") :].split(" ", 1) for line in status.splitlines() if line.startswith("# branch."))
    commit, branch = said.get("oid"), said.get("head")
    ahead, _, behind = said.get("ab", "").partition(" ")
    return GitPosition(
        None if commit == "(initial)" else commit,
        None if branch == "(detached)" else branch,
        int(ahead) if ahead else None,
        -int(behind) if behind else None,
    )
