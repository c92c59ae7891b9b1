"""Opening a session: from arguments to a run that is checked before anything is spawned, and the way back down."""

import os
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TypedDict, Unpack

import attrs
import trio

from nucleic_core._approvals.coordinator import Coordinator, Responder
from nucleic_core._approvals.policies import Seat, check_names, seat_policies
from nucleic_core._approvals.rules import FixedRules
from nucleic_core._background import background
from nucleic_core._host import Host, open_host
from nucleic_core._plugins import Hooks
from nucleic_core._session.decoding import Decoding
from nucleic_core._session.history import History, read_history
from nucleic_core._session.ledger import Item, Ledger
from nucleic_core._session.machine import Machine
from nucleic_core._session.pipeline import Pipeline
from nucleic_core._session.session import RunResult, Session
from nucleic_core._session.status import StatusMachine
from nucleic_core._session.upkeep import IndexKeeper, Observers
from nucleic_core._store.git import git_position
from nucleic_core._store.header import Header
from nucleic_core._store.redaction import secrets_of
from nucleic_core._store.transcript import Transcript, now
from nucleic_core._values import JSON, unicode_text
from nucleic_core.approvals import ApprovalPolicy, Rule
from nucleic_core.capabilities import BackendCapabilities
from nucleic_core.errors import AgentGone, BadDirectory, SessionBusy, Unsupported
from nucleic_core.events import Notice
from nucleic_core.specs import AgentInput, Image, RunSpec, Tool, plain_text

_ALWAYS_HONOURED = frozenset({"session", "backend", "cwd", "prompt", "env", "rules", "settings"})
"""RunSpec fields that the core sees to itself, or that the backend validates itself."""


class RunOptions(TypedDict, total=False):
    """The fields of `RunSpec` that `open_session` and `run` take by the same names."""

    model: str | None
    sandbox: str | None
    rules: Sequence[Rule] | None
    system_prompt: str | None
    mcp_config: Path | str | None
    add_dirs: Sequence[Path | str]
    partials: bool
    output_schema: JSON
    ephemeral: bool
    env: Mapping[str, str]
    extra_args: Sequence[str]
    settings: Mapping[str, JSON]


@asynccontextmanager
async def open_session(
    backend: str | None = None,
    prompt: str | AgentInput | None = None,
    *,
    cwd: Path | str | None = None,
    resume: str | None = None,
    fork: bool = False,
    policies: Sequence[str | ApprovalPolicy] = (),
    responder: Responder = "wait",
    approval_deadline: float | None = None,
    keep_open: bool = False,
    host: Host | None = None,
    **options: Unpack[RunOptions],
) -> AsyncIterator[Session]:
    """Start an agent, or take a session up again, and keep it for the block.

    With a prompt the session ends by itself at the first idle; `keep_open` (and no prompt) keeps it for `send` until
    `finish` or the end of the block. Nothing outlives the block. `resume` is our session id, and `fork` gives the agent
    a new native session with the same past, in a transcript of its own. At the end of a block that raised nothing,
    TranscriptFailed says that not all of the transcript may be on the disk.

    `policies`: names (shipped ones, or entry points of installed plugins) and policy objects. `responder` answers what
    they leave open: "wait" for `respond` and the control socket, "deny", or an async function. `approval_deadline`:
    seconds after which an ask is denied; none unless set.

    Raises a NucleicError that says what to do: BackendMissing, BackendBroken, Unsupported, BadDirectory, BadSettings,
    SessionNotFound, SessionBusy, StartFailed, HandshakeTimeout, TranscriptFailed.
    """
    async with AsyncExitStack() as stack:
        if host is None:
            host = await stack.enter_async_context(open_host())
        past = await _look_back(host.home, resume) if resume is not None else None
        run = _plan(backend, prompt, cwd, past, fork, options)
        hooks = host.plugins.backend(run.backend)
        capabilities = hooks.capabilities(run)
        _check(run, capabilities)
        run, left_out = _with_tools(run, hooks, capabilities)
        check_names(policies, host.plugins.extensions, host.plugins.broken_extensions())
        transcript = await _open_transcript(host, run, past)
        host.syncer.add(transcript)
        try:
            session = Session(run, transcript, capabilities, keep_open=keep_open or run.prompt is None)
            _assemble(session, run, hooks, host, past, policies, responder, approval_deadline, transcript)
            title = past.title if past is not None else plain_text(run.prompt) if run.prompt is not None else ""
            async with _serve(session, run, hooks, host, title, left_out):
                yield session
        finally:
            with trio.CancelScope(shield=True):
                await host.syncer.close(transcript)
        if transcript.failure is not None:  # the last sync failed, after a run that knew of nothing
            raise transcript.failure


async def run(
    backend: str | None = None,
    prompt: str | AgentInput | None = None,
    *,
    cwd: Path | str | None = None,
    resume: str | None = None,
    fork: bool = False,
    policies: Sequence[str | ApprovalPolicy] = (),
    responder: Responder = "deny",
    approval_deadline: float | None = None,
    host: Host | None = None,
    **options: Unpack[RunOptions],
) -> RunResult:
    """Run one prompt to its end; what policies leave open is denied unless a responder is given."""
    async with open_session(
        backend,
        prompt,
        cwd=cwd,
        resume=resume,
        fork=fork,
        policies=policies,
        responder=responder,
        approval_deadline=approval_deadline,
        host=host,
        **options,
    ) as session:
        if prompt is None:
            await session.finish()
        return await session.result()


async def _look_back(home: Path, session: str) -> History:
    return await trio.to_thread.run_sync(read_history, home, session, limiter=trio.CapacityLimiter(1))


def _plan(
    backend: str | None,
    prompt: str | AgentInput | None,
    cwd: Path | str | None,
    past: History | None,
    fork: bool,
    options: RunOptions,
) -> RunSpec:
    """The run, with every path absolute. What a resumed session is bound to cannot be changed."""
    unknown = options.keys() - RunOptions.__annotations__.keys()
    if unknown:
        raise TypeError(f"no option is called {', '.join(sorted(unknown))}")
    try:
        where = Path(cwd if cwd is not None else past.header.cwd if past is not None else ".").absolute()
    except FileNotFoundError as exc:
        raise BadDirectory("The current directory is gone; go to one that exists, or name one (--cwd).") from exc
    if not where.is_dir():
        raise BadDirectory(f"{where} is no directory; give the run one that exists (--cwd).")
    if not _is_text(where):
        raise BadDirectory(
            f"The name {str(where)!r} is no UTF-8, so neither an agent's protocol nor a transcript can hold it; rename it."
        )
    session, native = str(uuid.uuid4()), None
    if past is not None:
        header = past.header
        if backend is not None and backend != header.backend:
            raise Unsupported(f"Session {header.session} belongs to {header.backend}; it cannot go on with {backend}.")
        if where.resolve() != Path(header.cwd).resolve():
            raise BadDirectory(f"Session {header.session} belongs to {header.cwd}; it cannot go on in {where}.")
        if past.native_id is None:
            raise Unsupported(f"Session {header.session} never got an id from {header.backend}; start a new one.")
        backend, native = header.backend, past.native_id
        session = session if fork else header.session
    elif fork:
        raise Unsupported("Only a session that is resumed can be forked.")
    if backend is None:
        raise Unsupported("Name a backend, or a session to resume.")
    message = None if prompt is None else AgentInput.of(prompt)
    mcp_config, rules = options.get("mcp_config"), options.get("rules")
    return RunSpec(
        session=session,
        backend=backend,
        cwd=where,
        prompt=message,
        model=options.get("model"),
        sandbox=options.get("sandbox"),
        rules=None if rules is None else tuple(rules),
        system_prompt=options.get("system_prompt"),
        mcp_config=None if mcp_config is None else Path(mcp_config).absolute(),
        add_dirs=tuple(Path(folder).absolute() for folder in options.get("add_dirs", ())),
        partials=options.get("partials", True),
        output_schema=options.get("output_schema"),
        ephemeral=options.get("ephemeral", False),
        env=dict(options.get("env", {})),
        extra_args=tuple(options.get("extra_args", ())),
        native_resume=native,
        fork=fork,
        settings=dict(options.get("settings", {})),
    )


def _is_text(path: Path) -> bool:
    return unicode_text(str(path)) == str(path)


def _check(run: RunSpec, capabilities: BackendCapabilities) -> None:
    """Refuse what the backend would silently leave out."""
    bare = RunSpec(run.session, run.backend, run.cwd)
    for field in attrs.fields(RunSpec):
        honoured = field.name in _ALWAYS_HONOURED or field.name in capabilities.honours
        if not honoured and getattr(run, field.name) != getattr(bare, field.name):
            raise Unsupported(f"{run.backend} does not honour {field.name}; leave it out.")
    if run.prompt is not None:
        if any(isinstance(part, Image) for part in run.prompt.parts) and not capabilities.images:
            raise Unsupported(f"{run.backend} takes no images; leave them out.")
        if not run.prompt.parts or not (plain_text(run.prompt).strip() or capabilities.images):
            raise Unsupported("The prompt is empty; say what the agent should do.")


def _with_tools(run: RunSpec, hooks: Hooks, capabilities: BackendCapabilities) -> tuple[RunSpec, list[str]]:
    """The run with the tools that plugins give it, and what to say of those that are left out."""
    tools: dict[str, Tool] = {}
    left_out = []
    for plugin, given in hooks.tools(run):
        if isinstance(given, Exception):
            left_out.append(f"The tools of the plugin {plugin} are left out: {type(given).__name__}: {given}")
            continue
        for tool in given:
            if tool.name in tools:
                left_out.append(f"The tool {tool.name} of the plugin {plugin} is left out: another has that name.")
            else:
                tools[tool.name] = tool
    if tools and "tools" not in capabilities.honours:
        left_out.append(f"The tools {', '.join(tools)} are left out: {run.backend} cannot be given tools.")
        tools.clear()
    return attrs.evolve(run, tools=tuple(tools.values())), left_out


async def _open_transcript(host: Host, run: RunSpec, past: History | None) -> Transcript:
    secrets = secrets_of({**os.environ, **run.env})
    if past is not None and not run.fork:
        transcript = Transcript.reopen(host.home, run.session, secrets=secrets)
        try:
            _take_up(transcript, past)
        except BaseException:
            transcript.close()
            raise
        return transcript
    from importlib.metadata import version  # a hundredth of a second that an import need not pay

    position = await git_position(run.cwd)
    header = Header(
        nucleic_version=version("nucleic-core"),
        session=run.session,
        backend=run.backend,
        cwd=str(run.cwd),
        base_commit=position.commit if position else None,
        model=run.model,
        created_at=now(),
        forked_from=past.header.session if past is not None else None,
    )
    return Transcript.create(host.home, header, secrets=secrets)


def _take_up(transcript: Transcript, past: History) -> None:
    """Put an end to what a host that was killed left open; then the new run begins."""
    if transcript.next_seq - 1 != past.last_seq:
        raise SessionBusy(f"session {past.header.session} was written to by another process just now; try again.")
    repairs: list[Item] = []
    if transcript.torn is not None:
        text = f"The last {transcript.torn.size} bytes were half a line; they are kept in {transcript.torn.copy.name}."
        repairs.append((Notice("torn_line", text), None, None))
    transcript.append([*repairs, *past.repairs()])
    transcript.begin_run()


def _assemble(
    session: Session,
    run: RunSpec,
    hooks: Hooks,
    host: Host,
    past: History | None,
    policies: Sequence[str | ApprovalPolicy],
    responder: Responder,
    deadline: float | None,
    transcript: Transcript,
) -> None:
    """Give a session its parts; they know each other through it."""
    decoder = hooks.decoder(run)
    session.pipeline = Pipeline(
        transcript,
        Decoding(decoder, Ledger()),
        StatusMachine(),
        committed=session.committed,
        failed=session.transcript_failed,
    )
    seats = seat_policies(policies, hooks.policies(run, session))
    if run.rules is not None:
        seats.append(Seat(FixedRules(run.rules, run.cwd), named=True))
    session.coordinator = session.pipeline.coordinator = Coordinator(
        session,
        mapper=hooks.approval_mapper(run),
        seats=seats,
        responder=responder,
        cwd=run.cwd,
        deadline=deadline,
    )
    session.machine = Machine(run, hooks, decoder, session.pipeline, session.coordinator, host.guard, session.prove)
    if past is not None and not run.fork:
        for grant, request in past.grants:
            session.coordinator.rules.grant(grant, request)


@asynccontextmanager
async def _serve(
    session: Session, run: RunSpec, hooks: Hooks, host: Host, title: str, left_out: Sequence[str]
) -> AsyncIterator[None]:
    """The machine beside the body, and one way down."""
    over = trio.Event()

    async def machine() -> None:
        try:
            await session.machine.run()
        finally:
            session.over()
            over.set()

    keeper = IndexKeeper(host.home, session, title)
    observers = Observers(session, hooks.observers(run, session))
    async with background() as tasks:
        tasks.start_soon(machine)
        host.add(session)
        try:
            await session.machine.ready.wait()
            session.machine.check_started()
            for name, why in host.plugins.broken_extensions().items():
                text = f"The plugin {name} is not loaded, so nothing is allowed by a policy: {why}"
                session.pipeline.mention(Notice("plugin", text))
            for text in left_out:
                session.pipeline.mention(Notice("plugin", text))
            tasks.start_soon(keeper.run)
            observers.start(tasks)
            if run.prompt is not None:
                try:
                    await session.send(run.prompt)
                except AgentGone:
                    pass  # it ended before it was asked anything: an outcome, which the events tell
            yield
        finally:
            session.machine.end("left")
            with trio.CancelScope(shield=True):
                await over.wait()
                await observers.drain()
                await keeper.write()
                host.remove(session)
        if session.pipeline.failure is not None:
            raise session.pipeline.failure
