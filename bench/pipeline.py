"""What the whole path costs: pipe, framing, parsing, decoding, seq, encoding, transcript, against `orjson.loads`.

    uv run python bench/pipeline.py [--check]

CPU time of this process, the best of several interleaved rounds, all in one run, as ratios to two baselines:
`loads` is `orjson.loads` over lines that lie in memory, `raw` the least that a program does which reads a child: the same
lines through the same pipe, split and given to `orjson.loads`. With --check, fails when the whole path costs more than
BAR times `raw` on whole Claude messages.
"""

import argparse
import gc
import json
import random
import subprocess
import sys
import tempfile
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import trio

from nucleic_core._approvals.coordinator import Coordinator
from nucleic_core._plugins import Plugins
from nucleic_core._session.decoding import Decoding
from nucleic_core._session.ledger import Ledger
from nucleic_core._session.pipeline import Pipeline
from nucleic_core._session.status import StatusMachine
from nucleic_core._store.header import Header
from nucleic_core._store.transcript import Transcript, now
from nucleic_core._wire.framing import LineFramer, parse
from nucleic_core._wire.process import ChildProcess
from nucleic_core.specs import RunSpec

BAR = 4.0
ROUNDS = 7
SESSION = str(uuid.UUID(int=7))
WORDS = [
    "the",
    "agent",
    "reads",
    "a",
    "file",
    "then",
    "edits",
    "the",
    "parser",
    "so",
    "that",
    "naïve",
    '"quoted"',
    "back\\slash",
    "tab\there",
]


def prose(rng: random.Random, words: int) -> str:
    return " ".join(rng.choices(WORDS, k=words))


def line(kind: str, message: dict[str, Any], **more: object) -> dict[str, Any]:
    return {
        "type": kind,
        "message": message,
        "parent_tool_use_id": None,
        "session_id": SESSION,
        "uuid": str(uuid.uuid4()),
        **more,
    }


def assistant(number: int, block: dict[str, Any]) -> dict[str, Any]:
    usage = {
        "input_tokens": 12,
        "cache_creation_input_tokens": 4123,
        "cache_read_input_tokens": 19321,
        "output_tokens": 9,
    }
    message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "claude-x", "content": [block]}
    return line("assistant", {**message, "stop_reason": None, "stop_sequence": None, "usage": usage})


def whole_messages(turns: int) -> Iterator[dict[str, Any]]:
    """Turns of text, thinking, calls and their results, as Claude prints them without partial messages."""
    rng = random.Random(20261130)
    yield {
        "type": "system",
        "subtype": "init",
        "session_id": SESSION,
        "cwd": "/work/demo",
        "tools": [],
        "model": "claude-x",
    }
    for n in range(turns):
        yield assistant(n, {"type": "thinking", "thinking": prose(rng, 60), "signature": "c2ln" * 40})
        yield assistant(n, {"type": "text", "text": prose(rng, 120)})
        for tool, arguments in (
            ("Bash", {"command": f"rg -n {prose(rng, 6)}", "description": prose(rng, 8)}),
            ("Read", {"file_path": f"/work/demo/src/{n}.py"}),
        ):
            call = f"toolu_{n}_{tool}"
            yield assistant(n, {"type": "tool_use", "id": call, "name": tool, "input": arguments})
            text = "\n".join(f"{i:5d}\t{prose(rng, 12)}" for i in range(16))
            result = {"tool_use_id": call, "type": "tool_result", "content": text, "is_error": False}
            extra = {"stdout": text, "stderr": "", "interrupted": False}
            yield line("user", {"role": "user", "content": [result]}, tool_use_result=extra)


def deltas(count: int) -> Iterator[dict[str, Any]]:
    """Text deltas, as Claude prints them with partial messages."""
    rng = random.Random(20261130)

    def event(**fields: object) -> dict[str, Any]:
        return {
            "type": "stream_event",
            "event": fields,
            "session_id": SESSION,
            "parent_tool_use_id": None,
            "uuid": str(uuid.uuid4()),
        }

    yield event(type="message_start", message={"id": "msg_1", "role": "assistant", "content": [], "usage": {}})
    yield event(type="content_block_start", index=0, content_block={"type": "text", "text": ""})
    for _ in range(count):
        yield event(type="content_block_delta", index=0, delta={"type": "text_delta", "text": prose(rng, 3)})


HOOKS = Plugins().backend("claude")  # finding plugins is a session's cost, not a line's


def fresh(home: Path) -> tuple[Pipeline, Decoding, Transcript]:
    run = RunSpec(SESSION, "claude", Path("/work/demo"))
    header = Header(
        nucleic_version="0", session=str(uuid.uuid4()), backend="claude", cwd="/work/demo", created_at=now()
    )
    transcript = Transcript.create(home, header)
    decoding = Decoding(HOOKS.decoder(run), Ledger())
    pipeline = Pipeline(transcript, decoding, StatusMachine(), committed=lambda _: None, failed=lambda _: None)
    pipeline.coordinator = Coordinator(None, mapper=None, seats=(), responder="deny", cwd=run.cwd)  # type: ignore[arg-type]
    return pipeline, decoding, transcript


def measure(path: Path, home: Path) -> dict[str, float]:
    data = path.read_bytes()
    lines = data.splitlines()
    messages = [orjson.loads(each) for each in lines]
    gc.collect()
    gc.freeze()  # what lies here for the other rows is no part of what a run holds
    size = 1 << 18
    chunks = [data[i : i + size] for i in range(0, len(data), size)]

    def loads() -> None:
        for each in lines:
            orjson.loads(each)

    def framed() -> None:
        framer = LineFramer()
        for chunk in chunks:
            parse(framer.feed(chunk))

    def decoded() -> None:
        _, decoding, transcript = fresh(home)
        for i in range(0, len(messages), 200):
            deque(decoding.received(messages[i : i + 200]), 0)
        transcript.close()

    def recorded() -> None:
        pipeline, _, transcript = fresh(home)
        for i in range(0, len(messages), 200):
            pipeline.received(messages[i : i + 200], "stdout", lambda *_: None)
        transcript.close()

    script = f"import shutil, sys; shutil.copyfileobj(open({str(path)!r}, 'rb'), sys.stdout.buffer, 1 << 20)"
    argv = [sys.executable, "-I", "-S", "-c", script]

    async def through_a_pipe() -> None:
        pipeline, _, transcript = fresh(home)
        async with trio.open_nursery() as nursery:
            child = await ChildProcess.start(nursery, argv, env={}, cwd=None, stdin="null", cookie="bench")
            async for batch in child.batches():
                pipeline.received(batch, "stdout", lambda *_: None)
            await child.end((5, 1))
        transcript.close()

    async def raw() -> None:
        process = await trio.lowlevel.open_process(argv, stdout=subprocess.PIPE)
        assert process.stdout is not None
        tail = b""
        while chunk := await process.stdout.receive_some(size):
            *whole, tail = (tail + chunk).split(b"\n")
            for each in whole:
                orjson.loads(each)
        await process.wait()

    contenders: dict[str, Callable[[], object]] = {
        "loads": loads,
        "raw": lambda: trio.run(raw),
        "frame and parse": framed,
        "decode alone": decoded,
        "decode and record": recorded,
        "whole path": lambda: trio.run(through_a_pipe),
    }
    best = dict.fromkeys(contenders, float("inf"))
    for _ in range(ROUNDS):
        for name, contender in contenders.items():
            began = time.process_time()
            contender()
            best[name] = min(best[name], time.process_time() - began)
    return best


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--check", action="store_true", help=f"fail above {BAR} x on whole messages")
    check = arguments.parse_args().check
    with tempfile.TemporaryDirectory() as folder:
        for title, made in (("whole messages", whole_messages(2000)), ("text deltas", deltas(20000))):
            path = Path(folder, "lines.ndjson")
            count = 0
            with path.open("w", encoding="utf-8") as file:
                for each in made:
                    file.write(json.dumps(each, ensure_ascii=False, separators=(",", ":")) + "\n")
                    count += 1
            print(f"{title}: {count} lines, {path.stat().st_size // count} bytes each")
            took = measure(path, Path(folder))
            for name, seconds in took.items():
                print(f"  {name:20} {seconds / took['loads']:5.2f} x loads  {seconds / took['raw']:5.2f} x raw")
            ratio = took["whole path"] / took["raw"]
            if check and title == "whole messages" and ratio > BAR:
                sys.exit(f"the whole path costs {ratio:.2f} x raw, and the bar is {BAR}")


if __name__ == "__main__":
    main()
