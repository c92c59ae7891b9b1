"""The demo agent: a real child process that does what its prompt says, line by line. Standard library only.

It stands in where no coding agent is installed, and it is the agent that the tests drive. A prompt line that begins with
a command below is done; a prompt without one gets the little show in `SHOW`. Everything that changes something is asked
first. It speaks JSON lines: see `plugin.py`, which reads them.

    say TEXT          stream a text            write PATH TEXT   ask, then write a file in the working directory
    think TEXT        stream a thought         run COMMAND       ask, then run a shell command there
    ask Q | A | B     ask the user a question  sleep SECONDS     be busy, and stop when told to
    plan A | B | C    show a plan              fail MESSAGE      end the turn with an error
    exit CODE         end the process at once  stubborn          from now on ignore the end of input and SIGTERM
"""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

SHOW = """\
think The user wants to see how this works. I will write a file and look at it.
say I am the demo agent, a small script. I will write a file and list it; you decide each step.
write nucleic-demo.txt Written by the demo agent.
run ls -l nucleic-demo.txt
say That is all. Every step of this is in the transcript.
"""


class Stopped(Exception):
    """The user stopped the turn."""


class Failed(Exception):
    """The script says that the turn fails."""


class Agent:
    """Prompts and answers come in on a thread; turns are played on the main one."""

    def __init__(self, session: str) -> None:
        self.session = session
        self.inbox: queue.Queue[Any] = queue.Queue()
        self.prompts: queue.Queue[Any] = queue.Queue()
        self.running = False
        self.stubborn = False
        self.numbers = iter(range(1, 1 << 30))

    # -- the wire ---------------------------------------------------------------------------------------------------

    def tell(self, kind: str, **fields: Any) -> None:
        sys.stdout.write(json.dumps({"type": kind, **fields}) + "\n")
        sys.stdout.flush()

    def listen(self) -> None:
        for line in sys.stdin:
            try:
                message = json.loads(line)
            except ValueError:
                self.tell("complaint", text=f"not JSON: {line.strip()}")
                continue
            if message.get("type") == "prompt":
                if self.running:
                    self.tell("accepted", id=message["id"], state="queued")
                self.prompts.put(message)
            else:
                self.inbox.put(message)
        self.prompts.put(None)

    def wait(self, seconds: float, answer_to: str | None = None) -> Any:
        """Wait for the answer to an ask, or for time to pass; a stop ends the turn."""
        deadline = None if answer_to else time.monotonic() + seconds
        while True:
            try:
                message = self.inbox.get(timeout=None if deadline is None else max(0, deadline - time.monotonic()))
            except queue.Empty:
                return None
            if message.get("type") == "stop":
                raise Stopped
            if message.get("id") == answer_to:
                return message

    # -- a turn -----------------------------------------------------------------------------------------------------

    def play(self, prompt: Any) -> None:
        started = time.monotonic()
        words = 0
        ending: dict[str, Any] = {"outcome": "completed", "text": None}
        while not self.inbox.empty():  # a stop, or an answer, that came too late for the last turn is not for this one
            self.inbox.get_nowait()
        self.tell("turn", input=prompt["id"])
        try:
            lines = prompt["text"].splitlines()
            if not any(line.split(" ")[0] in COMMANDS for line in lines):
                lines = SHOW.splitlines()
            for line in lines:
                word, _, rest = line.partition(" ")
                command = COMMANDS.get(word)
                if command is not None:
                    ending["text"] = command(self, rest) or ending["text"]
                    words += len(rest.split())
                self.wait(0)
        except Stopped:
            ending = {"outcome": "interrupted", "text": None}
        except Failed as failure:
            ending = {"outcome": "errored", "text": None, "error": str(failure)}
        usage = {"input": len(prompt["text"].split()), "output": words}
        self.tell("done", **ending, usage=usage, ms=round((time.monotonic() - started) * 1000))

    def stream(self, kind: str, text: str) -> str:
        block = f"{kind}-{next(self.numbers)}"
        for word in text.split(" "):
            self.tell(kind, block=block, text=word + " ", partial=True)
        self.tell(kind, block=block, text=text, partial=False)
        return text

    def gated(self, tool: str, arguments: Any, act: Callable[[Any], dict[str, Any]]) -> None:
        """Ask, and act only on a yes; the answer may bring other arguments."""
        call = f"call-{next(self.numbers)}"
        self.tell("call", id=call, tool=tool, input=arguments)
        self.tell("ask", id=f"ask-{call}", call=call, tool=tool, input=arguments)
        answer = self.wait(0, answer_to=f"ask-{call}")
        if not answer.get("allow"):
            self.tell("result", id=call, error=True, text=answer.get("reason") or "denied")
            if answer.get("stop"):
                raise Stopped
            return
        try:
            self.tell("result", id=call, error=False, **act(answer.get("input") or arguments))
        except (OSError, ValueError, KeyError) as problem:
            self.tell("result", id=call, error=True, text=str(problem))

    # -- commands ---------------------------------------------------------------------------------------------------

    def say(self, text: str) -> str:
        return self.stream("text", text)

    def think(self, text: str) -> None:
        self.stream("thinking", text)

    def plan(self, text: str) -> None:
        self.tell("plan", steps=[step.strip() for step in text.split("|")])

    def write(self, rest: str) -> None:
        path, _, text = rest.partition(" ")

        def act(arguments: Any) -> dict[str, Any]:
            with open(arguments["path"], "w", encoding="utf-8") as file:
                file.write(arguments["text"] + "\n")
            return {"text": f"wrote {arguments['path']}", "written": arguments["path"]}

        self.gated("Write", {"path": path, "text": text}, act)

    def run(self, rest: str) -> None:
        def act(arguments: Any) -> dict[str, Any]:
            process = subprocess.Popen(  # noqa: S602 - this very command was allowed
                arguments["command"],
                shell=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            output: list[bytes] = []
            pipe = process.stdout
            assert pipe is not None
            reader = threading.Thread(target=lambda: output.append(pipe.read()), daemon=True)
            reader.start()
            try:
                while process.poll() is None:
                    self.wait(0.02)
            except Stopped:
                process.kill()
                raise
            reader.join(1)
            return {"text": b"".join(output).decode(errors="replace"), "exit": process.returncode}

        self.gated("Bash", {"command": rest}, act)

    def ask(self, rest: str) -> str:
        text, *options = [part.strip() for part in rest.split("|")]
        question = f"question-{next(self.numbers)}"
        self.tell("question", id=question, text=text, options=options)
        answer = self.wait(0, answer_to=question).get("answer")
        return self.say("You gave no answer." if answer is None else f"You said {answer}.")

    def sleep(self, seconds: str) -> None:
        self.wait(float(seconds))

    def fail(self, message: str) -> None:
        raise Failed(message)

    def exit(self, code: str) -> None:
        sys.stdout.flush()
        os._exit(int(code or 0))

    def be_stubborn(self, _: str) -> None:
        self.stubborn = True
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


COMMANDS: dict[str, Callable[[Agent, str], str | None]] = {
    "say": Agent.say,
    "think": Agent.think,
    "plan": Agent.plan,
    "write": Agent.write,
    "run": Agent.run,
    "ask": Agent.ask,
    "sleep": Agent.sleep,
    "fail": Agent.fail,
    "exit": Agent.exit,
    "stubborn": Agent.be_stubborn,
}


def main() -> None:
    session = sys.argv[1] if len(sys.argv) > 1 else str(uuid.uuid4())
    agent = Agent(session)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is stopped by a message
    agent.tell("hello", session=session, version="1")
    threading.Thread(target=agent.listen, daemon=True).start()
    while (prompt := agent.prompts.get()) is not None:
        agent.running = True
        agent.play(prompt)
        agent.running = False
    while agent.stubborn:
        time.sleep(60)


if __name__ == "__main__":
    main()
