"""One way to say what an agent is to do, whichever agent it is: the same steps for every backend.

    prompt = actor.prompt(Touch("made.txt"), Say("Done."))
    async with actor.world.open(prompt) as session: ...

For a real CLI the steps become turns of its scripted model; the demo agent reads them in its prompt.
"""

from typing import TypeAlias

import attrs
import messages_api
import responses_api
from world import World


@attrs.frozen
class Say:
    """A text."""

    text: str


@attrs.frozen
class Touch:
    """A shell command that makes a file, and is asked about."""

    name: str


@attrs.frozen
class Wait:
    """A word, and then nothing any more until the turn is interrupted."""


Step: TypeAlias = Say | Touch | Wait


@attrs.frozen
class Demo:
    """The demo agent."""

    world: World

    def prompt(self, *steps: Step) -> str:
        """The prompt that brings the steps about."""
        return "\n".join(self._line(step) for step in steps)

    def _line(self, step: Step) -> str:
        match step:
            case Say(text):
                return f"say {text}"
            case Touch(name):
                return f"run touch {name}"
            case Wait():
                return "say I wait\nsleep 60"


@attrs.frozen
class Claude:
    """Claude Code."""

    world: World

    def prompt(self, *steps: Step) -> str:
        """The prompt that brings the steps about: each takes a turn of the model."""
        self.world.api.add(*(self._turn(step) for step in steps))
        return "Go on."

    def _turn(self, step: Step) -> messages_api.Turn:
        match step:
            case Say(text):
                return messages_api.turn(text)
            case Touch(name):
                return messages_api.turn(messages_api.bash(f"touch {name}"))
            case Wait():
                return messages_api.turn("I wait", end="hang")


@attrs.frozen
class Codex:
    """Codex, whichever way it asks."""

    world: World

    def prompt(self, *steps: Step) -> str:
        """The prompt that brings the steps about: each takes a response of the model."""
        self.world.api.add(*(self._turn(step) for step in steps))
        return "Go on."

    def _turn(self, step: Step) -> responses_api.Turn:
        match step:
            case Say(text):
                return responses_api.turn(text)
            case Touch(name):
                return responses_api.turn(responses_api.command(f"touch {name}", escalated=True))
            case Wait():
                return responses_api.turn("I wait", end="hang")
