"""Subscribers: each gets every event once and in order, at its own pace, and none costs the writer anything."""

import tracemalloc

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from nucleic_core._store import reader, stream
from nucleic_core._store.header import Header
from nucleic_core._store.transcript import Transcript
from nucleic_core.errors import TranscriptFailed
from nucleic_core.events import AssistantText, RunFinished, TurnStarted

HEADER = Header(nucleic_version="0.1.0", session="s1", backend="demo", cwd="/repo", created_at="2026-01-01T00:00:00Z")


@pytest.fixture
def transcript(tmp_path):
    transcript = Transcript.create(tmp_path, HEADER)
    yield transcript
    transcript.close()


def write(transcript, *words):
    return transcript.append([(AssistantText(word), None, None) for word in words])


def finish(transcript):
    return transcript.append([(RunFinished("completed"), None, None)])


async def read(events):
    return [event async for event in events]


async def test_every_subscriber_gets_every_event_and_ends_after_run_finished(transcript):
    results = {}

    async def subscribe(name, after):
        results[name] = await read(transcript.events(after))

    before = write(transcript, "a", "b")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(subscribe, "all", 0)
        nursery.start_soon(subscribe, "late", 2)
        await trio.testing.wait_all_tasks_blocked()
        rest = write(transcript, "c") + finish(transcript)
    assert results == {"all": before + rest, "late": rest}


async def test_a_subscriber_ends_when_the_transcript_is_closed_but_not_before_it_read_all(transcript):
    events = write(transcript, "a", "b")
    subscriber = transcript.events()
    transcript.close()
    assert await read(subscriber) == events
    assert await read(subscriber) == []


async def test_a_waiting_subscriber_ends_when_the_transcript_is_closed(transcript):
    async with trio.open_nursery() as nursery:
        nursery.start_soon(read, transcript.events())
        await trio.testing.wait_all_tasks_blocked()
        transcript.close()


async def test_a_subscriber_after_the_last_event_waits_for_the_next(transcript):
    write(transcript, "a")
    subscriber = transcript.events(after=1)
    with trio.move_on_after(0.01) as scope:
        await anext(subscriber)
    assert scope.cancelled_caught
    (event,) = write(transcript, "b")
    assert await anext(subscriber) == event


async def test_the_run_finished_of_an_earlier_process_ends_nothing(transcript, tmp_path):
    events = write(transcript, "a") + finish(transcript)
    transcript.close()
    again = Transcript.reopen(tmp_path, "s1")
    events += again.append([(TurnStarted(), None, None)]) + finish(again)
    assert await read(again.events()) == events
    assert await read(again.events(after=2)) == events[2:]
    again.close()


async def test_cancelling_a_wait_loses_no_event(transcript):
    subscriber = transcript.events()
    seen = []
    for n in range(100):
        write(transcript, str(n))
        with trio.CancelScope() as scope:
            scope.cancel()
            seen.append(await anext(subscriber))
    finish(transcript)
    seen += await read(subscriber)
    assert [event.seq for event in seen] == list(range(1, 102))


async def test_a_subscriber_with_everything_at_hand_still_lets_others_run(transcript):
    write(transcript, *map(str, range(1000)))
    turns = 0

    async def other():
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        subscriber = transcript.events()
        for _ in range(1000):
            await anext(subscriber)
        nursery.cancel_scope.cancel()
    assert turns > 20


async def test_breaking_out_of_a_stream_leaves_nothing_behind(transcript):
    events = write(transcript, *map(str, range(5000)))
    async for event in transcript.events():
        if event.seq == 3:
            break
    assert event == events[2]


@pytest.fixture
def small_ring(monkeypatch):
    monkeypatch.setattr(stream, "RING_EVENTS", 5)
    monkeypatch.setattr(stream, "RING_BYTES", 2000)
    monkeypatch.setattr(stream, "BLOCK", 500)
    monkeypatch.setattr(reader, "BLOCK", 500)


@pytest.mark.usefixtures("small_ring")
@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.lists(st.sampled_from([1, 30, 700, 3000]), max_size=8), st.integers(0, 12)), max_size=12))
def test_at_any_pace_a_subscriber_gets_every_event_once_and_in_order(tmp_path_factory, steps):
    async def main():
        transcript = Transcript.create(tmp_path_factory.mktemp("home"), HEADER)
        written, seen = [], []
        subscriber = transcript.events()
        for sizes, wanted in steps:
            written += write(transcript, *("x" * size for size in sizes))
            seen += [await anext(subscriber) for _ in range(min(wanted, len(written) - len(seen)))]
        middle = len(seen)
        written += finish(transcript)
        assert await read(transcript.events(after=middle)) == written[middle:]
        seen += await read(subscriber)
        assert seen == written
        transcript.close()

    trio.run(main)


@pytest.mark.usefixtures("small_ring")
async def test_a_lagging_subscriber_reads_past_a_damaged_line_of_an_earlier_process(transcript, tmp_path):
    write(transcript, *("x" * 100 for _ in range(10)))
    transcript.close()
    lines = transcript.path.read_bytes().split(b"\n")
    lines[4] = b"nonsense"
    transcript.path.write_bytes(b"\n".join(lines))
    again = Transcript.reopen(tmp_path, "s1")
    finish(again)
    assert [event.seq for event in await read(again.events())] == list(range(1, 12))
    again.close()


@pytest.mark.usefixtures("small_ring")
async def test_a_file_that_somebody_else_cut_is_an_error_and_no_endless_loop(transcript):
    write(transcript, *map(str, range(20)))
    with transcript.path.open("r+b") as file:
        file.truncate(len(HEADER.to_line()) + 1)
    with trio.fail_after(10):
        with pytest.raises(TranscriptFailed, match="Something else has changed the file"):
            await anext(transcript.events())


async def test_fifty_thousand_events_behind_a_subscriber_that_sleeps_cost_bounded_memory(transcript):
    subscriber = transcript.events()
    write(transcript, "first")
    first = await anext(subscriber)
    tracemalloc.start()
    try:
        for _ in range(500):
            write(transcript, *("x" * 400 for _ in range(100)))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert transcript.path.stat().st_size > 25_000_000
    assert held < 12_000_000
    finish(transcript)
    last = first.seq
    async for event in subscriber:
        assert event.seq == last + 1
        last = event.seq
    assert last == 50_002


async def test_a_few_huge_events_do_not_stay_in_memory(transcript):
    subscriber = transcript.events()
    tracemalloc.start()
    try:
        for _ in range(40):
            write(transcript, "x" * 1_000_000)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 2 * stream.RING_BYTES
    assert [len((await anext(subscriber)).data.text) for _ in range(40)] == [1_000_000] * 40
