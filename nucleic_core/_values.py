"""What every value module shares: the JSON edge, text that can be encoded, the decorator of event payloads.

Value modules import nothing but attrs and this file; they do no I/O.
"""

import re
from typing import Any, TypeAlias, TypeVar, dataclass_transform

import attrs

JSON: TypeAlias = Any
"""Plain Python made of None, bool, int, float, str, list and dict. The one place for Any; treat as read-only."""

_T = TypeVar("_T")
_SURROGATES = re.compile("[\ud800-\udfff]")


def unicode_text(text: str) -> str:
    """The text with U+FFFD for each lone surrogate, which is what Python makes of a byte that is no UTF-8 (PEP 383)."""
    return _SURROGATES.sub("\ufffd", text)


@dataclass_transform(frozen_default=True)
def value(cls: type[_T]) -> type[_T]:
    """Frozen to the type checker; at run time only slotted, because `frozen` costs 0.9 us an event."""
    return attrs.define(cls)
