"""What the app-server can do, per version."""

from collections.abc import Mapping

from nucleic_codex.app_server.settings import Settings
from nucleic_codex.probe import MODELS, SANDBOX_MODES, look
from nucleic_core.capabilities import BackendCapabilities, ProbeReport
from nucleic_core.specs import RunSpec


class AppServerProber:
    """Answers for the `codex` program named `executable`."""

    def __init__(self, executable: str = "codex") -> None:
        self._executable = executable

    def declared(self, version: str | None = None, run: RunSpec | None = None) -> BackendCapabilities:
        """The same for every version that is driven, 0.141.0 to 0.171.0; the hook, where a run asks for it, adds to it."""
        hooked = run is not None and Settings.read(run.settings).approvals == "hook"
        return BackendCapabilities(
            interactive_approvals=True,
            questions=True,
            # No request of the wire takes an edited input; the hook does (docs/wire-truth.md).
            can_modify_tool_input=hooked,
            partial_message_streaming=True,
            emits_thinking=True,
            emits_file_change_events=True,
            native_resume=True,
            fork=True,
            images=True,
            sandbox_modes=SANDBOX_MODES,
            native_always=frozenset() if hooked else frozenset({"session"}),
            deny_means="goes_on",
            deny_reason_reaches_model=hooked,
            follow_up=frozenset({"queue", "steer"}),
            edit_gate="hook" if hooked else "approval",
            honours=frozenset(
                {
                    "model",
                    "sandbox",
                    "system_prompt",
                    "mcp_config",
                    "add_dirs",
                    "partials",
                    "output_schema",
                    "ephemeral",
                    "extra_args",
                    "native_resume",
                    "fork",
                    "settings",
                }
            ),
            models=MODELS,
        )

    async def probe(self, env: Mapping[str, str]) -> ProbeReport:
        """See `nucleic_codex.probe.look`."""
        return await look(self._executable, env)
