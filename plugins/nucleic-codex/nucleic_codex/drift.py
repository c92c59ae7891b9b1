"""`nucleic drift codex`: what the installed Codex says of its app-server protocol that the tested versions did not.

Codex prints the schema of its own protocol. Kept of it, per tested version in `schema/`, are the names: methods by
direction, and the values of enums and the kinds of tagged objects. Names are what the decoder goes by, and what breaks it.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

import click
import trio

from nucleic_codex.fields import mapping, sequence
from nucleic_codex.program import Program, find, parse, spoken
from nucleic_core.errors import BackendBroken
from nucleic_core.lowlevel import JSON

Names: TypeAlias = dict[str, list[str]]
"""Names by where they stand: `request`, `notification` and so on for methods, `type.Name` for the values of a type."""

KEPT = Path(__file__).with_name("schema")
DEADLINE = 60.0

_DIRECTIONS = {
    "ClientRequest": "request",
    "ClientNotification": "notification to the agent",
    "ServerRequest": "request of the agent",
    "ServerNotification": "notification",
}


def reduced(folder: Path) -> Names:
    """The names in the files that `codex app-server generate-json-schema` writes."""
    names: Names = {}
    for file, direction in _DIRECTIONS.items():
        schema = mapping(json.loads((folder / f"{file}.json").read_text("utf-8")))
        variants = [*sequence(schema.get("oneOf")), *sequence(schema.get("anyOf"))]
        methods = (mapping(mapping(mapping(variant).get("properties")).get("method")) for variant in variants)
        names[direction] = sorted({str(name) for method in methods for name in sequence(method.get("enum"))})
    whole = mapping(json.loads((folder / "codex_app_server_protocol.schemas.json").read_text("utf-8")))
    definitions = mapping(whole.get("definitions"))
    for name, definition in {**definitions, **mapping(definitions.get("v2"))}.items():
        if name not in _DIRECTIONS and (values := sorted(set(_values(mapping(definition))))):
            names[f"type.{name}"] = values
    return dict(sorted(names.items()))


def _values(definition: Mapping[str, JSON]) -> Iterator[str]:
    """The values that a type may have: those of an enum, and what its tagged variants are called."""
    yield from (str(value) for value in sequence(definition.get("enum")) if value is not None)
    for variant in [*sequence(definition.get("oneOf")), *sequence(definition.get("anyOf"))]:
        shape = mapping(variant)
        yield from (str(value) for value in sequence(shape.get("enum")) if value is not None)
        tag = mapping(mapping(shape.get("properties")).get("type"))
        yield from (str(value) for value in sequence(tag.get("enum")))


def differences(old: Names, new: Names) -> Iterator[str]:
    """One line for each name that came or went; a type that is gone or new as a whole is one line."""
    for place in sorted({*old, *new}):
        before, after = set(old.get(place, ())), set(new.get(place, ()))
        if place.startswith("type.") and not (before and after):
            yield f"{'+' if after else '-'} {place.replace('.', ' ')}: {_listed(before or after)}"
            continue
        if after - before:
            yield f"+ {place.replace('.', ' ')}: {_listed(after - before)}"
        if before - after:
            yield f"- {place.replace('.', ' ')}: {_listed(before - after)}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def kept() -> dict[tuple[int, ...], Names]:
    """The names of every version that was tested, oldest first."""
    found = {parse(file.stem) or (): json.loads(file.read_text("utf-8")) for file in KEPT.glob("*.json")}
    return dict(sorted(found.items()))


def schema_of(program: Program) -> Names:
    """The names of an installed version. BackendBroken when it cannot say."""
    with tempfile.TemporaryDirectory(prefix="nucleic-schema-") as folder:
        command = [program.path, "app-server", "generate-json-schema", "--out", folder]
        try:
            subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=DEADLINE,
                check=True,
                env={**os.environ, "CODEX_HOME": folder},  # it would make itself at home in the user's
            )
            return reduced(Path(folder))
        except (OSError, subprocess.SubprocessError, json.JSONDecodeError) as error:
            raise BackendBroken(f"{program} does not say what its protocol is: {error}.") from error


@click.command("drift")
@click.argument("backend", type=click.Choice(["codex"]))
@click.option("--executable", default="codex", help="The program to look at.")
def command(backend: str, executable: str) -> None:
    """Compare the protocol of the installed BACKEND with the version that was tested last before it.

    A line per name: + what is new, - what is gone. The exit code is 1 where there is any.
    """
    program = trio.run(find, executable, os.environ)
    tested = kept()
    base = max((version for version in tested if version <= program.version), default=min(tested))
    lines = list(differences(tested[base], schema_of(program)))
    click.echo(f"{program} against the tested {spoken(base)}: {len(lines) or 'no'} differences")
    for line in lines:
        click.echo(line)
    sys.exit(1 if lines else 0)
