"""`nucleic decode`: what a backend makes of recorded messages."""

import sys
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import cast

import click

from nucleic_core._plugins import Plugins
from nucleic_core._session.replay import read_records, replay

_PIECE = 1 << 20


@click.command("decode")
@click.argument("backend")
@click.argument("file", type=click.Path(path_type=Path), default="-")
@click.option(
    "--cwd", type=click.Path(path_type=Path), default=".", help="Where the agent worked; paths count from it."
)
def command(backend: str, file: Path, cwd: Path) -> None:
    """Turn recorded messages of BACKEND into events, as NDJSON on stdout. FILE `-` is stdin.

    \b
    A line of FILE is a message as the agent wrote it to stdout, or a record:
      {"dir": "in" | "out", "channel": "stdout" | "stdin" | "mcp" | ..., "msg": {...}, "at": "..."}
    `in` comes from the agent and `out` goes to it; channel (stdout for in, stdin for out) and at may be missing.

    Events are numbered from 1, with an empty session, and `at` only where the record has it. An ask has its key on the
    wire as id. What ends with the file is closed as it is when an agent's process ends.
    """
    hooks = Plugins().backend(backend)
    for event in replay(hooks, backend, read_records(_pieces(file)), cwd=cwd.absolute()):
        sys.stdout.buffer.write(event.to_line() + b"\n")


def _pieces(file: Path) -> Iterator[bytes]:
    if str(file) == "-":
        yield from _read(cast(BufferedReader, sys.stdin.buffer))
        return
    try:
        with file.open("rb") as source:
            yield from _read(source)
    except OSError as exc:
        raise click.UsageError(f"Cannot read {file}: {exc.strerror}.") from exc


def _read(source: BufferedReader) -> Iterator[bytes]:
    while piece := source.read1(_PIECE):
        yield piece
