"""Which backend a run uses when none is named.

The settings' default; else, with a model, the one installed backend whose declared patterns match it; else the first
one that is usable; else the demo agent, and that is said.
"""

import logging
import os
from collections.abc import Awaitable, Callable
from fnmatch import fnmatchcase

import attrs
import trio

from nucleic_core._faults import failure_of
from nucleic_core._plugins import Plugins
from nucleic_core.capabilities import BackendCapabilities, ProbeReport
from nucleic_core.errors import BackendMissing, NucleicError, Unsupported

log = logging.getLogger("nucleic.cli")

DEMO = "demo"
PATIENCE = 30.0
"""Seconds that a probe may take; starting an agent to ask for its version can take many."""


@attrs.frozen
class Probed:
    """One installed backend as it was found; `problem` says why there is no report."""

    name: str
    capabilities: BackendCapabilities | None = None
    report: ProbeReport | None = None
    problem: str = ""

    @property
    def usable(self) -> bool:
        """Installed, and not known to be logged out."""
        return self.report is not None and self.report.installed and self.report.logged_in is not False


async def probed(plugins: Plugins, name: str) -> Probed:
    """Load a backend and let its prober look. Never raises: what fails is the backend's problem."""
    capabilities: BackendCapabilities | None = None
    try:
        prober = plugins.backend(name).prober()
        if prober is None:
            return Probed(name, problem="it has no prober, so nothing is known of it")
        with trio.fail_after(PATIENCE):
            report = await prober.probe(os.environ)
        capabilities = prober.declared(report.version)
    except trio.TooSlowError:
        return Probed(name, problem=f"its probe took longer than {PATIENCE:g} s")
    except BaseException as raised:
        exc = failure_of(raised)
        problem = str(exc) if isinstance(exc, NucleicError) else f"{type(exc).__name__}: {exc}"
        return Probed(name, problem=problem)
    return Probed(name, capabilities, report)


async def choose(
    plugins: Plugins, default: str | None, model: str | None, say: Callable[[str], Awaitable[None]]
) -> str:
    """The backend of a run that names none; `say` tells people about the demo agent.

    Raises Unsupported when several backends claim the model, BackendMissing when nothing at all is installed.
    """
    if default is not None:
        return default
    if model is not None:
        claiming = [name for name in plugins.backends if name != DEMO and _claims(plugins, name, model)]
        if len(claiming) > 1:
            raise Unsupported(f"{model} is claimed by {' and '.join(claiming)}; choose one with -b.")
        if claiming:
            return claiming[0]
    looked: list[Probed] = []
    for name in plugins.backends:
        if name != DEMO:
            looked.append(await probed(plugins, name))
            if looked[-1].usable:
                return name
    if DEMO not in plugins.backends:
        raise BackendMissing("No backend is installed here that can be used; `nucleic backends` says why.")
    lines = ["No coding agent was found that can be used, so this is the demo agent, a small script."]
    lines += [f"{one.name}: {why_not(one)}" for one in looked]
    await say("\n".join([*lines, "Choose a backend with -b; `nucleic backends` lists them."]))
    return DEMO


def why_not(one: Probed) -> str:
    """Why a backend cannot be used, in one sentence."""
    if one.report is None:
        return one.problem
    return one.report.next_step or ("not logged in" if one.report.installed else "not installed")


def _claims(plugins: Plugins, name: str, model: str) -> bool:
    try:
        prober = plugins.backend(name).prober()
        return prober is not None and any(fnmatchcase(model, pattern) for pattern in prober.declared().models)
    except BaseException as exc:
        log.info("%s is left out of the choice: %r", name, failure_of(exc))
        return False
