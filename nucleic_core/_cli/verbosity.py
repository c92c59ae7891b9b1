"""`-v` and `-vv`: the log of `nucleic.*` on stderr, which is silent otherwise. It never holds payloads or secrets."""

import logging

import click

from nucleic_core._visible import visible


class _Visible(logging.Formatter):
    """A log line may quote an agent."""

    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record))


def add_verbosity(command: click.Command) -> click.Command:
    """Give a command the option; it may stand before the command's name or after."""
    if not any(param.name == "verbose" for param in command.params):
        text = "Log what happens to stderr; twice for more."
        command.params.append(
            click.Option(["-v", "--verbose"], count=True, expose_value=False, callback=_set, help=text)
        )
    return command


def _set(ctx: click.Context, param: click.Parameter, count: int) -> None:
    logger = logging.getLogger("nucleic")
    logger.propagate = False
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())  # without one, Python prints warnings by itself
    if count == 0:
        return
    logger.setLevel(logging.INFO if count == 1 else logging.DEBUG)
    if not any(isinstance(handler, logging.StreamHandler) for handler in logger.handlers):
        handler = logging.StreamHandler()
        handler.setFormatter(_Visible("%(asctime)s %(name)s: %(message)s", "%H:%M:%S"))
        logger.addHandler(handler)
