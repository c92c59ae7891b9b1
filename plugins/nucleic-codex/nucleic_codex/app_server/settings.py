"""The backend's own settings of a run (`RunSpec.settings`), read and checked once."""

from collections.abc import Mapping
from typing import Literal

import attrs

from nucleic_core.errors import BadSettings

Approvals = Literal["native", "hook"]


@attrs.frozen
class Settings:
    """How the app-server is driven.

    `approvals`: who asks. `native`: Codex, for what its sandbox and its rules leave open; an input cannot be changed.
    `hook`: our hook, before every shell command and every patch; an input can be changed, and a reason reaches the model.
    `executable` is the program, by name on PATH or by path.
    """

    approvals: Approvals = "native"
    executable: str = "codex"

    @classmethod
    def read(cls, given: Mapping[str, object]) -> "Settings":
        """Read what the run gives; BadSettings for an unknown name or a value that is none."""
        known = [field.name for field in attrs.fields(cls)]
        for name in given:
            if name not in known:
                raise BadSettings(f"codex has no setting {name!r}: it knows {' and '.join(known)}.")
        approvals = given.get("approvals", "native")
        if approvals not in ("native", "hook"):
            raise BadSettings(f"The codex setting approvals is {approvals!r}: it must be native or hook.")
        executable = given.get("executable", "codex")
        if not isinstance(executable, str) or not executable:
            raise BadSettings(f"The codex setting executable is {executable!r}: it must be a program's name or path.")
        return cls(approvals, executable)
