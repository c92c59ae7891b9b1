"""What `codex exec` did not say on stdout: actions its policy refused, and commands that its sandbox stopped at once.

Its policy is always never to ask, so whatever would have asked is refused, and the model alone is told: no item, no error,
exit code 0 (docs/wire-truth.md). Two places show it. The thread's rollout file has each call of the model with what it
got for an answer; stderr has a line of text. Both are read leniently and nothing found there counts as more than a
heuristic. What is found in neither cannot be seen.
"""

import re
import shlex
from collections.abc import Iterator

import attrs
import orjson

from nucleic_codex.fields import mapping, sequence, string
from nucleic_codex.tools import BASH, EDIT, bare_command
from nucleic_core.backend import Out
from nucleic_core.events import Error, ToolCallCompleted, ToolResult
from nucleic_core.lowlevel import JSON

REFUSAL = re.compile(
    r"approval policy is never|rejected by user|patch rejected|\bRejected\(|blocked by policy"
    r"|blocked by PreToolUse hook|requires approval, but",
    re.IGNORECASE,
)
"""Words of every refusal that was seen, 0.141.0 to 0.171.0."""

_RAN = re.compile(r"\A(?:Chunk ID:|Wall time|Exit code:|Process exited|Script completed)", re.MULTILINE)
"""How the answer to a call begins that did run: what follows are the words of a program, not of Codex."""

_EXIT = re.compile(r"^(?:Process exited with code|Exit code:) (-?[0-9]{1,10})$", re.MULTILINE)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_ROUTER = re.compile(r"\bERROR\b.*?tools::\S*?:?\s+error=(?P<text>.+)", re.DOTALL)
_FAILED = re.compile(r"\bERROR\b\s+(?:\S+:\s+)?(?P<text>.+)", re.DOTALL)

SHELLS = frozenset({"exec_command", "shell", "shell_command", "local_shell"})
NAMES = {"apply_patch": EDIT, **dict.fromkeys(SHELLS, BASH)}
"""Our names of Codex's own tools, as the model calls them."""


def line_of(command: JSON) -> str | None:
    """The shell line in a command, which is a text or a list of words; None where it is neither."""
    if isinstance(command, list):
        command = shlex.join(word for word in command if isinstance(word, str))
    return bare_command(command) if isinstance(command, str) else None


def refused(out: Out, tool: str, text: str, native: str, *, source: str) -> None:
    """Say that Codex's policy did not let a tool run; the run goes on."""
    detail = {"source": source, "heuristic": True}
    out.event(Error(f"Codex refused {tool}: {text}", code="denied_by_policy", detail=detail), native)


@attrs.define
class Unseen:
    """Compares what the model called, and what stderr says, with the items of stdout."""

    _items: dict[str, list[str]] = attrs.field(factory=dict)  # items that showed a shell line, by that line
    _open: set[str] = attrs.field(factory=set)  # items of commands that have no result
    _calls: dict[str, dict[str, JSON]] = attrs.field(factory=dict)  # calls of the rollout, by id
    _told: list[str] = attrs.field(factory=list)  # refusals told from the rollout

    def command(self, item: str, line: str) -> None:
        """An item of stdout showed that this command began."""
        self._items.setdefault(line, []).append(item)
        self._open.add(item)

    def done(self, item: str) -> None:
        """An item of stdout showed how its command ended."""
        self._open.discard(item)

    # -- the rollout ------------------------------------------------------------------------------------------------

    def record(self, record: dict[str, JSON], out: Out) -> bool:
        """One record of the rollout, of this turn."""
        match record:
            case {"type": "response_item", "payload": {"type": str(kind), "call_id": str(call)} as payload}:
                if kind in ("function_call", "custom_tool_call") and isinstance(payload.get("name"), str):
                    self._calls[call] = payload
                    return True
                if kind in ("function_call_output", "custom_tool_call_output"):
                    self._answered(call, _text(payload.get("output")), f"rollout/{kind}", out)
                    return True
        return False

    def _answered(self, call: str, text: str, native: str, out: Out) -> None:
        asked = self._calls.pop(call, None)
        if asked is None:
            return
        tool, given = _named(asked)
        words = text.rpartition("Script error:\n")[2] if text.startswith("Script failed") else text
        if not _RAN.match(words) and REFUSAL.search(words):
            self._told.append(words.strip())
            self._show(call, tool, asked, given, text, native, out)
            refused(out, tool, words.strip(), native, source=f"codex:{native.replace('/', ':')}")
        elif tool == BASH and isinstance(line := given.get("command"), str):
            self._ran(call, asked, line, text, native, out)

    def _ran(self, call: str, asked: dict[str, JSON], line: str, text: str, native: str, out: Out) -> None:
        """A command and its end, of which stdout may have shown both, the beginning alone (0.141.0), or nothing."""
        items, code = self._items.get(line), _exit_code(text)
        item = items.pop(0) if items else None  # each stands for one call
        if code is None:  # it still runs
            return
        if item is None:
            self._show(call, BASH, asked, {"command": line}, text, native, out, code)
        elif item in self._open:
            self._open.remove(item)
            out.event(ToolResult(item, text, code != 0, exit_code=code, exit_code_source="heuristic"), native)

    @staticmethod
    def _show(
        call: str,
        tool: str,
        asked: dict[str, JSON],
        given: dict[str, JSON],
        text: str,
        native: str,
        out: Out,
        code: int | None = None,
    ) -> None:
        name = asked["name"]
        out.event(ToolCallCompleted(call, tool, given, name if name != tool else None), native)
        source = None if code is None else "heuristic"
        out.event(ToolResult(call, text, code != 0, exit_code=code, exit_code_source=source), native)  # type: ignore[arg-type]

    # -- stderr -----------------------------------------------------------------------------------------------------

    def line(self, line: str, number: int, out: Out) -> None:
        """One line of stderr. It is text for people, never protocol, whatever it looks like."""
        line = _COLOUR.sub("", line)
        routed = _ROUTER.search(line)
        found = routed or _FAILED.search(line)
        if found is None:
            return
        text = found["text"].strip()
        if REFUSAL.search(text):
            known = next((told for told in self._told if text in told or told.startswith(text)), None)
            if known is not None:
                self._told.remove(known)
                return
            out.event(ToolResult(f"stderr:{number}", text, is_error=True, correlated=False), "stderr")
            refused(out, "an action", text, "stderr", source="codex:stderr")
        elif routed:
            detail = {"source": "codex:stderr", "heuristic": True}
            out.event(Error(f"A tool failed: {text}", code="tool_failed", detail=detail), "stderr")


def _named(asked: dict[str, JSON]) -> tuple[str, dict[str, JSON]]:
    """Our name of a call's tool, and its input as our vocabulary has it."""
    name: str = asked["name"]
    space = string(asked.get("namespace"))
    if "input" in asked:
        return NAMES.get(name, name), {"input": asked["input"]}
    try:
        given = mapping(orjson.loads(asked.get("arguments") or ""))
    except (orjson.JSONDecodeError, TypeError):
        given = {"arguments": asked.get("arguments")}
    if name in SHELLS:
        return BASH, {"command": line_of(given.get("cmd", given.get("command")))}
    return f"{space}__{name}" if space else NAMES.get(name, name), given


def _text(output: JSON) -> str:
    """The text of a call's answer, which is a string or a list of parts."""
    if isinstance(output, str):
        return output
    return "\n".join(_parts(output))


def _parts(output: JSON) -> Iterator[str]:
    for part in sequence(output) or sequence(mapping(output).get("content")):
        text = string(mapping(part).get("text"))
        if text is not None:
            yield text


def _exit_code(text: str) -> int | None:
    found = _EXIT.search(text)
    return int(found[1]) if found else None
