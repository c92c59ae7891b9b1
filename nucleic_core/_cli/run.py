"""`nucleic run`: a prompt to an agent, watched to its end."""

from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import click
import trio

from nucleic_core import Host, Session, open_session
from nucleic_core._approvals.coordinator import Responder
from nucleic_core._cli.arguments import (
    PromptCommand,
    an_input,
    input_options,
    manner_options,
    options_of,
    run_options,
    the_text,
)
from nucleic_core._cli.choice import choose
from nucleic_core._cli.conversation import Manner, Say, converse
from nucleic_core._values import JSON
from nucleic_core.settings import load_settings


@click.command("run", cls=PromptCommand)
@click.argument("prompt")
@click.option("-b", "--backend", help="Which agent; `nucleic backends` lists them.")
@click.option("--cwd", metavar="DIR", default=".", help="Where the agent works (here, unless given).")
@run_options
@input_options
@manner_options
def command(
    prompt: str,
    backend: str | None,
    cwd: str,
    policies: tuple[str, ...],
    contexts: list[JSON],
    images: list[JSON],
    as_json: bool,
    wait: bool,
    notify: str | None,
    **given: JSON,
) -> int:
    """Give an agent PROMPT and watch it work; `-` reads the prompt from stdin.

    On a terminal you are asked before each gated action. Without one, what no policy allows is denied, unless --wait is
    given. A PROMPT that begins with '-' is the last argument and holds a blank, or follows '--'.
    """
    settings = load_settings(backend=backend, policies=policies)
    message = an_input(the_text(prompt), contexts, images)

    async def opened(host: Host, responder: Responder, say: Say) -> AbstractAsyncContextManager[Session]:
        name = await choose(host.plugins, settings.backend, given["model"], say)
        return open_session(
            name,
            message,
            cwd=Path(cwd),
            policies=settings.policies,
            responder=responder,
            approval_deadline=settings.responder_deadline,
            host=host,
            **options_of(given, settings.of(name)),
        )

    return trio.run(partial(converse, settings, Manner(as_json, wait, notify), opened))
