"""`nucleic sessions`: what was run, the latest first."""

import attrs
import click

from nucleic_core._cli.console.wording import brief
from nucleic_core._cli.tables import print_json, print_table
from nucleic_core._store.home import nucleic_home
from nucleic_core._store.index import Index, SessionRow
from nucleic_core.settings import load_settings

_LIVE_ONLY = ("running", "awaiting_approval")


@click.command("sessions")
@click.option("--json", "as_json", is_flag=True, help="The whole list as one JSON array.")
def command(as_json: bool) -> None:
    """List the sessions, the latest active first."""
    rows = Index(nucleic_home(load_settings().home)).sessions()
    if as_json:
        print_json([attrs.asdict(row) for row in rows])
    elif not rows:
        click.echo('No sessions yet. Begin one with: nucleic run "..."')
    else:
        print_table(
            ("session", "backend", "status", "last activity", "events", "branch", "directory", "title"),
            [
                (
                    row.id[:8],
                    brief(row.backend),
                    _status(row),
                    row.last_activity[:19].replace("T", " "),
                    str(row.events),
                    _branch(row),
                    brief(row.cwd),
                    brief(row.title),
                )
                for row in rows
            ],
        )


def _status(row: SessionRow) -> str:
    """The status; one that only a live process can have is told apart when there is none."""
    status = row.status.replace("_", " ")
    return f"{status} (its process is gone)" if row.writer is None and row.status in _LIVE_ONLY else status


def _branch(row: SessionRow) -> str:
    if row.branch is None:
        return ""
    ahead = f" +{row.ahead}" if row.ahead else ""
    behind = f" -{row.behind}" if row.behind else ""
    return f"{brief(row.branch)}{ahead}{behind}"
