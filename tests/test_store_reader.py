"""Events written and read back, and files that are not as they should be."""

import types
import typing
from collections.abc import Mapping
from pathlib import Path

import attrs
import orjson
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from nucleic_core._store.header import SCHEMA_VERSION, Header
from nucleic_core._store.reader import DAMAGED, Follower, read_event, read_transcript
from nucleic_core._store.transcript import Transcript
from nucleic_core.errors import SessionNotFound, TranscriptFailed
from nucleic_core.events import KINDS, AgentEvent, AssistantText, Notice, Raw, RunFinished, TurnStarted

HEADER = Header(nucleic_version="0.1.0", session="s1", backend="demo", cwd="/repo", created_at="2026-01-01T00:00:00Z")

TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
NUMBERS = st.integers(-(2**63), 2**64 - 1)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | FLOATS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)


def values_of(kind: object) -> st.SearchStrategy:
    """Values of a field type, as our own code would fill it."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return st.sampled_from(args)
    if origin in (typing.Union, types.UnionType):
        return st.one_of([values_of(arg) for arg in args])
    if origin is tuple and args[-1] is Ellipsis:
        return st.lists(values_of(args[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*map(values_of, args))
    if origin is Mapping:
        return st.dictionaries(TEXT, values_of(args[1]), max_size=3)
    if isinstance(kind, type) and attrs.has(kind):
        return st.builds(kind, **{field.name: values_of(field.type) for field in attrs.fields(kind)})
    simple = {str: TEXT, int: NUMBERS, float: FLOATS, bool: st.booleans(), types.NoneType: st.none()}
    if kind is typing.Any:
        return JSON_VALUES
    if kind is Path:
        return TEXT.filter(lambda text: "\0" not in text).map(Path)
    return simple[kind]  # type: ignore[index]  # a type, or this test is to learn of it


NAMES = TEXT | st.none()


def events_of(cls):
    return st.builds(AgentEvent, st.integers(0, 2**60), NAMES, TEXT, TEXT, NAMES, NAMES, values_of(cls))


@pytest.mark.parametrize("cls", KINDS.values(), ids=list(KINDS))
@settings(max_examples=30)
@given(st.data())
def test_every_payload_class_survives_the_round_trip(cls, data):
    event = data.draw(events_of(cls))
    again = read_event(orjson.loads(event.to_line()))
    assert again == event
    assert type(again.data) is cls


@given(JSON_VALUES)
def test_no_json_value_makes_reading_raise(value):
    assert read_event(value).data == Raw(value)


@given(st.sampled_from([*KINDS.values()]), st.data())
def test_an_event_with_one_field_of_any_value_is_read_or_becomes_raw(cls, data):
    flat = data.draw(events_of(cls)).to_json()
    flat[data.draw(st.sampled_from(sorted(flat)))] = data.draw(JSON_VALUES)
    again = read_event(flat)
    assert isinstance(again.data, Raw) or again.to_json() == flat


def an_event(**changes):
    flat = {"seq": 3, "at": None, "session": "s", "backend": "b", "native": None, "parent": None}
    return {**flat, "kind": "assistant_text", "text": "hello", **changes}


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "telepathy"},
        {"text": 5},
        {"text": None},
        {"partial": "true"},
        {"partial": 1},
        {"message_id": 7},
        {"seq": True},
        {"kind": "turn_started", "origin": "weather"},
        {"kind": "session_started", "tools": "Bash"},
        {"kind": "session_started", "tools": {"Bash": 1}},
        {"kind": "approval_resolved", "id": "a", "decision": {"type": "answers"}, "decided_by": "x"},
        {"kind": "approval_resolved", "id": "a", "decision": "allow", "decided_by": "x"},
        {"kind": "approval_requested", "request": []},
        {"kind": "usage", "scope": "turn", "input_tokens": 1.5},
    ],
)
def test_an_unknown_kind_or_an_odd_field_gives_raw_with_the_whole_object(changes):
    obj = an_event(**changes)
    event = read_event(obj)
    assert event.data == Raw(obj)
    assert event.session == "s"


def test_extra_fields_are_ignored_and_absent_optional_ones_take_their_default():
    assert read_event(an_event(mood="good")).data == AssistantText("hello")


def test_an_absent_required_field_gives_raw():
    obj = an_event()
    del obj["text"]
    assert read_event(obj).data == Raw(obj)


@pytest.fixture
def transcript(tmp_path):
    transcript = Transcript.create(tmp_path, HEADER)
    yield transcript
    transcript.close()


def write(transcript, *texts):
    return transcript.append([(AssistantText(text), None, None) for text in texts])


def test_a_transcript_read_back_is_its_header_and_its_events(transcript):
    events = write(transcript, "one", "two") + write(transcript, "three")
    header, again = read_transcript(transcript.path)
    assert header == HEADER
    assert list(again) == events


def test_a_damaged_line_in_the_middle_becomes_raw_in_its_place_and_the_rest_is_read(transcript, caplog):
    events = write(transcript, "one", "two", "three")
    lines = transcript.path.read_bytes().split(b"\n")
    lines[2] = b'{"seq":2,"kind":"\xff\xfe'
    transcript.path.write_bytes(b"\n".join(lines))
    again = list(read_transcript(transcript.path)[1])
    assert [event.seq for event in again] == [1, 2, 3]
    assert (again[0], again[2]) == (events[0], events[2])
    assert again[1].native == DAMAGED
    assert again[1].data == Raw('{"seq":2,"kind":"\ufffd\ufffd')
    assert "event 2 is damaged" in caplog.text


def test_a_reader_leaves_a_line_that_is_still_being_written(transcript):
    events = write(transcript, "one")
    with transcript.path.open("ab") as file:
        file.write(events[0].to_line()[:20])
    assert list(read_transcript(transcript.path)[1]) == events


def test_lines_longer_than_a_block_are_read(transcript):
    events = write(transcript, "x" * 700_000, "short", "y" * 300_000)
    assert list(read_transcript(transcript.path)[1]) == events


@given(st.binary(max_size=200))
def test_junk_after_the_header_never_raises(tmp_path_factory, junk):
    path = tmp_path_factory.mktemp("junk") / "transcript.jsonl"
    path.write_bytes(HEADER.to_line() + b"\n" + junk + b"\n")
    assert len(list(read_transcript(path)[1])) == junk.count(b"\n") + 1


@pytest.mark.parametrize("first", [b"", b"junk\n", b"[]\n", b"{}\n", b'{"schema_version": 1}\n', HEADER.to_line()])
def test_a_file_without_a_header_is_refused_with_a_sentence(tmp_path, first):
    path = tmp_path / "transcript.jsonl"
    path.write_bytes(first)
    with pytest.raises(TranscriptFailed, match="its first line is no header"):
        read_transcript(path)


def test_a_newer_format_is_refused_and_the_sentence_says_to_update(tmp_path):
    path = tmp_path / "transcript.jsonl"
    newer = attrs.evolve(HEADER, schema_version=SCHEMA_VERSION + 1, nucleic_version="9.9")
    path.write_bytes(newer.to_line() + b"\n")
    with pytest.raises(TranscriptFailed, match=r"written by Nucleic 9\.9 .* Update nucleic-core"):
        read_transcript(path)


def test_an_older_format_is_read(tmp_path):
    path = tmp_path / "transcript.jsonl"
    path.write_bytes(attrs.evolve(HEADER, schema_version=0).to_line() + b"\n")
    assert read_transcript(path)[0].schema_version == 0


def test_a_missing_file_is_a_session_not_found(tmp_path):
    with pytest.raises(SessionNotFound):
        read_transcript(tmp_path / "transcript.jsonl")


async def test_a_follower_gets_what_is_appended_while_it_waits_and_ends_after_run_finished(transcript):
    seen = []

    async def follow():
        seen.extend([event async for event in Follower(transcript.path)])

    events = write(transcript, "one")
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow)
            await trio.sleep(0.05)
            events += write(transcript, "two")
            events += transcript.append([(RunFinished("completed"), None, None)])
    assert seen == events


async def test_a_follower_passes_the_run_finished_of_an_earlier_run(transcript):
    events = transcript.append([(RunFinished("completed"), None, None), (TurnStarted(), None, None)])
    transcript.append([(RunFinished("completed"), None, None)])
    with trio.fail_after(10):
        seen = [event async for event in Follower(transcript.path)]
    assert len(seen) == 3
    assert seen[:2] == events


async def test_a_follower_ends_when_the_writer_is_gone_without_run_finished(transcript):
    events = write(transcript, "one", "two")
    transcript.close()
    with trio.fail_after(10):
        assert [event async for event in Follower(transcript.path)] == events


async def test_a_follower_waits_on_a_half_line_and_reads_it_once_it_is_whole(transcript):
    write(transcript, "one")
    line = AgentEvent(2, None, "s1", "demo", None, None, Notice("t", "é")).to_line() + b"\n"
    cut = line.index("é".encode()) + 1
    follower = Follower(transcript.path, after=1)
    with transcript.path.open("ab", buffering=0) as file:
        file.write(line[:cut])
        with trio.move_on_after(0.15) as scope:
            await anext(follower)
        assert scope.cancelled_caught
        file.write(line[cut:])
        with trio.fail_after(10):
            assert (await anext(follower)).data == Notice("t", "é")


async def test_a_follower_survives_an_append_that_was_taken_back(transcript):
    write(transcript, "one")
    end = transcript.path.stat().st_size
    with transcript.path.open("ab", buffering=0) as file:
        file.write(AgentEvent(2, None, "s1", "demo", None, None, Notice("t", "x")).to_line() + b"\n")
        follower = Follower(transcript.path)
        with trio.fail_after(10):
            assert [(await anext(follower)).seq for _ in range(2)] == [1, 2]
            file.truncate(end)
            with trio.move_on_after(0.15):
                await anext(follower)
            file.write(AgentEvent(3, None, "s1", "demo", None, None, Notice("t", "y")).to_line() + b"\n")
            assert (await anext(follower)).seq == 3
