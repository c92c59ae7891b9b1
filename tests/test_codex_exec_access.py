"""From fixed rules to the one sandbox that Codex has for them: never wider than the rules, or refused with which and why."""

from pathlib import Path

import attrs
import pytest
from nucleic_codex.exec.access import Access, access

from nucleic_core._approvals.rules import FixedRules
from nucleic_core.approvals import Allow, ApprovalRequest, Rule
from nucleic_core.errors import Unsupported
from nucleic_core.specs import RunSpec


def allow(tool="*", max_risk="write", **fields):
    return Rule("allow", tool, max_risk=max_risk, **fields)


def deny(tool="*", **fields):
    return Rule("deny", tool, **fields)


WRITING = (allow("Bash"), allow("Edit"), allow("Write"))


@pytest.fixture
def cwd(tmp_path):
    (tmp_path / "repo").mkdir()
    return tmp_path / "repo"


@pytest.fixture
def granted(cwd):
    """What a run with these rules is given; TMPDIR is a directory beside its own."""

    def grant(*rules, **fields):
        run = RunSpec(session="s", backend="codex-exec", cwd=cwd, rules=rules, **fields)
        return access(run, {"TMPDIR": str(cwd.parent / "tmp")})

    return grant


def test_a_run_without_rules_is_refused_with_the_name_of_the_backend_that_asks(cwd):
    with pytest.raises(Unsupported, match="or use the backend codex, which asks"):
        access(RunSpec(session="s", backend="codex-exec", cwd=cwd), {})


@pytest.mark.parametrize(
    "rules",
    [
        (),
        (deny(),),
        (allow(max_risk="read_only"),),
        (allow("Read", "read_only"),),
        (allow("Grep"), allow("Glob"), deny()),
        (allow("Bash", "read_only"),),
        (deny("Edit"), deny("Write")),
        (allow("NotebookEdit"),),
    ],
)
def test_rules_that_allow_no_writing_come_to_a_sandbox_that_only_reads(granted, rules):
    assert granted(*rules) == Access("read-only")


@pytest.mark.parametrize(
    "rules",
    [
        (allow(),),
        (allow(max_risk="execute"),),
        (allow("*", "destructive"), deny())[:1],
        WRITING,
        (*WRITING, deny()),
        (deny("WebSearch"), allow()),
    ],
)
def test_rules_that_allow_writing_come_to_the_workspace(granted, rules):
    assert granted(*rules).mode == "workspace-write"


def test_the_network_is_open_only_where_a_rule_allows_commands_that_much(granted):
    assert not granted(allow()).network
    assert not granted(allow(max_risk="execute")).network
    assert granted(allow(max_risk="network")).network
    assert granted(allow("Bash", "network"), allow("Edit"), allow("Write")).network


def test_web_search_is_on_only_where_a_rule_allows_it_in_every_sandbox(granted):
    assert not granted(allow()).search
    assert granted(allow("WebSearch", "network")) == Access("read-only", search=True)
    assert granted(allow("WebSearch", "network"), allow()).search
    assert not granted(deny("WebSearch"), allow(max_risk="network")).search
    assert not granted(deny("WebSearch"), allow(max_risk="unknown")).search


def test_only_rules_that_leave_nothing_out_come_to_full_access(granted):
    assert granted(allow(max_risk="unknown")).mode == "danger-full-access"
    assert granted(allow(max_risk="unknown")).foreign
    assert granted(allow(max_risk="unknown"), deny()).mode == "danger-full-access"
    for rules in (
        (allow(max_risk="destructive"),),
        (allow("Bash", "unknown"), allow("Edit", "unknown"), allow("Write", "unknown")),
        (deny("mcp__github__*"), allow(max_risk="unknown")),
        (deny("Edit", path="/etc/**"), allow(max_risk="unknown")),
        (allow(max_risk="unknown", path="**"),),
    ):
        found = granted(*rules)
        assert found.mode == "workspace-write"
        assert not found.foreign


def test_what_follows_a_rule_that_denies_everything_decides_nothing(granted):
    assert granted(deny(), allow(max_risk="unknown"), deny("Bash", pattern="rm *")) == Access("read-only")


def test_a_path_that_is_the_whole_working_directory_opens_it_and_nothing_else(granted, cwd):
    for glob in ("**", "./**", f"{cwd}/**", "**/*", f"{cwd.parent}/**"):
        assert granted(allow(path=glob)).mode == "workspace-write"
    assert granted(allow(path="**")) == Access("workspace-write")
    assert granted(allow()).scratch


def test_directories_of_the_run_are_opened_where_the_rules_allow_writing_there(granted, cwd):
    data = cwd.parent / "data"
    assert granted(allow(), add_dirs=(data,)).roots == (data,)
    assert granted(allow(path="**"), add_dirs=(data,)).roots == ()
    assert granted(allow(path="**"), allow(path=f"{data}/**"), add_dirs=(data,)).roots == (data,)
    assert granted(allow(max_risk="read_only"), add_dirs=(data,)) == Access("read-only")
    assert granted(deny("Edit", path="/data/**"), allow()).roots == ()


def test_a_deny_that_touches_what_would_be_opened_beside_it_keeps_it_shut(granted, cwd):
    inside = cwd.parent / "tmp" / "secret" / "**"
    assert not granted(deny("Edit", path=str(inside)), allow()).scratch


REFUSED = {
    "a pattern on commands": ((allow("Bash", pattern="git *"), 1), "pattern"),
    "a pattern that denies": ((deny("Bash", pattern="rm *"), 1), "pattern"),
    "a pattern on paths": ((allow("Edit", pattern="Edit(src/**)"), 1), "pattern"),
    "a deny inside": ((deny("Edit", path=".git/**"), 1), "speaks of a part"),
    "an allow of a part": ((allow(path="src/**"), 1), "speaks of a part"),
    "an allow of some names": ((allow(path="**/*.py"), 1), "speaks of a part"),
    "an allow of one level": ((allow(path="*"), 1), "speaks of a part"),
    "a path outside": ((allow("Edit", path="/srv/**"), 1), "add_dirs"),
    "no shell": ((deny("Bash"), 1), "through its shell"),
    "no reading": ((deny("Read"), 1), "through its shell"),
    "no reading somewhere": ((deny("Read", path="/etc/**"), 1), "read the whole disk"),
    "nothing somewhere": ((deny(path="/etc/**"), 1), "read the whole disk"),
    "reading only here": ((allow("Read", path="**"), 1), "read the whole disk"),
    "one MCP tool": ((allow("mcp__github__list", "unknown"), 1), "cannot be given that tool alone"),
    "edits and no commands": ((allow("Edit"), 1), "Bash and Write could too"),
    "commands and no edits": ((allow("Bash", "execute"), 1), "Edit and Write could too"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_rule_that_no_sandbox_can_follow_is_refused_with_its_number_and_the_reason(granted, name):
    (rule, number), why = REFUSED[name]
    with pytest.raises(
        Unsupported, match=f"Rule {number} of this run .*{rule.tool.replace('*', '.')}.*{why}"
    ) as caught:
        granted(rule, allow("Read", "read_only"))
    assert "codex" in str(caught.value)
    with pytest.raises(Unsupported, match="Rule 2 of this run"):
        granted(allow("Read", "read_only"), rule)


def test_a_directory_that_may_be_written_to_while_the_working_directory_may_not_is_refused(granted, cwd):
    data = cwd.parent / "data"
    with pytest.raises(Unsupported, match=f"Run it in {data}"):
        granted(allow(path=f"{data}/**"), add_dirs=(data,))


def test_a_part_of_a_directory_of_the_run_is_refused_as_well(granted, cwd):
    data = cwd.parent / "data"
    with pytest.raises(Unsupported, match="speaks of a part"):
        granted(allow(path=f"{data}/new/**"), allow(), add_dirs=(data,))


def test_the_sandbox_of_a_run_may_be_narrower_than_its_rules_and_never_wider(granted):
    assert granted(allow(), sandbox="read-only") == Access("read-only")
    assert granted(allow(max_risk="unknown"), sandbox="workspace-write").mode == "workspace-write"
    assert not granted(allow(max_risk="unknown"), sandbox="workspace-write").foreign
    with pytest.raises(Unsupported, match="cover the sandbox read-only, not workspace-write"):
        granted(sandbox="workspace-write")
    with pytest.raises(Unsupported, match="no sandbox 'none'"):
        granted(allow(), sandbox="none")


def test_a_link_to_the_working_directory_is_the_working_directory(cwd, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(cwd)
    run = RunSpec(session="s", backend="codex-exec", cwd=link, rules=(allow(path=f"{cwd}/**"),))
    assert access(run, {}).mode == "workspace-write"


_RULES = [
    Rule(verdict, tool, path=path, max_risk=risk)
    for verdict in ("allow", "deny")
    for tool in ("*", "Bash", "Edit", "Write", "Web*", "Read")
    for path in (None, "**", "src/**", "/srv/**")
    for risk in ("read_only", "write", "network", "unknown")
]


async def test_no_sandbox_lets_through_a_write_that_the_rules_judged_alone_would_deny(cwd, granted):
    """Every pair of rules, against the core's own judgement of an edit in each place that the sandbox opens."""
    opened = 0
    for first in _RULES:
        for second in _RULES[:48:3]:
            try:
                found = granted(first, second)
            except Unsupported:
                continue
            if found.mode == "read-only":
                continue
            opened += 1
            places = [cwd / "a.txt", cwd / "src" / "b.txt", *([Path("/srv/c.txt")] if found.foreign else [])]
            policy = FixedRules((first, second), cwd)
            for tool in ("Edit", "Write"):
                for place in places:
                    request = ApprovalRequest(tool, {}, "t", paths=(place,), risk="write")
                    assert await policy.decide(request) == Allow(), (first, second, found, place)
            if found.network or found.search:
                request = ApprovalRequest("WebSearch" if found.search else "Bash", {}, "t", risk="network")
                assert await policy.decide(request) == Allow(), (first, second, found)
    assert opened > 20


def test_rules_are_compared_whole(granted):
    """A deny of everything is the end of the list, whatever risk it names; one that speaks of a path is not."""
    assert granted(attrs.evolve(deny(), max_risk="unknown"), allow()) == Access("read-only")
