"""Runs one turn of `codex exec`: a process, its output, and then what it left behind.

It carries and does not read. The prompt is the process's stdin, so nothing is sent later, and nothing is ever asked. When
stdout has ended, the driver fetches what the decoder cannot (the last message, the thread's file, stderr) and gives it on
channels of its own.
"""

import os
import shutil
import signal
import tempfile
import tomllib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import orjson
import trio

from nucleic_codex.exec import rollout
from nucleic_codex.exec.access import access
from nucleic_codex.exec.decode import ExecDecoder
from nucleic_codex.exec.probe import ExecProber
from nucleic_codex.exec.settings import Settings
from nucleic_codex.exec.spawn import Files, UserConfig, spawn
from nucleic_codex.fields import mapping
from nucleic_codex.program import NEWEST, Program, codex_home, find, spoken
from nucleic_core.backend import Ask, Link, Reply
from nucleic_core.errors import Unsupported
from nucleic_core.specs import AgentInput, Image, ProcessSpec, RunSpec, plain_text

T = TypeVar("T")

SYSTEM_CONFIG = Path("/etc/codex/config.toml")
ONE_TURN = "codex-exec is one turn and one process: resume the session to go on, or use the backend codex."


class ExecDriver:
    """The driver of one run. Rules and settings are checked here, the program is found when it is entered."""

    def __init__(self, run: RunSpec, decoder: ExecDecoder) -> None:
        self._run = run
        self._decoder = decoder
        self._env = {**os.environ, **run.env}
        self._settings = Settings.read(run.settings)
        self._granted = access(run, self._env)
        if run.prompt is None:
            raise Unsupported(f"Give the run a prompt: {ONE_TURN}")
        if not plain_text(run.prompt).strip():
            raise Unsupported("codex exec takes no picture without words; say what to do with it.")
        self._home = codex_home(self._env)
        self._program: Program | None = None
        self._user = UserConfig()
        self._mark: rollout.Mark | None = None
        self._link: Link | None = None
        self._sent = trio.Event()

    async def __aenter__(self) -> Self:
        self._program = await find(self._settings.executable, self._env)
        self._user = await _in_thread(lambda: user_config(self._home))
        if self._run.native_resume is not None:
            self._mark = await _in_thread(lambda: _quietly(lambda: rollout.mark(self._home, self._thread_before), None))
        self._folder = Path(await _in_thread(lambda: tempfile.mkdtemp(prefix="nucleic-codex-")))  # 0700
        try:
            self._files = await _in_thread(lambda: _files(self._run, self._folder))
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def process(self) -> ProcessSpec:
        """The process to start; the driver must be entered."""
        assert self._program is not None
        return spawn(self._run, self._program, self._granted, self._files, self._user)

    async def converse(self, link: Link, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Ready at the first message: a thread that cannot be had, or a bad setting, ends the process without one."""
        assert self._program is not None
        self._link = link
        async for batch in link.batches():
            if not self._sent.is_set():
                self._introduce(link, self._program)
                task_status.started()
                await self._sent.wait()  # so that the prompt stands before what came of it
            link.received(batch)
        if self._sent.is_set():
            await self._look_back(link)

    def _introduce(self, link: Link, program: Program) -> None:
        if program.version > NEWEST:
            text = f"{program} is untested: the newest version that was looked at is {spoken(NEWEST)}."
            link.notice("version", text)
        link.prove(ExecProber().declared(spoken(program.version), self._run))
        link.received([{"version": spoken(program.version)}], "program")
        if self._mark is not None and self._mark.count is not None:
            link.received([self._mark.count], "rollout")

    async def _look_back(self, link: Link) -> None:
        """Give the decoder what stdout does not have."""
        said = await link.stderr()
        thread = self._decoder.thread
        if thread is not None and not self._run.ephemeral:
            found = lambda: rollout.since(self._home, thread, self._mark)  # noqa: E731
            link.received(await _in_thread(lambda: _quietly(found, [])), "rollout")
        link.received([{"line": line} for line in said.splitlines()], "stderr")
        with suppress(OSError):
            text = await trio.Path(self._files.last_message).read_text(encoding="utf-8", errors="replace")
            link.received([{"text": text}] if text else [], "last_message")

    async def send(self, message: AgentInput, *, steer: bool = False) -> None:
        """The run's prompt, which the process was started with. Raises Unsupported for any other."""
        if self._sent.is_set():
            raise Unsupported(ONE_TURN)
        await trio.lowlevel.checkpoint()
        self._sent.set()

    async def interrupt(self) -> None:
        """Stop the turn, and with it the process, by SIGINT. One that is over is left to end by itself."""
        if self._link is not None and not self._decoder.turn_over:
            self._link.signal(signal.SIGINT)
        await trio.lowlevel.checkpoint()

    async def finish(self) -> None:
        """Nothing to do: the process has had its whole input."""
        self._sent.set()
        await trio.lowlevel.checkpoint()

    def answer(self, ask: Ask, reply: Reply | None) -> None:
        """Never called: nothing is asked."""
        raise Unsupported("codex-exec asks nothing, so there is nothing to answer.")

    @property
    def _thread_before(self) -> str:
        assert self._run.native_resume is not None
        return self._run.native_resume


def user_config(home: Path) -> UserConfig:
    """What counts of the user's and the system's configuration. What cannot be read, Codex itself will refuse."""
    servers: dict[str, None] = {}
    keys: dict[str, None] = {}
    for file in (SYSTEM_CONFIG, home / "config.toml"):
        try:
            config = tomllib.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        servers |= dict.fromkeys(mapping(config.get("mcp_servers")))
        for provider in mapping(config.get("model_providers")).values():
            fields = mapping(provider)
            named = [fields.get("env_key"), *mapping(fields.get("env_http_headers")).values()]
            keys |= dict.fromkeys(name for name in named if isinstance(name, str))
    return UserConfig(tuple(servers), tuple(keys))


def _files(run: RunSpec, folder: Path) -> Files:
    """What Codex is given by file: a schema and pictures."""
    schema, images = None, list[Path]()
    if run.output_schema is not None:
        schema = folder / "schema.json"
        schema.write_bytes(orjson.dumps(run.output_schema))
    for part in run.prompt.parts if run.prompt is not None else ():
        if isinstance(part, Image):
            images.append(folder / f"{len(images) + 1}.{part.media_type.rpartition('/')[2]}")
            images[-1].write_bytes(part.data)
    return Files(folder / "last_message", schema, tuple(images))


async def _in_thread(work: Callable[[], T]) -> T:
    return await trio.to_thread.run_sync(work, limiter=trio.CapacityLimiter(1))


def _quietly(work: Callable[[], T], otherwise: T) -> T:
    """What lies in Codex's own files is a gift: that it cannot be read is no reason to fail."""
    try:
        return work()
    except OSError:
        return otherwise
