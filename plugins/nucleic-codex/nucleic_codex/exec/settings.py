"""The backend's own settings of a run (`RunSpec.settings`), read and checked once."""

from collections.abc import Mapping

import attrs

from nucleic_core.errors import BadSettings


@attrs.frozen
class Settings:
    """How `codex exec` is driven. `executable` is the program, by name on PATH or by path."""

    executable: str = "codex"

    @classmethod
    def read(cls, given: Mapping[str, object]) -> "Settings":
        """Read what the run gives; BadSettings for an unknown name or a value that is none."""
        for name in given:
            if name != "executable":
                raise BadSettings(f"codex-exec has no setting {name!r}: it knows executable.")
        executable = given.get("executable", "codex")
        if not isinstance(executable, str) or not executable:
            raise BadSettings(
                f"The codex-exec setting executable is {executable!r}: it must be a program's name or path."
            )
        return cls(executable)
