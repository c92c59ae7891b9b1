"""The backend `claude` as Nucleic loads it: one function a hook, each returning the object that does the work."""

import os
from typing import cast

from nucleic_claude.approvals import ClaudeApprovals
from nucleic_claude.decode import ClaudeDecoder
from nucleic_claude.driver import ClaudeDriver
from nucleic_claude.probe import ClaudeProber
from nucleic_claude.program import config_dir
from nucleic_claude.spawn import SERVER_PREFIX
from nucleic_core.backend import Decoder, Driver
from nucleic_core.hookspecs import hookimpl
from nucleic_core.specs import ProcessSpec, RunSpec

NUCLEIC_API = 1


@hookimpl
def nucleic_prober() -> ClaudeProber:
    """What Claude Code can do."""
    return ClaudeProber()


@hookimpl
def nucleic_decoder(run: RunSpec) -> ClaudeDecoder:
    """Its messages as events. A recording (a run without a session) was made elsewhere: nobody knows its home."""
    home = config_dir({**os.environ, **run.env}) if run.session else None
    return ClaudeDecoder(
        cwd=run.cwd,
        transcript_root=home and home / "projects",
        resumed=run.native_resume is not None,
        own_tools=frozenset(SERVER_PREFIX + tool.name for tool in run.tools),
    )


@hookimpl
def nucleic_approval_mapper() -> ClaudeApprovals:
    """Its asks and our answers."""
    return ClaudeApprovals()


@hookimpl
def nucleic_driver(run: RunSpec, decoder: Decoder) -> Driver:
    """The conversation with it."""
    return ClaudeDriver(run)


@hookimpl
def nucleic_spawn(run: RunSpec, driver: Driver) -> ProcessSpec:
    """Its command line."""
    return cast(ClaudeDriver, driver).process()
