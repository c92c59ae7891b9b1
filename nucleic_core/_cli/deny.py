"""`nucleic deny`: refuse what an agent asks for, from another terminal or a program."""

import click

from nucleic_core._cli.client import answer
from nucleic_core._values import unicode_text
from nucleic_core.settings import load_settings


@click.command("deny")
@click.argument("ask")
@click.option("--as", "who", metavar="NAME", help="Who answers, for the record (socket:cli:NAME).")
@click.option("--reason", default="", help="Told to the agent, where its protocol can.")
@click.option("--cancel", is_flag=True, help="Also stop the turn.")
def command(ask: str, who: str | None, reason: str, cancel: bool) -> None:
    """Refuse ASK. The agent is told why and goes on where it does so, unless --cancel stops the turn."""
    answer(
        load_settings().home, ask, {"type": "cancel_run" if cancel else "deny", "reason": unicode_text(reason)}, who=who
    )
