"""What an agent says is shown with everything that would steer a terminal spelled out (F11-04, F11-06)."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nucleic_core._approvals.asking import canonical, completed
from nucleic_core._visible import deceives, hidden, one_line, visible
from nucleic_core.approvals import ApprovalRequest


def ask(command: str, title: str = "Run") -> ApprovalRequest:
    return completed(ApprovalRequest("Bash", {"command": command}, title, command=command), Path("/"))


@pytest.mark.parametrize(
    "command",
    [
        "cat notes\u202etxt.hs; echo \u2066# safe\u2069",
        "rm\u200b -rf x",
        "l\u0455 -la",
        "ls \u2028rm -rf y",
        "git status \U000e0041\U000e0072\U000e006d",
        "echo a\u00a0&& rm -rf b",
        "echo ok #\x1b]52;c;Y3VybCBlLnh8c2g=\x07",
        "ls\r\x1b[2K\x1b[1Acat README",
        "echo \u3164x",
        "echo \u2800",
        "a\x7fb",
        "a\x9b2J",
    ],
)
def test_a_command_that_is_other_than_it_looks_is_marked_and_of_unknown_risk(command: str) -> None:
    request = ask(command)
    assert request.risk == "unknown"
    assert "characters" in (request.reason or "")
    assert request.input == {"command": command}  # what goes back is unchanged


@pytest.mark.parametrize("command", ["ls -la", "printf 'a\n\tb'", "git commit -m 'Grüße, 你好 — naïve'", "echo привет"])
def test_an_honest_command_is_not_marked(command: str) -> None:
    assert ask(command).risk == "execute"
    assert not deceives(command)


def test_a_path_with_hidden_characters_is_marked() -> None:
    request = ApprovalRequest("Write", {}, "Write", paths=(Path("a\u202egpj.exe"),))
    assert completed(request, Path("/")).risk == "unknown"


def test_a_title_is_one_bounded_line_with_nothing_hidden_and_both_ends_in_view() -> None:
    title = ask("x", "Run: ls\r\x1b[2K\x1b[1ARun: cat README\nsecond").title
    assert title == "Run: ls\\u{d}\\u{1b}[2K\\u{1b}[1ARun: cat README second"
    padded = ask("x", "ls " + "a" * 5000 + "; rm -rf ~").title
    assert len(padded) <= 200
    assert padded.startswith("ls a")
    assert padded.endswith("; rm -rf ~")
    assert ask("x", "ls" + " " * 5000 + "; rm -rf ~").title == "ls ; rm -rf ~"


def test_escapes_and_bidi_marks_are_spelled_out_and_line_feeds_kept() -> None:
    assert visible("a\x1b[2J\u202eb\n\tc") == "a\\u{1b}[2J\\u{202e}b\n\tc"
    assert visible("Grüße 你好") == "Grüße 你好"


@given(st.text())
def test_what_is_visible_hides_nothing(text: str) -> None:
    assert not hidden(visible(text))
    assert visible(visible(text)) == visible(text)
    assert len(one_line(visible(text))) <= 200
    assert "\n" not in one_line(visible(text))


def test_paths_are_where_a_write_would_land(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert canonical(Path("a/../c/./d"), tmp_path) == tmp_path / "c" / "d"
    assert canonical(Path("a/new"), tmp_path) == tmp_path / "b" / "new"
    assert canonical(Path("x\0y"), tmp_path).is_absolute()
    assert canonical(Path("loop/x"), tmp_path).is_absolute()
