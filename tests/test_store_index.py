"""The list of sessions is a cache: whatever happens to its file, the list is right and no run stops."""

import os
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import attrs
import pytest
import trio

from nucleic_core._store.git import GitPosition, git_position
from nucleic_core._store.header import Header
from nucleic_core._store.index import Index, SessionRow, title_of
from nucleic_core._store.transcript import Transcript
from nucleic_core.approvals import Allow, ApprovalRequest
from nucleic_core.errors import SessionNotFound
from nucleic_core.events import (
    ApprovalRequested,
    ApprovalResolved,
    AssistantText,
    Error,
    RunFinished,
    TurnCompleted,
    UserMessage,
)

START = "2026-01-01T00:00:00.000000Z"


def header(session):
    return Header(nucleic_version="0.1.0", session=session, backend="demo", cwd="/repo", model="m1", created_at=START)


def row(session="s1", **changes):
    fields = {"id": session, "backend": "demo", "cwd": "/repo", "status": "running", "created_at": START}
    return SessionRow(**{**fields, "last_activity": START, **changes})


def transcript(home, session, *payloads):
    made = Transcript.create(home, header(session))
    made.append([(payload, None, None) for payload in payloads])
    return made


@pytest.fixture
def home(tmp_path):
    """A home with one ended session `s1`."""
    made = transcript(tmp_path, "s1", UserMessage("i", "Fix the\n  failing test"), RunFinished("completed"))
    made.close()
    return tmp_path


REBUILT = row(status="finished", model="m1", title="Fix the failing test", events=2)


def listed(home):
    """The rows without the time of the last event, which is now."""
    return [attrs.evolve(row, last_activity=START) for row in Index(home).sessions()]


def test_a_row_written_is_listed_and_found_and_the_last_written_counts(home):
    index = Index(home)
    index.update(row(title="first"))
    latest = row(title="second", status="awaiting_approval", events=9, branch="main", ahead=1, behind=0)
    index.update(latest)
    assert Index(home).sessions() == [latest]
    assert Index(home).get("s1") == latest


def test_the_latest_active_session_is_listed_first(home):
    for n, second in enumerate([5, 9, 7]):
        transcript(home, f"t{n}").close()
        Index(home).update(row(f"t{n}", last_activity=f"2030-01-01T00:00:0{second}.000000Z"))
    assert [row.id for row in Index(home).sessions()] == ["t1", "t2", "t0", "s1"]


def test_the_file_is_0600_and_in_wal_mode(home):
    Index(home).update(row())
    path = home / "index.sqlite3"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    db = sqlite3.connect(path)
    assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    db.close()


def lose(path):
    path.unlink()


def make_junk(path):
    path.write_bytes(b"this is no database " * 100)


def make_empty(path):
    path.write_bytes(b"")


def break_a_page(path):
    data = bytearray(path.read_bytes())
    data[4096:] = os.urandom(len(data) - 4096)
    path.write_bytes(data)


def make_another_version(path):
    db = sqlite3.connect(path)
    with db:
        db.execute("PRAGMA user_version = 99")
    db.close()


def make_another_table(path):
    path.unlink()
    db = sqlite3.connect(path)
    with db:
        db.execute("CREATE TABLE sessions (id, mood)")
        db.execute("PRAGMA user_version = 1")
    db.close()


DAMAGE = [lose, make_junk, make_empty, break_a_page, make_another_version, make_another_table]


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_lost_or_unusable_file_is_made_anew_from_the_transcripts(home, damage):
    Index(home).update(row(title="only in the index"))
    damage(home / "index.sqlite3")
    assert listed(home) == [REBUILT]
    db = sqlite3.connect(home / "index.sqlite3")
    assert db.execute("SELECT id, title FROM sessions").fetchall() == [("s1", "Fix the failing test")]
    db.close()


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_host_goes_on_writing_after_the_file_was_lost_or_damaged(home, damage):
    index = Index(home)
    index.update(row())
    damage(home / "index.sqlite3")
    index.update(row(title="new"))
    assert index.sessions() == [row(title="new")]


def test_a_session_that_no_host_could_index_is_listed_beside_the_others(home):
    Index(home).update(row())
    transcript(home, "s2", UserMessage("i", "Other")).close()
    assert {row.id: row.title for row in Index(home).sessions()} == {"s1": "", "s2": "Other"}


def test_a_session_whose_files_are_gone_is_not_listed(home):
    index = Index(home)
    index.update(row("gone"))
    assert [row.id for row in index.sessions()] == ["s1"]
    assert index.get("gone") is None


def test_only_a_valid_id_is_looked_up(home):
    with pytest.raises(SessionNotFound):
        Index(home).get("../s1")


def test_an_index_that_cannot_be_written_stops_nothing_and_is_logged(home, caplog):
    (home / "locks").write_text("a file where a directory is due")
    index = Index(home)
    index.update(row())
    assert listed(home) == [REBUILT]
    assert "is left out" in caplog.text


def test_an_unreadable_transcript_is_left_out_of_the_list_and_logged(home, caplog):
    (home / "sessions" / "bad").mkdir()
    (home / "sessions" / "bad" / "transcript.jsonl").write_text("junk\n")
    assert [row.id for row in Index(home).sessions()] == ["s1"]
    assert "first line is no header" in caplog.text


def test_an_empty_home_lists_nothing(tmp_path):
    assert Index(tmp_path).sessions() == []


def test_the_writer_of_an_open_session_is_named(home):
    made = transcript(home, "live", AssistantText("x"))
    writers = {row.id: row.writer for row in Index(home).sessions()}
    assert writers == {"live": os.getpid(), "s1": None}
    made.close()
    assert Index(home).get("live").writer is None


REQUEST = ApprovalRequested(ApprovalRequest("Bash", {}, "Run: ls", id="a"))


@pytest.mark.parametrize(
    ("payloads", "status"),
    [
        ([], "idle"),
        ([UserMessage("i", "x"), AssistantText("y")], "running"),
        ([REQUEST], "awaiting_approval"),
        ([REQUEST, ApprovalResolved("a", Allow(), "api")], "running"),
        ([TurnCompleted("completed"), AssistantText("late")], "awaiting_input"),
        ([RunFinished("errored")], "error"),
        ([RunFinished("interrupted")], "finished"),
        ([UserMessage("i", "x"), Error("lost", recoverable=False)], "error"),
        ([UserMessage("i", "x"), Error("again", recoverable=True)], "running"),
        ([UserMessage("i", "x"), AssistantText("z" * 600_000)], "running"),
    ],
)
def test_a_row_made_from_a_transcript_has_the_status_of_its_last_events(tmp_path, payloads, status):
    transcript(tmp_path, "s1", *payloads).close()
    (found,) = Index(tmp_path).sessions()
    assert found.events == len(payloads)
    assert found.status == status


def test_a_title_is_the_first_words_on_one_line():
    assert title_of(" Fix\n\nthe   bug ") == "Fix the bug"
    assert title_of("word " * 100) == "word word word word word word word word word word word word…"
    assert len(title_of("x" * 1000)) == 60


def test_two_processes_write_their_rows_at_once_and_none_is_lost(tmp_path):
    source = """
import sys
from pathlib import Path
from nucleic_core._store.index import Index, SessionRow
home, name = Path(sys.argv[1]), sys.argv[2]
index = Index(home)
sys.stdin.readline()
for n in range(100):
    index.update(SessionRow(id=f"{name}-{n % 10}", backend="b", cwd="/", status="running", created_at="x",
                            last_activity="x", events=n))
"""
    for name in "ab":
        for n in range(10):
            transcript(tmp_path, f"{name}-{n}").close()
    processes = [
        subprocess.Popen([sys.executable, "-c", source, tmp_path, name], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        for name in "ab"
    ]
    said = [process.communicate(b"\n")[1] for process in processes]
    assert said == [b"", b""]
    rows = {row.id: row.events for row in Index(tmp_path).sessions()}
    assert rows == {f"{name}-{n}": 90 + n for name in "ab" for n in range(10)}


# git


def git(cwd, *args):
    env = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    config = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
    done = subprocess.run(["git", *config, *args], cwd=cwd, env=env, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def repo(tmp_path):
    repo = tmp_path / "repo"
    repo.mkdir()
    git(repo, "init", "-q")
    return repo


def commit(repo, name):
    git(repo, "commit", "-q", "--allow-empty", "-m", name)
    return git(repo, "rev-parse", "HEAD")


async def test_the_position_is_branch_and_distance_from_its_upstream(repo):
    assert await git_position(repo) == GitPosition(None, "main")
    commit(repo, "one")
    git(repo, "branch", "base")
    git(repo, "branch", "-q", "--set-upstream-to=base")
    head = commit(repo, "two")
    assert await git_position(repo) == GitPosition(head, "main", 1, 0)
    (repo / "sub").mkdir()
    assert await git_position(repo / "sub") == GitPosition(head, "main", 1, 0)


async def test_a_detached_head_has_no_branch(repo):
    head = commit(repo, "one")
    git(repo, "checkout", "-q", "--detach")
    assert await git_position(repo) == GitPosition(head)


async def test_without_a_repository_or_directory_or_git_there_is_no_position(tmp_path, monkeypatch):
    assert await git_position(tmp_path) is None
    assert await git_position(tmp_path / "missing") is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert await git_position(tmp_path) is None


async def test_inside_a_git_hook_the_position_is_still_that_of_the_directory(repo, tmp_path, monkeypatch):
    head = commit(repo, "one")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "another"))
    assert await git_position(repo) == GitPosition(head, "main")


async def test_what_a_repository_configures_is_not_run(repo):
    (repo / ".gitattributes").write_text("* filter=x\n")
    (repo / "file").write_text("a")
    git(repo, "add", ".")
    head = commit(repo, "one")
    (repo / "file").write_text("b")
    git(repo, "config", "core.fsmonitor", f"touch {repo}/ran")
    git(repo, "config", "filter.x.clean", f"touch {repo}/ran")
    for directory in (repo, repo / ".git" / ".."):
        assert await git_position(directory) == GitPosition(head, "main")
    assert not (repo / "ran").exists()
    git(repo, "status")
    assert (repo / "ran").exists()


async def test_a_git_that_hangs_is_given_up_and_killed(repo, tmp_path, monkeypatch):
    fake = tmp_path / "git"
    fake.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\ntrap '' TERM\nexec sleep 60\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr("nucleic_core._store.git._DEADLINE", 0.3)
    with trio.fail_after(20):
        assert await git_position(repo) is None
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()


def test_a_row_that_sqlite_cannot_hold_is_left_out_and_raises_nothing(home, caplog):
    index = Index(home)
    index.update(row(title="a\udc80"))
    index.update(row(events=2**80))
    assert "UnicodeEncodeError" in caplog.text
    assert "OverflowError" in caplog.text
    assert [found.title for found in index.sessions()] == ["Fix the failing test"]
