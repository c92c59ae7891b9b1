"""Requests of the app-server: found by the decoder, read and answered by the mapper."""

import copy
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nucleic_codex.app_server.permissions import granted, paths_of

from codex_wire import CHILD, COMMAND, ROOT, Wire, mapper
from nucleic_core.approvals import Allow, AllowAlways, Answers, ApprovalRequest, CancelRun, Deny, Question, QuestionItem
from nucleic_core.backend import Ask
from nucleic_core.events import ToolCallCompleted, ToolResult
from nucleic_core.lowlevel import request_key

RUN = "item/commandExecution/requestApproval"
PATCH = "item/fileChange/requestApproval"
PERMIT = "item/permissions/requestApproval"
ELICIT = "mcpServer/elicitation/request"
INPUT = "item/tool/requestUserInput"


def asked(wire):
    """The last ask, as the mapper reads it."""
    return mapper.read(wire.of(Ask)[-1])


def reply(wire, decision):
    return mapper.reply(wire.of(Ask)[-1], decision)


def running(**params):
    wire = Wire().begins("commandExecution", "c1", **COMMAND)
    fields = {"itemId": "c1", "command": COMMAND["command"], "cwd": "/w", "reason": "because", "kind": "command"}
    return wire.asks(RUN, 0, **{**fields, **params})


# -- commands -----------------------------------------------------------------------------------------------------------


def test_a_command_is_asked_with_the_input_that_its_call_has():
    wire = running()
    request = asked(wire)
    assert request.input == wire.of(ToolCallCompleted)[0].input == {"command": "npm test", "cwd": "/w"}
    assert (request.tool, request.command, request.title) == ("Bash", "npm test", "Run: npm test")
    assert (request.tool_call, request.reason) == ("c1", "because")


@pytest.mark.parametrize(
    ("decision", "native"),
    [
        (Allow(), "accept"),
        (AllowAlways("session"), "acceptForSession"),
        (AllowAlways("tool_name"), "accept"),
        (AllowAlways("tool_name_with_pattern", "npm *"), "accept"),
        (Deny("no"), "decline"),
        (CancelRun("enough"), "cancel"),
        (Allow({"command": "other"}), "decline"),
    ],
)
def test_a_decision_on_a_command_is_one_word_of_codexs(decision, native):
    answer = reply(running(), decision)
    assert answer.message == {"decision": native}
    assert not answer.interrupt


def test_cancelling_what_a_sub_agent_asked_stops_the_run_by_other_means_too():
    wire = Wire().item("subAgentActivity", "spawn", kind="started", agentThreadId=CHILD).started("v1", CHILD)
    wire.asks(RUN, 0, CHILD, "v1", itemId="c1", command="ls", cwd="/w")
    assert reply(wire, CancelRun()).interrupt


def test_the_rule_that_codex_would_write_to_disk_is_shown_and_never_sent():
    wire = running(proposedExecpolicyAmendment=["npm", "test"], availableDecisions=["accept", "cancel"])
    (offer,) = asked(wire).suggested
    assert "npm test" in offer["text"]
    for decision in (Allow(), AllowAlways("session"), AllowAlways("tool_name"), Deny("no"), CancelRun()):
        assert "mendment" not in json.dumps(reply(wire, decision).message)


def test_a_command_that_wants_more_permissions_is_another_call_and_answered_once():
    more = {"fileSystem": {"write": ["/srv"]}, "network": None}
    wire = running(additionalPermissions=more)
    request = asked(wire)
    assert request.input["additional_permissions"] == more
    assert request.paths == (Path("/srv"),)
    assert reply(wire, AllowAlways("session")).message == {"decision": "accept"}


def test_a_host_that_a_command_wants_to_reach_is_a_matter_of_the_network():
    wire = running(networkApprovalContext={"host": "example.org", "protocol": "https"}, command=None)
    request = asked(wire)
    assert (request.risk, request.title) == ("network", "Reach example.org (https), for: npm test")
    assert reply(wire, AllowAlways("session")).message == {"decision": "accept"}


def test_asks_are_independent_and_named_by_their_own_ids():
    """Case F4-03: id 0 and string ids are ids, and all wait at once."""
    wire = Wire()
    wire.asks(RUN, 0, itemId="c1", command="npm test", cwd="/w/app")
    wire.asks(RUN, "srv-2", itemId="c2", command="npm run lint", cwd="/w/app")
    wire.asks(PATCH, 2, itemId="f1", reason=None)
    assert [ask.key for ask in wire.of(Ask)] == [request_key(0), request_key("srv-2"), request_key(2)]
    assert [mapper.read(ask).tool_call for ask in wire.of(Ask)] == ["c1", "c2", "f1"]
    assert [ask.native["id"] for ask in wire.of(Ask)] == [0, "srv-2", 2]
    assert len({request_key(0), request_key("0")}) == 2


# -- patches ------------------------------------------------------------------------------------------------------------


def patching(*changes, **params):
    changes = [{"path": path, "kind": kind, "diff": "x"} for path, kind in changes]
    wire = Wire().begins("fileChange", "p1", changes=changes, status="inProgress")
    return wire.asks(PATCH, 3, itemId="p1", reason=None, grantRoot=None, **params)


ADD, DELETE = {"type": "add"}, {"type": "delete"}


def move(target):
    return {"type": "update", "move_path": target}


def test_a_patch_is_asked_with_the_paths_and_changes_of_its_item():
    wire = patching(("/w/a", ADD), ("/w/b", move("/w/c")), ("/w/d", move(None)))
    request = asked(wire)
    assert request.input == wire.of(ToolCallCompleted)[0].input
    assert request.paths == tuple(map(Path, ("/w/a", "/w/b", "/w/c", "/w/d")))
    assert (request.tool, request.risk, request.tool_call) == ("Edit", "write", "p1")


@pytest.mark.parametrize("changes", [[("/w/a", DELETE)], [("/w/a", move("/w/./a"))], [("/w/a", ADD), ("/w/b", DELETE)]])
def test_a_patch_that_deletes_or_moves_a_file_onto_itself_is_destructive(changes):
    """Case F9-01: Codex says that the move succeeded, and the file is gone."""
    assert asked(patching(*changes)).risk == "destructive"


def test_a_patch_whose_item_was_not_seen_is_of_unknown_risk():
    wire = Wire().asks(PATCH, 3, itemId="p1", reason="why")
    request = asked(wire)
    assert (request.risk, request.paths, request.reason) == ("unknown", (), "why")
    assert "did not name" in request.title


def test_a_patch_that_asks_for_a_whole_directory_says_so_and_is_answered_once():
    wire = Wire().begins("fileChange", "p1", changes=[], status="inProgress")
    wire.asks(PATCH, 3, itemId="p1", reason=None, grantRoot="/srv")
    request = asked(wire)
    assert "anything below /srv" in request.title
    assert (request.risk, request.paths) == ("unknown", (Path("/srv"),))
    assert reply(wire, AllowAlways("session")).message == {"decision": "accept"}


def test_the_changes_of_a_patch_that_is_still_written_are_those_that_are_asked_about():
    wire = Wire().begins("fileChange", "p1", changes=[], status="inProgress")
    changes = [{"path": "/w/new", "kind": ADD, "diff": "x"}]
    wire.says("item/fileChange/patchUpdated", itemId="p1", changes=changes).asks(PATCH, 3, itemId="p1")
    assert asked(wire).paths == (Path("/w/new"),)


# -- permissions --------------------------------------------------------------------------------------------------------

WANTED = {
    "network": {"enabled": True},
    "fileSystem": {
        "read": None,
        "write": ["/srv", "/opt"],
        "entries": [
            {"path": {"type": "path", "path": "/srv"}, "access": "write"},
            {"path": {"type": "path", "path": "/srv/keys"}, "access": "deny"},
        ],
    },
}


def permitting():
    return Wire().asks(PERMIT, 0, itemId="perm", cwd="/w", reason="to write", permissions=WANTED)


def test_permissions_are_asked_with_what_they_reach_as_a_call_of_their_own():
    wire = permitting()
    request = asked(wire)
    assert wire.of(ToolCallCompleted)[0].input == request.input == {"permissions": WANTED}
    assert (request.tool, request.tool_call, request.reason) == ("request_permissions", "perm", "to write")
    assert request.paths == (Path("/srv"), Path("/opt"), Path("/srv/keys"))
    assert "the network" in request.title


@pytest.mark.parametrize(
    ("decision", "message", "stops"),
    [
        (Allow(), {"permissions": WANTED, "scope": "turn"}, False),
        (AllowAlways("session"), {"permissions": WANTED, "scope": "session"}, False),
        (AllowAlways("tool_name"), {"permissions": WANTED, "scope": "turn"}, False),
        (Deny("no"), {"permissions": {}, "scope": "turn"}, False),
        (CancelRun(), {"permissions": {}, "scope": "turn"}, True),
    ],
)
def test_permissions_are_granted_for_a_turn_for_the_session_or_not_at_all(decision, message, stops):
    answer = reply(permitting(), decision)
    assert (answer.message, answer.interrupt) == (message, stops)


def edited(**changes):
    files = {**WANTED["fileSystem"], **changes.pop("files", {})}
    return {**WANTED, "fileSystem": files, **changes}


@pytest.mark.parametrize(
    ("permissions", "fits"),
    [
        (edited(network={"enabled": False}), True),
        (edited(files={"write": ["/srv"]}), True),
        (edited(files={"write": []}), True),
        (edited(files={"write": ["/"]}), False),
        (edited(files={"read": ["/etc"]}), False),
        (edited(files={"entries": WANTED["fileSystem"]["entries"][:1]}), False),
        (edited(files={"entries": None}), False),
        ({"network": {"enabled": True}}, False),
        (edited(files={"entries": WANTED["fileSystem"]["entries"][1:]}), True),
        (edited(more=True), False),
        ("all", False),
        (None, False),
    ],
)
def test_an_edited_set_of_permissions_may_only_shrink(permissions, fits):
    answer = reply(permitting(), Allow({"permissions": permissions}))
    assert answer.message == {"permissions": permissions if fits else {}, "scope": "turn"}


def leaves(value):
    """What a set grants, one by one."""
    if isinstance(value, dict):
        return {(name, *rest) for name, inner in value.items() for rest in leaves(inner)}
    if isinstance(value, list):
        return {rest for inner in value for rest in leaves(inner)}
    return {(repr(value),)} if value else set()


SETS = st.recursive(
    st.none() | st.booleans() | st.sampled_from(["/a", "/b"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("xyz"), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None)
@given(wanted=SETS, given_set=SETS)
def test_nothing_is_granted_that_was_not_asked_for(wanted, given_set):
    assert leaves(granted(wanted, given_set)) <= leaves(wanted)


@pytest.mark.parametrize(("result", "refused"), [({"permissions": WANTED}, False), ({"permissions": {}}, True)])
def test_our_answer_is_the_result_of_the_call_that_asked_for_permissions(result, refused):
    (told,) = permitting().answers(0, {**result, "scope": "turn"}).of(ToolResult)
    assert (told.tool_call, told.is_error) == ("perm", refused)


# -- MCP ----------------------------------------------------------------------------------------------------------------


def eliciting(meta=None, **params):
    meta = {"codex_approval_kind": "mcp_tool_call", "persist": ["session", "always"], **(meta or {})}
    fields = {"serverName": "tickets", "mode": "form", "requestedSchema": {"type": "object", "properties": {}}}
    message = 'Allow the tickets MCP server to run tool "save"?'
    return Wire().asks(ELICIT, 21, **{**fields, "message": message, "_meta": meta, **params})


def test_the_approval_of_an_mcp_tool_comes_as_an_elicitation_and_is_an_approval_here():
    wire = eliciting({"tool_name": "save", "tool_params": {"text": "n"}, "tool_description": "saves"})
    request = asked(wire)
    assert (request.tool, request.input, request.reason) == ("mcp__tickets__save", {"text": "n"}, "saves")
    assert request.suggested[0]["native"] == "always"


@pytest.mark.parametrize(
    ("decision", "message", "stops"),
    [
        (Allow(), {"action": "accept", "content": {}}, False),
        (AllowAlways("session"), {"action": "accept", "content": {}, "_meta": {"persist": "session"}}, False),
        (AllowAlways("tool_name"), {"action": "accept", "content": {}}, False),
        (Deny("no"), {"action": "decline", "content": None}, False),
        (Allow({"text": "other"}), {"action": "decline", "content": None}, False),
        (CancelRun(), {"action": "cancel", "content": None}, True),
    ],
)
def test_a_decision_on_an_mcp_tool_never_lasts_beyond_the_session_and_cancel_stops_the_turn(decision, message, stops):
    answer = reply(eliciting({"tool_name": "save"}), decision)
    assert (answer.message, answer.interrupt) == (message, stops)


def test_form_and_address_are_told_apart_from_approvals_and_unknown_requests_are_not_understood():
    """Case F4-09."""
    wire = eliciting(message="Allow tickets to run tool save_comment?")
    assert asked(wire).tool == "mcp__tickets__save_comment"
    assert reply(wire, Allow()).message == {"action": "accept", "content": {}}
    fields = {"serverName": "tickets", "mode": "url", "message": "Sign in", "elicitationId": "el-1"}
    wire = Wire().asks(ELICIT, 22, **fields, url="https://login.example/x")
    assert "https://login.example/x" in asked(wire).questions[0].text
    wire = Wire().asks("item/tool/futureThing", 23)
    assert wire.of(Ask)[0].key == "23"
    assert asked(wire) is None


def test_an_elicitation_that_names_no_item_belongs_to_the_call_of_that_server_and_these_arguments():
    wire = Wire()
    for call, text in (("m1", "one"), ("m2", "two"), ("m3", "two")):
        fields = {"server": "tickets", "tool": "save", "arguments": {"text": text}, "status": "inProgress"}
        wire.begins("mcpToolCall", call, **fields)
    meta = {"codex_approval_kind": "mcp_tool_call", "tool_params": {"text": "two"}}
    for number in (1, 2, 3):
        wire.asks(ELICIT, number, serverName="tickets", mode="form", message="Allow?", _meta=meta)
    assert [mapper.read(ask).tool_call for ask in wire.of(Ask)] == ["m2", "m3", "m1"]
    assert mapper.read(wire.of(Ask)[0]).tool == "mcp__tickets__save"


def test_a_tool_that_its_server_calls_destructive_is():
    assert asked(eliciting({"tool_name": "x", "tool_annotations": {"destructiveHint": True}})).risk == "destructive"
    assert asked(eliciting({"tool_name": "x", "tool_annotations": {"readOnlyHint": True}})).risk is None


def test_an_approval_of_a_kind_or_a_tool_that_nobody_knows_is_not_understood():
    assert asked(eliciting({"codex_approval_kind": "moon_landing"})) is None
    assert asked(eliciting(message="Allow?")) is None


FORM = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Name"},
        "size": {"type": "string", "enum": ["s", "m"], "enumNames": ["Small", "Medium"]},
        "kind": {"type": "string", "oneOf": [{"const": "a", "title": "Apple"}]},
        "many": {"type": "integer"},
        "much": {"type": "number"},
        "sure": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string", "enum": ["x", "y"]}},
    },
    "required": ["name"],
}


def form(**params):
    fields = {"serverName": "notes", "mode": "form", "_meta": None, "message": "Who?", "requestedSchema": FORM}
    return Wire().asks(ELICIT, 2, **{**fields, **params})


def test_a_servers_form_is_a_question_a_field():
    question = asked(form())
    items = {item.id: item for item in question.questions}
    assert list(items) == list(FORM["properties"])
    assert "notes asks: Who?" in items["name"].text
    assert items["size"].options == (("Small", "s"), ("Medium", "m"))
    assert items["sure"].options == (("Yes", ""), ("No", ""))
    assert items["tags"].multi


def test_a_forms_answers_have_the_types_that_the_server_wants():
    answers = {"name": "Ada", "size": "Small", "kind": "a", "many": "3", "much": "1.5", "sure": "yes", "tags": "x, y"}
    content = {"name": "Ada", "size": "s", "kind": "a", "many": 3, "much": 1.5, "sure": True, "tags": ["x", "y"]}
    assert reply(form(), Answers(answers)).message == {"action": "accept", "content": content}


def test_what_does_not_fit_a_field_is_left_out_and_a_form_that_lacks_a_required_field_is_cancelled():
    wrong = {"size": "huge", "many": "1.5", "much": "nan", "sure": "maybe", "tags": "x, z"}
    assert reply(form(), Answers({"name": "Ada", **wrong})).message == {"action": "accept", "content": {"name": "Ada"}}
    assert reply(form(), Answers({"size": "s"})).message == {"action": "cancel", "content": None}


@pytest.mark.parametrize(
    ("mode", "answers", "action"),
    [
        ("url", {"confirm": "Accept"}, "accept"),
        ("url", {"confirm": "Decline"}, "decline"),
        ("form", {"confirm": "accept"}, "accept"),
        ("form", {"confirm": "what?"}, "decline"),
        ("form", None, "cancel"),
        ("url", None, "cancel"),
    ],
)
def test_an_address_or_a_form_without_fields_is_accepted_only_by_that_word(mode, answers, action):
    wire = form(mode=mode, url="https://x.example", requestedSchema={"type": "object", "properties": {}})
    assert [item.id for item in asked(wire).questions] == ["confirm"]
    assert reply(wire, Answers(answers)).message["action"] == action


def test_a_mode_that_nobody_knows_is_not_understood():
    assert asked(form(mode="openai/userVerification", challenge="x")) is None
    assert asked(form(mode="url", url=None)) is None


# -- questions of the agent ---------------------------------------------------------------------------------------------

QUESTIONS = [
    {"id": "q1", "header": "Color", "question": "Which?", "options": [{"label": "Red", "description": "r"}]},
    {"id": "q2", "header": "", "question": "Why?", "options": None, "isOther": True},
]


def questioning():
    return Wire().asks(INPUT, 0, itemId="call_q", questions=QUESTIONS, isBlocking=True)


def test_the_agents_questions_are_asked_as_a_call_and_its_answer_is_the_result():
    wire = questioning()
    items = (QuestionItem("q1", "Color: Which?", (("Red", "r"),)), QuestionItem("q2", "Why?"))
    assert asked(wire) == Question(items, "call_q")
    assert wire.of(ToolCallCompleted)[0].name == "AskUserQuestion"
    answer = reply(wire, Answers({"q1": "Red", "unknown": "x"}))
    assert answer.message == {"answers": {"q1": {"answers": ["Red"]}}}
    (result,) = wire.answers(0, answer.message).of(ToolResult)
    assert (result.tool_call, result.content, result.is_error) == ("call_q", answer.message["answers"], False)


def test_nobodys_answer_is_none_at_all():
    assert reply(questioning(), Answers(None)).message == {"answers": {}}
    cancelled = reply(questioning(), CancelRun())
    assert (cancelled.message, cancelled.interrupt) == ({"answers": {}}, True)


@pytest.mark.parametrize("questions", [[], None, [{"id": "q1"}], [{"question": "Why?"}]])
def test_questions_without_a_name_or_a_text_are_not_understood(questions):
    assert asked(Wire().asks(INPUT, 0, itemId="call_q", questions=questions)) is None


# -- withdrawals and the rest -------------------------------------------------------------------------------------------


def test_an_ask_that_codex_takes_back_is_withdrawn_and_one_that_we_answered_is_not():
    wire = running().says("serverRequest/resolved", requestId=0)
    assert wire.withdrawn == ["0"]
    wire = running().answers(0, {"decision": "accept"}).says("serverRequest/resolved", requestId=0)
    assert wire.withdrawn == []


def test_the_end_of_a_turn_takes_back_what_it_asked_and_a_late_reply_changes_nothing():
    wire = running().asks(PATCH, "s", itemId="p1").completed(status="interrupted")
    assert wire.withdrawn == ["0", '"s"']
    assert wire.answers(0, {"decision": "accept"}).says("serverRequest/resolved", requestId=0).withdrawn == ["0", '"s"']


@pytest.mark.parametrize(
    "method", ["item/tool/call", "execCommandApproval", "applyPatchApproval", "attestation/generate", "x", ""]
)
def test_every_other_request_is_an_ask_that_is_refused(method):
    wire = Wire().asks(method, 1)
    assert len(wire.of(Ask)) == 1
    assert asked(wire) is None


def test_a_request_without_a_name_is_an_ask_and_one_that_no_answer_could_name_is_raw():
    wire = Wire()
    wire.decoder.received({"id": 5, "method": 7}, wire)
    assert asked(wire) is None
    wire.decoder.received({"id": {"a": 1}, "method": RUN}, wire)
    assert wire.kinds == ["raw"]


def test_what_our_hook_allowed_is_not_asked_again_unless_it_is_another_command():
    wire = Wire()
    payload = {"tool_name": "Bash", "tool_use_id": "c1", "turn_id": "u1", "tool_input": {"command": "npm test"}}
    wire.decoder.received({"key": "hook-1", "call": payload}, wire, "hook")
    wire.decoder.sent({"key": "hook-1", "verdict": {}}, wire, "hook")
    request = {"method": RUN, "id": 0, "params": {"threadId": ROOT, "itemId": "c1", "command": COMMAND["command"]}}
    wire.decoder.received(request, wire)
    assert [ask.key for ask in wire.of(Ask)] == ["hook-1"]
    assert wire.decoder.answered_by_hook(request)
    other = copy.deepcopy(request)
    other["params"]["command"] = "rm -rf /"
    wire.decoder.received(other, wire)
    assert len(wire.of(Ask)) == 2
    assert not wire.decoder.answered_by_hook(other)


def test_the_paths_of_a_set_include_patterns_and_named_files():
    entries = [{"path": {"type": "glob_pattern", "pattern": "/a/*"}}, {"path": {"type": "special", "value": {}}}]
    assert paths_of({"fileSystem": {"read": ["/r"], "write": None, "entries": entries}}) == ["/r", "/a/*"]
    assert paths_of("odd") == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)
FIELDS = [
    "threadId",
    "turnId",
    "itemId",
    "command",
    "cwd",
    "reason",
    "grantRoot",
    "permissions",
    "serverName",
    "mode",
    "_meta",
    "message",
    "requestedSchema",
    "url",
    "questions",
    "networkApprovalContext",
    "additionalPermissions",
    "proposedExecpolicyAmendment",
]


@settings(max_examples=200, deadline=None)
@given(
    method=st.sampled_from([RUN, PATCH, PERMIT, ELICIT, INPUT]),
    params=st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=6) | JSON,
    key=st.integers() | st.text(max_size=3) | st.none(),
)
def test_any_request_is_one_ask_and_any_decision_has_an_answer(method, params, key):
    wire = Wire()
    wire.decoder.received({"method": method, "id": key, "params": params}, wire)
    (ask,) = wire.of(Ask)
    assert json.loads(ask.key) == key
    what = mapper.read(ask)
    assert what is None or isinstance(what, ApprovalRequest | Question)
    decisions = (Allow(), AllowAlways("session"), Deny("no"), CancelRun(), Answers(None), Answers({"q": "a"}))
    for decision in decisions:
        message = mapper.reply(ask, decision).message
        assert isinstance(message, dict)
        assert "always" not in json.dumps(message)
