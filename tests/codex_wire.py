"""Messages of the app-server as a test writes them, and what the decoder makes of them."""

from nucleic_codex.app_server.approvals import CodexApprovals
from nucleic_codex.app_server.decode import AppServerDecoder

from nucleic_core._session.ledger import Ledger

ROOT, CHILD = "t1", "t2"
mapper = CodexApprovals()


class Wire:
    """A decoder with a root thread in which a turn runs, and an Out that keeps what comes out, in order."""

    def __init__(self, *, begun=True, **options):
        self.decoder = AppServerDecoder(**options)
        self.items = []
        if begun:
            self.sends("thread/start", 1, cwd="/w")
            self.replies(1, thread={"id": ROOT, "path": "/home/dev/rollout"}, model="gpt-x", cwd="/w")
            self.started()
            self.items.clear()

    # the Out

    def event(self, data, native=None, parent=None):
        self.items.append((data, native, parent))

    def ask(self, ask, native=None, parent=None):
        self.items.append((ask, native, parent))

    def withdraw(self, key, reason):
        self.items.append(((key, reason), None, None))

    # messages

    def sends(self, method, number, **params):
        self.decoder.sent({"method": method, "id": number, "params": params}, self)
        return self

    def answers(self, number, result):
        self.decoder.sent({"id": number, "result": result}, self)
        return self

    def replies(self, number, **result):
        self.decoder.received({"id": number, "result": result}, self)
        return self

    def refuses(self, number, message, code=-32600):
        self.decoder.received({"id": number, "error": {"code": code, "message": message}}, self)
        return self

    def says(self, method, thread=ROOT, **params):
        self.decoder.received({"method": method, "params": {"threadId": thread, **params}, "emittedAtMs": 1}, self)
        return self

    def asks(self, method, number, thread=ROOT, turn="u1", **params):
        params = {"threadId": thread, "turnId": turn, **params}
        self.decoder.received({"method": method, "id": number, "params": params}, self)
        return self

    def started(self, turn="u1", thread=ROOT):
        return self.says("turn/started", thread, turn={"id": turn, "status": "inProgress", "items": []})

    def completed(self, turn="u1", thread=ROOT, status="completed", **fields):
        turn = {"id": turn, "status": status, "error": None, "items": [], "durationMs": 7, **fields}
        return self.says("turn/completed", thread, turn=turn)

    def item(self, kind, item_id="i1", *, thread=ROOT, turn="u1", then=None, **fields):
        """An item that starts, and completes with the fields `then` beside the others."""
        self.begins(kind, item_id, thread=thread, turn=turn, **fields)
        return self.ends(kind, item_id, thread=thread, turn=turn, **{**fields, **(then or {})})

    def begins(self, kind, item_id="i1", *, thread=ROOT, turn="u1", **fields):
        return self.says("item/started", thread, turnId=turn, item={"type": kind, "id": item_id, **fields})

    def ends(self, kind, item_id="i1", *, thread=ROOT, turn="u1", **fields):
        return self.says("item/completed", thread, turnId=turn, item={"type": kind, "id": item_id, **fields})

    def tokens(self, last, total=None, turn="u1", thread=ROOT):
        def figures(count):
            names = ("inputTokens", "cachedInputTokens", "outputTokens", "reasoningOutputTokens")
            return dict.fromkeys(names, count)

        usage = {"last": figures(last), "modelContextWindow": 1000}
        if total is not None:
            usage["total"] = figures(total)
        return self.says("thread/tokenUsage/updated", thread, turnId=turn, tokenUsage=usage)

    def exits(self, returncode=0):
        self.decoder.ended(returncode, self)
        return self

    # what came out

    @property
    def events(self):
        return [data for data, _, _ in self.items if hasattr(data, "kind")]

    @property
    def kinds(self):
        return [data.kind for data in self.events]

    def of(self, *classes):
        return [data for data, _, _ in self.items if isinstance(data, classes)]

    @property
    def withdrawn(self):
        return [data[0] for data, _, _ in self.items if isinstance(data, tuple)]

    @property
    def ledger(self):
        """The core's account of it all."""
        ledger = Ledger()
        for data, native, parent in self.items:
            if hasattr(data, "kind"):
                list(ledger.admit((data, native, parent)))
        return ledger


COMMAND = {
    "command": "/bin/bash -lc 'npm test'",
    "cwd": "/w",
    "status": "inProgress",
    "processId": None,
    "aggregatedOutput": None,
    "exitCode": None,
}
