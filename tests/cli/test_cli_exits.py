"""What the process ends with: the table of exit codes, and the bad input that people meet."""

import typing

import click
import pytest

from nucleic_core import errors
from nucleic_core._cli import exits
from nucleic_core.errors import NucleicError
from nucleic_core.events import Outcome


def raising(error):
    def call():
        raise error

    return call


ROWS = [
    (errors.AgentFailed("no"), 1),
    (errors.AgentGone("no"), 1),
    (errors.AgentRefused("no"), 1),
    (errors.AgentSilent("no"), 1),
    (errors.ApprovalClosed("no"), 2),
    (errors.BadDirectory("no"), 2),
    (errors.BadSettings("no"), 2),
    (errors.SessionNotFound("no"), 2),
    (errors.Unsupported("no"), 2),
    (exits.Refused("no"), 2),
    (errors.AgentRefused("no"), 1),
    (errors.AgentSilent("no"), 1),
    (errors.BackendMissing("no"), 3),
    (errors.BackendBroken("no"), 3),
    (errors.StartFailed("no"), 3),
    (errors.HandshakeTimeout("no"), 3),
    (NucleicError("no"), 3),
    (errors.SessionBusy("no"), 5),
    (errors.TranscriptFailed("no"), 5),
]


@pytest.mark.parametrize(("error", "code"), ROWS, ids=lambda row: type(row).__name__)
def test_an_error_is_one_sentence_and_its_exit_code(error, code, capsys):
    assert exits.ending(raising(error)) == code
    assert capsys.readouterr() == ("", "nucleic: no\n")


def test_every_error_of_ours_has_its_row():
    ours = {cls for cls in vars(errors).values() if isinstance(cls, type) and issubclass(cls, NucleicError)}
    assert ours <= {type(error) for error, _ in ROWS}


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        ("completed", 0),
        ("errored", 1),
        ("max_turns", 1),
        ("max_budget", 1),
        ("context_full", 1),
        ("refused", 1),
        ("denied", 4),
        ("cancelled", 4),
        ("interrupted", 130),
    ],
)
def test_an_outcome_is_an_exit_code(outcome, code):
    assert exits.BY_OUTCOME[outcome] == code
    assert exits.BY_OUTCOME.keys() == set(typing.get_args(Outcome))


@pytest.mark.parametrize(
    ("error", "code"),
    [(click.UsageError("no"), 2), (click.Abort(), 130), (KeyboardInterrupt(), 130)],
    ids=["usage", "abort", "ctrl-c"],
)
def test_what_click_raises_has_its_exit_code(error, code, capsys):
    assert exits.ending(raising(error)) == code


def test_control_characters_in_an_error_are_shown(capsys):
    exits.ending(raising(errors.StartFailed("it said \x1b[2J")))
    assert capsys.readouterr().err == "nucleic: it said \\u{1b}[2J\n"


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["run", "-b", "nobody", "x"], 3, "No backend is called 'nobody'. Installed: demo."),
        (["run", "-b", "demo", "--cwd", "not/there", "x"], 2, "give the run one that exists"),
        (["run", "-b", "demo", "-m", "large", "x"], 2, "demo does not honour model; leave it out."),
        (["run", "-b", "demo", "  "], 2, "The prompt is empty"),
        (["run", "-b", "demo", "--policy", "lenient", "x"], 2, "No policy is called 'lenient'"),
        (["run", "-b", "demo", "fail as told"], 1, ""),
        (["run", "-b", "demo", "exit 3"], 1, ""),
        (["show", "nope"], 2, "No session begins with nope. `nucleic sessions` lists them."),
        (["resume", "nope", "x"], 2, "No session begins with nope."),
        (["resume", "../x", "x"], 2, "'../x' is no session id."),
        (["send", "nope", "x"], 2, "No session begins with nope."),
        (["approve", "nope"], 2, "No ask nope is open."),
        (["run", "--josn", "x"], 2, "No such option '--josn'"),
        (["lunch"], 2, "No such command 'lunch'"),
    ],
)
def test_bad_input_is_a_sentence(nucleic, arguments, code, says):
    done = nucleic(*arguments)
    assert done.returncode == code
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_a_home_that_cannot_be_is_said(nucleic, tmp_path):
    (tmp_path / "file").write_text("")
    nucleic.env["NUCLEIC_HOME"] = str(tmp_path / "file" / "home")
    for arguments in (["run", "-b", "demo", "x"], ["sessions"]):
        done = nucleic(*arguments)
        assert done.returncode == 5
        assert done.stderr.startswith(f"nucleic: cannot create the directory {tmp_path}/file/home")
        assert done.stderr.endswith("Set NUCLEIC_HOME to a directory that you may write to.\n")


def test_a_damaged_transcript_is_said(nucleic):
    nucleic("run", "-b", "demo", "say hi")
    (path,) = nucleic.home.glob("sessions/*/transcript.jsonl")
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(["junk\n", *lines[1:]]))
    session = path.parent.name
    for arguments in (["show", session], ["resume", session, "x"]):
        done = nucleic(*arguments)
        assert done.returncode == 5
        assert done.stderr == (
            f"nucleic: {path} is damaged: its first line is no header. Move the file away, or restore it from a copy.\n"
        )


def test_a_mistake_in_the_settings_is_said_with_its_line(nucleic):
    nucleic.config.write_text("backend = 'demo'\ncolour = 'red'\n")
    done = nucleic("run", "x")
    assert done.returncode == 2
    assert f"{nucleic.config}, line 2: unknown key `colour`" in done.stderr


def test_a_session_that_is_open_elsewhere_is_busy(nucleic):
    running = nucleic.start("run", "-b", "demo", "--json", "--wait", "run true")
    running.next_ask()
    done = nucleic("resume", running.events[0]["session"], "x")
    assert done.returncode == 5
    assert f"is open in process {running.process.pid}" in done.stderr
