"""Lists for people: aligned columns, within the terminal's width where there is one."""

import io
import sys
from collections.abc import Iterable, Sequence

import click
import orjson
import rich.console
import rich.table
from rich.text import Text

from nucleic_core._values import JSON
from nucleic_core.events import plain

_UNBOUNDED = 10_000  # characters; what reads a pipe wants whole values


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> None:
    """Print rows under their columns. Texts must be visible already; none is read as markup."""
    terminal = sys.stdout.isatty()
    console = rich.console.Console(
        file=io.StringIO(), force_terminal=terminal, width=None if terminal else _UNBOUNDED, highlight=False
    )
    table = rich.table.Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold" if terminal else "")
    for column in columns:
        table.add_column(column, overflow="fold" if terminal else "ignore", no_wrap=not terminal)
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in row))
    with console.capture() as capture:
        console.print(table)
    click.echo("\n".join(line.rstrip() for line in capture.get().splitlines()))


def print_json(value: JSON) -> None:
    """Print one JSON value, for programs."""
    click.echo(orjson.dumps(value, default=plain, option=orjson.OPT_INDENT_2))
