"""From what a person types to a session: its id, or the beginning of it."""

from pathlib import Path

from nucleic_core._store.home import sessions_dir, transcript_path
from nucleic_core.errors import SessionNotFound


def find_session(home: Path, typed: str) -> str:
    """The id of the session that is meant. Raises SessionNotFound when none is, or several are."""
    if transcript_path(home, typed).exists():
        return typed
    found = sorted(path.parent.name for path in sessions_dir(home).glob("*/transcript.jsonl"))
    meant = [session for session in found if session.startswith(typed)]
    if not meant:
        raise SessionNotFound(f"No session begins with {typed}. `nucleic sessions` lists them.")
    if len(meant) > 1:
        raise SessionNotFound(f"{len(meant)} sessions begin with {typed}: {', '.join(meant[:5])}. Type more of the id.")
    return meant[0]
