"""What of Codex is on this machine: program, version, log-in. What each backend can do with it is said beside that backend."""

from collections.abc import Mapping

import trio

from nucleic_codex.program import NEWEST, codex_home, find, spoken
from nucleic_core.capabilities import ProbeReport
from nucleic_core.errors import BackendMissing

MODELS = ("gpt-*", "codex-*", "o1*", "o3*", "o4*")
"""The names of models that mean Codex when no backend is named."""

SANDBOX_MODES = ("read-only", "workspace-write", "danger-full-access")


async def look(executable: str, env: Mapping[str, str]) -> ProbeReport:
    """Look for the program and its log-in; `codex --version` is all that is started."""
    try:
        program = await find(executable, env)
    except BackendMissing as missing:
        return ProbeReport(installed=False, next_step=str(missing))
    version, logged_in = spoken(program.version), await _logged_in(env)
    if logged_in is False:
        next_step = "Log in: run `codex login` once."
    elif logged_in is None:
        next_step = "If a run fails to log in, run `codex login` once."
    else:
        next_step = "" if program.version <= NEWEST else f"Newer than the newest tested version, {spoken(NEWEST)}."
    return ProbeReport(installed=True, version=version, logged_in=logged_in, next_step=next_step)


async def _logged_in(env: Mapping[str, str]) -> bool | None:
    """Whether there is the file that a log-in leaves; nobody asks the service whether it is valid.

    None where only the CLI can tell: the user's settings name a keyring, or a provider with a key of its own.
    """
    home = codex_home(env)
    if await trio.Path(home, "auth.json").exists():
        return True
    try:
        settings = await trio.Path(home, "config.toml").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return None if "cli_auth_credentials_store" in settings or "model_provider" in settings else False
