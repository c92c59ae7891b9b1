"""Finding, checking and isolating plugins."""

from importlib.metadata import EntryPoint as _EntryPoint
from pathlib import Path
from typing import Any

import pytest

from core_agents import Entry, Scripted, extension
from nucleic_core._plugins import Hooks, Plugins
from nucleic_core.errors import BackendBroken, BackendMissing
from nucleic_core.hookspecs import hookimpl
from nucleic_core.specs import ProcessSpec, RunSpec

RUN = RunSpec("s", "fake", Path("/"))


def broken_by(*entries: Entry, backend: str = "fake") -> str:
    """What `backend` says why it cannot be used."""
    with pytest.raises(BackendBroken) as raised:
        Plugins(entries).backend(backend)
    return str(raised.value)


def extension_error(plugin: Any) -> str:
    """Why an extension is not loaded; the backend beside it must be."""
    plugins = Plugins([Entry(Scripted()), extension(plugin, "ext")])
    assert isinstance(plugins.backend("fake"), Hooks)
    return plugins.broken_extensions().get("ext", "")


# -- discovery ----------------------------------------------------------------------------------------------------------


def test_the_demo_backend_is_found_among_the_installed() -> None:
    plugins = Plugins()
    assert "demo" in plugins.backends
    assert plugins.origin("nucleic.backends", "demo").distribution == "nucleic-core"
    assert isinstance(plugins.backend("demo"), Hooks)


@pytest.mark.parametrize(("chosen", "found"), [("demo", ["demo"]), ("", []), ("other", []), (" demo , x", ["demo"])])
def test_a_variable_restricts_what_is_loaded(monkeypatch: pytest.MonkeyPatch, chosen: str, found: list[str]) -> None:
    monkeypatch.setenv("NUCLEIC_PLUGINS", chosen)
    assert Plugins().backends == found


def test_the_variable_does_not_touch_what_is_handed_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUCLEIC_PLUGINS", "")
    assert Plugins([Entry(Scripted())]).backends == ["fake"]


def test_ids_are_known_without_importing_anything() -> None:
    class Unloadable(Entry):
        def load(self) -> Any:
            raise AssertionError("loaded")

    plugins = Plugins(
        [Unloadable(None, "a"), Unloadable(None, "x", "nucleic.plugins"), Unloadable(None, "c", "nucleic.commands")]
    )
    assert plugins.backends == ["a"]
    assert plugins.extensions == ["x"]
    assert list(plugins.commands) == ["c"]


def test_an_unknown_backend_is_missing_and_the_known_ones_are_named() -> None:
    with pytest.raises(BackendMissing, match="Installed: fake"):
        Plugins([Entry(Scripted())]).backend("other")


def test_real_entry_points_will_do() -> None:
    entry = _EntryPoint("demo", "nucleic_core._demo.plugin", "nucleic.backends")
    assert isinstance(Plugins([entry]).backend("demo"), Hooks)


def test_a_module_in_a_group_that_is_not_ours_is_left_alone() -> None:
    assert Plugins([Entry(Scripted(), "x", "console_scripts")]).backends == []


# -- checks -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "said"), [(None, "states no NUCLEIC_API"), (2, "API 2"), ("1", "API '1'"), (0, "API 0")]
)
def test_a_plugin_for_another_api_is_refused_with_a_sentence(version: Any, said: str) -> None:
    plugin = Scripted()
    plugin.NUCLEIC_API = version
    assert said in broken_by(Entry(plugin))


def test_a_plugin_without_any_api_number_is_refused() -> None:
    assert "states no NUCLEIC_API" in broken_by(Entry(object()))


@pytest.mark.parametrize("hook", ["decoder", "driver", "spawn"])
def test_a_missing_hook_that_is_required_is_named(hook: str) -> None:
    plugin = type("Partial", (Scripted,), {f"nucleic_{hook}": None})()
    assert f"does not implement nucleic_{hook}" in broken_by(Entry(plugin))


def test_a_wrapper_alone_is_no_implementation() -> None:
    def wrap(self: Any) -> Any:
        return (yield)

    plugin = type("Wrapping", (Scripted,), {"nucleic_spawn": hookimpl(wrapper=True)(wrap)})()
    assert "does not implement nucleic_spawn" in broken_by(Entry(plugin))


def test_mapper_and_prober_are_optional() -> None:
    plugin = type("Small", (Scripted,), {"nucleic_prober": None, "nucleic_approval_mapper": None})()
    hooks = Plugins([Entry(plugin)]).backend("fake")
    assert hooks.prober() is None
    assert hooks.approval_mapper(RUN) is None


def test_an_unknown_hook_is_refused() -> None:
    plugin = type("Typo", (Scripted,), {"nucleic_decode": hookimpl(lambda self: None)})()
    assert "nucleic_decode" in broken_by(Entry(plugin))


def test_a_wrong_argument_is_refused() -> None:
    plugin = type("Typo", (Scripted,), {"nucleic_decoder": hookimpl(lambda self, runn: None)})()
    assert "runn" in broken_by(Entry(plugin))


def test_a_coroutine_is_refused() -> None:
    async def spawn(self: Any) -> Any:
        return ProcessSpec(("x",))

    async def decoders(self: Any) -> Any:
        yield

    for name, function in (("nucleic_spawn", spawn), ("nucleic_decoder", decoders)):
        plugin = type("Async", (Scripted,), {name: hookimpl(function)})()
        assert "coroutine" in broken_by(Entry(plugin))


@pytest.mark.parametrize("error", [ImportError("no module"), SyntaxError("bad"), SystemExit(3), RuntimeError("boom")])
def test_a_plugin_that_fails_to_import_is_remembered_and_tried_once(error: BaseException) -> None:
    tries = 0

    def load() -> Any:
        nonlocal tries
        tries += 1
        raise error

    plugins = Plugins([Entry(load), Entry(Scripted(), "good")])
    for _ in range(2):
        with pytest.raises(BackendBroken, match=type(error).__name__):
            plugins.backend("fake")
    assert tries == 1
    assert isinstance(plugins.backend("good"), Hooks)


def test_two_packages_that_define_one_backend_break_that_one_alone() -> None:
    entries = [Entry(Scripted()), Entry(Scripted()), Entry(Scripted(), "good")]
    assert "two installed packages" in broken_by(*entries)
    assert isinstance(Plugins(entries).backend("good"), Hooks)


# -- extensions ---------------------------------------------------------------------------------------------------------


class Policy:
    NUCLEIC_API = 1

    @hookimpl
    def nucleic_approval_policy(self, run: Any, session: Any) -> Any:
        return self


def test_an_extension_may_give_policies_and_observers() -> None:
    assert extension_error(Policy()) == ""


@pytest.mark.parametrize(
    "hook", ["nucleic_decoder", "nucleic_driver", "nucleic_spawn", "nucleic_prober", "nucleic_approval_mapper"]
)
def test_an_extension_never_answers_in_a_backends_place(hook: str) -> None:
    plugin = type("Usurper", (Policy,), {hook: hookimpl(lambda self: object())})()
    assert "may only wrap nucleic_spawn" in extension_error(plugin)


def test_an_extension_wraps_nothing_but_the_spawn() -> None:
    def wrap(self: Any) -> Any:
        return (yield)

    assert extension_error(type("Wraps", (Policy,), {"nucleic_spawn": hookimpl(wrapper=True)(wrap)})()) == ""
    for hook in ("nucleic_decoder", "nucleic_driver", "nucleic_approval_policy"):
        plugin = type("Wraps", (Policy,), {hook: hookimpl(wrapper=True)(wrap)})()
        assert "wrap" in extension_error(plugin)


def test_one_module_under_two_names_counts_once_and_hides_nobody() -> None:
    policy = Policy()
    plugins = Plugins([Entry(Scripted()), extension(policy, "a"), extension(policy, "b")])
    session: Any = None
    assert [name for name, _ in plugins.backend("fake").policies(RUN, session)] == ["a"]


def test_an_extension_that_fails_stands_with_its_error_and_the_others_are_asked() -> None:
    class Fails(Policy):
        @hookimpl
        def nucleic_approval_policy(self) -> Any:  # type: ignore[override]  # a hook may leave arguments out
            raise RuntimeError("no config")

    class Silent(Policy):
        @hookimpl
        def nucleic_approval_policy(self) -> Any:  # type: ignore[override]
            return None

    good = Policy()
    entries = [extension(Fails(), "a"), extension(Silent(), "b"), extension(good, "c")]
    session: Any = None
    given = dict(Plugins([Entry(Scripted()), *entries]).backend("fake").policies(RUN, session))
    assert given.keys() == {"a", "c"}
    assert isinstance(given["a"], RuntimeError)
    assert given["c"] is good


def test_a_spawn_may_be_wrapped_and_the_outermost_sees_the_result_of_the_inner() -> None:
    def wrapping(word: str) -> Any:
        def wrap(self: Any) -> Any:
            spec = yield
            return ProcessSpec((word, *spec.argv))

        return type("Wraps", (Policy,), {"nucleic_spawn": hookimpl(wrapper=True)(wrap)})()

    plugins = Plugins([Entry(Scripted(argv=["agent"])), extension(wrapping("a"), "a"), extension(wrapping("b"), "b")])
    driver: Any = None
    assert plugins.backend("fake").spawn(RUN, driver).argv[2:] == ("agent",)


def test_no_other_backend_answers() -> None:
    plugins = Plugins([Entry(Scripted(argv=["one"]), "one"), Entry(Scripted(argv=["two"]), "two")])
    driver: Any = None
    assert plugins.backend("one").spawn(RUN, driver).argv == ("one",)
    assert plugins.backend("two").spawn(RUN, driver).argv == ("two",)
