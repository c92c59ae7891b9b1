"""The backend `codex-exec` as Nucleic loads it: one function a hook, each returning the object that does the work."""

from typing import cast

from nucleic_codex.exec.decode import ExecDecoder
from nucleic_codex.exec.driver import ExecDriver
from nucleic_codex.exec.probe import ExecProber
from nucleic_core.backend import Decoder, Driver
from nucleic_core.hookspecs import hookimpl
from nucleic_core.specs import ProcessSpec, RunSpec

NUCLEIC_API = 1


@hookimpl
def nucleic_prober() -> ExecProber:
    """What `codex exec` can do."""
    return ExecProber()


@hookimpl
def nucleic_decoder(run: RunSpec) -> ExecDecoder:
    """Its messages as events. A recording (a run without a session) says itself where its thread stood, if it can."""
    return ExecDecoder(cwd=run.cwd, model=run.model, resumed=run.native_resume is not None)


@hookimpl
def nucleic_driver(run: RunSpec, decoder: Decoder) -> Driver:
    """The one turn of it."""
    return ExecDriver(run, cast(ExecDecoder, decoder))


@hookimpl
def nucleic_spawn(run: RunSpec, driver: Driver) -> ProcessSpec:
    """Its command line."""
    return cast(ExecDriver, driver).process()
