"""Making text of an agent safe to show: what would steer a terminal or reorder the line is shown as its code point."""

import re
import unicodedata

_KEPT = frozenset("\n\t")

# Letters and marks that show as nothing, whatever their category says: joiners, fillers, the empty braille cell.
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0") | frozenset(map(chr, range(0xE0100, 0xE01F0)))

# A word of Latin letters with one from a look-alike script in it (`l\u0455`), in either order.
_MIXED_WORD = re.compile("[a-z][\u0370-\u03ff\u0400-\u052f]|[\u0370-\u03ff\u0400-\u052f][a-z]", re.IGNORECASE)


def hidden(text: str) -> bool:
    """Whether a text holds characters that do not show, or that change how others show."""
    return not (text.isascii() and text.isprintable()) and any(_steers(c) for c in text)


def deceives(text: str) -> bool:
    """Whether a command or a path may be other than it looks: hidden characters, odd blanks, mixed-script words."""
    if text.isascii():
        return hidden(text)
    return (
        hidden(text)
        or bool(_MIXED_WORD.search(text))
        or any(c != " " and unicodedata.category(c) == "Zs" for c in text)
    )


def visible(text: str) -> str:
    """The text with control characters, escapes, bidi and invisible marks spelled out, as in `\\u{202e}`."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(f"\\u{{{ord(c):x}}}" if _steers(c) else c for c in text)


def one_line(text: str, limit: int = 200) -> str:
    """The text in one line of at most `limit` characters; the middle is left out, so that the end stays in view."""
    flat = " ".join(text.split())
    if len(flat) <= limit:
        return flat
    half = (limit - 3) // 2
    return f"{flat[:half]} … {flat[-half:]}"


def _steers(char: str) -> bool:
    if char in _KEPT:
        return False
    if char in _BLANK:
        return True
    # Cc: C0, DEL, C1. Cf: bidi, zero width, tags. Co, Cs, Cn: nothing a terminal shows. Zl, Zp: line breaks to some.
    return unicodedata.category(char) in ("Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp")
