"""Tasks that serve an `async with` body without showing in its errors.

A nursery around a caller's body turns the caller's plain ValueError into a group, and an outer cancellation hits the
body and the machinery at once, so nothing is left to end things in order. Here the tasks are shielded and end when the
body has; what the body raises comes out as it is. A task that fails is logged, and costs nothing but itself.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVarTuple, Unpack

import trio

from nucleic_core._faults import failure_of, log_failure

log = logging.getLogger("nucleic")

_Ts = TypeVarTuple("_Ts")


class Background:
    """Starts shielded tasks; they are cancelled when the body is left, unless they have ended by themselves."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._scopes: set[trio.CancelScope] = set()

    def start_soon(self, task: Callable[[Unpack[_Ts]], Awaitable[object]], *args: Unpack[_Ts]) -> None:
        """Run a task until it ends or the body is left."""
        scope = trio.CancelScope(shield=True)
        self._scopes.add(scope)  # now, not when the task first runs: a cancel() in between must reach it
        self._nursery.start_soon(self._shielded, scope, task, args)

    async def _shielded(
        self, scope: trio.CancelScope, task: Callable[..., Awaitable[object]], args: tuple[object, ...]
    ) -> None:
        with scope:
            try:
                await task(*args)
            except BaseException as exc:
                log_failure(log, f"the task {getattr(task, '__qualname__', task)}", failure_of(exc))
            finally:
                self._scopes.discard(scope)

    def cancel(self) -> None:
        """Cancel every task that still runs."""
        for scope in list(self._scopes):
            scope.cancel()


@asynccontextmanager
async def background() -> AsyncIterator[Background]:
    """Serve a body."""
    failure: BaseException | None = None
    async with trio.open_nursery() as nursery:
        tasks = Background(nursery)
        try:
            yield tasks
        except BaseException as exc:
            failure = exc
        tasks.cancel()
    if failure is not None:
        raise failure
