"""What became of each message to the agent: delivered, merged into a turn, or refused, exactly once each.

Three things tell, the first of them counts (wire facts 51 and 52):

| what                                       | versions | says                                                  |
|---                                         |---       |---                                                    |
| `command_lifecycle`                        | 238+     | queued; started: taken; cancelled before that: refused |
| `user` line with `isReplay`                | all      | taken; a joint line of several messages takes them all |
| `user_message_uuids` of the `result`       | 332      | taken in this turn                                    |

The first message taken for a turn is delivered, every other one is merged into it. Where the CLI says nothing of a message,
the end of a turn does: without any acknowledgement in the whole stream it takes all that wait, else the oldest one, and
only if the turn took no other. The end of the process refuses the rest.
"""

import attrs

from nucleic_claude.fields import mapping, row, sequence, string
from nucleic_core.backend import Out
from nucleic_core.events import InputAccepted
from nucleic_core.lowlevel import JSON


@attrs.frozen
class _Waiting:
    texts: tuple[str, ...]
    named: bool


class Inputs:
    """The messages of one process that the agent did not take yet."""

    def __init__(self) -> None:
        self._waiting: dict[str, _Waiting] = {}
        self._settled: set[str] = set()
        self._nameless = 0
        self._taken = 0
        self._acknowledged = False
        self._has_lifecycle = False
        self.seen = False
        """Whether messages to the agent come by here at all; they do not when a bare stdout is decoded."""

    @property
    def opens_turn(self) -> bool:
        """Whether the turn that begins now has a message of the user to begin with."""
        return self._taken > 0 or (bool(self._waiting) and not self._has_lifecycle)

    def sent(self, message: JSON) -> None:
        """A user message goes out. Without a `uuid` nothing can be said of it, yet it still begins a turn."""
        self.seen = True
        uuid = string(message.get("uuid"))
        content = mapping(message.get("message")).get("content")
        self._nameless += uuid is None
        self._waiting[uuid or f"#{self._nameless}"] = _Waiting(tuple(texts_of(content)), uuid is not None)

    def lifecycle(self, message: JSON, out: Out) -> bool:
        """One `command_lifecycle` line. False if it is not understood."""
        uuid, state = string(message.get("command_uuid")), message.get("state")
        if uuid is None or state not in ("queued", "started", "completed", "cancelled"):
            return False
        self._acknowledged = self._has_lifecycle = True
        native = f"command_lifecycle/{state}"
        if state in ("started", "completed"):
            self._take(uuid, out, native)
        elif self._is_open(uuid):
            if state == "cancelled":
                self._settle(uuid)
                out.event(InputAccepted(uuid, "refused", "the agent dropped it from its queue"), native)
            else:
                out.event(InputAccepted(uuid, "queued"), native)
        return True

    def replayed(self, message: JSON, content: JSON, out: Out) -> None:
        """A `user` line with `isReplay`: its message, and all others whose texts it joined, were taken."""
        self._acknowledged = True
        texts = list(texts_of(content))
        uuid = string(message.get("uuid"))
        own = self._waiting.get(uuid) if uuid is not None else None
        if uuid is not None and (own is not None or not self.seen):
            self._take(uuid, out, "user/replay")
            _without(texts, own.texts if own else ())
        for other, waiting in list(self._waiting.items()):
            if waiting.texts and _without(texts, waiting.texts):
                self._take(other, out, "user/replay")

    def turn_began(self, *, by_agent: bool) -> None:
        """A turn began; what joins one that the agent began by itself is merged into it."""
        if by_agent:
            self._taken = 1

    def turn_ended(self, result: JSON, out: Out) -> None:
        """A `result`: see the module's table."""
        for uuid in (result.get("user_message_uuid"), *sequence(result.get("user_message_uuids"))):
            if row(self._waiting, uuid):
                self._take(uuid, out, "result")
        rest = list(self._waiting)
        if self._acknowledged:
            rest = [] if self._taken else rest[:1]
        for uuid in rest:
            self._take(uuid, out, "result")
        self._taken = 0

    def process_ended(self, out: Out) -> int:
        """The process is gone: how many messages it never took."""
        left = list(self._waiting.items())
        for uuid, waiting in left:
            self._settle(uuid)
            if waiting.named:
                out.event(InputAccepted(uuid, "refused", "the agent's process ended before it took this message"))
        return len(left)

    def _is_open(self, uuid: str) -> bool:
        return uuid not in self._settled and (uuid in self._waiting or not self.seen)

    def _settle(self, uuid: str) -> None:
        self._waiting.pop(uuid, None)
        self._settled.add(uuid)

    def _take(self, uuid: str, out: Out, native: str) -> None:
        if not self._is_open(uuid):
            return
        waiting = self._waiting.get(uuid)
        self._settle(uuid)
        if waiting is None or waiting.named:
            out.event(InputAccepted(uuid, "merged" if self._taken else "delivered"), native)
        self._taken += 1


def texts_of(content: JSON) -> list[str]:
    """The texts of a user message, stripped: the CLI ends them with a line feed when it joins messages."""
    blocks = [{"text": content}] if isinstance(content, str) else sequence(content)
    return [text.strip() for block in blocks if (text := string(mapping(block).get("text"))) is not None]


def _without(texts: list[str], some: tuple[str, ...]) -> bool:
    """Take `some` out of `texts`; nothing happens, and False, if not all of them are there."""
    rest = texts.copy()
    for text in some:
        if text not in rest:
            return False
        rest.remove(text)
    texts[:] = rest
    return True
