"""`nucleic decode` and the replay behind it."""

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from nucleic_core._plugins import Plugins
from nucleic_core._session.replay import Record, read_records, replay

CWD = Path("/made/up")
ASK = {"type": "ask", "id": "ask-1", "call": "call-1", "tool": "Write", "input": {"path": "a.txt", "text": "x"}}
CALL = {"type": "call", "id": "call-1", "tool": "Write", "input": {"path": "a.txt", "text": "x"}}
RESULT = {"type": "result", "id": "call-1", "error": False, "text": "wrote a.txt"}
DONE = {"type": "done", "outcome": "completed", "text": None, "usage": {"input": 1, "output": 2}, "ms": 5}


def events(*records):
    made = [record if isinstance(record, Record) else Record(record) for record in records]
    return [event.to_json() for event in replay(Plugins().backend("demo"), "demo", made, cwd=CWD)]


def test_recorded_messages_become_the_events_of_a_session(nucleic, tmp_path):
    file = tmp_path / "recorded.ndjson"
    file.write_text(
        "".join(json.dumps(message) + "\n" for message in ({"type": "turn", "input": "i"}, CALL, ASK, DONE))
    )
    done = nucleic("decode", "demo", str(file), "--cwd", "/made/up")
    assert (done.returncode, done.stderr) == (0, "")
    decoded = [json.loads(line) for line in done.stdout.splitlines()]
    assert decoded == events({"type": "turn", "input": "i"}, CALL, ASK, DONE)
    assert nucleic("decode", "demo", "--cwd", "/made/up", stdin=file.read_text()).stdout == done.stdout


def test_events_are_numbered_from_one_without_time_and_session():
    decoded = events(CALL, RESULT)
    assert [event["seq"] for event in decoded] == list(range(1, len(decoded) + 1))
    assert {(event["at"], event["session"], event["backend"]) for event in decoded} == {(None, "", "demo")}


def test_an_ask_has_its_key_as_id_and_its_call_before_it():
    kinds = [(event["kind"], event.get("tool_call")) for event in events(ASK)]
    assert kinds[:3] == [
        ("tool_call_started", "call-1"),
        ("tool_call_completed", "call-1"),
        ("approval_requested", None),
    ]
    request = events(ASK)[2]["request"]
    assert (request["id"], request["risk"], request["paths"]) == ("ask-1", "write", ["/made/up/a.txt"])


def test_an_ask_that_is_not_understood_is_kept_and_said():
    asked = {"type": "ask", "id": "ask-1", "tool": "Teleport"}
    raw, error, *_ = events(asked)
    assert (raw["kind"], raw["value"]) == ("raw", asked)
    assert (error["kind"], error["code"]) == ("error", "unknown_ask")


def test_the_end_of_the_file_ends_the_turn_and_closes_the_calls():
    result, turn, run = events({"type": "turn", "input": "i"}, CALL)[-3:]
    assert (result["kind"], result["synthetic"]) == ("tool_result", True)
    assert (turn["kind"], turn["outcome"]) == ("turn_completed", "errored")
    assert run["kind"] == "run_finished"


def test_records_of_both_directions_are_told_apart_by_their_wrapper():
    lines = [
        {"dir": "in", "msg": CALL, "at": "2026-01-01T00:00:00.000000Z"},
        {"dir": "out", "msg": {"id": "ask-1", "allow": True}},
        {"dir": "in", "channel": "mcp", "msg": RESULT},
        {"dir": "up", "msg": 1},
        CALL,
    ]
    text = "\n".join(map(json.dumps, lines)).encode()
    assert list(read_records([text])) == [
        Record(CALL, at="2026-01-01T00:00:00.000000Z"),
        Record({"id": "ask-1", "allow": True}, outgoing=True, channel="stdin"),
        Record(RESULT, channel="mcp"),
        Record({"dir": "up", "msg": 1}),
        Record(CALL),
    ]
    assert events(Record(CALL, at="2026-01-01T00:00:00.000000Z"))[0]["at"] == "2026-01-01T00:00:00.000000Z"


@given(st.binary(max_size=200), st.integers(1, 20))
def test_junk_becomes_events_whatever_it_is_and_however_it_is_cut(junk, size):
    pieces = [junk[at : at + size] for at in range(0, len(junk), size)]
    records = list(read_records(pieces))
    assert records == list(read_records([junk]))
    assert events(*records)[-1]["kind"] == "run_finished"


def test_decode_says_what_it_cannot_read(nucleic):
    assert "No backend is called 'nobody'" in nucleic("decode", "nobody").stderr
    missing = nucleic("decode", "demo", "not-there")
    assert missing.returncode == 2
    assert "Cannot read not-there: No such file or directory." in missing.stderr
