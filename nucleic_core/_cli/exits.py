"""How the process ends: from an error or an outcome to an exit code, with one sentence on stderr and no traceback.

| code | meaning                                                                    |
|---   |---                                                                         |
| 0    | completed, also where a tool was denied and the agent went on              |
| 1    | the agent failed                                                           |
| 2    | usage: an unknown session, ask or option, a directory that is not there    |
| 3    | the backend is missing or unusable                                         |
| 4    | a deny or a cancel ended the turn                                          |
| 5    | the state is unusable: NUCLEIC_HOME, a transcript                          |
| 130  | interrupted                                                                |
| 141  | stdout was closed, or takes no more (a full disk)                          |
"""

import os
import sys
from collections.abc import Callable

import click

from nucleic_core._visible import visible
from nucleic_core.errors import (
    AgentFailed,
    AgentGone,
    AgentRefused,
    AgentSilent,
    ApprovalClosed,
    BackendBroken,
    BackendMissing,
    BadDirectory,
    BadSettings,
    NucleicError,
    SessionBusy,
    SessionNotFound,
    StartFailed,
    TranscriptFailed,
    Unsupported,
)
from nucleic_core.events import Outcome


class Refused(NucleicError):
    """A host refused the request: it came from an agent's own process, or it makes no sense there."""


FAILED, USAGE, BACKEND, DENIED, STATE, INTERRUPTED, STDOUT_CLOSED = 1, 2, 3, 4, 5, 130, 141

BY_OUTCOME: dict[Outcome, int] = {
    "completed": 0,
    "errored": FAILED,
    "max_turns": FAILED,
    "max_budget": FAILED,
    "context_full": FAILED,
    "refused": FAILED,
    "denied": DENIED,
    "cancelled": DENIED,
    "interrupted": INTERRUPTED,
}

BY_ERROR: dict[type[NucleicError], int] = {
    AgentFailed: FAILED,
    AgentGone: FAILED,
    AgentRefused: FAILED,
    AgentSilent: FAILED,
    ApprovalClosed: USAGE,
    BadDirectory: USAGE,
    BadSettings: USAGE,
    SessionNotFound: USAGE,
    Unsupported: USAGE,
    BackendMissing: BACKEND,
    BackendBroken: BACKEND,
    StartFailed: BACKEND,
    SessionBusy: STATE,
    TranscriptFailed: STATE,
    Refused: USAGE,
    NucleicError: BACKEND,  # a backend's own refusal to start
}
"""Subclasses count as the nearest base that is here."""


def exit_code(error: NucleicError) -> int:
    """The code for an error."""
    return next(BY_ERROR[cls] for cls in type(error).__mro__ if cls in BY_ERROR)


def ending(call: Callable[[], object]) -> int:
    """Call the command line; its exit code, also for what it raised. A code that a command returns is taken as it is."""
    _fill_closed_streams()
    try:
        returned = call()
    except (click.Abort, KeyboardInterrupt):
        code = INTERRUPTED
    except click.ClickException as exc:
        exc.show()
        code = USAGE
    except NucleicError as exc:
        print(f"nucleic: {visible(str(exc))}", file=sys.stderr)
        code = exit_code(exc)
    except OSError as exc:  # ours come as NucleicErrors; what is left bears a file's name, or is a descriptor's
        what = visible(str(exc.filename)) if exc.filename is not None else "cannot write to stdout"
        print(f"nucleic: {what}: {exc.strerror or exc}", file=sys.stderr)
        code = STDOUT_CLOSED if exc.filename is None else STATE
    else:
        code = returned if isinstance(returned, int) else 0
    return code if _flushed() else STDOUT_CLOSED


def _fill_closed_streams() -> None:
    """Let no file of ours become stdout: after `>&-` the next one opened would, and get what is meant for people."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: SIM115, PTH123
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123 - for as long as the process lives
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115, PTH123


def _flushed() -> bool:
    """Flush stdout; when nothing takes it, stand in, so that the interpreter's own flush at the end is quiet."""
    try:
        sys.stdout.flush()
    except OSError as exc:
        if not isinstance(exc, BrokenPipeError):
            print(f"nucleic: cannot write to stdout: {exc.strerror}", file=sys.stderr)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
        return False
    return True
