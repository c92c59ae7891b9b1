"""What the fixture recorders share: the tape beside a decoder, and how a recording loses what belongs to this machine."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import orjson

from nucleic_core.events import plain

JSON = Any

CWD, HOME = Path("/work/demo"), Path("/home/dev")
"""The working directory and the home in every recording."""


class Tape:
    """Everything that a decoder was given, in order, and the command line of the process."""

    def __init__(self) -> None:
        self.records: list[JSON] = []
        self.argv: tuple[str, ...] = ()

    def recording(self, decoder: type[Any]) -> type[Any]:
        """The decoder, with this tape beside it."""
        tape = self

        class Recorded(decoder):  # type: ignore[misc]  # what it is made of is known at run time
            def received(self, message: JSON, out: Any, channel: str = "stdout") -> None:
                tape.records.append({"dir": "in", "channel": channel, "msg": message})
                super().received(message, out, channel)

            def sent(self, message: JSON, out: Any, channel: str = "stdin") -> None:
                tape.records.append({"dir": "out", "channel": channel, "msg": message})
                super().sent(message, out, channel)

        return Recorded

    def watching(self, driver: type[Any]) -> type[Any]:
        """The driver, whose command line is kept."""
        tape = self

        class Watched(driver):  # type: ignore[misc]
            def process(self) -> Any:
                spec = super().process()
                tape.argv = spec.argv
                return spec

        return Watched


def clean(value: JSON, words: dict[str, str]) -> JSON:
    """A value without anything of this machine: longer words first, then ports, tokens and temporary files."""
    said = json.dumps(value, ensure_ascii=False, default=str)
    for word in sorted(words, key=len, reverse=True):
        said = said.replace(word, words[word])
    said = re.sub(r"http://127\.0\.0\.1:\d+", "http://127.0.0.1:1", said)
    said = re.sub(r"Bearer [\w-]+", "Bearer token", said)
    said = re.sub(r"/tmp/nucleic-mcp-[\w-]+", "/tmp/nucleic-mcp", said)
    said = re.sub(r"/tmp/claude-\d+", "/tmp/claude", said)
    said = said.replace(os.uname().release, "6.1.0")
    return json.loads(re.sub(rf"\b{re.escape(os.uname().nodename)}\b", "demo-host", said))


def repository(where: Path) -> None:
    """A fresh git repository of one commit."""
    where.mkdir()
    (where / "README.md").write_text("# demo\n\nhello\n")
    who = ("-c", "user.name=dev", "-c", "user.email=dev@example.com")
    for step in (["init", "-q", "-b", "main"], ["add", "-A"], [*who, "commit", "-qm", "init"]):
        subprocess.run(["git", *step], cwd=where, check=True)


def save(path: Path, value: JSON) -> None:
    """One JSON file."""
    path.write_bytes(orjson.dumps(value, default=plain, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
