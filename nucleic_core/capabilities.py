"""What a backend can do, and what a probe found on this machine. None means nobody knows yet."""

from collections.abc import Mapping
from typing import Literal

import attrs

from nucleic_core.approvals import Scope


@attrs.frozen
class BackendCapabilities:
    """What a backend can do, declared per version and narrowed by what the run proves (`Link.prove`).

    `honours` names the RunSpec fields that it acts on, beside session, backend, cwd, prompt and env; a run that sets any
    other is refused before the spawn. `native_always` holds only scopes whose native reach is exactly the session.
    `follow_up` is empty where a message cannot be taken while a turn runs.
    """

    interactive_approvals: bool | None = None
    questions: bool | None = None
    can_modify_tool_input: bool | None = None
    partial_message_streaming: bool | None = None
    emits_thinking: bool | None = None
    emits_file_change_events: bool | None = None
    native_resume: bool | None = None
    fork: bool | None = None
    images: bool | None = None
    sandbox_modes: tuple[str, ...] = ()
    native_always: frozenset[Scope] = frozenset()
    deny_means: Literal["goes_on", "ends_turn", "unknown"] = "unknown"
    deny_reason_reaches_model: bool | None = None
    follow_up: frozenset[Literal["queue", "steer"]] = frozenset()
    edit_gate: Literal["callback", "hook", "approval", "absent"] = "absent"
    honours: frozenset[str] = frozenset()
    models: tuple[str, ...] = ()
    """Patterns (`claude-*`) of the model names that mean this backend when none is given."""
    signals: Mapping[str, tuple[str, str]] = attrs.field(factory=dict)


@attrs.frozen
class ProbeReport:
    """What a prober found without spending tokens or changing a file. `next_step` is one sentence for a person."""

    installed: bool
    version: str | None = None
    logged_in: bool | None = None
    next_step: str = ""
