"""The backend `codex` as Nucleic loads it: one function a hook, each returning the object that does the work."""

from typing import cast

from nucleic_codex.app_server.approvals import CodexApprovals
from nucleic_codex.app_server.decode import AppServerDecoder
from nucleic_codex.app_server.driver import AppServerDriver
from nucleic_codex.app_server.probe import AppServerProber
from nucleic_core.backend import Decoder, Driver
from nucleic_core.hookspecs import hookimpl
from nucleic_core.specs import ProcessSpec, RunSpec

NUCLEIC_API = 1


@hookimpl
def nucleic_prober() -> AppServerProber:
    """What the app-server can do."""
    return AppServerProber()


@hookimpl
def nucleic_decoder(run: RunSpec) -> AppServerDecoder:
    """Its messages as events."""
    return AppServerDecoder(cwd=run.cwd, partials=run.partials)


@hookimpl
def nucleic_approval_mapper() -> CodexApprovals:
    """Its asks and our answers."""
    return CodexApprovals()


@hookimpl
def nucleic_driver(run: RunSpec, decoder: Decoder) -> Driver:
    """The conversation with it."""
    return AppServerDriver(run, cast(AppServerDecoder, decoder))


@hookimpl
def nucleic_spawn(run: RunSpec, driver: Driver) -> ProcessSpec:
    """Its command line."""
    return cast(AppServerDriver, driver).process()
