"""The hooks: plain functions, called once at set-up, that return the objects which do the work.

A plugin is a module or an instance with `@hookimpl` functions and `NUCLEIC_API = 1`. An implementation takes the
arguments it needs, by name. A coroutine, an unknown hook or an unknown argument is refused at load.
"""

from collections.abc import Iterable

import pluggy

from nucleic_core.approvals import ApprovalPolicy
from nucleic_core.backend import ApprovalMapper, Decoder, Driver, Observer, Prober, SessionView
from nucleic_core.specs import ProcessSpec, RunSpec, Tool

NUCLEIC_API = 1
"""The version of this surface. It changes when an implementation that loads today could stop working."""

hookspec = pluggy.HookspecMarker("nucleic")
hookimpl = pluggy.HookimplMarker("nucleic")


class BackendHooks:
    """Answered by the session's own backend alone. Required: decoder, driver, spawn."""

    @hookspec(firstresult=True)
    def nucleic_prober(self) -> Prober:
        """Say what the backend can do and what is installed.

        Called when a session opens, before anything else, and by `nucleic backends`. Without it nothing is declared,
        so runs that set more than a prompt are refused. Raising fails the start (or marks the backend broken).

        .. versionadded:: 0.1
        """
        raise NotImplementedError

    @hookspec(firstresult=True)
    def nucleic_decoder(self, run: RunSpec) -> Decoder:
        """Give the decoder of this run's messages; also called by `nucleic decode`, where no process exists.

        .. versionadded:: 0.1
        """
        raise NotImplementedError

    @hookspec(firstresult=True)
    def nucleic_approval_mapper(self, run: RunSpec) -> ApprovalMapper:
        """Give the mapper of this run's asks. Without it every ask is refused as the protocol does.

        .. versionadded:: 0.1
        """
        raise NotImplementedError

    @hookspec(firstresult=True)
    def nucleic_driver(self, run: RunSpec, decoder: Decoder) -> Driver:
        """Give the driver, which is entered next; `decoder` is this run's own.

        .. versionadded:: 0.1
        """
        raise NotImplementedError

    @hookspec(firstresult=True)
    def nucleic_spawn(self, run: RunSpec, driver: Driver) -> ProcessSpec:
        """Say what to start; `driver` is entered. Raise a NucleicError to refuse, with what to do next.

        An extension may wrap it (`wrapper=True`) to run the child elsewhere; only such a wrapper sets `contained`.

        .. versionadded:: 0.1
        """
        raise NotImplementedError


class SessionHooks:
    """Answered by any number of plugins, each isolated: one that raises is left out, with a notice."""

    @hookspec
    def nucleic_approval_policy(self, run: RunSpec, session: SessionView) -> ApprovalPolicy | None:
        """Give a policy for this session, or None. Its Deny and Escalate always count, its Allow only where named.

        .. versionadded:: 0.1
        """

    @hookspec
    def nucleic_tools(self, run: RunSpec) -> Iterable[Tool] | None:
        """Give functions that this session's agent may call, or None. Called once, before anything is started.

        Their calls are allowed unless a policy objects, so a tool must be safe with any arguments. Of two tools of one
        name the second is left out, and all of them where the backend does not honour `tools`; each with a notice.

        .. versionadded:: 0.1
        """

    @hookspec
    def nucleic_observer(self, run: RunSpec, session: SessionView) -> Observer | None:
        """Give an observer of this session's events, or None.

        .. versionadded:: 0.1
        """
