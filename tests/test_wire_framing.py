import base64
import hashlib
import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nucleic_core._wire.framing import LineFramer, Oversize, Unparsed, parse


def frame(chunks, limit=1 << 20):
    framer = LineFramer(limit)
    return [line for chunk in chunks for line in framer.feed(chunk)] + framer.finish()


def cut(data, places):
    places = sorted(place % (len(data) + 1) for place in places)
    return [data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True)]


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
places = st.lists(st.integers(0, 1 << 16), max_size=12)


@given(st.lists(json_values, max_size=6), places)
def test_messages_are_the_same_wherever_the_stream_is_cut(values, places):
    stream = b"".join(orjson.dumps(value) + b"\n" for value in values)
    assert parse(frame(cut(stream, places))) == values


@given(st.binary(max_size=400), places, st.integers(1, 60))
def test_any_bytes_give_the_lines_between_newlines_wherever_they_are_cut(stream, places, limit):
    expected = [
        line if len(line) <= limit else Oversize(len(line), line[:4096], hashlib.sha256(line).hexdigest())
        for line in stream.split(b"\n")
        if len(line) > limit or line.strip()
    ]
    assert frame(cut(stream, places), limit) == expected


@given(st.lists(st.binary(max_size=60) | json_values.map(orjson.dumps), max_size=8))
def test_no_line_makes_parse_raise_and_every_value_is_strict_json_again(lines):
    results = parse(lines)
    assert len(results) == len(lines)
    for result in results:
        if not isinstance(result, Unparsed):
            assert orjson.loads(orjson.dumps(result)) == result


@given(st.text("a\udc00\udfff\U0001f600"))
def test_lone_surrogates_become_replacement_characters_in_strings_and_keys(text):
    shown = text.replace("\udc00", "\ufffd").replace("\udfff", "\ufffd")
    assert parse([json.dumps([text, {text: text}]).encode()]) == [[shown, {shown: shown}]]


def test_a_character_cut_across_reads_stays_whole():
    text = "造成 🚀 café"
    line = json.dumps({"text": text}, ensure_ascii=False).encode()
    chunks = [line[index : index + 1] for index in range(len(line))]
    assert parse(frame([*chunks, b"\n"])) == [{"text": text}]


def test_a_recorded_line_cut_inside_characters_of_three_and_four_bytes_has_no_replacement_character():
    # vibe-kanban 2682: each read was decoded alone, and the loss was silent.
    line = '{"type":"assistant","message":{"content":[{"type":"text","text":"部署完成 🚀 café"}]}}\n'.encode()
    first, second = line.index("署".encode()) + 1, line.index("🚀".encode()) + 2
    (message,) = parse(frame([line[:first], line[first:second], line[second:]]))
    assert message["message"]["content"][0]["text"] == "部署完成 🚀 café"


def test_separators_nul_and_carriage_returns_inside_a_line_do_not_end_it():
    text = "a\u2028b\u2029c\x85d\x0be"
    stream = (
        json.dumps(text, ensure_ascii=False).encode() + b'\r\n{"nul":"\\u0000","cr":"\\r"}\nraw \x00 and \r inside\n'
    )
    assert parse(frame([stream])) == [text, {"nul": "\x00", "cr": "\r"}, Unparsed("raw \x00 and \r inside")]


def test_blank_lines_are_skipped_and_the_last_line_needs_no_newline():
    assert parse(frame([b"\n\r\n  \t\n1\n\n2"])) == [1, 2]


def test_the_framer_is_as_new_after_finish():
    framer = LineFramer()
    framer.feed(b"half")
    assert framer.finish() == [b"half"]
    assert framer.finish() == []
    assert framer.feed(b"1\n") == [b"1"]


def test_a_line_longer_than_the_cap_becomes_an_oversize_and_the_next_line_is_read():
    long = b"x" * 10_000
    framer = LineFramer(9_000)
    lines = [line for start in range(0, 10_000, 100) for line in framer.feed(long[start : start + 100])]
    assert framer._tail == []
    lines += framer.feed(b"\n[1]\n")
    assert parse(lines) == [Oversize(10_000, long[:4096], hashlib.sha256(long).hexdigest()), [1]]


def test_a_line_of_exactly_the_cap_is_kept():
    assert frame([b"12345\n123456\n"], 5) == [b"12345", Oversize(6, b"123456", hashlib.sha256(b"123456").hexdigest())]


def test_twenty_megabytes_in_small_chunks_cost_linear_work():
    # By count and not by clock: a join at each feed would copy 20 MB five thousand times and never come back.
    framer = LineFramer()
    chunk = b"x" * 4096
    for _ in range(5000):
        assert framer.feed(chunk) == []
    assert [len(line) for line in framer.feed(b"\n")] == [5000 * 4096]


@pytest.mark.parametrize(
    ("line", "value"),
    [
        (rb'{"a":"\ud83d half \udcb2"}', {"a": "\ufffd half \ufffd"}),
        (rb'{"a":"\ud83d\ude80"}', {"a": "\U0001f680"}),
        (rb'{"\udcb2":1}', {"\ufffd": 1}),
        (b'{"a":NaN,"b":[Infinity,-Infinity]}', {"a": None, "b": [None, None]}),
        (b'{"a":1e999}', {"a": None}),
        (b'{"a":"\xff\xfe"}', {"a": "\ufffd\ufffd"}),
        (b'{"a":123456789012345678901234567890,"b":NaN}', {"a": 123456789012345678901234567890.0, "b": None}),
    ],
)
def test_a_line_that_is_nearly_json_is_read_by_the_documented_rule(line, value):
    assert parse([line]) == [value]


def test_lone_surrogates_of_a_tool_result_reach_the_event_as_replacement_characters():
    # claude-code-log 139: valid UTF-8, accepted by json.loads, and an encoding error far away from here.
    line = base64.b64decode(
        "eyJ0eXBlIjoidXNlciIsIm1lc3NhZ2UiOnsicm9sZSI6InVzZXIiLCJjb250ZW50IjpbeyJ0eXBlIjoidG9vbF9yZXN1bHQiLCJjb250ZW50"
        "IjoibGF0aW4gXHVkY2IyIGhhbGYgXHVkODNkIGVuZCJ9XX19"
    )
    (message,) = parse([line])
    assert message["message"]["content"][0]["content"] == "latin \ufffd half \ufffd end"


@pytest.mark.parametrize(
    "line", [b"Applying migration 0007 ...", b'{"type":"resu', b"\xff\xff", b"1" * 5000, b"[" * 100_000]
)
def test_a_line_that_is_no_json_is_kept_as_text(line):
    assert parse([line]) == [Unparsed(line.decode("utf-8", "replace"))]


def test_a_value_that_nests_deep_is_read_as_far_as_orjson_reads():
    deep = b"[" * 1000 + b"]" * 1000
    (value,) = parse([deep])
    for _ in range(999):
        (value,) = value
    assert value == []
