"""What `codex exec` can do, per version."""

from collections.abc import Mapping

from nucleic_codex.exec.spawn import FORKS_FROM
from nucleic_codex.probe import SANDBOX_MODES, look
from nucleic_codex.program import parse
from nucleic_core.capabilities import BackendCapabilities, ProbeReport
from nucleic_core.specs import RunSpec

UNSEEN = (
    "heuristic",
    "What its policy refuses is found in the thread's rollout file, or else (ephemeral runs) in the text of stderr. "
    "What stands in neither cannot be seen.",
)


class ExecProber:
    """Answers for the `codex` program named `executable`."""

    def __init__(self, executable: str = "codex") -> None:
        self._executable = executable

    def declared(self, version: str | None = None, run: RunSpec | None = None) -> BackendCapabilities:
        """The same for every version that is driven, 0.141.0 to 0.171.0, but for forks."""
        known = parse(version) if version is not None else None
        return BackendCapabilities(
            interactive_approvals=False,
            questions=False,
            can_modify_tool_input=False,
            partial_message_streaming=False,
            emits_thinking=True,
            emits_file_change_events=True,
            native_resume=True,
            fork=None if known is None else known >= FORKS_FROM,
            images=True,
            sandbox_modes=SANDBOX_MODES,
            deny_means="goes_on",
            deny_reason_reaches_model=False,
            edit_gate="absent",
            honours=frozenset(
                {
                    "model",
                    "sandbox",
                    "system_prompt",
                    "add_dirs",
                    "partials",  # there are none to leave out
                    "output_schema",
                    "ephemeral",
                    "extra_args",
                    "native_resume",
                    "fork",
                    "settings",
                }
            ),
            signals={"refused_actions": UNSEEN},
        )

    async def probe(self, env: Mapping[str, str]) -> ProbeReport:
        """See `nucleic_codex.probe.look`."""
        return await look(self._executable, env)
