"""`nucleic backends`: which agents can be driven, what of them is on this machine, and what is broken."""

import click
import trio

from nucleic_core._cli.choice import Probed, probed, why_not
from nucleic_core._cli.console.wording import brief
from nucleic_core._cli.tables import print_json, print_table
from nucleic_core._plugins import BACKENDS, Plugins
from nucleic_core._values import JSON
from nucleic_core.capabilities import BackendCapabilities


@click.command("backends")
@click.option("--json", "as_json", is_flag=True, help="One JSON object with all that is known.")
def command(as_json: bool) -> None:
    """List the backends: version, log-in, what each can do, and which plugins cannot be used and why."""
    plugins = Plugins()
    found = trio.run(_probe_all, plugins)
    broken = [
        {"group": group, "name": name, "reason": reason, "package": plugins.origin(group, name).distribution}
        for (group, name), reason in sorted(plugins.broken.items())
    ]
    if as_json:
        print_json({"backends": [_as_json(plugins, one) for one in found], "broken": broken})
        return
    print_table(
        ("backend", "version", "usable", "approvals", "questions", "edits input", "messages", "package", ""),
        [_row(plugins, one) for one in found],
    )
    for entry in broken:
        if entry["group"] != BACKENDS:
            click.echo(
                f"broken: {entry['name']} of {entry['package'] or 'an unknown package'}: {brief(entry['reason'], 400)}"
            )


async def _probe_all(plugins: Plugins) -> list[Probed]:
    """All at once; each is a matter of its own."""
    found: dict[str, Probed] = {}

    async def probe(name: str) -> None:
        found[name] = await probed(plugins, name)

    async with trio.open_nursery() as nursery:
        for name in plugins.backends:
            nursery.start_soon(probe, name)
    return [found[name] for name in plugins.backends]


def _as_json(plugins: Plugins, one: Probed) -> JSON:
    origin = plugins.origin(BACKENDS, one.name)
    return {
        "name": one.name,
        "usable": one.usable,
        "package": origin.distribution,
        "package_version": origin.version,
        "probe": one.report,
        "capabilities": one.capabilities,
        "problem": one.problem or None,
    }


def _row(plugins: Plugins, one: Probed) -> tuple[str, ...]:
    origin = plugins.origin(BACKENDS, one.name)
    can = one.capabilities or BackendCapabilities()
    return (
        one.name,
        brief((one.report and one.report.version) or "?"),
        "yes" if one.usable else "no",
        _word(can.interactive_approvals),
        _word(can.questions),
        _word(can.can_modify_tool_input),
        ", ".join(sorted(can.follow_up)),
        f"{origin.distribution} {origin.version}".strip(),
        "" if one.usable else brief(why_not(one), 400),
    )


def _word(known: bool | None) -> str:
    return "?" if known is None else "yes" if known else "no"
