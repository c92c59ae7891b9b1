"""`nucleic approve`: allow what an agent asks for, from another terminal or a program."""

import click
import orjson

from nucleic_core._cli.client import answer
from nucleic_core._values import JSON
from nucleic_core.settings import load_settings

_SCOPES = {"session": "session", "tool": "tool_name", "pattern": "tool_name_with_pattern"}


@click.command("approve")
@click.argument("ask")
@click.option("--as", "who", metavar="NAME", help="Who answers, for the record (socket:cli:NAME).")
@click.option(
    "--always",
    type=click.Choice(list(_SCOPES)),
    help="Also from now on in this session: the same call, every call of the tool, or calls that match --pattern.",
)
@click.option("--pattern", help="For --always pattern: which paths, as in src/**.")
@click.option("--input", "edited", metavar="JSON", help="Run it with this input instead.")
def command(ask: str, who: str | None, always: str | None, pattern: str | None, edited: str | None) -> None:
    """Allow ASK, an id as in `approval_requested` and on the console. The first answer to an ask counts."""
    if (always == "pattern") != (pattern is not None):
        raise click.UsageError("--always pattern and --pattern go together.")
    if always is not None and edited is not None:
        raise click.UsageError("--input allows one call as it is edited; it cannot be for --always.")
    decision: JSON
    if always is not None:
        decision = {"type": "allow_always", "scope": _SCOPES[always], "pattern": pattern}
    else:
        decision = {"type": "allow", "updated_input": None if edited is None else _read(edited)}
    answer(load_settings().home, ask, decision, who=who)


def _read(text: str) -> JSON:
    try:
        value = orjson.loads(text)
    except ValueError as exc:
        raise click.UsageError(f"--input is no JSON: {exc}.") from exc
    if value is None:
        raise click.UsageError("--input null would leave the input as it is; leave the option out.")
    return value
