"""Where Nucleic keeps its state, and the paths inside.

Directories are 0700 and files 0600: transcripts hold whatever an agent saw. Everything else in this package takes the
home as an argument, so that nothing but `nucleic_home` looks at the environment.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from nucleic_core.errors import SessionNotFound, TranscriptFailed

_SESSION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def where_home_is(env: Mapping[str, str]) -> Path:
    """`$NUCLEIC_HOME`, or `nucleic` in the platform's data directory; nothing is created."""
    if chosen := env.get("NUCLEIC_HOME"):
        return Path(chosen).absolute()
    import platformdirs  # a tenth of the whole import, and not always needed

    return platformdirs.user_data_path("nucleic", appauthor=False)


def nucleic_home(explicit: Path | None = None) -> Path:
    """The state directory, created when missing. Raises TranscriptFailed when nothing can be kept there."""
    home = where_home_is(os.environ) if explicit is None else explicit.absolute()
    make_private(home)
    if not os.access(home, os.W_OK | os.X_OK):
        raise TranscriptFailed(f"cannot write to {home}. Set NUCLEIC_HOME to a directory that you may write to.")
    return home


def make_private(directory: Path) -> None:
    """Create a directory as 0700 unless it is there. Raises TranscriptFailed."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as exc:
        raise TranscriptFailed(
            f"cannot create the directory {directory}: {exc.strerror}. "
            "Set NUCLEIC_HOME to a directory that you may write to."
        ) from exc


def sessions_dir(home: Path) -> Path:
    """One directory a session."""
    return home / "sessions"


def session_dir(home: Path, session: str) -> Path:
    """The directory of one session. Raises SessionNotFound for what can be no session id (`../x`)."""
    if not _SESSION_ID.fullmatch(session):
        raise SessionNotFound(f"{session!r} is no session id. `nucleic sessions` lists them.")
    return sessions_dir(home) / session


def transcript_path(home: Path, session: str) -> Path:
    """The transcript of one session."""
    return session_dir(home, session) / "transcript.jsonl"


def index_path(home: Path) -> Path:
    """The list of sessions."""
    return home / "index.sqlite3"


def hosts_dir(home: Path) -> Path:
    """One file a live host, with its socket and sessions."""
    return home / "hosts"


def locks_dir(home: Path) -> Path:
    """Lock files, which are never unlinked: a new file of the same name would be another lock."""
    return home / "locks"
