"""Questions to a person: those of the agent (`item/tool/requestUserInput`) and those of MCP servers (elicitations).

A server asks with a form, whose fields have types, or sends the user to an address (wire truth A14, A16). Nobody's answer is
invented: what was not answered is left out, and where nobody answered at all, a form is cancelled, which does not stop
the turn (A15).
"""

import math
from collections.abc import Mapping

from nucleic_codex.fields import mapping, sequence, string
from nucleic_core.approvals import Question, QuestionItem
from nucleic_core.lowlevel import JSON

CONFIRM = "confirm"
"""The item that stands for a form without fields, and for an address."""

ACCEPT, DECLINE = "Accept", "Decline"
_ACCEPT_OR_DECLINE = ((ACCEPT, ""), (DECLINE, ""))

Params = dict[str, JSON]


def read_input(params: Params) -> Question | None:
    """The agent's own questions; None unless each has an id and a text."""
    items = []
    for question in map(mapping, sequence(params.get("questions"))):
        key, text, header = (string(question.get(name)) for name in ("id", "question", "header"))
        if not key or not text:
            return None
        options = tuple(
            (label, string(mapping(option).get("description")) or "")
            for option in sequence(question.get("options"))
            if (label := string(mapping(option).get("label"))) is not None
        )
        items.append(QuestionItem(key, f"{header}: {text}" if header else text, options))
    return Question(tuple(items), string(params.get("itemId"))) if items else None


def answer_input(params: Params, answers: Mapping[str, str] | None) -> JSON:
    """The result of `item/tool/requestUserInput`; without answers the model is told that there are none."""
    asked = [string(mapping(question).get("id")) for question in sequence(params.get("questions"))]
    return {
        "answers": {key: {"answers": [answers[key]]} for key in asked if answers and key is not None and key in answers}
    }


def read_form(params: Params) -> Question | None:
    """A server's form or address, as questions; None for a mode that is not known."""
    server, message, url = (string(params.get(name)) for name in ("serverName", "message", "url"))
    words = f"{server or 'An MCP server'} asks: {message or ''}".strip()
    if params.get("mode") == "url":
        if not url:
            return None
        return Question((QuestionItem(CONFIRM, f"{words} {url}", _ACCEPT_OR_DECLINE),))
    if params.get("mode") not in ("form", "openai/form", "openaiForm"):
        return None
    items = []
    for name, field in _fields(params).items():
        label = string(field.get("title")) or name
        more = string(field.get("description"))
        text = f"{words} - {label}" + (f" ({more})" if more else "")
        items.append(QuestionItem(name, text, _options(field), field.get("type") == "array"))
    return Question(tuple(items) or (QuestionItem(CONFIRM, words, _ACCEPT_OR_DECLINE),))


def answer_form(params: Params, answers: Mapping[str, str] | None) -> JSON:
    """The result of a server's elicitation."""
    if not answers:
        return {"action": "cancel", "content": None}
    fields = {} if params.get("mode") == "url" else _fields(params)
    if not fields:
        accepted = answers.get(CONFIRM, "").strip().casefold() == ACCEPT.casefold()
        nothing: JSON = None if params.get("mode") == "url" else {}
        return {"action": "accept", "content": nothing} if accepted else {"action": "decline", "content": None}
    content: dict[str, JSON] = {}
    for name, field in fields.items():
        if name in answers and (value := _value(field, answers[name])) is not None:
            content[name] = value
    required = sequence(mapping(params.get("requestedSchema")).get("required"))
    if any(name not in content for name in required):
        return {"action": "cancel", "content": None}
    return {"action": "accept", "content": content}


def _fields(params: Params) -> dict[str, Params]:
    properties = mapping(mapping(params.get("requestedSchema")).get("properties"))
    return {name: field for name, field in properties.items() if isinstance(field, dict)}


def _choices(field: Params) -> list[tuple[str, str]]:
    """The (value, label) pairs that a field allows; none where it takes any text."""
    inner = mapping(field.get("items")) if field.get("type") == "array" else field
    titled = [
        (value, string(mapping(choice).get("title")) or value)
        for choice in (*sequence(inner.get("oneOf")), *sequence(inner.get("anyOf")))
        if (value := string(mapping(choice).get("const"))) is not None
    ]
    names = sequence(inner.get("enumNames"))
    plain = [
        (value, names[number] if number < len(names) and isinstance(names[number], str) else value)
        for number, value in enumerate(sequence(inner.get("enum")))
        if isinstance(value, str)
    ]
    return titled or plain


def _options(field: Params) -> tuple[tuple[str, str], ...]:
    if field.get("type") == "boolean":
        return (("Yes", ""), ("No", ""))
    return tuple((label, "" if value == label else value) for value, label in _choices(field))


def _value(field: Params, text: str) -> JSON:
    """An answer as the type that the field wants; None where it is not one."""
    choices = _choices(field)
    match field.get("type"):
        case "boolean":
            return {"yes": True, "true": True, "no": False, "false": False}.get(text.strip().casefold())
        case "integer" | "number" as kind:
            try:
                number = float(text)
            except ValueError:
                return None
            if number.is_integer():
                return int(number)
            return number if kind == "number" and math.isfinite(number) else None
        case "array":
            parts = [part.strip() for part in text.split(",") if part.strip()]
            values = [_chosen(choices, part) for part in parts]
            return None if None in values else values
        case _:
            return _chosen(choices, text)


def _chosen(choices: list[tuple[str, str]], text: str) -> str | None:
    if not choices:
        return text
    return next((value for value, label in choices if text in (label, value)), None)
