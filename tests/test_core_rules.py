"""Rules over requests: fixed ones, always-rules, and the globs both are made of."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nucleic_core._approvals.asking import completed
from nucleic_core._approvals.rules import AlwaysRules, FixedRules
from nucleic_core.approvals import RISKS, Allow, AllowAlways, ApprovalRequest, Deny, Risk, Rule, within

CWD = Path("/repo")


def edit(*paths: str, tool: str = "Edit", risk: Risk = "write") -> ApprovalRequest:
    return ApprovalRequest(tool, {"paths": list(paths)}, "t", paths=tuple(map(Path, paths)), risk=risk)


def shell(command: str, *paths: str) -> ApprovalRequest:
    given = {"command": command}
    return ApprovalRequest("Bash", given, "t", command=command, paths=tuple(map(Path, paths)), risk="execute")


async def verdict(request: ApprovalRequest, *rules: Rule, cwd: Path = CWD) -> str:
    decided = await FixedRules(rules, cwd).decide(request)
    return "allow" if isinstance(decided, Allow) else "deny"


ALLOW_ALL = Rule("allow", max_risk="unknown")


# -- fixed rules --------------------------------------------------------------------------------------------------------


async def test_the_first_rule_that_matches_decides() -> None:
    rules = (Rule("deny", path="secret/**"), Rule("allow", tool="Edit"))
    assert await verdict(edit("/repo/a.py"), *rules) == "allow"
    assert await verdict(edit("/repo/secret/a.py"), *rules) == "deny"
    assert await verdict(edit("/repo/secret/a.py"), *reversed(rules)) == "allow"


async def test_the_deny_says_which_rule_it_was() -> None:
    decided = await FixedRules((Rule("allow", tool="Read"), Rule("deny", tool="Edit")), CWD).decide(edit("/repo/a"))
    assert decided == Deny("rule 2 of this run denies it")


@pytest.mark.parametrize("risk", RISKS)
@pytest.mark.parametrize("ceiling", RISKS)
async def test_an_allow_never_covers_a_higher_risk(risk: Risk, ceiling: Risk) -> None:
    expected = "allow" if RISKS.index(risk) <= RISKS.index(ceiling) else "deny"
    assert await verdict(edit("/repo/a", risk=risk), Rule("allow", max_risk=ceiling)) == expected


def test_a_risk_that_is_not_known_is_the_highest() -> None:
    assert not within(None, "destructive")
    assert within(None, "unknown")


async def test_an_allow_covers_only_requests_all_of_whose_paths_match() -> None:
    rule = Rule("allow", path="src/**")
    assert await verdict(edit("/repo/src/a", "/repo/src/b/c"), rule) == "allow"
    assert await verdict(edit("/repo/src/a", "/repo/b"), rule) == "deny"
    assert await verdict(edit(), rule) == "deny"


@pytest.mark.parametrize("field", ["path", "pattern"])
async def test_a_deny_holds_when_one_path_matches(field: str) -> None:
    rule = Rule("deny", **{field: "/etc/**"})  # type: ignore[arg-type]
    assert await verdict(edit("/repo/a", "/etc/passwd"), rule, ALLOW_ALL) == "deny"
    assert await verdict(edit("/repo/a"), rule, ALLOW_ALL) == "allow"


@pytest.mark.parametrize("field", ["path", "pattern"])
async def test_a_deny_that_cannot_be_judged_holds(field: str) -> None:
    rule = Rule("deny", **{field: "/etc/**"})  # type: ignore[arg-type]
    assert await verdict(edit(), rule, ALLOW_ALL) == "deny"
    assert await verdict(shell("cat /etc/passwd"), rule, ALLOW_ALL) == "deny"
    assert await verdict(shell("cat /etc/passwd", "/repo/a"), rule, ALLOW_ALL) == "deny"
    assert await verdict(edit(risk="read_only", tool="Grep"), rule, ALLOW_ALL) == "deny"


@pytest.mark.parametrize(
    ("glob", "folder", "held"),
    [
        ("secrets/**", "/repo", True),
        ("secrets/**", "/", True),
        ("secrets/**", "/repo/secrets", True),
        ("secrets/**", "/repo/src", False),
        ("**/secrets/*", "/repo/src", True),
        ("src/*/key", "/repo/src/a", True),
        ("src/*/key", "/repo/src/a/b", False),
    ],
)
async def test_a_denied_path_holds_for_a_search_that_may_look_below_the_folder_it_names(
    glob: str, folder: str, held: bool
) -> None:
    search = edit(folder, tool="Grep", risk="read_only")
    assert await verdict(search, Rule("deny", path=glob), ALLOW_ALL) == ("deny" if held else "allow")


@pytest.mark.parametrize("name", ["report(1)", "app/[id]/x", "Write(a"])
async def test_a_deny_of_a_plain_name_holds_though_it_reads_as_a_pattern(name: str) -> None:
    assert await verdict(edit(f"/repo/{name}"), Rule("deny", path=name), ALLOW_ALL) == "deny"
    assert await verdict(edit(f"/repo/{name}"), Rule("deny", pattern=name), ALLOW_ALL) == "deny"


async def test_many_crossings_of_folders_cost_no_more_than_their_product() -> None:
    # The agent chooses the path. By recursion this took minutes.
    path = "/repo/" + "/".join(["n"] * 200)
    rules = [Rule("allow", path="**/n/**/n/**/n/**/n/**/y"), Rule("deny", path="**/n/**/n/**/n/**/n/**/y")]
    assert await verdict(edit(path), *rules) == "deny"


def test_a_path_that_is_too_long_to_be_one_is_not_resolved_and_of_unknown_risk() -> None:
    path = Path("a/../" * 100_000)
    request = completed(ApprovalRequest("Write", {}, "Write", paths=(path,)), Path("/repo"))
    assert request.risk == "unknown"
    assert "too long" in (request.reason or "")


@pytest.mark.parametrize("tool", ["Monitor", "PowerShell", "LSP", "mcp__db__query"])
def test_the_same_paths_are_no_same_call_for_a_tool_that_does_more_than_touch_them(tool: str) -> None:
    def request(what: str) -> ApprovalRequest:
        return ApprovalRequest(tool, {"command": what}, what, paths=(Path("/repo/out"),), risk="execute")

    rules = AlwaysRules(Path("/repo"))
    rules.grant(AllowAlways("session"), request("cat a > out"))
    assert rules.covering(request("cat a > out")) is not None
    assert rules.covering(request("cat secret > out")) is None


@pytest.mark.parametrize("command", ["rm -rf x", "git status", "", "echo $(rm x)", "ls; rm x", "\n"])
async def test_a_deny_pattern_catches_every_shell_line_of_its_tool(command: str) -> None:
    for pattern in ("rm *", "Bash(rm *)"):
        assert await verdict(shell(command), Rule("deny", tool="Bash", pattern=pattern), ALLOW_ALL) == "deny"


@pytest.mark.parametrize("pattern", ["git *", "Bash(git *)", "**", "*"])
async def test_a_pattern_never_allows_a_shell_line(pattern: str) -> None:
    for request in (shell("git log"), shell("git log && curl x | sh"), shell("git log", "/repo/a")):
        assert await verdict(request, Rule("allow", pattern=pattern, max_risk="unknown")) == "deny"


async def test_a_pattern_with_a_tool_is_for_that_tool_alone() -> None:
    deny = Rule("deny", pattern="Edit(secret/**)")
    assert await verdict(edit("/repo/secret/a"), deny, ALLOW_ALL) == "deny"
    assert await verdict(edit("/repo/secret/a", tool="Write"), deny, ALLOW_ALL) == "allow"
    assert await verdict(shell("ls"), deny, ALLOW_ALL) == "allow"
    allow = Rule("allow", pattern="Edit(src/**)")
    assert await verdict(edit("/repo/src/a"), allow) == "allow"
    assert await verdict(edit("/repo/src/a", tool="Write"), allow) == "deny"


async def test_parentheses_in_a_folders_name_are_no_tool() -> None:
    assert await verdict(edit("/repo/src/(app)/a"), Rule("deny", pattern="src/(app)/**"), ALLOW_ALL) == "deny"


async def test_tools_match_by_glob() -> None:
    assert await verdict(edit("/repo/a", tool="mcp__files__write"), Rule("allow", tool="mcp__files__*")) == "allow"
    assert await verdict(edit("/repo/a", tool="edit"), Rule("allow", tool="Edit")) == "deny"


# -- globs --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("glob", "path", "covered"),
    [
        ("a.py", "/repo/a.py", True),
        ("./a.py", "/repo/a.py", True),
        ("a.py", "/repo/b/a.py", False),
        ("/repo/a.py", "/repo/a.py", True),
        ("*.py", "/repo/a.py", True),
        ("*.py", "/repo/b/a.py", False),
        ("**/*.py", "/repo/a.py", True),
        ("**/*.py", "/repo/b/c/a.py", True),
        ("**", "/repo/b/c", True),
        ("**", "/repository/a", False),
        ("b/**", "/repo/b", True),
        ("b/**", "/repo/bc", False),
        ("b/**/c", "/repo/b/c", True),
        ("b/**/c", "/repo/b/x/y/c", True),
        ("../other/**", "/other/a", True),
        ("../other/**", "/repo/other/a", False),
        ("*/../x", "/repo/x", True),
        ("[ab].py", "/repo/b.py", True),
        ("?.py", "/repo/é.py", True),
        (".*", "/repo/.env", True),
        ("*", "/repo/.env", True),
        ("A.py", "/repo/a.py", False),
        ("*", "/repo/a\nb", True),
        ("**/.env", "/repo/" + "d/" * 500 + ".env", True),
    ],
)
async def test_what_a_glob_covers(glob: str, path: str, covered: bool) -> None:
    assert await verdict(edit(path), Rule("allow", path=glob)) == ("allow" if covered else "deny")
    assert await verdict(edit(path), Rule("deny", path=glob), ALLOW_ALL) == ("deny" if covered else "allow")


async def test_a_deny_holds_where_the_working_directory_is_a_symbolic_link(tmp_path: Path) -> None:
    (tmp_path / "real" / "secret").mkdir(parents=True)
    link = tmp_path / "link"
    link.symlink_to("real")
    request = completed(ApprovalRequest("Edit", {}, "t", paths=(Path("secret/a"),)), link)
    for glob in ("secret/**", str(link / "secret" / "**")):
        assert await verdict(request, Rule("deny", path=glob), ALLOW_ALL, cwd=link) == "deny"
        assert await verdict(request, Rule("allow", path=glob), cwd=link) == "allow"


async def test_a_link_out_of_an_allowed_folder_is_judged_by_where_it_leads(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "out").symlink_to("/etc")
    request = completed(ApprovalRequest("Edit", {}, "t", paths=(Path("src/out/passwd"),)), tmp_path)
    assert await verdict(request, Rule("allow", path="src/**"), cwd=tmp_path) == "deny"


async def test_wildcards_in_the_working_directorys_own_name_are_no_wildcards(tmp_path: Path) -> None:
    cwd, other = tmp_path / "[a]", tmp_path / "a"
    assert await verdict(edit(str(cwd / "x")), Rule("deny", path="x"), ALLOW_ALL, cwd=cwd) == "deny"
    assert await verdict(edit(str(other / "x")), Rule("allow", path="x"), cwd=cwd) == "deny"


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=6).filter(
    lambda name: name not in (".", "..")
)
PATHS = st.lists(NAMES, min_size=1, max_size=5).map(lambda names: "/nowhere/" + "/".join(names))
GLOBS = st.lists(st.sampled_from(["**", "*", "a", "?", "[ab]", "[", "..", "b*"]), min_size=1, max_size=6).map("/".join)


@given(PATHS)
def test_a_path_without_wildcards_covers_itself(path: str) -> None:
    plain = not set(path) & set("*?[")
    if plain:
        assert _covers(path, path)
    assert _covers(str(Path(path).parent) + "/**", path) or not plain


@given(GLOBS, st.lists(st.sampled_from(["a", "b", "ab", "[", "*"]), min_size=0, max_size=6))
def test_globs_agree_with_regular_expressions(glob: str, names: list[str]) -> None:
    import fnmatch
    import os
    import re

    parts = Path(os.path.normpath("/nowhere/" + glob)).parts[1:]
    if ".." in glob.split("/"):
        return  # what stands before a wildcard is resolved, which a regular expression does not do
    pattern = "".join(
        "(?:/[^/]+)*" if part == "**" else "/" + fnmatch.translate(part).removesuffix(r"\Z").removesuffix(r"\z")
        for part in parts
    ).replace(".*", "[^/]*")
    pattern = pattern.replace("(?s:.)", "(?s:[^/])")
    path = "/nowhere/" + "/".join(names) if names else "/nowhere"
    assert _covers("/nowhere/" + glob, path) == bool(re.fullmatch(pattern, path))


@given(st.text(max_size=30), PATHS)
def test_no_pattern_makes_a_rule_fail(glob: str, path: str) -> None:
    _covers(glob, path)


def _covers(glob: str, path: str) -> bool:
    from nucleic_core._approvals.rules import _glob

    return _glob(glob, Path(path), CWD)


# -- always-rules -------------------------------------------------------------------------------------------------------


def always(grant: AllowAlways, request: ApprovalRequest) -> AlwaysRules:
    rules = AlwaysRules(CWD)
    rules.grant(grant, request)
    return rules


def covered(rules: AlwaysRules, request: ApprovalRequest) -> bool:
    return rules.covering(request) is not None


def test_scope_session_covers_the_same_call_again() -> None:
    rules = always(AllowAlways("session"), shell("ls"))
    assert covered(rules, shell("ls"))
    assert not covered(rules, shell("ls -l"))
    rules = always(AllowAlways("session"), edit("/repo/b", "/repo/a"))
    assert covered(rules, edit("/repo/a", "/repo/b"))
    assert not covered(rules, edit("/repo/a"))
    assert not covered(rules, edit("/repo/a", "/repo/b", tool="Write"))


def test_scope_session_compares_inputs_whatever_the_order_of_their_keys() -> None:
    def request(given: Any) -> ApprovalRequest:
        return ApprovalRequest("mcp__x", given, "t", risk="unknown")

    rules = always(AllowAlways("session"), request({"a": 1, "b": [2]}))
    assert covered(rules, request({"b": [2], "a": 1}))
    assert not covered(rules, request({"a": 1, "b": [2, 3]}))


def test_an_input_that_has_no_canonical_form_is_never_the_same_again() -> None:
    odd = ApprovalRequest("mcp__x", {"a": "\ud800"}, "t", risk="unknown")
    assert not covered(always(AllowAlways("session"), odd), odd)


def test_scope_tool_name_covers_any_call_of_the_tool() -> None:
    rules = always(AllowAlways("tool_name"), edit("/repo/a"))
    assert covered(rules, edit("/elsewhere/b"))
    assert not covered(rules, edit("/repo/a", tool="Write"))


def test_scope_pattern_covers_what_matches_and_never_a_shell_line() -> None:
    rules = always(AllowAlways("tool_name_with_pattern", "Edit(src/**)"), edit("/repo/src/a"))
    assert covered(rules, edit("/repo/src/b"))
    assert not covered(rules, edit("/repo/b"))
    rules = always(AllowAlways("tool_name_with_pattern", "Bash(git *)"), shell("git log"))
    assert not covered(rules, shell("git log"))


@pytest.mark.parametrize("scope", ["session", "tool_name", "tool_name_with_pattern"])
def test_no_scope_covers_a_higher_risk_than_it_was_granted_for(scope: Any) -> None:
    rules = always(AllowAlways(scope, "**"), edit("/repo/a"))
    assert covered(rules, edit("/repo/a"))
    assert covered(rules, edit("/repo/a", risk="read_only"))
    for risk in ("execute", "network", "destructive", "unknown"):
        assert not covered(rules, edit("/repo/a", risk=risk))
