"""What became of each message to the agent, by the id that `clientUserMessageId` carries on `turn/start` and `turn/steer`.

| what                                     | says                                                                          |
|---                                       |---                                                                            |
| channel `queue`: `{"id"}`                | queued by our driver until the running turn ends                              |
| channel `queue`: `{"id", "refused"}`     | refused by our driver, with the reason                                        |
| the reply to `turn/steer`                | queued: before 0.171 Codex takes it when the current answer is complete        |
| item `userMessage` with that `clientId`  | taken: delivered as the first of its turn, merged as any other (all versions) |
| an error reply, but for -32001           | refused; an overloaded agent is asked again with the same id                  |
| the end of the turn that it was meant for | refused: a hook blocked it, or the turn was interrupted before               |
| the end of the process                   | refused                                                                       |
"""

import attrs

from nucleic_codex.app_server.threads import Thread, Turn
from nucleic_codex.fields import integer, mapping, string
from nucleic_core.backend import Out
from nucleic_core.events import InputAccepted
from nucleic_core.lowlevel import JSON

OVERLOADED = -32001
TURN_START, TURN_STEER = "turn/start", "turn/steer"
TOO_LATE = "the turn ended before the model saw it"


@attrs.define
class _Waiting:
    turn: str | None = None  # the turn that the reply named


class Inputs:
    """The messages of one process that the agent did not take yet."""

    def __init__(self) -> None:
        self._waiting: dict[str, _Waiting] = {}
        self._settled: set[str] = set()
        self._starts = 0
        self.seen = False
        """Whether requests of ours come by at all; they do not where a bare stdout is decoded."""

    def queue(self, message: JSON, out: Out) -> None:
        """A word of our driver's on a message that it keeps."""
        input_id, refused = string(message.get("id")), string(message.get("refused"))
        if input_id is None:
            return
        if refused is None:
            out.event(InputAccepted(input_id, "queued"), "queue")
        else:
            self._refuse(input_id, refused, "queue", out)

    def sent(self, method: str, params: JSON) -> None:
        """A `turn/start` or `turn/steer` goes out."""
        self._starts += method == TURN_START
        if (input_id := string(mapping(params).get("clientUserMessageId"))) is not None:
            self._waiting[input_id] = _Waiting()

    def replied(self, method: str, params: JSON, reply: JSON, root: Thread | None, out: Out) -> bool:
        """The reply to it. False: an error that concerns no message of ours."""
        input_id = string(mapping(params).get("clientUserMessageId"))
        waiting = self._waiting.get(input_id) if input_id is not None else None
        error = reply.get("error")
        if error is None:
            result = mapping(reply.get("result"))
            turn = string(mapping(result.get("turn")).get("id")) or string(result.get("turnId"))
            if method == TURN_START and root is not None and root.turn is not None and root.turn.id == turn:
                self._starts -= 1  # it was taken into the turn that runs (wire truth A5)
            if waiting is not None and input_id is not None:
                waiting.turn = turn
                if root is not None and turn in root.over:
                    self._refuse(input_id, TOO_LATE, method, out)
                elif method == TURN_STEER:
                    out.event(InputAccepted(input_id, "queued"), method)
            return True
        self._starts -= method == TURN_START
        if integer(mapping(error).get("code")) == OVERLOADED:
            return True
        if waiting is None or input_id is None:
            return False
        self._refuse(input_id, string(mapping(error).get("message")), method, out)
        return True

    def turn_began(self) -> bool:
        """A turn of the root began: whether a message of ours began it."""
        ours = self._starts > 0
        self._starts -= ours
        return ours or not self.seen

    def taken(self, input_id: str | None, thread: Thread, native: str, out: Out) -> None:
        """The model has a message of the user, ours or not."""
        first = thread.turn is None or not thread.turn.took_input
        if input_id is None:
            if thread.turn is not None:
                thread.turn.took_input = True
            return
        if input_id in self._settled or (input_id not in self._waiting and self.seen):
            return  # the item's completion, or a message that is not of this process
        self._waiting.pop(input_id, None)
        self._settled.add(input_id)
        if thread.turn is not None:
            thread.turn.took_input = True
        out.event(InputAccepted(input_id, "delivered" if first else "merged"), native)

    def turn_ended(self, turn: Turn, out: Out) -> None:
        """What was meant for this turn and did not get into it never will."""
        for input_id, waiting in list(self._waiting.items()):
            if waiting.turn == turn.id:
                self._refuse(input_id, turn.blocked or TOO_LATE, "turn/completed", out)

    def process_ended(self, out: Out) -> int:
        """The process is gone: how many messages it never took."""
        left = list(self._waiting)
        for input_id in left:
            self._refuse(input_id, "the agent's process ended before it took this message", None, out)
        return len(left)

    def _refuse(self, input_id: str, reason: str | None, native: str | None, out: Out) -> None:
        self._waiting.pop(input_id, None)
        self._settled.add(input_id)
        out.event(InputAccepted(input_id, "refused", reason), native)
