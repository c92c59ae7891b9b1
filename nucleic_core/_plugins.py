"""Finding, checking and isolating plugins, and the typed face over their hooks.

Entry points name everything without importing it: `nucleic.backends` (name = backend id), `nucleic.plugins`
(extensions), `nucleic.commands` (click commands). A plugin is loaded when it is first needed; one that is broken is
remembered with its error and never takes another down. Each session gets a plugin manager of its own, with its own
backend and the extensions, so no other backend can answer.
"""

import inspect
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import attrs
import pluggy

from nucleic_core import hookspecs
from nucleic_core._faults import failure_of, log_failure
from nucleic_core.approvals import ApprovalPolicy
from nucleic_core.backend import ApprovalMapper, Decoder, Driver, Observer, Prober, SessionView
from nucleic_core.capabilities import BackendCapabilities
from nucleic_core.errors import BackendBroken, BackendMissing, NucleicError
from nucleic_core.hookspecs import NUCLEIC_API
from nucleic_core.specs import ProcessSpec, RunSpec, Tool

if TYPE_CHECKING:
    from importlib_metadata import EntryPoint

log = logging.getLogger("nucleic.plugins")

BACKENDS, EXTENSIONS, COMMANDS = "nucleic.backends", "nucleic.plugins", "nucleic.commands"
REQUIRED = frozenset({"nucleic_decoder", "nucleic_driver", "nucleic_spawn"})
BACKEND_HOOKS = frozenset(name for name in vars(hookspecs.BackendHooks) if name.startswith("nucleic_"))


_T = TypeVar("_T")


class Entry(Protocol):
    """The part of an entry point that is used here, so that tests and callers can hand in their own."""

    @property
    def name(self) -> str: ...
    @property
    def group(self) -> str: ...
    def load(self) -> Any: ...


@attrs.frozen
class Origin:
    """Which distribution a plugin comes from."""

    distribution: str = ""
    version: str = ""


class Plugins:
    """The plugins of this environment, or those given.

    `NUCLEIC_PLUGINS` restricts what is loaded to a comma list of entry-point names; empty means none. The built-in demo
    backend counts like any other.
    """

    def __init__(self, found: Iterable[Entry] | None = None) -> None:
        entries = list(found) if found is not None else list(_discover())
        chosen = os.environ.get("NUCLEIC_PLUGINS")
        if chosen is not None and found is None:
            names = {name.strip() for name in chosen.split(",")}
            entries = [e for e in entries if e.name in names]
        self._by_group: dict[str, dict[str, Entry]] = {BACKENDS: {}, EXTENSIONS: {}, COMMANDS: {}}
        self.broken: dict[tuple[str, str], str] = {}
        for entry in entries:
            known = self._by_group.get(entry.group)
            if known is None:
                continue
            if entry.name in known:
                self.broken[entry.group, entry.name] = "two installed packages define it; uninstall one of them"
            known[entry.name] = entry
        self._loaded: dict[tuple[str, str], object] = {}

    @property
    def backends(self) -> list[str]:
        """The ids of all installed backends, without importing one."""
        return sorted(self._by_group[BACKENDS])

    @property
    def commands(self) -> dict[str, Entry]:
        """The commands that plugins add, not loaded."""
        return self._by_group[COMMANDS]

    @property
    def extensions(self) -> list[str]:
        """The names of all installed extensions, without importing one."""
        return sorted(self._by_group[EXTENSIONS])

    def broken_extensions(self) -> dict[str, str]:
        """The extensions that could not be loaded so far, with why."""
        return {name: why for (group, name), why in self.broken.items() if group == EXTENSIONS}

    def origin(self, group: str, name: str) -> Origin:
        """The distribution behind an entry point, where it has one."""
        dist = getattr(self._by_group[group].get(name), "dist", None)
        return Origin() if dist is None else Origin(str(dist.name), str(dist.version))

    def backend(self, backend_id: str) -> "Hooks":
        """The hooks of one backend with every extension, for one session.

        Raises BackendMissing for an id that nothing installed provides, BackendBroken for a plugin that is unusable.
        """
        entry = self._by_group[BACKENDS].get(backend_id)
        if entry is None:
            raise BackendMissing(
                f"No backend is called {backend_id!r}. Installed: {', '.join(self.backends) or 'none'}."
            )
        own = self._load(entry, _check_backend)
        if own is None:
            why = self.broken[BACKENDS, backend_id]
            raise BackendBroken(f"The backend {backend_id!r} cannot be used: {why}")
        manager = _manager()
        manager.register(own, f"backend:{backend_id}")
        for name, extension in sorted(self._by_group[EXTENSIONS].items()):
            plugin = self._load(extension, _check_extension)
            if plugin is not None and not manager.is_registered(plugin):
                manager.register(plugin, name)
        return Hooks(manager, backend_id, self.broken_extensions())

    def _load(self, entry: Entry, check: "_Check") -> object | None:
        """Load once; a failure is kept, so that every later session is spared the attempt."""
        key = (entry.group, entry.name)
        if key not in self._loaded and key not in self.broken:
            try:
                plugin = entry.load()
                check(plugin)
            except BaseException as raised:
                exc = failure_of(raised)
                self.broken[key] = str(exc) if isinstance(exc, NucleicError) else f"{type(exc).__name__}: {exc}"
                log.warning("%s %s not loaded: %s", entry.group, entry.name, self.broken[key])
            else:
                self._loaded[key] = plugin
        return None if key in self.broken else self._loaded[key]


class _Check(Protocol):
    def __call__(self, plugin: object) -> None: ...


def _discover() -> "Iterator[EntryPoint]":
    from importlib_metadata import entry_points

    for group in (BACKENDS, EXTENSIONS, COMMANDS):
        yield from entry_points(group=group)


def _manager() -> pluggy.PluginManager:
    manager = pluggy.PluginManager("nucleic")
    manager.add_hookspecs(hookspecs.BackendHooks)
    manager.add_hookspecs(hookspecs.SessionHooks)
    return manager


def _checked(plugin: object) -> dict[str, pluggy.HookImpl]:
    """What a plugin implements, by hook; pluggy checks names and arguments, we the rest."""
    api = getattr(plugin, "NUCLEIC_API", None)
    if api != NUCLEIC_API:
        stated = "states no NUCLEIC_API" if api is None else f"is written for plugin API {api!r}"
        raise BackendBroken(f"it {stated}; this nucleic-core speaks {NUCLEIC_API}. Install a version of it that fits.")
    manager = _manager()
    manager.register(plugin)
    manager.check_pending()
    found: dict[str, pluggy.HookImpl] = {}
    for caller in manager.get_hookcallers(plugin) or ():
        (impl,) = caller.get_hookimpls()
        if inspect.iscoroutinefunction(impl.function) or inspect.isasyncgenfunction(impl.function):
            raise BackendBroken(f"{caller.name} is a coroutine; hooks are plain functions that return objects")
        if (impl.wrapper or impl.hookwrapper) and caller.name != "nucleic_spawn":
            raise BackendBroken(f"{caller.name} cannot be wrapped; only nucleic_spawn can")
        found[caller.name] = impl
    return found


def _check_backend(plugin: object) -> None:
    missing = REQUIRED - {name for name, impl in _checked(plugin).items() if not (impl.wrapper or impl.hookwrapper)}
    if missing:
        raise BackendBroken(f"it does not implement {', '.join(sorted(missing))}")


def _check_extension(plugin: object) -> None:
    """An extension may wrap the spawn and nothing else of a backend: it must never answer in a backend's place."""
    for name, impl in _checked(plugin).items():
        if name in BACKEND_HOOKS and not (name == "nucleic_spawn" and impl.wrapper):
            raise BackendBroken(f"an extension may only wrap nucleic_spawn (wrapper=True), and it implements {name}")


def _tools(given: Any) -> tuple[Tool, ...] | Exception:
    """What a plugin gave as its tools, which may be a generator that raises."""
    if isinstance(given, Exception):
        return given
    try:
        tools = tuple(given)
    except BaseException as exc:
        return failure_of(exc)
    odd = next((tool for tool in tools if not isinstance(tool, Tool)), None)
    return tools if odd is None else TypeError(f"nucleic_tools must give Tool objects, not {odd!r}")


class Hooks:
    """The typed face of one session's hooks."""

    def __init__(self, manager: pluggy.PluginManager, backend: str, broken: Mapping[str, str]) -> None:
        self._manager = manager
        self._hook = manager.hook
        self._backend = backend
        self._broken = broken

    def prober(self) -> Prober | None:
        """The backend's prober, if it has one."""
        return cast(Prober | None, self._ask("nucleic_prober"))

    def capabilities(self, run: RunSpec) -> BackendCapabilities:
        """What the backend declares for a run; nothing without a prober."""
        prober = self.prober()
        if prober is None:
            return BackendCapabilities()
        return self._safely("its prober", lambda: prober.declared(None, run))

    def decoder(self, run: RunSpec) -> Decoder:
        """A fresh decoder."""
        return cast(Decoder, self._given("nucleic_decoder", run=run))

    def approval_mapper(self, run: RunSpec) -> ApprovalMapper | None:
        """The mapper, or None: then every ask is refused."""
        return cast(ApprovalMapper | None, self._ask("nucleic_approval_mapper", run=run))

    def driver(self, run: RunSpec, decoder: Decoder) -> Driver:
        """The driver, not yet entered."""
        return cast(Driver, self._given("nucleic_driver", run=run, decoder=decoder))

    def spawn(self, run: RunSpec, driver: Driver) -> ProcessSpec:
        """What to start, after every wrapper."""
        spec = self._given("nucleic_spawn", run=run, driver=driver)
        if not isinstance(spec, ProcessSpec) or not spec.argv:
            raise BackendBroken(
                f"nucleic_spawn of {self._backend} must return a ProcessSpec with a program, not {spec!r}"
            )
        return spec

    def policies(self, run: RunSpec, session: SessionView) -> list[tuple[str, ApprovalPolicy | Exception]]:
        """Every extension's policy. One that raises, or that was not loaded, stands with its error: it might have denied."""
        lost = [(name, BackendBroken(f"the plugin is not loaded: {why}")) for name, why in self._broken.items()]
        return [*self._each("nucleic_approval_policy", {"run": run, "session": session}), *lost]

    def tools(self, run: RunSpec) -> list[tuple[str, tuple[Tool, ...] | Exception]]:
        """Every extension's own tools, or the error in their place; by the plugins' names, so that each run has the same."""
        given = sorted(self._each("nucleic_tools", {"run": run}), key=lambda answer: answer[0])
        return [(name, _tools(tools)) for name, tools in given]

    def observers(self, run: RunSpec, session: SessionView) -> list[tuple[str, Observer | Exception]]:
        """Every extension's observer, or the error in its place."""
        return self._each("nucleic_observer", {"run": run, "session": session})

    def _each(self, name: str, arguments: dict[str, object]) -> list[tuple[str, Any]]:
        """Call every implementation by itself: `hook.x()` stops at the first that raises."""
        given: list[tuple[str, Any]] = []
        for impl in reversed(getattr(self._hook, name).get_hookimpls()):
            try:
                answer = impl.function(*(arguments[a] for a in impl.argnames))
            except BaseException as exc:
                answer = failure_of(exc)
                log_failure(log, f"{name} of {impl.plugin_name}", answer)
            if answer is not None:
                given.append((impl.plugin_name, answer))
        return given

    def _given(self, name: str, **arguments: object) -> object:
        answer = self._ask(name, **arguments)
        if answer is None:
            raise BackendBroken(f"{name} of {self._backend} returned nothing; it must return an object")
        return answer

    def _ask(self, name: str, **arguments: object) -> object:
        return self._safely(name, lambda: getattr(self._hook, name)(**arguments))

    def _safely(self, what: str, call: Callable[[], _T]) -> _T:
        """Errors that a plugin raises on purpose pass; any other is its fault, and said to be."""
        try:
            return call()
        except BaseException as exc:
            failure = failure_of(exc)
            if isinstance(failure, NucleicError):
                raise failure from failure.__cause__
            raise BackendBroken(f"The backend {self._backend!r} cannot be used: {what} raised {failure!r}") from failure
