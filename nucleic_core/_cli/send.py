"""`nucleic send`: a message to a session that runs in another process."""

import click

from nucleic_core._cli.arguments import PromptCommand, the_text
from nucleic_core._cli.client import steer as steer_session
from nucleic_core._cli.finding import find_session
from nucleic_core.settings import load_settings


@click.command("send", cls=PromptCommand)
@click.argument("session")
@click.argument("text")
@click.option("--steer", is_flag=True, help="Fold it into the running turn, where the backend can.")
def command(session: str, text: str, steer: bool) -> None:
    """Send TEXT to SESSION, which runs in another process; `-` reads it from stdin.

    While a turn runs the message is queued, where the backend can take one. Prints the message's id, which
    `input_accepted` carries.
    """
    home = load_settings().home
    answer = steer_session(home, find_session(home, session), "send", text=the_text(text), steer=steer)
    click.echo(answer["input"])
