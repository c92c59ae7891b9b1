"""What a run is asked to do: its input, its settings, and the process that serves it."""

from collections.abc import Mapping
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
class RunSpec:
    """One spec for start and resume. A set field that the backend does not honour is refused before the spawn.

    `session` is our id; `native_resume` the backend's own id of the session to resume. `env` is added to the child's
    environment. `settings` are the backend's own, validated by it. `rules` makes a fixed run.
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


@attrs.frozen
class ProcessSpec:
    """The child to start. The environment is built from an allow list, plus `inherit_env` names, plus `env`.

    `contained` is set only by a spawn wrapper that contains the process. `start_timeout`: seconds until
    `Driver.converse` must have called `task_status.started()`. `grace`: seconds after finish(), after SIGTERM.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    inherit_env: tuple[str, ...] = ()
    cwd: Path | None = None
    stdin: Literal["pipe", "null"] = "pipe"
    contained: bool = False
    start_timeout: float = 60.0
    grace: tuple[float, float] = (5.0, 2.0)
