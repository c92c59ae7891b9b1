"""Rules over approval requests: the always-rules that people grant in a session, and the fixed rules of a run.

A rule never covers a higher risk than the one it was granted for. Nothing here reads a shell command: until a parser
does, a pattern never allows a shell line, and a denying pattern catches every shell line of its tool.
"""

import fnmatch
import os
import re
import secrets
from pathlib import Path, PurePath

import attrs
import orjson

from nucleic_core._approvals.asking import FILE_TOOLS, SHELL_TOOLS, canonical
from nucleic_core._values import JSON
from nucleic_core.approvals import Allow, AllowAlways, ApprovalRequest, Deny, Risk, Rule, Scope, Verdict, within

_TOOL_PATTERN = re.compile(r"(?P<tool>\w[\w.-]*)\((?P<glob>.*)\)", re.DOTALL)
_WILD = re.compile(r"[*?\[]")


@attrs.frozen
class AlwaysRule:
    """What one AllowAlways covers. `what` is the very call for scope session: its paths, or else its input."""

    id: str
    scope: Scope
    tool: str
    ceiling: Risk
    what: JSON = None
    pattern: str | None = None

    @classmethod
    def granted(cls, grant: AllowAlways, request: ApprovalRequest) -> "AlwaysRule":
        """The rule that a grant on this request makes."""
        what = _same_call(request) if grant.scope == "session" else None
        return cls(secrets.token_hex(4), grant.scope, request.tool, request.risk or "unknown", what, grant.pattern)

    def covers(self, request: ApprovalRequest, cwd: Path) -> bool:
        """Whether this request may run by this rule."""
        if request.tool != self.tool or not within(request.risk, self.ceiling):
            return False
        match self.scope:
            case "session":
                return bool(_same_call(request) == self.what)
            case "tool_name":
                return True
            case "tool_name_with_pattern":
                return self.pattern is not None and _pattern_allows(self.pattern, request, cwd)


class AlwaysRules:
    """The always-rules of one session, as a policy like any other; it counts as named, since people granted them."""

    name = "rules"

    def __init__(self, cwd: Path) -> None:
        self._cwd = cwd
        self.rules: list[AlwaysRule] = []

    def grant(self, grant: AllowAlways, request: ApprovalRequest) -> AlwaysRule:
        """Keep a rule for the rest of the session."""
        rule = AlwaysRule.granted(grant, request)
        self.rules.append(rule)
        return rule

    def covering(self, request: ApprovalRequest) -> AlwaysRule | None:
        """The first rule that covers the request."""
        return next((rule for rule in self.rules if rule.covers(request, self._cwd)), None)

    async def decide(self, request: ApprovalRequest) -> Verdict:
        """Allow what a rule covers; no opinion on the rest."""
        return Allow() if self.covering(request) is not None else None


@attrs.frozen
class FixedRules:
    """The policy of a fixed run: the first rule that matches decides, and no match denies."""

    rules: tuple[Rule, ...]
    cwd: Path
    name: str = "fixed"

    async def decide(self, request: ApprovalRequest) -> Verdict:
        """Allow or deny, never a person's part. (Another policy may still escalate.)"""
        for number, rule in enumerate(self.rules, 1):
            if _rule_matches(rule, request, self.cwd):
                return Allow() if rule.verdict == "allow" else Deny(f"rule {number} of this run denies it")
        return Deny("no rule of this run allows it")


def _rule_matches(rule: Rule, request: ApprovalRequest, cwd: Path) -> bool:
    if not fnmatch.fnmatchcase(request.tool, rule.tool):
        return False
    if rule.verdict == "allow":
        return (
            within(request.risk, rule.max_risk)
            and (rule.pattern is None or _pattern_allows(rule.pattern, request, cwd))
            and (rule.path is None or _paths_match(rule.path, request, cwd))
        )
    if rule.pattern is not None and not _pattern_denies(rule.pattern, request, cwd):
        return False
    return rule.path is None or _path_denies(rule.path, request, cwd)


def _pattern_allows(pattern: str, request: ApprovalRequest, cwd: Path) -> bool:
    """`Tool(glob)` or a bare glob over the paths of a request that is no shell line."""
    glob = _glob_for(pattern, request.tool)
    return glob is not None and not _is_shell(request) and _paths_match(glob, request, cwd)


def _pattern_denies(pattern: str, request: ApprovalRequest, cwd: Path) -> bool:
    """A pattern that reads as another tool's may be the plain name of a file, such as `report(1)`: it counts as both."""
    glob = _glob_for(pattern, request.tool)
    if glob is None:
        return bool(request.paths) and not _is_shell(request) and _path_denies(pattern, request, cwd)
    return _is_shell(request) or _path_denies(glob, request, cwd)


def _path_denies(glob: str, request: ApprovalRequest, cwd: Path) -> bool:
    """One path is enough. A deny that cannot be judged must hold: a shell line may write where it says nothing of, a
    search may look below the folder that it names.
    """
    if not request.paths or _is_shell(request):
        return True
    literal = canonical(Path(glob), cwd)
    below = request.tool not in FILE_TOOLS
    return any(
        path == literal or _glob(glob, path, cwd) or (below and _may_hold(path, glob, cwd)) for path in request.paths
    )


def _glob_for(pattern: str, tool: str) -> str | None:
    """The glob of a pattern; None when the pattern is for another tool."""
    named = _TOOL_PATTERN.fullmatch(pattern)
    if named is None:
        return pattern
    return named["glob"] if named["tool"] == tool else None


def _paths_match(pattern: str, request: ApprovalRequest, cwd: Path) -> bool:
    return bool(request.paths) and all(_glob(pattern, path, cwd) for path in request.paths)


def _glob(pattern: str, path: Path, cwd: Path) -> bool:
    """Whether a glob covers an absolute path: `*` stays within a name, `**` crosses folders; relative means from cwd.

    What stands before the first wildcard is a place, resolved as the paths of requests are (`..`, symbolic links).
    """
    place, rest = _place_and_rest(pattern, cwd)
    return path.parts[: len(place)] == place and _parts_match(rest, path.parts[len(place) :])


def _may_hold(folder: Path, pattern: str, cwd: Path) -> bool:
    """Whether something below a folder may be covered by a glob."""
    place, rest = _place_and_rest(pattern, cwd)
    inside = folder.parts
    if place[: len(inside)] == inside:
        return True
    deeper = len(inside) - len(place)
    return inside[: len(place)] == place and ("**" in rest or deeper < len(rest))


def _place_and_rest(pattern: str, cwd: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    parts = PurePath(pattern).parts
    wild = next((i for i, part in enumerate(parts) if _WILD.search(part)), len(parts))
    place = canonical(Path(*parts[:wild]), cwd).parts
    rest = PurePath(os.path.normpath(PurePath(*parts[wild:]))).parts if wild < len(parts) else ()
    return place, rest


def _parts_match(wanted: tuple[str, ...], have: tuple[str, ...]) -> bool:
    """Greedily, going back to the last `**` alone: the agent chooses the path, so the work must stay a product."""
    at = taken = 0
    star, tried = -1, 0
    while taken < len(have):
        if at < len(wanted) and wanted[at] == "**":
            star, tried, at = at, taken, at + 1
        elif at < len(wanted) and fnmatch.fnmatchcase(have[taken], wanted[at]):
            at, taken = at + 1, taken + 1
        elif star >= 0:
            tried += 1
            at, taken = star + 1, tried
        else:
            return False
    return all(part == "**" for part in wanted[at:])


def _is_shell(request: ApprovalRequest) -> bool:
    return request.command is not None or request.tool in SHELL_TOOLS


def _same_call(request: ApprovalRequest) -> JSON:
    if request.paths and request.tool in FILE_TOOLS and not _is_shell(request):
        return sorted(map(str, request.paths))
    try:
        return orjson.dumps(request.input, option=orjson.OPT_SORT_KEYS).decode()
    except TypeError:  # a lone surrogate or a huge number: no other call is provably the same
        return secrets.token_hex(8)
