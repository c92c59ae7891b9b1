"""What a run is asked to do: its input, its settings, and the process that serves it."""

import re
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Literal

import attrs

from nucleic_core._values import JSON, unicode_text
from nucleic_core.approvals import Rule


@attrs.frozen
class Text:
    """Words of the user; lone surrogates become U+FFFD, for the agent and the record alike."""

    text: str = attrs.field(converter=unicode_text)


@attrs.frozen
class Context:
    """Material beside the prompt, such as a file or a log; rendered by the core as one labelled text, alike everywhere.

    Lone surrogates become U+FFFD.
    """

    label: str = attrs.field(converter=unicode_text)
    body: str = attrs.field(converter=unicode_text)


@attrs.frozen
class Image:
    """A picture; `media_type` such as image/png."""

    data: bytes
    media_type: str


@attrs.frozen
class AgentInput:
    """One message to the agent. `id` is ours (a UUID), given by the core; `input_accepted` carries it."""

    parts: tuple[Text | Context | Image, ...]
    id: str = ""

    @classmethod
    def of(cls, message: "str | AgentInput") -> "AgentInput":
        """A plain string as an input of one text part."""
        return cls((Text(message),)) if isinstance(message, str) else message


def render(part: Text | Context) -> str:
    """A text part as the agent gets it: a context part bears its label in its first line, the same for every backend."""
    if isinstance(part, Text):
        return part.text
    return f"Context ({' '.join(part.label.split())}):\n{part.body}"


def plain_text(message: AgentInput) -> str:
    """All text of an input in one string; images are left out."""
    return "\n\n".join(render(part) for part in message.parts if not isinstance(part, Image))


@attrs.frozen
class Tool:
    """A function of ours that the agent may call, given by the hook `nucleic_tools`.

    `name`: 1 to 48 letters, digits, `_` and `-`, no `_` at its begin and no two in a row. `input_schema` is a JSON Schema of
    an object, which the model is shown; whether the arguments obey it is the function's to see. What `call` returns is shown
    to the model, a text as it is and anything else as JSON; what it raises is shown as the tool's failure. It runs in the
    session's task tree, several at once where the agent calls so, and is cancelled when the agent no longer waits.
    """

    name: str = attrs.field()
    description: str
    input_schema: JSON = attrs.field(repr=False)
    call: Callable[[JSON], Awaitable[JSON]] = attrs.field(repr=False)

    @name.validator
    def _check_name(self, attribute: object, name: str) -> None:
        # `mcp__nucleic__<name>` must be no other server's tool, whatever that server is called.
        if not re.fullmatch("[A-Za-z0-9-][A-Za-z0-9_-]{0,47}", name) or "__" in name:
            raise ValueError(f"{name!r} is no name for a tool: letters, digits, - and single _ inside, at most 48")

    @input_schema.validator
    def _check_schema(self, attribute: object, schema: JSON) -> None:
        if not isinstance(schema, dict) or schema.get("type") != "object":
            raise ValueError(f'the input schema of the tool {self.name} must have "type": "object"')


@attrs.frozen
class RunSpec:
    """One spec for start and resume. A set field that the backend does not honour is refused before the spawn.

    `session` is our id; `native_resume` the backend's own id of the session to resume. `env` is added to the child's
    environment. `settings` are the backend's own, validated by it. `rules` makes a fixed run. `tools` are what plugins give
    by `nucleic_tools`; a backend that honours it serves them under the server name `nucleic`.
    """

    session: str
    backend: str
    cwd: Path
    prompt: AgentInput | None = None
    model: str | None = None
    sandbox: str | None = None
    rules: tuple[Rule, ...] | None = None
    system_prompt: str | None = None
    mcp_config: Path | None = None
    add_dirs: tuple[Path, ...] = ()
    partials: bool = True
    output_schema: JSON = None
    ephemeral: bool = False
    env: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    extra_args: tuple[str, ...] = ()
    native_resume: str | None = None
    fork: bool = False
    settings: Mapping[str, JSON] = attrs.field(factory=dict)
    tools: tuple[Tool, ...] = ()


@attrs.frozen
class ProcessSpec:
    """The child to start. The environment is built from an allow list, plus `inherit_env` names, plus `env`.

    `stdin`: a pipe that stays open for `Link.write`, nothing, or bytes that the child gets whole, and then end of file.
    `contained` is set only by a spawn wrapper that contains the process. `start_timeout`: seconds until
    `Driver.converse` must have called `task_status.started()`. `grace`: seconds after finish(), after SIGTERM.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    inherit_env: tuple[str, ...] = ()
    cwd: Path | None = None
    stdin: Literal["pipe", "null"] | bytes = attrs.field(default="pipe", repr=False)
    contained: bool = False
    start_timeout: float = 60.0
    grace: tuple[float, float] = (5.0, 2.0)
