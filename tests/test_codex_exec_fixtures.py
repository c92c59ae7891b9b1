"""What the real `codex exec` said, decoded again: each recording gives the same events.

`tests/live/record_codex_exec.py` makes the recordings; with `--decode` it writes the events anew when the decoder is meant
to change.
"""

from pathlib import Path

import orjson
import pytest

from nucleic_core._plugins import Plugins
from nucleic_core._session.replay import read_records, replay

FOLDER = Path(__file__).parents[1] / "fixtures" / "codex-exec"
RECORDINGS = sorted(FOLDER.glob("*/*.jsonl"))
LEFT_OPEN = ("14-interrupt", "16-background")
"""Scenarios whose command has no end."""


def name(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


def read(path: Path):
    return orjson.loads(path.read_bytes())


def events_of(recording: Path):
    return read(recording.with_suffix(".events.json"))


def test_there_are_recordings_of_every_version_that_is_driven():
    assert {path.parent.name for path in RECORDINGS} == {"0.141.0", "0.146.0", "0.171.0"}


@pytest.mark.parametrize("recording", RECORDINGS, ids=name)
def test_a_recording_gives_its_whole_list_of_events(recording):
    records = read_records([recording.read_bytes()])
    events = replay(Plugins().backend("codex-exec"), "codex-exec", records, cwd=Path("/work/demo"))
    assert [event.to_json() for event in events] == events_of(recording)


@pytest.mark.parametrize("recording", RECORDINGS, ids=name)
def test_a_recording_pairs_every_call_with_a_result_and_leaves_nothing_raw(recording):
    events = events_of(recording)
    calls = [event["tool_call"] for event in events if event["kind"] == "tool_call_completed"]
    results = [event for event in events if event["kind"] == "tool_result"]
    assert sorted(calls) == sorted(result["tool_call"] for result in results if result["correlated"])
    assert any(result["synthetic"] for result in results) == (recording.stem in LEFT_OPEN)
    assert [event for event in events if event["kind"] == "raw"] == []
    assert [event["kind"] for event in events if event["kind"] in ("session_started", "turn_started")] == [
        "session_started",
        "turn_started",
    ]


@pytest.mark.parametrize("recording", RECORDINGS, ids=name)
def test_bare_stdout_alone_gives_a_turn_with_an_end(recording):
    """What `nucleic decode codex-exec` makes of the lines that somebody kept of `codex exec --json`."""
    lines = [
        record["msg"]
        for record in map(orjson.loads, recording.read_bytes().splitlines())
        if record["channel"] == "stdout"
    ]
    records = read_records([b"\n".join(map(orjson.dumps, lines))])
    events = list(replay(Plugins().backend("codex-exec"), "codex-exec", records, cwd=Path("/work/demo")))
    assert [event.kind for event in events].count("turn_completed") == 1
    assert "raw" not in {event.kind for event in events}


REFUSED = {"05-refused": 3, "06-read-only": 1, "08-ephemeral": 1, "18-code-mode": 1}


@pytest.mark.parametrize("recording", RECORDINGS, ids=name)
def test_every_refusal_is_told_once_and_no_other_is_made_up(recording):
    denied = [event for event in events_of(recording) if event.get("code") == "denied_by_policy"]
    assert len(denied) == REFUSED.get(recording.stem, 0)
    assert all(event["recoverable"] for event in denied)


@pytest.mark.parametrize("recording", RECORDINGS, ids=name)
def test_a_turn_has_its_own_tokens_and_not_its_threads(recording):
    """The scripted model takes 100 tokens a request."""
    usage = [event["input_tokens"] for event in events_of(recording) if event["kind"] == "usage"]
    assert all(tokens < 1000 and tokens % 100 == 0 for tokens in usage)
    if recording.stem in ("12-resume", "13-fork"):
        assert usage == [200 if recording.stem == "12-resume" else 100]


@pytest.mark.parametrize("recording", RECORDINGS, ids=name)
def test_a_recording_says_where_it_comes_from_and_holds_no_path_of_that_machine(recording):
    meta = read(recording.with_suffix(".meta.json"))
    assert meta["version"] == recording.parent.name
    assert meta["command"][:3] == ["codex", "exec", "--json"]
    assert meta["recorded"]
    text = recording.read_text()
    assert "/root" not in text
    assert "sk-test" not in text
