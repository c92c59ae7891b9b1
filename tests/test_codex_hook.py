"""The hook program and the socket it talks to: whatever goes wrong, the verdict is valid and a denial."""

import json
import os
import shlex
import subprocess
import tomllib

import pytest
import trio
from nucleic_codex import hook
from nucleic_codex.hook import HookServer, allowance, denial

from nucleic_core.backend import Ask, Reply
from nucleic_core.specs import RunSpec
from nucleic_core.testing import FakeLink

CALL = {"tool_name": "Bash", "tool_input": {"command": "ls"}, "tool_use_id": "call_1"}


def decided(verdict):
    """What Codex makes of a verdict: deny with its reason, or go on."""
    said = verdict.get("hookSpecificOutput", {})
    return said.get("permissionDecision", "go on"), said.get("permissionDecisionReason")


async def ran(env, payload=CALL, **options):
    """Run the hook as Codex does, through a shell."""
    command = hook.definition()["hooks"][0]["command"]
    done = await trio.run_process(
        ["/bin/sh", "-c", command],
        stdin=payload if isinstance(payload, bytes) else json.dumps(payload).encode(),
        env=dict(env),
        capture_stdout=True,
        capture_stderr=True,
        check=False,
        **options,
    )
    assert done.returncode == 0
    assert done.stderr == b""
    return json.loads(done.stdout)


@pytest.fixture
async def server(tmp_path):
    """A hook server with a link that only keeps what it is given."""
    async with HookServer() as server:
        server.link = FakeLink(RunSpec(session="s", backend="codex", cwd=tmp_path))
        yield server


async def given(server):
    """The messages that came through the hook, once there is one."""
    while not server.link.given:
        await trio.sleep(0.01)
    return [message for _, messages, _ in server.link.given for message in messages]


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (Reply(allowance()), ("go on", None)),
        (Reply(allowance({"command": "pwd"})), ("allow", None)),
        (Reply(denial("not on a Friday")), ("deny", "not on a Friday")),
        (Reply(denial("")), ("deny", "denied by the user")),
        (None, ("deny", "Nucleic does not understand this call.")),
    ],
)
async def test_a_call_gets_the_answer_to_its_ask(server, nursery, reply, expected):
    async def answered():
        (message,) = await given(server)
        assert message["call"] == CALL
        server.answer(Ask(message["key"], message), reply)

    nursery.start_soon(answered)
    assert decided(await ran(server.env)) == expected
    assert [channel for channel, _ in server.link.told] == [hook.CHANNEL]


@pytest.mark.parametrize("missing", ["NUCLEIC_HOOK_SOCKET", "NUCLEIC_HOOK_TOKEN"])
async def test_a_hook_without_its_way_to_the_host_denies(server, missing):
    env = {name: value for name, value in server.env.items() if name != missing}
    assert decided(await ran(env))[0] == "deny"


async def test_a_hook_whose_socket_is_gone_denies_with_a_reason():
    async with HookServer() as server:
        env = dict(server.env)
    verdict, reason = decided(await ran(env))
    assert verdict == "deny"
    assert "could not be asked" in reason


async def test_a_hook_with_a_wrong_token_denies_and_nothing_is_asked(server):
    assert decided(await ran({**server.env, "NUCLEIC_HOOK_TOKEN": "guessed"}))[0] == "deny"
    assert server.link.given == []


@pytest.mark.parametrize("payload", [b"", b"not json", b"\xff\xfe"])
async def test_a_payload_that_is_no_json_is_denied(server, payload):
    assert decided(await ran(server.env, payload))[0] == "deny"


async def test_a_host_that_ends_before_it_has_decided_denies():
    async with trio.open_nursery() as nursery, HookServer() as server:
        server.link = FakeLink(RunSpec(session="s", backend="codex", cwd="/"))
        verdicts = []

        async def run():
            verdicts.append(await ran(env))

        env = dict(server.env)
        nursery.start_soon(run)
        await given(server)
    assert decided(verdicts[0])[0] == "deny"


async def test_a_hook_that_is_ended_takes_its_ask_back(server):
    command = shlex.split(hook.definition()["hooks"][0]["command"])
    process = await trio.lowlevel.open_process(command, stdin=subprocess.PIPE, env=dict(server.env))
    async with process.stdin:
        await process.stdin.send_all(json.dumps(CALL).encode())
    (message,) = await given(server)
    process.kill()
    await process.wait()
    while len(server.link.given) < 2:
        await trio.sleep(0.01)
    assert server.link.given[1][1] == [{"key": message["key"], "withdrawn": True}]
    server.answer(Ask(message["key"], message), Reply(allowance()))  # too late: nobody is told anything
    assert server.link.told == []


async def test_large_payloads_pass_whole(server, nursery):
    call = {**CALL, "tool_input": {"command": "x" * 3_000_000}}

    async def answered():
        (message,) = await given(server)
        assert message["call"] == call
        server.answer(Ask(message["key"], message), Reply(allowance(message["call"]["tool_input"])))

    nursery.start_soon(answered)
    verdict = await ran(server.env, call)
    assert len(verdict["hookSpecificOutput"]["updatedInput"]["command"]) == 3_000_000


async def test_the_socket_is_ours_alone_and_gone_at_the_end():
    async with HookServer() as server:
        path = server.env["NUCLEIC_HOOK_SOCKET"]
        assert len(os.fsencode(path)) < 107
        assert (trio.Path(path).parent and os.stat(os.path.dirname(path)).st_mode & 0o777) == 0o700
        assert os.stat(path).st_mode & 0o777 == 0o600
    assert not os.path.exists(os.path.dirname(path))


async def test_an_error_in_the_block_comes_out_plain():
    with pytest.raises(ZeroDivisionError):
        async with HookServer():
            raise ZeroDivisionError


def test_the_arguments_are_toml_that_says_what_the_definition_says():
    flag, given_hook, other, state = hook.arguments()
    assert (flag, other) == ("-c", "-c")
    assert tomllib.loads(given_hook)["hooks"]["PreToolUse"] == [hook.definition()]
    trusted = tomllib.loads(state)["hooks"]["state"][hook.KEY]["trusted_hash"]
    assert trusted == hook.trusted_hash(hook.definition())


def test_the_hash_is_the_one_that_codex_reports():
    """From `hooks/list` of 0.141.0 and of 0.171.0, which agree (docs/wire-truth.md)."""
    command = '/usr/bin/python3 -I -S "/x y/hook.py" /tmp/s'
    group = {"matcher": "*", "hooks": [{"type": "command", "command": command, "timeout": 86400}]}
    expected = "sha256:c41b383dbaa19a35d282777205fafb6e20375377392ef4173e64e4700ec31513"
    assert hook.trusted_hash(group) == expected


def listed(**fields):
    ours = {"key": hook.KEY, "enabled": True, "trustStatus": "trusted", **fields}
    return {"data": [{"cwd": "/repo", "hooks": [{"key": "other", "trustStatus": "untrusted"}, ours]}]}


@pytest.mark.parametrize(
    ("answer", "wrong"),
    [
        (listed(), ""),
        (listed(trustStatus="managed"), ""),
        (listed(trustStatus="modified"), "its trust is 'modified'"),
        (listed(trustStatus=None), "its trust is None"),
        (listed(enabled=False), "it is switched off"),
        (listed(key="another"), "Codex does not list it"),
        ({"data": []}, "Codex does not list it"),
        (None, "Codex does not list it"),
    ],
)
def test_a_hook_that_codex_would_not_run_is_seen(answer, wrong):
    assert hook.untrusted(answer) == wrong


def test_a_hook_is_ready_in_well_under_the_time_a_person_notices():
    """It imports four modules of the standard library; importing more is what would make it slow."""
    command = shlex.split(hook.definition()["hooks"][0]["command"])
    listing = "import sys; open('/dev/stderr','w').write(str(len(sys.modules)))"
    script = command[-1].replace("os._exit(0)", listing)
    done = subprocess.run([*command[:-1], script], input=b"{}", capture_output=True, env={}, check=False)
    assert int(done.stderr) < 80
