"""Which backend a run uses when none is named."""

import attrs
import pytest

from nucleic_core._cli.choice import choose
from nucleic_core._plugins import Plugins
from nucleic_core.capabilities import BackendCapabilities, ProbeReport
from nucleic_core.errors import BackendMissing, Unsupported
from nucleic_core.hookspecs import hookimpl


@attrs.frozen
class Prober:
    report: ProbeReport | Exception
    models: tuple[str, ...] = ()

    def declared(self, version=None, run=None):
        return BackendCapabilities(models=self.models)

    async def probe(self, env):
        if isinstance(self.report, Exception):
            raise self.report
        return self.report


class Backend:
    NUCLEIC_API = 1

    def __init__(self, prober):
        self.prober = prober

    @hookimpl
    def nucleic_prober(self):
        return self.prober

    @hookimpl
    def nucleic_decoder(self):
        raise NotImplementedError

    @hookimpl
    def nucleic_driver(self):
        raise NotImplementedError

    @hookimpl
    def nucleic_spawn(self):
        raise NotImplementedError


@attrs.frozen
class Entry:
    name: str
    prober: Prober | None
    group: str = "nucleic.backends"

    def load(self):
        if self.prober is None:
            raise ImportError("broken")
        return Backend(self.prober)


HERE, LOGGED_OUT, MISSING = (
    ProbeReport(True, "1", True),
    ProbeReport(True, "1", False, next_step="Log in first."),
    ProbeReport(False, next_step="Install it."),
)


async def chosen(*entries, default=None, model=None):
    said = []

    async def say(words):
        said.append(words)

    name = await choose(Plugins(entries), default, model, say)
    return name, "\n".join(said)


async def test_the_settings_default_comes_first():
    assert await chosen(Entry("a", Prober(HERE)), default="b", model="x") == ("b", "")


async def test_a_model_picks_the_backend_whose_patterns_match():
    one, other = Entry("a", Prober(HERE, ("claude-*",))), Entry("b", Prober(MISSING, ("gpt-*",)))
    assert await chosen(one, other, model="gpt-5") == ("b", "")
    assert await chosen(one, other, model="llama") == ("a", "")


async def test_a_model_that_two_backends_claim_is_for_the_user_to_settle():
    entries = [Entry(name, Prober(HERE, ("gpt-*",))) for name in "ab"]
    with pytest.raises(Unsupported, match="gpt-5 is claimed by a and b; choose one with -b"):
        await chosen(*entries, model="gpt-5")


async def test_the_first_usable_one_is_taken_and_broken_ones_are_passed_by():
    entries = [
        Entry("a", None),
        Entry("b", Prober(MISSING)),
        Entry("c", Prober(LOGGED_OUT)),
        Entry("d", Prober(RuntimeError("probe"))),
        Entry("e", Prober(ProbeReport(True, "1", None))),
        Entry("f", Prober(HERE)),
        Entry("demo", Prober(HERE)),
    ]
    assert await chosen(*entries) == ("e", "")


async def test_the_demo_agent_is_the_last_resort_and_says_why():
    entries = [Entry("a", Prober(MISSING)), Entry("b", Prober(LOGGED_OUT)), Entry("demo", Prober(HERE))]
    name, said = await chosen(*entries)
    assert name == "demo"
    assert "this is the demo agent" in said
    assert "a: Install it." in said
    assert "b: Log in first." in said


async def test_without_any_backend_there_is_nothing_to_choose():
    with pytest.raises(BackendMissing, match="No backend is installed here that can be used"):
        await chosen()
