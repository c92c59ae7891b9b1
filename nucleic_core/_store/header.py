"""Line 0 of a transcript: whose session it is and what it began from. Written once, never rewritten.

What is learnt later (native id, native transcript path) is in the newest `session_started`.
"""

from pathlib import Path

import attrs
import orjson

from nucleic_core._structure import strict_converter
from nucleic_core._values import unicode_text
from nucleic_core.errors import SessionNotFound, TranscriptFailed

SCHEMA_VERSION = 1
"""Raised when a reader of the older one would misread; fields that are only added do not raise it."""

_LONGEST = 1 << 20  # bytes; a longer first line is no header


@attrs.frozen(kw_only=True)
class Header:
    """What the session was when it began. `created_at` is RFC 3339 UTC; `base_commit` the commit that `cwd` stood at.

    `forked_from` is the session whose history the agent was given. `backend_version` stays None: which version of the agent
    runs is known once its process speaks, and stands in `session_started`.
    """

    schema_version: int = SCHEMA_VERSION
    nucleic_version: str
    session: str
    backend: str
    backend_version: str | None = None
    cwd: str
    base_commit: str | None = None
    model: str | None = attrs.field(default=None, converter=attrs.converters.optional(unicode_text))
    created_at: str
    forked_from: str | None = None

    def to_line(self) -> bytes:
        """The header as one line of JSON, without the line feed."""
        return orjson.dumps(attrs.asdict(self))


def read_header(path: Path) -> tuple[Header, int]:
    """The header of a transcript and the offset of what follows it.

    Raises SessionNotFound when there is no such file, TranscriptFailed when it cannot be read or is newer than we are.
    """
    try:
        with path.open("rb") as file:
            line = file.readline(_LONGEST)
    except FileNotFoundError as exc:
        raise SessionNotFound(f"there is no transcript {path}. `nucleic sessions` lists what is there.") from exc
    except OSError as exc:
        raise TranscriptFailed(f"cannot read the transcript {path}: {exc.strerror}.") from exc
    try:
        flat = orjson.loads(line if line.endswith(b"\n") else b"")
        version = flat["schema_version"]
        if isinstance(version, int) and version > SCHEMA_VERSION:
            raise TranscriptFailed(
                f"{path} was written by Nucleic {flat.get('nucleic_version')} in format {version}; this one reads up to "
                f"{SCHEMA_VERSION}. Update nucleic-core to open it."
            )
        header: Header = strict_converter(known_keys_only=False).structure(flat, Header)
    except (LookupError, TypeError, ValueError) as exc:
        raise TranscriptFailed(
            f"{path} is damaged: its first line is no header. Move the file away, or restore it from a copy."
        ) from exc
    return header, len(line)
