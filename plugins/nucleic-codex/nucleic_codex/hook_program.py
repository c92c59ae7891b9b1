"""The PreToolUse hook: a script of its own that asks the host about one tool call and prints the verdict.

Codex runs the tool when a hook crashes, prints anything else or is late, so whatever happens here ends in a verdict, and
everything that is not a verdict of the host's is a denial. Standard library only, and little of it: it runs before every
gated call. It is never imported: `hook.py` puts its text on the command line, so there is no file to change.
"""

import json
import os
import socket
import sys

DEADLINE = 86100.0  # seconds; below the timeout in the hook's definition, after which Codex would run the tool


def denied(reason: str) -> object:
    return {
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": "deny",
            "permissionDecisionReason": "Nucleic: " + reason,
        }
    }


def asked() -> object:
    """The host's verdict, {} where it has nothing to object to."""
    call = json.loads(sys.stdin.buffer.read())
    with socket.socket(socket.AF_UNIX) as host:
        host.settimeout(DEADLINE)
        host.connect(os.environ["NUCLEIC_HOOK_SOCKET"])
        question = {"token": os.environ["NUCLEIC_HOOK_TOKEN"], "call": call}
        host.sendall(json.dumps(question).encode() + b"\n")
        answer = b""
        while not answer.endswith(b"\n"):
            piece = host.recv(65536)
            if not piece:
                return denied("the host ended before it had decided.")
            answer += piece
    verdict = json.loads(answer)["verdict"]
    return verdict if isinstance(verdict, dict) else denied("the host's verdict is none.")


try:
    verdict = asked()
except TimeoutError:
    verdict = denied("nobody decided in time.")
except BaseException as error:
    verdict = denied("the host could not be asked (" + type(error).__name__ + ").")
sys.stdout.write(json.dumps(verdict))
sys.stdout.flush()
os._exit(0)
