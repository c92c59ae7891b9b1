"""The guard: ends what is left of a host's runs when the host is gone, be it by `kill -9`.

Started by `guard.Guard`, once a host, by path and with `-I -S` so that it is small and quick. Its stdin is the lifeline:
lines `watch COOKIE` and `forget COOKIE`, and an end of file that comes only when no process holds the other side any
more. Then every process of a watched run gets SIGTERM, a second later SIGKILL, until none is left.

Standard library only.
"""

import importlib.util
import os
import signal
import sys
import time
from types import ModuleType

TYPE_CHECKING = False  # typing is not worth its weight here
if TYPE_CHECKING:
    from nucleic_core._wire.descendants import Descendants

GRACE = 1.0
"""Seconds between SIGTERM and SIGKILL."""

PAUSE = 0.1
"""Seconds between two scans."""

LONGEST = 30.0
"""Seconds after which the guard gives up: a process stuck in the kernel cannot be ended by anybody."""


def main() -> None:
    """Follow the lifeline to its end, then end what is still watched."""
    # It lives as long as the host does, whatever is typed at the terminal or sent to everybody at logout.
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(signum, signal.SIG_IGN)
    # Loaded now, since the file may have been upgraded or removed by the time it is needed.
    descendants = _load_descendants()
    watched: set[str] = set()
    for line in sys.stdin.buffer:
        verb, _, cookie = line.decode("ascii", "replace").strip().partition(" ")
        if verb == "watch" and cookie:
            watched.add(cookie)
        elif verb == "forget":
            watched.discard(cookie)
    if watched:
        end(descendants.Descendants(watched))


def end(runs: "Descendants") -> None:
    """End all processes of these runs. Two scans in a row must find nothing: one may have been starting just then."""
    began = time.monotonic()
    asked: set[int] = set()
    empty = 0
    while empty < 2 and (waited := time.monotonic() - began) < LONGEST:
        found = runs.scan()
        empty = 0 if found else empty + 1
        if waited >= GRACE:
            runs.signal(signal.SIGKILL)
        elif not found <= asked:
            runs.signal(signal.SIGTERM)
            asked |= found
        time.sleep(PAUSE)


def _load_descendants() -> ModuleType:
    """The module beside this file. `-I -S` leave our package out of the search path, so it is loaded by path."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "descendants.py")  # noqa: PTH100, PTH118, PTH120
    spec = importlib.util.spec_from_file_location("descendants", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main()
