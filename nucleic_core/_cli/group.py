"""The command `nucleic` and the names of its commands, without importing any of them.

A command's module is imported when it is called. Commands that plugins add (entry-point group `nucleic.commands`) are
listed by name and distribution alone, so that no plugin can slow or break the help.
"""

import importlib
from typing import TYPE_CHECKING

import click

from nucleic_core._cli.exits import STDOUT_CLOSED
from nucleic_core._cli.verbosity import add_verbosity
from nucleic_core._faults import failure_of
from nucleic_core.errors import BackendBroken

if TYPE_CHECKING:
    from nucleic_core._plugins import Plugins

COMMANDS = {
    "run": "Give an agent a prompt and watch it work.",
    "resume": "Take a session up again.",
    "send": "Send a message to a running session.",
    "interrupt": "Stop the running turn of a session.",
    "approve": "Allow what an agent asks for.",
    "deny": "Refuse what an agent asks for.",
    "answer": "Answer a question of an agent.",
    "sessions": "List the sessions.",
    "show": "Show a session's transcript.",
    "backends": "List the backends and what is installed of them.",
    "config": "Show the settings and where each comes from.",
    "decode": "Turn recorded messages into events.",
}
"""Name and what it does, in the order of the help; the module bears the name and holds `command`."""


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called."""

    _plugins: "Plugins | None" = None

    @property
    def plugins(self) -> "Plugins":
        """The installed plugins, found once and not loaded."""
        if self._plugins is None:
            from nucleic_core._plugins import Plugins

            self._plugins = Plugins()
        return self._plugins

    def invoke(self, ctx: click.Context) -> object:
        """Run the command. That stdout was closed is told by the exit code, before click makes a 1 of it."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            return STDOUT_CLOSED

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Ours in their order, then those of plugins."""
        return [*COMMANDS, *sorted(self.plugins.commands.keys() - COMMANDS.keys())]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command. One of ours can be neither replaced nor broken by a plugin."""
        if cmd_name in COMMANDS:
            command = importlib.import_module(f"nucleic_core._cli.{cmd_name}").command
            assert isinstance(command, click.Command)
            return add_verbosity(command)
        entry = self.plugins.commands.get(cmd_name)
        if entry is None:
            return None
        try:
            command = entry.load()
            if not isinstance(command, click.Command):
                raise TypeError("it is no click command")
        except BaseException as raised:
            exc = failure_of(raised)
            whose = self._whose(cmd_name)
            raise BackendBroken(f"The command {cmd_name!r} of {whose} cannot be used: {exc}.") from exc
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list in the help, from names alone."""
        rows = list(COMMANDS.items())
        rows += [(name, f"(from {self._whose(name)})") for name in self.list_commands(ctx) if name not in COMMANDS]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def _whose(self, command: str) -> str:
        from nucleic_core._plugins import COMMANDS as GROUP

        return self.plugins.origin(GROUP, command).distribution or "an unknown package"


@click.group("nucleic", cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="nucleic-core", prog_name="nucleic")
def nucleic() -> None:
    """Drive any coding agent: one stream of events, one approval round trip, one transcript."""


add_verbosity(nucleic)
