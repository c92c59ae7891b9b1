"""From the fixed rules of a run to the one sandbox that Codex has for it: never wider than the rules, or refused.

`codex exec` asks nobody, so nothing but its sandbox stands between the rules and the machine, and a sandbox knows three
sizes and no single command. What follows from that:

| the rules allow                                                       | the sandbox                        |
|-----------------------------------------------------------------------|------------------------------------|
| nothing, or reading                                                   | read-only                          |
| Bash, Edit and Write up to the risk write, in the working directory   | workspace-write                    |
| ... and Bash up to network                                            | workspace-write with network       |
| every tool, known or not, anywhere, whatever its risk                 | danger-full-access                 |

Reading, and commands that can do no more than read, need no rule: no backend asks about them, and no sandbox of Codex
prevents them. A command is judged by what its sandbox lets it do, not by what it is called: within `workspace-write` it
can write, so its risk is write. A rule that draws a line where no sandbox does (between two commands, two files, inside
a directory) is refused with its number and the reason.
"""

import fnmatch
import re
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePath
from typing import Literal, TypeAlias

import attrs

from nucleic_codex.probe import SANDBOX_MODES
from nucleic_core.approvals import Risk, Rule, within
from nucleic_core.errors import Unsupported
from nucleic_core.specs import RunSpec

READERS = frozenset({"Read", "Grep", "Glob", "LS", "NotebookRead"})
"""What Codex does with its shell; by themselves they cannot be allowed or denied."""

WRITERS = ("Bash", "Edit", "Write")
"""What a sandbox with a writable directory lets write there; it does not tell them apart."""

KNOWN = READERS | {*WRITERS, "MultiEdit", "NotebookEdit", "WebSearch", "WebFetch"}
FOREIGN = "mcp__any__tool"
"""Stands for the tools of MCP servers, apps and plugins, of which the rules can say nothing in advance."""

Cover: TypeAlias = Literal["whole", "none", "part"]

_WILD = re.compile(r"[*?\[]")


@attrs.frozen
class Access:
    """What a run is given. `roots` may be written to beside the working directory, `scratch` in /tmp and TMPDIR.

    `foreign`: tools of MCP servers, apps and plugins, which no sandbox holds.
    """

    mode: str
    roots: tuple[Path, ...] = ()
    scratch: bool = False
    network: bool = False
    search: bool = False
    foreign: bool = False


def access(run: RunSpec, env: Mapping[str, str]) -> Access:
    """The narrowest sandbox that covers the run's rules. Raises Unsupported where that would be wider than they are."""
    if run.rules is None:
        raise Unsupported(
            "codex-exec asks nobody, so it needs fixed rules: give the run rules (--rules FILE), or use the backend "
            "codex, which asks before each action."
        )
    if run.sandbox is not None and run.sandbox not in SANDBOX_MODES:
        raise Unsupported(f"codex has no sandbox {run.sandbox!r}; it has {', '.join(SANDBOX_MODES)}.")
    found = _Rules(run.rules, run.cwd, [run.cwd / folder for folder in run.add_dirs]).access(env)
    if run.sandbox is None or run.sandbox == found.mode:
        return found
    if SANDBOX_MODES.index(run.sandbox) > SANDBOX_MODES.index(found.mode):
        raise Unsupported(
            f"The rules of this run cover the sandbox {found.mode}, not {run.sandbox}; leave sandbox out."
        )
    if run.sandbox == "read-only":
        return attrs.evolve(found, mode="read-only", roots=(), scratch=False, network=False, foreign=False)
    return attrs.evolve(found, mode=run.sandbox, foreign=False)


class _Rules:
    """The rules up to the one that denies all that is left, each of them checked."""

    def __init__(self, rules: Iterable[Rule], cwd: Path, folders: list[Path]) -> None:
        self._cwd = cwd.resolve()
        self._folders = [folder.resolve() for folder in folders]
        self._rules: list[tuple[int, Rule]] = []
        for number, rule in enumerate(rules, 1):
            if rule == Rule("deny", max_risk=rule.max_risk):  # what comes after it decides nothing
                break
            self._check(number, rule)
            self._rules.append((number, rule))

    def access(self, env: Mapping[str, str]) -> Access:
        search = self._allows("WebSearch", "network")
        if self._everything():
            return Access("danger-full-access", scratch=True, network=True, search=search, foreign=True)
        if not self._writes(self._cwd):
            for folder in self._folders:
                if self._writes(folder):
                    raise Unsupported(
                        f"The rules of this run allow writing in {folder} and not in {self._cwd}, where codex exec may "
                        f"always write if it may write at all. Run it in {folder}, or use the backend codex."
                    )
            return Access("read-only", search=search)
        temporary = {Path("/tmp").resolve(), Path(env.get("TMPDIR") or tempfile.gettempdir()).resolve()}  # noqa: S108
        return Access(
            "workspace-write",
            roots=tuple(folder for folder in self._folders if self._writes(folder)),
            scratch=all(all(self._allows(tool, "write", place) for tool in WRITERS) for place in temporary),
            network=self._allows("Bash", "network"),
            search=search,
        )

    # -- one rule ---------------------------------------------------------------------------------------------------

    def _check(self, number: int, rule: Rule) -> None:
        """Refuse a rule that no sandbox draws the line of."""
        tools = {tool for tool in KNOWN if fnmatch.fnmatchcase(tool, rule.tool)}
        if rule.pattern is not None:
            raise _refused(number, rule, "it has a pattern, and the sandbox does not tell one call from another")
        if rule.verdict == "allow":
            if not tools:
                raise _refused(number, rule, "Codex cannot be given that tool alone")
            if rule.path is not None and tools <= READERS:
                raise _refused(number, rule, "Codex may read the whole disk in each of its sandboxes")
            self._check_path(number, rule, must_cover=True)
        elif rule.path is None:
            if tools & {*READERS, "Bash"}:
                raise _refused(number, rule, "Codex works through its shell, with which it may always read")
        elif tools & READERS:
            raise _refused(number, rule, "Codex may read the whole disk in each of its sandboxes")
        else:
            self._check_path(number, rule, must_cover=False)

    def _check_path(self, number: int, rule: Rule, *, must_cover: bool) -> None:
        if rule.path is None:
            return
        covers = [_cover(rule.path, root, self._cwd) for root in (self._cwd, *self._folders)]
        if "part" in covers:
            raise _refused(
                number, rule, f"the sandbox opens {self._cwd} (and add_dirs) as a whole, and the rule speaks of a part"
            )
        if must_cover and "whole" not in covers:
            raise _refused(number, rule, f"it speaks of no file in {self._cwd}; give the directory as one of add_dirs")

    # -- all rules --------------------------------------------------------------------------------------------------

    def _decider(self, tool: str, risk: Risk, place: Path | None = None) -> tuple[int, Rule] | None:
        """The first rule that decides about a tool's use at a place; None as the place: wherever it may be."""
        for number, rule in self._rules:
            if not fnmatch.fnmatchcase(tool, rule.tool):
                continue
            cover = "whole" if rule.path is None else "part" if place is None else _cover(rule.path, place, self._cwd)
            if rule.verdict == "deny" and cover != "none":
                return number, rule
            if rule.verdict == "allow" and cover == "whole" and within(risk, rule.max_risk):
                return number, rule
        return None

    def _allows(self, tool: str, risk: Risk, place: Path | None = None) -> bool:
        decider = self._decider(tool, risk, place)
        return decider is not None and decider[1].verdict == "allow"

    def _everything(self) -> bool:
        """Whether the rules leave nothing out: then, and only then, no sandbox is needed."""
        narrow = any(rule.verdict == "deny" and rule.tool not in ("WebSearch", "WebFetch") for _, rule in self._rules)
        return not narrow and all(self._allows(tool, "unknown") for tool in (*WRITERS, FOREIGN))

    def _writes(self, place: Path) -> bool:
        """Whether the rules allow writing there. Raises where they allow it to one tool that writes and not to another."""
        allowing = {tool: self._decider(tool, "write", place) for tool in WRITERS}
        may = [tool for tool in WRITERS if self._allows(tool, "write", place)]
        if not may or len(may) == len(WRITERS):
            return bool(may)
        by = allowing[may[0]]
        assert by is not None
        others = " and ".join(tool for tool in WRITERS if tool not in may)
        raise _refused(
            *by,
            f"where {' and '.join(may)} may write, {others} could too, which no rule allows: what is written by a patch "
            "and what by a command is one to the sandbox. Allow Bash, Edit and Write up to the risk write, or none",
        )


def _refused(number: int, rule: Rule, why: str) -> Unsupported:
    where = f" {rule.path}" if rule.path is not None else f" {rule.pattern}" if rule.pattern is not None else ""
    return Unsupported(
        f"Rule {number} of this run ({rule.verdict} {rule.tool}{where}) cannot be enforced by codex exec: {why}. "
        "The backend codex, which asks before each action, can follow it."
    )


def _cover(glob: str, root: Path, cwd: Path) -> Cover:
    """How much of a directory a rule's path means. In doubt it is a part, which no sandbox can follow."""
    parts = PurePath(glob).parts
    wild = next((i for i, part in enumerate(parts) if _WILD.search(part)), len(parts))
    place, rest = cwd.joinpath(*parts[:wild]).resolve(), parts[wild:]
    if place == root or place in root.parents:
        if rest and rest[0] == "**" and set(rest[1:]) <= {"*", "**"}:
            return "whole"
        return "part" if rest or place == root else "none"
    return "part" if root in place.parents else "none"
