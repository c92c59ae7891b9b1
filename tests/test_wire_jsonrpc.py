"""The JSON-RPC peer by itself, and `RpcDriver` over a link without a process."""

import itertools
import json
from pathlib import Path

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from nucleic_core._wire.jsonrpc import TRIES
from nucleic_core.backend import Ask, Reply
from nucleic_core.errors import AgentGone, AgentRefused, AgentSilent, NucleicError, StartFailed
from nucleic_core.events import Raw
from nucleic_core.lowlevel import BaseDecoder, Peer, RpcDriver, RpcError, Unparsed, request_key
from nucleic_core.specs import RunSpec
from nucleic_core.testing import FakeLink


class End:
    """A peer whose messages end in a list; `hear` gives it a batch as a driver does."""

    def __init__(self, *, header=False, **options):
        self.written, self.notices = [], []
        self.gone = False
        self.peer = Peer(self.write, header=header, notice=lambda topic, text: self.notices.append(text), **options)

    def write(self, message):
        if self.gone:
            raise AgentGone("gone")
        self.written.append(json.loads(json.dumps(message)))

    def hear(self, *batch):
        self.peer.feed(self.peer.unpack(batch))

    async def outcome_of(self, *call, **options):
        """Begin a call in the background; a list that gets its result or its error."""
        outcome = []

        async def run():
            try:
                outcome.append(await self.peer.call(*call, **options))
            except NucleicError as exc:
                outcome.append(exc)

        self.nursery.start_soon(run)
        await trio.testing.wait_all_tasks_blocked()
        return outcome


@pytest.fixture
def end(nursery):
    it = End()
    it.nursery = nursery
    return it


async def settle():
    await trio.testing.wait_all_tasks_blocked()


# -- our requests ---------------------------------------------------------------------------------------------------


async def test_requests_are_numbered_from_one_and_each_caller_gets_its_own_reply_in_whatever_order(end):
    first = await end.outcome_of("a", {"x": 1})
    second = await end.outcome_of("b")
    assert end.written == [{"id": 1, "method": "a", "params": {"x": 1}}, {"id": 2, "method": "b"}]
    end.hear({"id": 2, "result": "two"}, {"id": 1, "result": None})
    await settle()
    assert (first, second) == ([None], ["two"])


async def test_the_header_is_on_every_message_of_one_dialect_and_on_none_of_the_other(nursery):
    for header in (True, False):
        it = End(header=header, handlers={"h": answering("done")}, start_soon=nursery.start_soon)
        it.nursery = nursery
        await it.outcome_of("a")
        it.peer.notify("n", [])
        it.hear({"id": 0, "method": "x"}, {"id": 1, "method": "h"})
        it.peer.refuse(0, -32601, "no")
        await settle()
        assert len(it.written) == 4
        assert {message.get("jsonrpc") for message in it.written} == {"2.0" if header else None}
        it.hear({"id": 1, "result": None})


async def test_an_error_reply_is_an_error_with_code_message_and_data_that_names_the_method(end):
    outcome = await end.outcome_of("thread/start")
    end.hear({"id": 1, "error": {"code": -32600, "message": "Not initialized", "data": {"a": 1}}})
    await settle()
    (error,) = outcome
    assert isinstance(error, RpcError)
    assert isinstance(error, AgentRefused)
    assert (error.code, error.message, error.data) == (-32600, "Not initialized", {"a": 1})
    assert str(error) == "The agent refused thread/start: Not initialized (code -32600)"


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        ("just text", -32603, "just text"),
        ({}, -32603, "{}"),
        ({"code": "E1", "message": None}, -32603, '{"code": "E1", "message": null}'),
        ([1], -32603, "[1]"),
    ],
)
async def test_an_error_in_an_odd_shape_fails_the_call_all_the_same(end, error, code, message):
    outcome = await end.outcome_of("m")
    end.hear({"id": 1, "error": error})
    await settle()
    assert (outcome[0].code, outcome[0].message) == (code, message)


async def test_a_reply_with_a_null_error_is_a_result_and_one_with_neither_has_the_result_null(end):
    first, second = await end.outcome_of("a"), await end.outcome_of("b")
    end.hear({"id": 1, "result": 5, "error": None}, {"id": 2})
    await settle()
    assert (first, second) == ([5], [None])


@pytest.mark.parametrize("spelling", [1, "1", 1.0])
async def test_a_reply_is_matched_however_its_number_is_spelled(end, spelling):
    outcome = await end.outcome_of("m")
    end.hear({"id": spelling, "result": "yes"})
    await settle()
    assert outcome == ["yes"]
    assert end.notices == []


@pytest.mark.parametrize("other", [True, "true", None, 1.5, "1.0", "one", [1], {"id": 1}, -1, "-1", "٣", "9" * 5000])
async def test_what_is_no_spelling_of_the_number_wakes_nobody(end, other):
    outcome = await end.outcome_of("m")
    end.hear({"id": other, "result": "no"})
    await settle()
    assert outcome == []
    end.hear({"id": 1, "result": "yes"})
    await settle()
    assert outcome == ["yes"]


async def test_unknown_and_second_replies_are_counted_and_told_once(end):
    outcome = await end.outcome_of("m")
    end.hear({"id": 1, "result": "first"}, {"id": 1, "result": "second"})
    end.hear({"id": 77, "result": None}, {"id": "x", "result": None})
    await settle()
    assert outcome == ["first"]
    assert end.peer.strays == 3
    assert end.notices == ["The agent answered a request that nobody waits for (id 1)."]


async def test_an_error_without_an_id_is_told_and_ends_nothing(end):
    outcome = await end.outcome_of("m")
    end.hear({"id": None, "error": {"code": -32700, "message": "Parse error"}}, {"error": {"message": "again"}})
    end.hear({"id": 1, "result": "yes"})
    await settle()
    assert end.notices == [
        'The agent reports an error that belongs to no request: {"code": -32700, "message": "Parse error"}'
    ]
    assert outcome == ["yes"]


async def test_the_case_of_ids_that_change_their_type_between_request_and_reply(end):
    # Case F2-10. Our ids begin at 1, so the case's 0 and 7 are 1 and 2 here.
    first, second = await end.outcome_of("initialize"), await end.outcome_of("session/new")
    end.hear(
        {"jsonrpc": "2.0", "id": "1", "result": {"protocolVersion": 1}},
        {"jsonrpc": "2.0", "id": True, "result": {}},
        {"jsonrpc": "2.0", "id": 2, "result": {"sessionId": "s"}},
        {"jsonrpc": "2.0", "id": 2, "result": {"sessionId": "other"}},
        {"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "Parse error"}},
    )
    await settle()
    assert (first, second) == ([{"protocolVersion": 1}], [{"sessionId": "s"}])
    assert len(end.notices) == 2


async def test_the_end_of_the_reader_fails_every_pending_call_and_every_later_one(end):
    first, second = await end.outcome_of("a"), await end.outcome_of("b")
    end.hear({"id": 1, "result": "just in time"})
    end.peer.close("it ended")
    third = await end.outcome_of("c")
    await settle()
    assert first == ["just in time"]
    assert [str(gone) for gone in second + third] == ["it ended", "it ended"]
    assert all(isinstance(gone, AgentGone) for gone in second + third)
    assert len(end.written) == 2
    end.peer.close("again")
    end.hear({"id": 2, "result": "too late"})


async def test_a_call_and_a_notification_through_a_closed_pipe_raise_agent_gone(end):
    end.gone = True
    with pytest.raises(AgentGone):
        await end.peer.call("m")
    with pytest.raises(AgentGone):
        end.peer.notify("n")


async def test_a_call_that_is_not_answered_by_its_deadline_says_so_and_its_late_reply_is_dropped(end, autojump_clock):
    begin = trio.current_time()
    with pytest.raises(AgentSilent, match=r"did not answer turn/interrupt within 5 s"):
        await end.peer.call("turn/interrupt", deadline=5)
    assert trio.current_time() - begin == 5
    end.hear({"id": 1, "result": {}})
    assert end.peer.strays == 0
    assert end.notices == []


async def test_a_cancelled_call_is_taken_back_where_the_dialect_can(nursery, autojump_clock):
    for header in (True, False):
        it = End(header=header)
        with trio.move_on_after(1):
            await it.peer.call("session/prompt")
        taken_back = [{"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": 1}}]
        assert it.written[1:] == (taken_back if header else [])
        it.hear({"id": 1, "error": {"code": -32800, "message": "cancelled"}})
        assert it.notices == []


async def test_a_call_that_is_cancelled_when_the_agent_is_gone_is_cancelled(autojump_clock):
    it = End(header=True)
    with trio.move_on_after(1) as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(it.peer.call, "m")
            await settle()
            it.gone = True
    assert scope.cancelled_caught


async def test_a_call_in_a_cancelled_scope_is_never_sent(end):
    with trio.CancelScope() as scope:
        scope.cancel()
        await end.peer.call("m")
    assert end.written == []


async def test_an_overloaded_agent_is_asked_again_with_growing_pauses(end, autojump_clock):
    outcome, times = await end.outcome_of("thread/list", {"a": 1}), [trio.current_time()]
    for number in (1, 2, 3):
        end.hear({"id": number, "error": {"code": -32001, "message": "Server overloaded; retry later."}})
        while len(end.written) == number:
            await trio.sleep(0.01)
        times.append(trio.current_time())
    end.hear({"id": 4, "result": "at last"})
    await settle()
    assert outcome == ["at last"]
    assert end.written == [{"id": n, "method": "thread/list", "params": {"a": 1}} for n in (1, 2, 3, 4)]
    for longest, pause in zip((0.1, 0.2, 0.4), (b - a for a, b in itertools.pairwise(times)), strict=True):
        assert longest / 2 <= pause <= longest + 0.02


async def test_an_agent_that_stays_overloaded_refuses_in_the_end(autojump_clock):
    written = []

    def write(message):
        written.append(message)
        peer.feed([{"id": message["id"], "error": {"code": -32001, "message": "busy"}}])

    peer = Peer(write, header=False)
    begin = trio.current_time()
    with pytest.raises(RpcError, match="busy"):
        await peer.call("m")
    assert len(written) == TRIES
    assert trio.current_time() - begin < 15


async def test_the_deadline_holds_over_all_tries(autojump_clock):
    def write(message):
        peer.feed([{"id": message["id"], "error": {"code": -32001, "message": "busy"}}])

    peer = Peer(write, header=False)
    with pytest.raises(AgentSilent):
        await peer.call("m", deadline=1)


# -- the agent's requests -------------------------------------------------------------------------------------------


def answering(result):
    async def handler(params):
        return result

    return handler


async def test_the_agents_ids_go_back_with_their_type_and_have_nothing_to_do_with_ours(end):
    outcome = await end.outcome_of("mine")
    ids = [1, 0, "0", -3, "abc", "", 2.5, None]
    end.hear(*({"id": request_id, "method": "ask"} for request_id in ids))
    for request_id in reversed(ids):
        end.peer.reply(request_id, {"for": request_id})
    replies = end.written[1:]
    assert replies == [{"id": request_id, "result": {"for": request_id}} for request_id in reversed(ids)]
    assert [type(reply["id"]) for reply in replies] == [type(request_id) for request_id in reversed(ids)]
    assert outcome == []
    end.hear({"id": 1, "result": "mine"})
    await settle()
    assert outcome == ["mine"]


def test_a_request_has_one_answer_and_the_second_is_not_sent():
    it = End()
    it.hear({"id": 0, "method": "ask"})
    it.peer.reply(0, "yes")
    it.peer.reply(0, "no")
    it.peer.refuse(0, -32601, "no")
    it.peer.refuse("0", -32601, "never asked")
    assert it.written == [{"id": 0, "result": "yes"}]
    it.hear({"id": 0, "method": "ask"})  # the agent may use an id again
    it.peer.refuse(0, -32000, "no", {"why": "so"})
    assert it.written[1:] == [{"id": 0, "error": {"code": -32000, "message": "no", "data": {"why": "so"}}}]


def test_an_answer_to_an_agent_that_is_gone_raises_nothing():
    it = End()
    it.hear({"id": 0, "method": "ask"}, {"id": 1, "method": "ask"})
    it.gone = True
    it.peer.reply(0, "yes")
    it.peer.refuse(1, -32601, "no")


async def test_handlers_begin_in_order_of_arrival_and_answer_as_they_end(nursery, autojump_clock):
    begun = []

    async def handler(params):
        begun.append(params["n"])
        await trio.sleep(params["wait"])
        return params["n"]

    it = End(handlers={"h": handler}, start_soon=nursery.start_soon)
    waits = [(n * 7) % 20 for n in range(20)]
    it.hear(*({"id": n, "method": "h", "params": {"n": n, "wait": wait}} for n, wait in enumerate(waits)))
    await trio.sleep(30)
    assert begun == list(range(20))
    answered = [message["result"] for message in it.written]
    assert sorted(answered) == list(range(20))
    assert [waits[n] for n in answered] == sorted(waits)


async def test_a_handlers_error_is_the_agents_to_read_and_its_bug_is_told_without_details(nursery, caplog):
    async def refuses(params):
        raise RpcError(-32002, "no such file", {"path": "/x"})

    async def fails(params):
        raise KeyError("secret")

    async def says_nonsense(params):
        return object()

    async def refuses_with_nonsense(params):
        raise RpcError(-32002, "no", object())

    handlers = {
        "refuses": refuses,
        "refuses_with_nonsense": refuses_with_nonsense,
        "fails": fails,
        "says_nonsense": says_nonsense,
        "works": answering({}),
    }
    it = End(handlers=handlers, start_soon=nursery.start_soon)
    it.hear(*({"id": method, "method": method} for method in handlers))
    await settle()
    answers = {message["id"]: message.get("error", message.get("result")) for message in it.written}
    assert answers["refuses"] == {"code": -32002, "message": "no such file", "data": {"path": "/x"}}
    assert answers["fails"] == {"code": -32603, "message": "the request failed: KeyError"}
    assert answers["says_nonsense"] == {"code": -32603, "message": "the answer is not JSON"}
    assert answers["refuses_with_nonsense"] == {"code": -32603, "message": "the answer is not JSON"}
    assert answers["works"] == {}
    assert len(it.written) == 5


async def test_a_handler_may_write_and_call_back_before_it_answers(nursery):
    async def handler(params):
        it.peer.notify("progress", 1)
        theirs = await it.peer.call("back")
        it.peer.notify("progress", 2)
        return theirs

    it = End(handlers={"h": handler}, start_soon=nursery.start_soon)
    it.hear({"id": 1, "method": "h"})
    await settle()
    it.hear({"id": 1, "result": "theirs"})
    await settle()
    assert it.written == [
        {"method": "progress", "params": 1},
        {"id": 1, "method": "back"},
        {"method": "progress", "params": 2},
        {"id": 1, "result": "theirs"},
    ]


@pytest.mark.parametrize("same_batch", [True, False])
async def test_a_request_that_is_taken_back_is_cancelled_even_in_the_batch_it_came_in(nursery, same_batch):
    reached = []

    async def handler(params):
        reached.append("begun")
        await trio.sleep_forever()

    it = End(header=True, handlers={"h": handler}, start_soon=nursery.start_soon)
    request, cancel = {"id": "r", "method": "h"}, {"method": "$/cancel_request", "params": {"requestId": "r"}}
    if same_batch:
        it.hear(request, cancel)
    else:
        it.hear(request)
        await settle()
        it.hear(cancel)
    await settle()
    assert reached == ([] if same_batch else ["begun"])
    assert it.written == [{"jsonrpc": "2.0", "id": "r", "error": {"code": -32800, "message": "cancelled"}}]


async def test_a_handler_that_ends_all_the_same_when_it_is_taken_back_gives_its_result(nursery):
    async def handler(params):
        with trio.CancelScope(shield=True):
            await never_mind.wait()
        return "done"

    never_mind = trio.Event()
    it = End(handlers={"h": handler}, start_soon=nursery.start_soon)
    it.hear({"id": 0, "method": "h"})
    await settle()
    it.hear({"method": "$/cancel_request", "params": {"requestId": 0}})
    never_mind.set()
    await settle()
    assert it.written == [{"id": 0, "result": "done"}]


def test_an_ask_that_is_taken_back_is_answered_as_cancelled_unless_it_has_its_answer():
    it = End(header=True)
    cancels = [{"method": "$/cancel_request", "params": {"requestId": n}} for n in (1, 2, 3)]
    it.hear({"id": 1, "method": "ask"}, {"id": 2, "method": "ask"})
    it.peer.reply(1, "yes")
    it.hear(*cancels, {"method": "$/cancel_request"}, {"method": "$/cancel_request", "params": {"requestId": [1]}})
    it.peer.reply(2, "too late")
    assert [(message["id"], "result" in message) for message in it.written] == [(1, True), (2, False)]
    assert it.written[1]["error"]["code"] == -32800


async def test_a_second_request_under_the_id_of_a_running_one_is_not_served(nursery):
    begun = []

    async def handler(params):
        begun.append(params)
        await trio.sleep_forever()

    it = End(handlers={"h": handler}, start_soon=nursery.start_soon)
    it.hear(*({"id": 5, "method": "h", "params": n} for n in range(3)))
    await settle()
    assert begun == [0]
    assert it.notices == ["The agent began a second request with the id 5; it is not served."]


async def test_handlers_end_with_the_reader_and_answer_nothing(nursery):
    async def handler(params):
        await trio.sleep_forever()

    it = End(handlers={"h": handler}, start_soon=nursery.start_soon)
    it.hear({"id": 5, "method": "h"})
    await settle()
    it.hear({"id": 6, "method": "h"})
    it.peer.close("it ended")
    await settle()
    assert it.written == []
    assert not nursery.child_tasks


def test_a_request_whose_method_is_no_text_is_refused_at_once():
    it = End()
    it.hear({"id": 3, "method": 7})
    assert it.written == [{"id": 3, "error": {"code": -32600, "message": "the method must be a string"}}]


def test_batches_are_opened_one_level_deep_and_nothing_is_lost():
    junk = Unparsed("not json")
    batch = [{"a": 1}, [{"b": 1}, 5, [{"c": 1}]], [], "text", None, junk]
    assert End().peer.unpack(batch) == [{"a": 1}, {"b": 1}, 5, [{"c": 1}], [], "text", None, junk]


async def test_replies_and_requests_in_an_array_count_like_any_other(end):
    outcome = await end.outcome_of("m")
    end.hear([{"id": 1, "result": "yes"}, {"id": 1, "method": "ask"}])
    end.peer.reply(1, {})
    await settle()
    assert outcome == ["yes"]
    assert end.written[1:] == [{"id": 1, "result": {}}]


@given(st.integers() | st.floats(allow_nan=False) | st.text() | st.none())
def test_the_key_of_a_request_gives_its_id_back_with_its_type(request_id):
    again = json.loads(request_key(request_id))
    assert (again, type(again)) == (request_id, type(request_id))


def test_keys_tell_ids_apart_that_python_holds_for_equal():
    assert len({request_key(request_id) for request_id in (0, "0", 0.0, "", None, "null")}) == 6


# -- whatever comes -------------------------------------------------------------------------------------------------

scalars = st.none() | st.booleans() | st.integers(-3, 6) | st.floats() | st.text("01ab-", max_size=3)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner), max_leaves=6
)
methods = st.sampled_from(["h", "other", "$/cancel_request", "", 5, None])
junk = values | st.fixed_dictionaries(
    {},
    optional={
        "id": values,
        "method": methods,
        "params": values | st.fixed_dictionaries({"requestId": values}),
        "result": values,
        "error": values | st.fixed_dictionaries({"code": values, "message": values}),
    },
)
CALLS = 4


@given(st.data())
def test_no_mix_of_messages_loses_a_reply_or_the_order_of_handlers_or_raises(data):
    replies = data.draw(st.permutations([{"id": n + 1, "result": {"n": n}} for n in range(CALLS)]))
    served = [{"id": f"served-{n}", "method": "h", "params": {"served": n}} for n in range(5)]
    # Junk that happens to spell a reply to a pending call is one: those ids are kept for the true replies.
    noise = [
        message
        for message in data.draw(st.lists(junk | st.lists(junk, max_size=3), max_size=12))
        if not any(_may_settle(m) for m in (message if isinstance(message, list) else [message]))
    ]
    order = data.draw(st.permutations(["reply"] * CALLS + ["request"] * len(served) + ["noise"] * len(noise)))
    waiting = {"reply": iter(replies), "request": iter(served), "noise": iter(noise)}
    messages = [next(waiting[kind]) for kind in order]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(messages)), max_size=4)))
    batches = [messages[a:b] for a, b in zip([0, *cuts], [*cuts, len(messages)], strict=True)]
    results, begun = {}, []

    async def handler(params):
        begun.append(params)
        await trio.lowlevel.checkpoint()
        return params

    async def main():
        async def call(n):
            results[n] = await it.peer.call("m", n)

        async with trio.open_nursery() as nursery:
            it = End(handlers={"h": handler}, start_soon=nursery.start_soon)
            for n in range(CALLS):
                nursery.start_soon(call, n)
                await settle()
            for batch in batches:
                it.hear(*batch)
                if data.draw(st.booleans()):
                    await settle()
            await settle()
        answered = [m["id"] for m in it.written if str(m.get("id")).startswith("served-")]
        assert results == {n: {"n": n} for n in range(CALLS)}
        assert [p["served"] for p in begun if isinstance(p, dict) and "served" in p] == list(range(5))
        assert sorted(answered) == [f"served-{n}" for n in range(5)]

    trio.run(main)


def _may_settle(message):
    if not isinstance(message, dict) or "method" in message:
        return False
    number = message.get("id")
    return str(number).removesuffix(".0") in {str(n + 1) for n in range(CALLS)}


# -- the driver -----------------------------------------------------------------------------------------------------


class Decoder(BaseDecoder):
    """Every request is an ask, everything else raw."""

    def received(self, message, out, channel="stdout"):
        if isinstance(message, dict) and "method" in message and "id" in message:
            if message["method"] != "h":
                out.ask(Ask(request_key(message["id"]), message))
        elif isinstance(message, dict) and message.get("method") == "$/cancel_request":
            out.withdraw(request_key(message["params"]["requestId"]), "taken back")
        else:
            out.event(Raw(message))


class Driver(RpcDriver):
    header = False

    async def start(self):
        self.hello = await self.peer.call("initialize", deadline=10)
        self.peer.notify("initialized")


class Bare(RpcDriver):
    """No handshake."""


class Talk:
    """A driver in conversation over a fake link, past the handshake."""

    def __init__(self, nursery, driver):
        self.nursery, self.driver = nursery, driver
        self.link = FakeLink(RunSpec("s", "fake", Path("/repo")), Decoder())

    async def __aenter__(self):
        await self.driver.__aenter__()
        await self.nursery.start(self.driver.converse, self.link)
        return self

    async def __aexit__(self, *error):
        self.link.hang_up()
        await self.driver.__aexit__(None, None, None)


async def test_the_driver_is_ready_when_its_handshake_is_through(nursery):
    link, driver, ready = FakeLink(RunSpec("s", "fake", Path("/"))), Driver(), []

    async def open_it():
        await nursery.start(driver.converse, link)
        ready.append(True)

    nursery.start_soon(open_it)
    assert await link.heard() == {"id": 1, "method": "initialize"}
    link.say({"method": "configWarning"}, {"id": 7, "result": None})
    await settle()
    assert not ready
    link.say({"id": 1, "result": {"v": 1}})
    await settle()
    assert ready
    assert driver.hello == {"v": 1}
    assert await link.heard() == {"method": "initialized"}
    link.hang_up()


async def test_a_handshake_that_is_refused_fails_the_start_in_one_sentence(nursery):
    link = FakeLink(RunSpec("s", "fake", Path("/")))

    async def refuse():
        await link.heard()
        link.say({"id": 1, "error": {"code": -32000, "message": "Authentication required"}})

    nursery.start_soon(refuse)
    with pytest.raises(StartFailed, match=r"The agent refused initialize: Authentication required \(code -32000\)"):
        await Driver().converse(link)


async def test_a_handshake_that_is_not_answered_fails_the_start(autojump_clock):
    with pytest.raises(StartFailed, match="did not answer initialize within 10 s"):
        await Driver().converse(FakeLink(RunSpec("s", "fake", Path("/"))))


async def test_output_that_ends_before_the_handshake_is_through_is_the_agents_end(nursery):
    link = FakeLink(RunSpec("s", "fake", Path("/")))
    link.hang_up()
    with pytest.raises(AgentGone, match="before it was ready"):
        await Driver().converse(link)


async def test_what_else_a_handshake_raises_comes_out_plain(nursery):
    class Broken(RpcDriver):
        async def start(self):
            await trio.lowlevel.checkpoint()
            raise KeyError("userAgent")

    with pytest.raises(KeyError):
        await Broken().converse(FakeLink(RunSpec("s", "fake", Path("/"))))


async def test_every_message_is_decoded_once_and_in_order_whatever_handlers_do(nursery, autojump_clock):
    class Slow(Bare):
        @property
        def handlers(self):
            return {"h": self.slow}

        async def slow(self, params):
            await trio.sleep(60)
            return "slow"

    async with Talk(nursery, Slow()) as talk:
        for n in range(5):
            talk.link.say({"id": n, "method": "h"}, [{"n": 2 * n}, {"n": 2 * n + 1}])
        await settle()
        assert [event.value for event in talk.link.events] == [{"n": n} for n in range(10)]
        assert talk.link.written == []
        await trio.sleep(61)
        assert sorted(message["id"] for message in talk.link.written) == list(range(5))


async def test_an_ask_is_answered_with_the_mappers_message_and_one_that_is_not_understood_does_not_exist(nursery):
    async with Talk(nursery, Bare()) as talk:
        talk.link.say({"id": 0, "method": "may"}, {"id": "0", "method": "unknown/thing"})
        await settle()
        yes, unknown = talk.link.asks
        talk.driver.answer(unknown, None)
        talk.driver.answer(yes, Reply({"decision": "accept"}))
        talk.driver.answer(yes, Reply({"decision": "decline"}))
        assert talk.link.written[0]["error"]["code"] == -32601
        assert [message["id"] for message in talk.link.written] == ["0", 0]
        assert talk.link.written[1] == {"jsonrpc": "2.0", "id": 0, "result": {"decision": "accept"}}


async def test_an_ask_may_be_answered_while_its_batch_is_committed(nursery):
    class Eager(FakeLink):
        def received(self, messages, channel="stdout", answer=None):
            super().received(messages, channel, answer)
            for ask in self.asks:
                driver.answer(ask, None)
            self.asks.clear()

    driver, link = Bare(), Eager(RunSpec("s", "fake", Path("/")), Decoder())
    await nursery.start(driver.converse, link)
    link.say({"id": 0, "method": "x"}, {"id": 1, "method": "y"}, {"id": 2, "method": 5})
    await settle()
    assert [message["id"] for message in link.written] == [0, 1, 2]
    link.hang_up()


async def test_an_ask_that_is_taken_back_is_withdrawn_and_answered_as_cancelled(nursery):
    async with Talk(nursery, Bare()) as talk:
        talk.link.say({"id": 0, "method": "may"}, {"method": "$/cancel_request", "params": {"requestId": 0}})
        await settle()
        (ask,) = talk.link.asks
        assert talk.link.withdrawn == ["0"]
        talk.driver.answer(ask, Reply("late"))
        assert [message["error"]["code"] for message in talk.link.written] == [-32800]


async def test_calls_end_when_the_output_does_and_answers_after_it_raise_nothing(nursery):
    async with Talk(nursery, Bare()) as talk:
        gone = []

        async def call():
            with pytest.raises(AgentGone, match="ended its output"):
                await talk.driver.peer.call("turn/interrupt")
            gone.append(True)

        talk.link.say({"id": 0, "method": "may"})
        nursery.start_soon(call)
        await settle()
        talk.link.hang_up()
        await settle()
        assert gone
        await talk.driver.finish()
        talk.driver.answer(talk.link.asks[0], Reply({}))
        with pytest.raises(AgentGone):
            talk.driver.peer.notify("n")
