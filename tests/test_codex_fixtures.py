"""What the real codex app-server said, decoded again: each recording gives the same events, each decision the same bytes.

`tests/live/record_codex.py` makes the recordings; its `--decode` writes the events anew when the decoder is meant to change.
"""

from pathlib import Path

import orjson
import pytest
from nucleic_codex.app_server.approvals import CodexApprovals
from nucleic_codex.app_server.decode import AppServerDecoder

from nucleic_core._plugins import Plugins
from nucleic_core._session.replay import read_records, replay
from nucleic_core.approvals import Answers
from nucleic_core.events import DECISION_TYPES

FIXTURES = Path(__file__).parents[1] / "fixtures"
RECORDINGS = sorted((FIXTURES / "codex-appserver").glob("*/*.jsonrpc"))
REPLIES = sorted((FIXTURES / "codex-appserver").glob("*/*.reply.json"))
HOOKS = sorted((FIXTURES / "codex-hooks").glob("*/*.json"))
DECISIONS = {name: cls for cls, name in DECISION_TYPES.items()} | {"answers": Answers}


def name(path: Path) -> str:
    return f"{path.parent.name}/{path.name.partition('.')[0]}"


def read(path: Path):
    return orjson.loads(path.read_bytes())


def records(path: Path):
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


class Asked:
    """An Out that keeps the asks."""

    def __init__(self):
        self.asks = []

    def event(self, data, native=None, parent=None):
        pass

    def ask(self, ask, native=None, parent=None):
        self.asks.append(ask)

    def withdraw(self, key, reason):
        pass


def asks(recording: Path):
    """The asks of a recording, with the context that the decoder gave them."""
    out, decoder = Asked(), AppServerDecoder(cwd=Path("/work/demo"))
    for record in records(recording):
        give = decoder.received if record["dir"] == "in" else decoder.sent
        give(record["msg"], out, record["channel"])
    return out.asks


def test_there_are_recordings_of_the_oldest_and_the_newest_version():
    assert {path.parent.name for path in RECORDINGS} >= {"0.141.0", "0.146.0", "0.171.0"}
    assert {path.parent.name for path in HOOKS} >= {"0.141.0", "0.146.0", "0.171.0"}


@pytest.mark.parametrize("recording", RECORDINGS, ids=name)
def test_a_recording_gives_its_whole_list_of_events(recording):
    backend = Plugins().backend("codex")
    events = list(replay(backend, "codex", read_records([recording.read_bytes()]), cwd=Path("/work/demo")))
    assert [event.to_json() for event in events] == read(recording.with_suffix(".events.json"))


@pytest.mark.parametrize("recording", RECORDINGS, ids=name)
def test_a_recording_pairs_every_call_with_a_result_and_leaves_nothing_raw(recording):
    events = read(recording.with_suffix(".events.json"))
    calls = [event["tool_call"] for event in events if event["kind"] == "tool_call_completed"]
    results = [event["tool_call"] for event in events if event["kind"] == "tool_result"]
    assert sorted(calls) == sorted(results)
    assert [event["native"] for event in events if event["kind"] == "raw"] == []


@pytest.mark.parametrize("recording", RECORDINGS, ids=name)
def test_the_usage_of_a_recording_is_what_codex_counted_for_the_thread(recording):
    """But for what an earlier process of the thread spent, which is in the first total that is told."""
    totals = [
        (message["threadId"], message["tokenUsage"])
        for record in records(recording)
        if record["msg"].get("method") == "thread/tokenUsage/updated" and (message := record["msg"]["params"])
    ]
    finished = [event for event in read(recording.with_suffix(".events.json")) if event["kind"] == "run_finished"]
    if not totals or recording.stem.startswith(("25-", "26-")):
        return
    spent = sum({thread: usage["total"]["inputTokens"] for thread, usage in totals}.values())
    assert [end["usage"]["input_tokens"] for end in finished] == [spent]


@pytest.mark.parametrize("file", REPLIES, ids=name)
def test_a_decision_becomes_the_bytes_that_codex_took(file):
    asked, answers = asks(file.with_name(file.name.replace(".reply.json", ".jsonrpc"))), read(file)
    assert answers
    for ask, answer in zip(asked, answers, strict=False):
        fields = dict(answer["decision"])
        reply = CodexApprovals().reply(ask, DECISIONS[fields.pop("type")](**fields))
        assert orjson.dumps(reply.message) == orjson.dumps(answer["reply"])


@pytest.mark.parametrize("file", HOOKS, ids=name)
def test_what_the_hook_is_given_names_its_tool_its_input_and_its_call(file):
    for call in read(file):
        assert call["hook_event_name"] == "PreToolUse"
        assert call["tool_name"] in ("Bash", "apply_patch")
        assert call["tool_input"]["command"]
        assert call["tool_use_id"]


@pytest.mark.parametrize("recording", RECORDINGS, ids=name)
def test_a_recording_says_where_it_comes_from_and_holds_nothing_of_that_machine(recording):
    meta = read(recording.with_suffix(".meta.json"))
    assert meta["version"] == recording.parent.name
    assert meta["command"][:2] == ["codex", "app-server"]
    text = recording.read_text()
    for word in ("/tmp/nucleic-record", "sk-test", "Debian", "/.cache/"):
        assert word not in text
