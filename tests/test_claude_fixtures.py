"""What the real `claude` said, decoded again: each recording gives the same events, each decision the same bytes.

`tests/live/record.py` makes the recordings; `record.py --decode` writes the events anew when the decoder is meant to change.
"""

from pathlib import Path

import orjson
import pytest
from nucleic_claude.approvals import ClaudeApprovals

from nucleic_core._plugins import Plugins
from nucleic_core._session.replay import read_records, replay
from nucleic_core.backend import Ask
from nucleic_core.events import DECISION_TYPES

RECORDINGS = sorted((Path(__file__).parents[1] / "fixtures" / "claude").glob("*/*.ndjson"))
REPLIES = sorted((Path(__file__).parents[1] / "fixtures" / "claude").glob("*/*.reply.json"))
DECISIONS = {name: cls for cls, name in DECISION_TYPES.items()}


def name(path: Path) -> str:
    return f"{path.parent.name}/{path.name.partition('.')[0]}"


def read(path: Path):
    return orjson.loads(path.read_bytes())


def test_there_are_recordings_of_the_oldest_and_the_newest_version():
    assert {path.parent.name for path in RECORDINGS} >= {"2.1.167", "2.1.332"}


@pytest.mark.parametrize("recording", RECORDINGS, ids=name)
def test_a_recording_gives_its_whole_list_of_events(recording):
    backend = Plugins().backend("claude")
    events = list(replay(backend, "claude", read_records([recording.read_bytes()]), cwd=Path("/work/demo")))
    assert [event.to_json() for event in events] == read(recording.with_suffix(".events.json"))


@pytest.mark.parametrize("recording", RECORDINGS, ids=name)
def test_a_recording_pairs_every_call_with_a_result_and_leaves_nothing_raw(recording):
    events = read(recording.with_suffix(".events.json"))
    calls = [event["tool_call"] for event in events if event["kind"] == "tool_call_completed"]
    results = [event["tool_call"] for event in events if event["kind"] == "tool_result"]
    assert sorted(calls) == sorted(results)
    assert [event["native"] for event in events if event["kind"] == "raw"] == []


@pytest.mark.parametrize("file", REPLIES, ids=name)
def test_a_decision_becomes_the_bytes_that_the_cli_took(file):
    calls = read(file.with_name(file.name.replace(".reply.", ".approval-call.")))
    answers = read(file)
    assert len(answers) <= len(calls)
    for call, answer in zip(calls, answers, strict=False):
        fields = dict(answer["decision"])
        decision = DECISIONS[fields.pop("type")](**fields)
        reply = ClaudeApprovals().reply(Ask("key", call), decision)
        assert orjson.dumps(reply.message) == orjson.dumps(answer["reply"])


@pytest.mark.parametrize("recording", RECORDINGS, ids=name)
def test_a_recording_says_where_it_comes_from_and_holds_no_path_of_that_machine(recording):
    meta = read(recording.with_suffix(".meta.json"))
    assert meta["version"] == recording.parent.name
    assert meta["command"][:2] == ["claude", "-p"]
    assert meta["recorded"]
    text = recording.read_text()
    assert "/root" not in text
    assert "sk-ant" not in text
