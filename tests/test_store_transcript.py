"""One writer, whole batches or none, numbers that go on after a crash, and no secret on disk."""

import json
import os
import signal
import stat
import subprocess
import sys
import textwrap

import attrs
import orjson
import pytest
import trio
import trio.testing

from nucleic_core._store.header import Header
from nucleic_core._store.home import nucleic_home, session_dir, transcript_path
from nucleic_core._store.lock import writer_of
from nucleic_core._store.reader import read_transcript
from nucleic_core._store.redaction import secrets_of
from nucleic_core._store.syncing import Syncer
from nucleic_core._store.transcript import Transcript
from nucleic_core.approvals import ApprovalRequest
from nucleic_core.errors import SessionBusy, SessionNotFound, TranscriptFailed
from nucleic_core.events import (
    ApprovalRequested,
    AssistantText,
    Raw,
    RunFinished,
    ToolCallCompleted,
    ToolCallInputDelta,
    ToolResult,
)

HEADER = Header(nucleic_version="0.1.0", session="s1", backend="demo", cwd="/repo", created_at="2026-01-01T00:00:00Z")


@pytest.fixture
def opened():
    """Transcripts that are closed after the test."""
    found = []
    yield found
    for transcript in found:
        transcript.close()


@pytest.fixture
def create(tmp_path, opened):
    def create(**kwargs):
        opened.append(Transcript.create(tmp_path, HEADER, **kwargs))
        return opened[-1]

    return create


@pytest.fixture
def reopen(tmp_path, opened):
    def reopen(**kwargs):
        opened.append(Transcript.reopen(tmp_path, "s1", **kwargs))
        return opened[-1]

    return reopen


def texts(*words):
    return [(AssistantText(word), None, None) for word in words]


def child(tmp_path, body):
    """A Python process that has a transcript open and runs `body`."""
    source = f"""
import os, resource, sys
from pathlib import Path
from nucleic_core._store.header import Header
from nucleic_core._store.transcript import Transcript
from nucleic_core.errors import TranscriptFailed
from nucleic_core.events import AssistantText
home = Path({str(tmp_path)!r})
def texts(*words): return [(AssistantText(word), None, None) for word in words]
header = Header(nucleic_version="0", session="s1", backend="demo", cwd="/", created_at="2026-01-01T00:00:00Z")
transcript = Transcript.create(home, header)
{textwrap.dedent(body)}
"""
    return subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)


def test_events_are_numbered_from_one_and_a_batch_bears_one_time(create):
    transcript = create()
    first = transcript.append(texts("a", "b"))
    second = transcript.append([(Raw({"x": 1}), "odd", "call-1")])
    assert [event.seq for event in first + second] == [1, 2, 3]
    assert first[0].at == first[1].at
    assert first[0].at.endswith("Z")
    assert len(first[0].at) == len("2026-01-01T00:00:00.000000Z")
    assert (second[0].native, second[0].parent, second[0].session, second[0].backend) == ("odd", "call-1", "s1", "demo")
    assert list(read_transcript(transcript.path)[1]) == first + second


def test_an_empty_batch_writes_nothing(create):
    transcript = create()
    size = transcript.path.stat().st_size
    assert transcript.append([]) == []
    assert transcript.path.stat().st_size == size


def test_files_are_0600_and_directories_0700(tmp_path, create):
    transcript = create()
    for path in (transcript.directory, transcript.directory.parent):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    for path in transcript.directory.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_session_is_created_once(create, tmp_path):
    create().close()
    with pytest.raises(TranscriptFailed, match="session s1 exists already"):
        Transcript.create(tmp_path, HEADER)


@pytest.mark.parametrize("session", ["", "..", "../s1", "a/b", "/etc", ".hidden", "x\0", "a\n", "x" * 200])
def test_what_can_be_no_session_id_never_becomes_a_path(tmp_path, session):
    with pytest.raises(SessionNotFound, match="is no session id"):
        Transcript.create(tmp_path, attrs.evolve(HEADER, session=session))
    with pytest.raises(SessionNotFound, match="is no session id"):
        session_dir(tmp_path, session)
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_session_cannot_be_reopened(tmp_path):
    with pytest.raises(SessionNotFound, match="no session s1"):
        Transcript.reopen(tmp_path, "s1")


@pytest.mark.parametrize("error", [OSError(28, "No space"), TypeError("no JSON"), KeyboardInterrupt()])
def test_a_transcript_that_gets_no_header_leaves_no_file(create, tmp_path, monkeypatch, error):
    def fails(fd, data):
        raise error

    monkeypatch.setattr("nucleic_core._store.transcript._write_all", fails)
    with pytest.raises(TranscriptFailed if isinstance(error, OSError) else type(error)):
        create()
    assert not transcript_path(tmp_path, "s1").exists()
    monkeypatch.undo()
    create()


def test_a_header_holds_unicode_alone(tmp_path, opened):
    opened.append(Transcript.create(tmp_path, attrs.evolve(HEADER, model="m\udc80")))
    assert read_transcript(opened[0].path)[0].model == opened[0].header.model == "m\ufffd"


def test_a_reopened_transcript_goes_on_after_its_last_event(create, reopen):
    first = create()
    events = first.append(texts("a", "b"))
    first.close()
    second = reopen()
    assert second.header == HEADER
    assert second.torn is None
    events += second.append(texts("c"))
    assert events[-1].seq == 3
    assert list(read_transcript(second.path)[1]) == events


def test_a_reopened_transcript_without_events_begins_at_one(create, reopen):
    create().close()
    assert reopen().append(texts("a"))[0].seq == 1


def test_a_torn_last_line_cut_inside_a_character_is_cut_kept_and_told(create, reopen):
    """Case F10-01: two records fused into one unreadable line."""
    first = create()
    events = first.append(texts("a"))
    first.close()
    fragment = '{"seq":2,"kind":"assistant_text","text":"h\u00e9'.encode()[:-1]
    with first.path.open("ab") as file:
        file.write(fragment)
    second = reopen()
    assert second.torn.size == len(fragment)
    assert second.torn.copy.read_bytes() == fragment
    assert second.torn.copy.name == "transcript.torn-1"
    events += second.append(texts("b"))
    assert [event.seq for event in events] == [1, 2]
    second.path.read_bytes().decode("utf-8")
    assert list(read_transcript(second.path)[1]) == events


def test_each_torn_line_is_kept_under_its_own_name(create, reopen, tmp_path):
    create().close()
    for n in (1, 2):
        with transcript_path(tmp_path, "s1").open("ab") as file:
            file.write(b"x" * 200_000)
        transcript = reopen()
        assert transcript.torn.copy.name == f"transcript.torn-{n}"
        assert transcript.torn.size == 200_000
        transcript.close()


def test_whole_but_damaged_lines_at_the_end_keep_their_numbers(create, reopen):
    first = create()
    first.append(texts("a"))
    first.close()
    with first.path.open("ab") as file:
        file.write(b"\0\0\0\nnonsense\n")
    second = reopen()
    assert second.append(texts("b"))[0].seq == 4
    assert [event.seq for event in read_transcript(second.path)[1]] == [1, 2, 3, 4]


def test_a_damaged_header_is_refused_and_nothing_is_cut(create, reopen):
    transcript = create()
    transcript.close()
    transcript.path.write_bytes(b"half a hea")
    with pytest.raises(TranscriptFailed, match="first line is no header"):
        reopen()
    assert transcript.path.read_bytes() == b"half a hea"


def test_a_closed_transcript_takes_no_more_events_and_closing_again_is_harmless(create):
    transcript = create()
    transcript.close()
    transcript.close()
    with pytest.raises(TranscriptFailed, match="is closed"):
        transcript.append(texts("a"))


# One writer


def test_a_second_writer_is_refused_and_told_the_pid_of_the_first(create, tmp_path):
    transcript = create()
    assert writer_of(transcript.directory) == os.getpid()
    with pytest.raises(SessionBusy, match=f"session s1 is open in process {os.getpid()}"):
        Transcript.reopen(tmp_path, "s1")
    transcript.close()
    assert writer_of(transcript.directory) is None
    Transcript.reopen(tmp_path, "s1").close()


def test_another_process_holds_the_lock_until_it_is_killed(tmp_path, reopen):
    process = child(tmp_path, "print('open', flush=True); sys.stdin.read()")
    with process:
        assert process.stdout.readline() == "open\n"
        with pytest.raises(SessionBusy, match=f"process {process.pid}"):
            reopen()
        process.kill()
        process.wait()
        reopen()


def test_a_fork_without_exec_does_not_keep_the_lock(tmp_path, reopen):
    process = child(
        tmp_path,
        """
        pid = os.fork()
        if pid == 0:
            sys.stdin.read()
            os._exit(0)
        print(pid, flush=True)
        os._exit(0)
        """,
    )
    with process:
        assert process.stdout.readline().strip().isdigit()
        process.wait(timeout=10)
        reopen()


def test_after_kill_9_in_the_midst_of_appends_every_whole_line_is_kept_and_the_numbers_go_on(tmp_path, reopen):
    process = child(
        tmp_path,
        """
        print('begun', flush=True)
        while True:
            transcript.append(texts('x' * 5000, 'y'))
        """,
    )
    with process:
        assert process.stdout.readline() == "begun\n"
        path = transcript_path(tmp_path, "s1")
        while path.stat().st_size < 300_000:
            pass
        process.send_signal(signal.SIGKILL)
    transcript = reopen()
    kept = transcript.next_seq - 1
    transcript.append(texts("after"))
    events = list(read_transcript(path)[1])
    assert [event.seq for event in events] == list(range(1, kept + 2))
    assert kept > 50
    assert all(isinstance(event.data, AssistantText) for event in events)


# A disk that takes no more


def test_a_full_disk_takes_nothing_of_the_batch_and_every_later_append_fails(tmp_path, reopen):
    """RLIMIT_FSIZE does what a full disk does: it takes a part of the write first, then refuses."""
    process = child(
        tmp_path,
        """
        transcript.append(texts('kept'))
        size = transcript.path.stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 1000, resource.RLIM_INFINITY))
        for words in [('a', 'b' * 5000), ('small',)]:
            try:
                transcript.append(texts(*words))
            except TranscriptFailed as exc:
                print(type(exc.__cause__).__name__, exc)
            assert transcript.path.stat().st_size == size
            assert transcript.next_seq == 2
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        transcript.close()
        """,
    )
    said = process.communicate()[0].splitlines()
    assert process.returncode == 0
    assert said[0].startswith("OSError cannot write the transcript")
    assert "File too large" in said[0]
    assert "Events up to 1 were written" in said[0]
    assert said[1].startswith("NoneType cannot write the transcript")
    transcript = reopen()
    assert transcript.torn is None
    assert transcript.append(texts("more"))[0].seq == 2


def test_a_home_that_is_a_file_is_a_sentence_that_says_what_to_set(tmp_path, monkeypatch):
    (tmp_path / "home").write_text("")
    monkeypatch.setenv("NUCLEIC_HOME", str(tmp_path / "home"))
    with pytest.raises(TranscriptFailed, match=r"cannot create the directory .*Set NUCLEIC_HOME"):
        nucleic_home()


def test_a_home_that_may_not_be_written_is_a_sentence_that_says_what_to_set(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)  # as root no mode stops us
    with pytest.raises(TranscriptFailed, match=r"cannot write to .*Set NUCLEIC_HOME"):
        nucleic_home(tmp_path)


def test_the_home_is_made_private_and_an_empty_variable_means_none(tmp_path, monkeypatch):
    monkeypatch.setenv("NUCLEIC_HOME", str(tmp_path / "a" / "b"))
    assert nucleic_home() == tmp_path / "a" / "b"
    assert stat.S_IMODE((tmp_path / "a" / "b").stat().st_mode) == 0o700
    monkeypatch.setenv("NUCLEIC_HOME", "")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert nucleic_home().is_relative_to(tmp_path)


# What has no JSON form


def test_a_lone_surrogate_leaves_the_file_strict_utf_8(create):
    """Case F1-10."""
    transcript = create()
    transcript.append([(ToolResult("t", "latin \udcb2 half \ud83d end"), "user", None)])
    assert "latin \ufffd half \ufffd end" in transcript.path.read_bytes().decode("utf-8")


def deep(levels):
    value = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value", [object(), {1, "a"}, deep(300), deep(5000), {object(): 1}], ids=["object", "set", "300", "5000", "key"]
)
def test_a_payload_without_a_json_form_is_kept_as_text_and_takes_no_other_event_along(create, value):
    transcript = create()
    events = transcript.append([*texts("a"), (Raw(value), "odd", None), *texts("b")])
    assert [event.seq for event in events] == [1, 2, 3]
    again = list(read_transcript(transcript.path)[1])
    assert again[1].native == "odd"
    assert isinstance(again[1].data, Raw)
    assert [again[0], again[2]] == [events[0], events[2]]


# Secrets

SECRET = "sk-live-0123456789"


def test_a_known_secret_never_reaches_the_file_and_subscribers_get_what_the_file_says(create):
    transcript = create(secrets=[SECRET])
    events = transcript.append(
        [
            *texts("plain"),
            (
                ToolCallCompleted("t", "Bash", {"command": f"curl -H 'Authorization: {SECRET}'", SECRET: [SECRET]}),
                SECRET,
                None,
            ),
            (ApprovalRequested(ApprovalRequest("Bash", {}, f"Run: echo {SECRET}")), None, SECRET),
        ]
    )
    assert SECRET not in transcript.path.read_text()
    assert SECRET not in str(events)
    assert events[1].data.input == {"command": "curl -H 'Authorization: [redacted]'", "[redacted]": ["[redacted]"]}
    assert isinstance(events[2].data, ApprovalRequested)
    assert (events[1].native, events[2].parent) == ("[redacted]", "[redacted]")
    assert list(read_transcript(transcript.path)[1]) == events


def test_a_secret_with_escapes_is_found_also_in_json_inside_a_text(create):
    secret = 'two\nlines "and" \\ \u00e9'
    transcript = create(secrets=[secret])
    inner = orjson.dumps({"key": secret}).decode()
    events = transcript.append(
        [*texts(secret, json.dumps({"key": secret})), (ToolCallInputDelta("t", inner), None, None)]
    )
    assert [getattr(e.data, "text", None) or e.data.partial_json for e in events] == [
        "[redacted]",
        '{"key": "[redacted]"}',
        '{"key":"[redacted]"}',
    ]
    assert list(read_transcript(transcript.path)[1]) == events


def test_redaction_does_not_cut_an_escape_in_two(create):
    transcript = create(secrets=["nine-letters"])
    (event,) = transcript.append(texts("line\nine-letters"))
    assert event.data == AssistantText("line\nine-letters")


def test_the_longer_of_two_secrets_is_replaced_whole(create):
    transcript = create(secrets=["12345678", "12345678-and-more"])
    (event,) = transcript.append(texts("<12345678-and-more>"))
    assert event.data == AssistantText("<[redacted]>")


def test_a_short_secret_is_left(create):
    (event,) = create(secrets=["seven77", ""]).append(texts("seven77"))
    assert event.data == AssistantText("seven77")


def test_a_secret_that_is_a_word_of_the_format_does_not_make_events_unreadable(create):
    words = ["completed", "run_finished", "assistant_text", "tool_call", "s1-demo-session"]
    transcript = create(secrets=words)
    events = transcript.append([(RunFinished("completed", final_text="it is completed"), None, None)])
    assert events[0].data == RunFinished("completed", final_text="it is [redacted]")


def test_secrets_are_the_values_of_variables_that_are_named_like_one(tmp_path):
    place = tmp_path / "key.json"
    place.write_text("")
    env = {
        "OPENAI_API_KEY": "value-of-a",
        "GITHUB_TOKEN": "value-of-b",
        "PGPASSWORD": "value-of-c",
        "MY_SECRET_2": "value-of-d",
        "anthropic_auth_token": "value-of-e",
        "AWS_CREDENTIALS": "value-of-f",
        "SHORT_KEY": "1234567",
        "GOOGLE_APPLICATION_CREDENTIALS": str(place),
        "GIT_AUTHOR_NAME": "Some Body",
        "KEYBOARD_LAYOUT": "us-intl-x",
        "MAX_OUTPUT_TOKENS": "320000000",
        "PWD": "/home/somebody",
        "PATH": "/usr/bin:/bin",
    }
    assert secrets_of(env) == tuple(f"value-of-{letter}" for letter in "abcdef")


# Durability


async def wait_clean(transcript):
    while transcript.dirty:
        await trio.sleep(0.01)


async def test_what_was_written_is_synced_a_moment_later_and_again_after_more(create, monkeypatch):
    transcript = create()
    synced = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.fstat(fd).st_size))
    syncer = Syncer()
    syncer.add(transcript)
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(syncer.run)
            for word in ("a", "b"):
                transcript.append(texts(word))
                size = transcript.path.stat().st_size
                await wait_clean(transcript)
                while not synced or synced[-1] != size:
                    await trio.sleep(0.01)
            nursery.cancel_scope.cancel()


async def test_the_last_sync_is_at_the_close_even_with_the_task_gone(create, monkeypatch):
    transcript = create()
    synced = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.fstat(fd).st_size))
    syncer = Syncer()
    syncer.add(transcript)
    transcript.append(texts("a"))
    await syncer.close(transcript)
    assert transcript.closed
    assert synced == [transcript.path.stat().st_size]


async def test_a_transcript_closed_during_its_sync_never_syncs_another_file(create, tmp_path, monkeypatch):
    """A thread that got our own descriptor would sync whatever file has its number by then."""
    transcript = create()
    inode = transcript.path.stat().st_ino
    synced = []

    def slow(fd):
        trio.from_thread.run_sync(transcript.close)
        others = [open(tmp_path / f"other-{n}", "w") for n in range(3)]  # noqa: SIM115
        synced.append(os.fstat(fd).st_ino)
        for other in others:
            other.close()

    monkeypatch.setattr(os, "fsync", slow)
    syncer = Syncer()
    await syncer.close(transcript)
    assert synced == [inode]


async def test_a_sync_that_fails_makes_the_transcript_fail_closed(create, monkeypatch):
    transcript = create()

    def fail(fd):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    syncer = Syncer()
    syncer.add(transcript)
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(syncer.run)
            while True:
                await trio.sleep(0.01)
                try:
                    transcript.append(texts("a"))
                except TranscriptFailed as exc:
                    assert "Input/output error" in str(exc)
                    break
            nursery.cancel_scope.cancel()


def test_what_a_run_needs_imports_neither_cattrs_nor_sqlite():
    source = (
        "import sys, nucleic_core._store.syncing, nucleic_core.settings; print({'cattrs', 'sqlite3'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
