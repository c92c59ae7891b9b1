"""`nucleic interrupt`: stop the running turn of a session that runs in another process."""

import click

from nucleic_core._cli.client import steer
from nucleic_core._cli.finding import find_session
from nucleic_core.settings import load_settings


@click.command("interrupt")
@click.argument("session")
def command(session: str) -> None:
    """Stop the running turn of SESSION. Its open asks are refused; the session goes on."""
    home = load_settings().home
    steer(home, find_session(home, session), "interrupt")
