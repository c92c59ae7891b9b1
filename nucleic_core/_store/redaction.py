"""Keeps known secrets out of transcripts: which variables hold one, and how it is replaced before the write.

It finds a secret that stands whole in one text, also inside a text that is JSON itself. It does not find one that is
split over two partial texts, or encoded otherwise (base64, URL).
"""

import json
import re
import typing
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import attrs
import orjson

from nucleic_core._values import JSON, unicode_text
from nucleic_core.events import DECISION_TYPES, ENVELOPE, KINDS

MARK = "[redacted]"
SHORTEST = 8
"""Characters; anything shorter is too likely to be a common word."""

_SECRET_NAME = re.compile(
    r"(?:^|_)(?:\w*(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE)|(?:API|ACCESS)?KEYS|SECRETS|PASS|AUTH|AUTHORIZATION"
    r"|BEARER|COOKIE|CREDENTIALS?)(?:_|$)",
    re.IGNORECASE,
)


def secrets_of(env: Mapping[str, str]) -> tuple[str, ...]:
    """The values of variables whose names say that they are secret.

    A path to something that exists (SSH_AUTH_SOCK, GOOGLE_APPLICATION_CREDENTIALS) is where a secret is, not the secret.
    """
    return tuple(
        value
        for name, value in env.items()
        if len(value) >= SHORTEST and _SECRET_NAME.search(name) and not _is_place(value)
    )


def _is_place(value: str) -> bool:
    try:
        return value.startswith("/") and Path(value).exists()
    except (OSError, ValueError):
        return False


class Redactor:
    """Replaces secrets in encoded lines. Looking costs one byte search a secret; only a line with a find is taken apart."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._known: set[str] = set()
        self.learn(secrets)

    def learn(self, secrets: Iterable[str]) -> None:
        """Replace these as well."""
        self._known.update(unicode_text(secret) for secret in secrets if len(secret) >= SHORTEST)
        # Agents quote JSON inside JSON (a tool's input as text), where a secret stands escaped once more.
        texts = {form for secret in self._known for form in (secret, _escaped(secret), json.dumps(secret)[1:-1])}
        self._texts = sorted(texts, key=len, reverse=True)  # a secret that contains another goes first
        self._forms = tuple(_escaped(text).encode() for text in self._texts)

    def finds(self, encoded: bytes) -> bool:
        """Whether encoded JSON may hold a secret. Never misses one; may be wrong where a secret is a word of ours."""
        return any(form in encoded for form in self._forms)

    def clean(self, line: bytes) -> bytes:
        """One JSON object with every secret in its texts replaced.

        It works on values, not on bytes: a secret that begins with `n` must not eat half of a line break's escape.
        """
        flat = orjson.loads(line)
        ours = {name: flat[name] for name in ("at", "session", "backend") if name in flat}
        return orjson.dumps(self._without(flat) | ours)

    def _without(self, item: JSON) -> JSON:
        match item:
            case str():
                if item not in _own_words():
                    for text in self._texts:
                        item = item.replace(text, MARK)
                return item
            case list():
                return [self._without(x) for x in item]
            case dict():
                return {self._without(key): self._without(x) for key, x in item.items()}
            case _:
                return item


def _escaped(text: str) -> str:
    return orjson.dumps(text).decode()[1:-1]


@cache
def _own_words() -> frozenset[str]:
    """Field names and fixed words of the event format: a password `completed` must not make events unreadable."""
    words = {*ENVELOPE, *KINDS, *DECISION_TYPES.values(), "type"}
    seen: set[type] = set()

    def collect(kind: JSON) -> None:
        origin: JSON = typing.get_origin(kind)
        if origin is typing.Literal:
            words.update(typing.get_args(kind))
        elif isinstance(kind, type) and attrs.has(kind):
            if kind not in seen:
                seen.add(kind)
                for field in attrs.fields(kind):
                    words.add(field.name)
                    collect(field.type)
        else:
            for part in typing.get_args(kind):
                collect(part)

    for cls in KINDS.values():
        collect(cls)
    return frozenset(words)
