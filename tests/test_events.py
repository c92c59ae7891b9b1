"""The JSON form of events."""

import re

import orjson
import pytest

from nucleic_core.approvals import Allow, ApprovalRequest
from nucleic_core.events import ENVELOPE, KINDS, AgentEvent, ApprovalRequested, ApprovalResolved, AssistantText, Raw


def line_of(data):
    return orjson.loads(AgentEvent(1, None, "s", "demo", "native", None, data).to_line())


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_no_payload_field_bears_an_envelope_name(kind):
    assert not set(KINDS[kind].field_names) & set(ENVELOPE)


def test_a_line_is_flat_with_the_envelope_first():
    line = AgentEvent(7, "2026-11-30T20:44:16.771611Z", "s", "demo", "text", "call", AssistantText("hi")).to_line()
    assert list(orjson.loads(line))[:7] == list(ENVELOPE)
    assert orjson.loads(line)["text"] == "hi"


def test_value_objects_nest_and_a_decision_tells_its_type():
    assert line_of(ApprovalResolved("a", Allow(), "api"))["decision"] == {"type": "allow", "updated_input": None}


def test_what_came_from_our_own_side_is_made_strict_json():
    request = ApprovalRequest("Bash", {"a\ud83d": "\udcb2", "n": 1 << 80}, "t")
    assert line_of(ApprovalRequested(request))["request"]["input"] == {"a\ufffd": "\ufffd", "n": float(1 << 80)}


@pytest.mark.parametrize("depth", [100, 300, 1000])
def test_a_value_that_nests_too_deep_for_the_encoder_is_kept_whole(depth):
    value = "core"
    for _ in range(depth):
        value = {"in": [value, 1]}
    line = AgentEvent(1, None, "s", "demo", None, None, Raw(value)).to_line()
    orjson.loads(line)
    assert len(re.findall(r'in\\*":"?\[', line.decode())) == depth
    assert "core" in line.decode()
