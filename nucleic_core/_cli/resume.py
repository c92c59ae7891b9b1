"""`nucleic resume`: a session goes on where it stopped."""

import sys
from contextlib import AbstractAsyncContextManager
from functools import partial

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
from nucleic_core._cli.conversation import Manner, Say, converse
from nucleic_core._cli.finding import find_session
from nucleic_core._store.header import read_header
from nucleic_core._store.home import transcript_path
from nucleic_core._values import JSON
from nucleic_core.settings import load_settings


@click.command("resume", cls=PromptCommand)
@click.argument("session")
@click.argument("prompt", required=False)
@click.option("--fork", is_flag=True, help="Go on in a new session with the same past; this one stays as it is.")
@run_options
@input_options
@manner_options
def command(
    session: str,
    prompt: str | None,
    fork: bool,
    policies: tuple[str, ...],
    contexts: list[JSON],
    images: list[JSON],
    as_json: bool,
    wait: bool,
    notify: str | None,
    **given: JSON,
) -> int:
    """Take SESSION up again with PROMPT; the beginning of the session's id is enough.

    Without PROMPT a terminal is asked for one. With --wait and no terminal the session stays open for `nucleic send`.
    """
    settings = load_settings(policies=policies)
    past = find_session(settings.home, session)
    header, _ = read_header(transcript_path(settings.home, past))
    if prompt is None and sys.stdin.isatty():
        prompt = click.prompt("message", prompt_suffix=" > ", err=True)
    if prompt is None and not wait:
        raise click.UsageError("Give a PROMPT, or --wait to take messages from `nucleic send`.")
    message = None if prompt is None else an_input(the_text(prompt), contexts, images)

    given["model"] = given["model"] or header.model

    async def opened(host: Host, responder: Responder, say: Say) -> AbstractAsyncContextManager[Session]:
        return open_session(
            header.backend,
            message,
            resume=past,
            fork=fork,
            policies=settings.policies,
            responder=responder,
            approval_deadline=settings.responder_deadline,
            host=host,
            **options_of(given, settings.of(header.backend)),
        )

    return trio.run(partial(converse, settings, Manner(as_json, wait, notify), opened))
