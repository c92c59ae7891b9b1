"""`nucleic config`: the settings that hold, and where each comes from."""

import os

import attrs
import click

from nucleic_core._cli.tables import print_json, print_table
from nucleic_core._values import JSON
from nucleic_core.settings import BackendSettings, config_path, load_settings


@click.command("config")
@click.option("--json", "as_json", is_flag=True, help="One JSON object: setting -> value and source.")
def command(as_json: bool) -> None:
    """Show the settings that hold: option over environment over file. Values in `env` tables are not shown."""
    settings = load_settings()
    values: dict[str, JSON] = {
        "home": str(settings.home),
        "plugins": settings.plugins,
        "backend": settings.backend,
        "policies": settings.policies,
        "responder_deadline": settings.responder_deadline,
    }
    for name, backend in settings.backends.items():
        for field in attrs.fields(BackendSettings):
            if value := getattr(backend, field.name):
                values[f"backends.{name}.{field.name}"] = sorted(value) if field.name == "env" else value
    path = config_path(os.environ)
    if as_json:
        rows = {name: {"value": value, "source": settings.sources[name]} for name, value in values.items()}
        print_json({"file": str(path), "file_exists": path.exists(), "settings": rows})
        return
    click.echo(f"settings file: {path}{'' if path.exists() else ' (not there)'}")
    print_table(
        ("setting", "value", "from"), [(name, _word(value), settings.sources[name]) for name, value in values.items()]
    )


def _word(value: JSON) -> str:
    match value:
        case None | () | []:
            return "-"
        case tuple() | list():
            return ", ".join(map(str, value))
        case _:
            return str(value)
