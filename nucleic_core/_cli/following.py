"""Showing events as they come, with a beat in between while none does."""

from collections.abc import AsyncIterator, Awaitable, Callable

import trio

from nucleic_core.events import AgentEvent

BEAT = 0.1
"""Seconds without an event after which `pause` is called, again and again."""


async def follow(
    events: AsyncIterator[AgentEvent],
    show: Callable[[AgentEvent], Awaitable[None]],
    pause: Callable[[], Awaitable[None]],
) -> None:
    """Show every event. The iterator must lose nothing when a wait for its next one is cancelled; ours do not."""
    while True:
        with trio.move_on_after(BEAT) as beat:
            event = await anext(events, None)
        if beat.cancelled_caught:
            await pause()
        elif event is None:
            return
        else:
            await show(event)
