"""Failures of code that is not ours: what counts as one, and how it is logged without what it says.

Plugins, responders and the helper tasks of a session run where one that fails must cost as little as possible. A plugin
that calls `sys.exit` has failed like any other. A cancellation and Ctrl-C are nobody's failure: they pass.
"""

import logging
from traceback import format_tb

import trio

_PASSING = (trio.Cancelled, KeyboardInterrupt, GeneratorExit)


class Quit(Exception):
    """Something tried to end the program, or raised what is no Exception; it is the cause of this."""


def failure_of(raised: BaseException) -> Exception:
    """What foreign code raised, as one plain exception: of a group the first. What is no failure is raised on."""
    if isinstance(raised, BaseExceptionGroup):
        passing = raised.subgroup(_PASSING)
        if passing is not None:
            raise passing
        while isinstance(raised, BaseExceptionGroup):
            raised = raised.exceptions[0]
    if isinstance(raised, Exception):
        return raised
    if isinstance(raised, _PASSING):
        raise raised
    failure = Quit(repr(raised)).with_traceback(raised.__traceback__)
    failure.__cause__ = raised
    return failure


def log_failure(log: logging.Logger, who: str, failure: Exception) -> None:
    """Say what kind of exception came from where, without its text: that may hold what the agent works on."""
    log.error("%s raised %s\n%s", who, type(failure).__qualname__, "".join(format_tb(failure.__traceback__)))
