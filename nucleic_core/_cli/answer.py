"""`nucleic answer`: answer a question of an agent, from another terminal or a program."""

from collections.abc import Sequence

import click

from nucleic_core._cli.client import answer as give
from nucleic_core._cli.client import open_ask
from nucleic_core._cli.console.asking import chosen
from nucleic_core._values import JSON, unicode_text
from nucleic_core.settings import load_settings


@click.command("answer")
@click.argument("ask")
@click.argument("answers", nargs=-1, metavar="[ANSWER | ID=ANSWER]...")
def command(ask: str, answers: tuple[str, ...]) -> None:
    """Answer the question ASK.

    One question takes an ANSWER; several take ID=ANSWER each, with the ids that `question_asked` names. A number stands
    for that option. Without any, the agent is told that nobody answered.
    """
    home = load_settings().home
    question = open_ask(home, ask)
    items = question.get("questions") if isinstance(question, dict) else None
    if question is not None and items is None:
        raise click.UsageError(f"{ask} is no question; use `nucleic approve` or `nucleic deny`.")
    given = _by_id(items or [], [unicode_text(text) for text in answers]) if answers else None
    give(home, ask, {"type": "answers", "answers": given})


def _by_id(items: Sequence[JSON], answers: Sequence[str]) -> dict[str, str]:
    """The answers by question id. Where the question has gone meanwhile, what they say does not matter any more."""
    by_id = {item["id"]: item for item in items}
    given: dict[str, str] = {}
    for text in answers:
        name, equals, rest = text.partition("=")
        if equals and name in by_id:
            item, typed = by_id[name], rest
        elif len(items) == 1 and len(answers) == 1:
            item, typed = items[0], text
        elif items:
            raise click.UsageError(f"{text!r} does not say which question it answers; these are {', '.join(by_id)}.")
        else:
            continue
        answer = chosen(typed, [tuple(option) for option in item["options"]], multi=item["multi"])
        if answer is None:
            raise click.UsageError(f"There is no option {typed}; they go from 1 to {len(item['options'])}.")
        given[item["id"]] = answer
    return given
