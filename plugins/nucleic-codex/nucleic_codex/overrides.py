"""What a run may add to a `codex` command line: configuration (`-c`), and only what Nucleic does not answer for itself.

Shared by both backends. Arguments are let in by name, not kept out: Codex has more flags with each version, and each that
is unknown here could switch approvals off.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from nucleic_core.errors import Unsupported
from nucleic_core.lowlevel import JSON

_APPROVALS = "it decides what may run unasked, which is Nucleic's part: use policies, rules or sandbox"
_SANDBOX = "Nucleic sets the sandbox itself: give it as sandbox"
_TRUST = "it decides which hooks and which repository's settings are trusted"
_CODE = "it brings in hooks of its own"
_FIELD = "Nucleic sets it itself: give it as {}"
_PROFILE = "a profile may hold approvals and a sandbox"

REFUSED = {
    "approval_policy": _APPROVALS,
    "approvals_reviewer": _APPROVALS,
    "auto_review": _APPROVALS,
    "apps": _APPROVALS,
    "rules": _APPROVALS,
    "default_permissions": _SANDBOX,
    "permissions": _SANDBOX,
    "sandbox_mode": _SANDBOX,
    "sandbox_permissions": _SANDBOX,
    "sandbox_workspace_write": _SANDBOX,
    "projects": _TRUST,
    "hooks": _CODE,
    "notify": "it starts a program at every turn",
    "profile": _PROFILE,
    "profiles": _PROFILE,
    "model": _FIELD.format("model"),
    "developer_instructions": _FIELD.format("system_prompt"),
}
"""The first part of configuration keys that a run may not set, each with the reason."""

_FEATURES = re.compile("hook|guardian|approval|permission|sandbox|trust|exec_policy")
"""A feature with a name like these is refused, also one that a later version may bring."""

SWITCHES = ("--enable", "--disable")


def refuse(extra_args: tuple[str, ...], also: Mapping[str, str] = MappingProxyType({})) -> None:
    """Raise Unsupported when an extra argument is one that a run may not give, with the reason.

    `also`: more keys (`features.apps`) that the backend refuses, with the reasons.
    """
    args = iter(extra_args)
    for arg in args:
        flag, given, value = arg.partition("=")
        if flag in ("-c", "--config"):
            _refuse_key(arg, value if given else next(args, ""), also)
        elif arg.startswith("-c") and not arg.startswith("--"):  # -cKEY=VALUE, as a short option may be written
            _refuse_key(arg, arg[2:], also)
        elif flag in SWITCHES:
            feature = value if given else next(args, "")
            if why := _reason(["features", feature], also):
                raise Unsupported(f"codex extra argument {flag} {feature} is refused: {why}.")
        else:
            raise Unsupported(
                f"codex extra argument {arg!r} is refused: only -c KEY=VALUE, --enable and --disable may be added."
            )


def _refuse_key(arg: str, setting: str, also: Mapping[str, str]) -> None:
    key, equals, value = setting.partition("=")
    if not equals:
        raise Unsupported(f"codex extra argument {arg!r} is refused: write -c KEY=VALUE.")
    parts = [part.strip().strip("\"'") for part in key.split(".")]
    paths = [parts, *([*parts, *path] for path in _paths(_read(value)))]
    for path in paths:
        if why := _reason(path, also):
            raise Unsupported(f"codex extra argument -c {'.'.join(path)} is refused: {why}.")


def _reason(path: list[str], also: Mapping[str, str]) -> str | None:
    for length in (1, 2):
        if why := also.get(".".join(path[:length])):
            return why
    match path:
        case [str(first), *_] if first in REFUSED:
            return REFUSED[first]
        case ["features", str(feature), *_] if _FEATURES.search(feature):
            return _APPROVALS
        case ["mcp_servers", *rest] if any("approval" in part for part in rest):
            return _APPROVALS
        case _:
            return None


def _read(value: str) -> JSON:
    """A value as Codex reads it: TOML, or else a plain string."""
    try:
        return tomllib.loads(f"value={value}")["value"]
    except tomllib.TOMLDecodeError:
        return value


def _paths(value: JSON) -> Iterator[list[str]]:
    """Every key inside a value that is a table, as a path."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield [name]
            yield from ([name, *path] for path in _paths(inner))
