"""`nucleic run` and `resume` without a terminal: what is printed, who answers, how it ends."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest


def of_kind(events, kind):
    return [event for event in events if event["kind"] == kind]


def test_json_is_the_transcript_and_nothing_else(nucleic):
    events = nucleic.events("run", "-b", "demo", "think so\nsay hi")
    assert events == nucleic.transcript()
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert events[-1]["kind"] == "run_finished"


def test_without_a_terminal_what_no_policy_allows_is_denied_and_the_run_completes(nucleic):
    done = nucleic("run", "-b", "demo", "write a.txt x\nsay done")
    assert done.returncode == 0
    assert "? Write a.txt · write · " in done.stdout
    assert "✗ denied (no responder): nobody is there to answer" in done.stdout
    assert "\x1b" not in done.stdout
    assert done.stderr == ""
    assert not (nucleic.cwd / "a.txt").exists()


def test_a_named_policy_allows(nucleic):
    events = nucleic.events("run", "-b", "demo", "--policy", "allow", "write a.txt x")
    (resolved,) = of_kind(events, "approval_resolved")
    assert resolved["decided_by"] == "policy:allow"
    assert (nucleic.cwd / "a.txt").read_text() == "x\n"


def test_a_fixed_run_allows_what_its_rules_allow(nucleic, tmp_path):
    rules = tmp_path / "rules.toml"
    rules.write_text('[[rule]]\nverdict = "allow"\ntool = "Write"\npath = "a.*"\n')
    nucleic.events("run", "-b", "demo", "--rules", str(rules), "write a.txt x\nwrite b.txt x")
    assert [path.name for path in nucleic.cwd.iterdir()] == ["a.txt"]


def test_parts_of_the_input_reach_the_agent(nucleic, tmp_path):
    log = tmp_path / "build.log"
    log.write_text("it broke\n")
    events = nucleic.events("run", "-b", "demo", "--context", f"the log={log}", "say sorry")
    assert events[0]["text"] == "Context (the log):\nit broke\n\n\nsay sorry"


def test_an_image_is_refused_where_the_backend_takes_none(nucleic, tmp_path):
    (tmp_path / "a.png").write_bytes(b"png")
    done = nucleic("run", "-b", "demo", "--image", str(tmp_path / "a.png"), "x")
    assert (done.returncode, done.stderr) == (2, "nucleic: demo takes no images; leave them out.\n")
    assert not list(nucleic.home.glob("sessions/*"))


def test_an_environment_variable_of_the_run_reaches_the_agent(nucleic):
    events = nucleic.events("run", "-b", "demo", "--policy", "allow", "--env", "COLOUR=blue", "run echo $COLOUR")
    assert of_kind(events, "tool_result")[0]["content"] == "blue\n"


def test_settings_name_backend_policies_and_the_agents_environment(nucleic):
    nucleic.config.write_text('backend = "demo"\npolicies = ["allow"]\n[backends.demo]\nenv = {COLOUR = "red"}\n')
    events = nucleic.events("run", "run echo $COLOUR")
    assert of_kind(events, "tool_result")[0]["content"] == "red\n"


def test_a_deadline_in_the_settings_denies_what_nobody_answers(nucleic):
    nucleic.config.write_text('backend = "demo"\nresponder_deadline = 0.2\n')
    events = nucleic.events("run", "--wait", "run true")
    assert of_kind(events, "approval_resolved")[0]["cause"] == "deadline"


def test_without_an_agent_the_demo_agent_is_used_and_that_is_said(nucleic):
    done = nucleic("run", "say hi")
    assert done.returncode == 0
    assert "hi" in done.stdout
    assert "No coding agent was found that can be used, so this is the demo agent, a small script." in done.stderr


def test_a_reader_that_goes_away_ends_the_run_in_order(nucleic):
    running = nucleic.start("run", "-b", "demo", "--json", "--wait", "say hi\nrun true\nsay again\nsleep 30")
    running.until(lambda event: event["kind"] == "approval_requested")
    running.process.stdout.close()
    nucleic("approve", running.events[-1]["request"]["id"])
    assert running.process.wait(30) == 141
    assert running.process.stderr.read() == ""
    assert nucleic.transcript()[-1]["kind"] == "run_finished"


def test_a_list_whose_reader_has_gone_is_quiet(nucleic):
    nucleic("run", "-b", "demo", "say hi")
    for arguments in (["sessions", "--json"], ["show", "--json", nucleic.transcript()[0]["session"]]):
        read, write = os.pipe()
        os.close(read)
        argv = [sys.executable, "-m", "nucleic_core", *arguments]
        done = subprocess.run(argv, stdout=write, stderr=subprocess.PIPE, env=nucleic.env, text=True)
        os.close(write)
        assert (done.returncode, done.stderr) == (141, "")


def test_a_closed_stdout_is_not_taken_by_a_file_of_ours(nucleic):
    script = f"exec {sys.executable} -m nucleic_core run -b demo 'say hi' >&-"
    done = subprocess.run(
        ["/bin/sh", "-c", script], env=nucleic.env, cwd=nucleic.cwd, stderr=subprocess.PIPE, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert nucleic.transcript()[-1]["kind"] == "run_finished"  # every line of it is an event


def test_sigterm_ends_the_run_in_order(nucleic):
    running = nucleic.start("run", "-b", "demo", "--json", "--wait", "run true")
    running.next_ask()
    running.process.send_signal(signal.SIGTERM)
    assert running.end() == 130
    assert running.process.stderr.read() == ""
    assert [event["kind"] for event in running.events[-2:]] == ["turn_completed", "run_finished"]
    assert running.events == nucleic.transcript()


def test_a_signal_that_is_ignored_stays_ignored(nucleic):
    script = f"trap '' HUP; exec {sys.executable} -m nucleic_core run -b demo --json --wait 'run true'"
    process = subprocess.Popen(["/bin/sh", "-c", script], env=nucleic.env, cwd=nucleic.cwd, stdout=subprocess.PIPE)
    with process:
        ask = next(e for e in map(json.loads, process.stdout) if e["kind"] == "approval_requested")["request"]["id"]
        process.send_signal(signal.SIGHUP)
        assert nucleic("approve", ask).returncode == 0
        assert list(process.stdout)
    assert process.returncode == 0


def test_notify_runs_once_per_entry_into_waiting(nucleic, tmp_path):
    told = tmp_path / "told"
    notify = f'echo "$NUCLEIC_STATUS $NUCLEIC_SESSION" >> {told}'
    prompt = "run true\nask Why?\nrun false"
    running = nucleic.start("run", "-b", "demo", "--json", "--wait", "--notify", notify, prompt)
    for count, command in enumerate((["approve"], ["answer"], ["deny"]), 1):
        ask = running.next_ask()
        while not told.exists() or len(told.read_text().splitlines()) < count:
            assert running.process.poll() is None
        nucleic(*command, ask)
    assert running.end() == 0
    session = running.events[0]["session"]
    assert told.read_text().splitlines() == [
        f"awaiting_approval {session}",
        f"awaiting_input {session}",
        f"awaiting_approval {session}",
    ]


def test_what_a_policy_answers_notifies_nobody(nucleic, tmp_path):
    told = tmp_path / "told"
    nucleic.events("run", "-b", "demo", "--policy", "allow", "--notify", f"touch {told}", "run true")
    assert not told.exists()


def test_a_session_is_resumed_by_the_beginning_of_its_id(nucleic):
    first = nucleic.events("run", "-b", "demo", "say one")
    session = first[0]["session"]
    second = nucleic.events("resume", session[:8], "say two")
    assert {event["session"] for event in second} == {session}
    assert second[0]["seq"] == first[-1]["seq"] + 1


def test_a_fork_is_a_session_of_its_own(nucleic):
    session = nucleic.events("run", "-b", "demo", "say one")[0]["session"]
    assert nucleic.events("resume", session, "--fork", "say two")[0]["session"] != session


def test_resume_without_a_prompt_needs_somebody_who_sends_one(nucleic):
    session = nucleic.events("run", "-b", "demo", "say one")[0]["session"]
    done = nucleic("resume", session)
    assert done.returncode == 2
    assert "Give a PROMPT, or --wait to take messages from `nucleic send`." in done.stderr
    running = nucleic.start("resume", session, "--wait", "--json")
    running.until(lambda event: event["kind"] == "session_started")
    assert nucleic("send", session, "say two").returncode == 0
    running.until(lambda event: event["kind"] == "turn_completed")
    running.process.send_signal(signal.SIGINT)
    assert running.end() == 130


def test_a_transcript_that_cannot_be_written_ends_the_run_and_says_so(nucleic):
    nucleic("run", "-b", "demo", "say hi")  # so that the index is there
    words = " ".join(["word"] * 400)
    script = f"ulimit -f 40; exec {sys.executable} -m nucleic_core run -b demo --json --policy allow 'say {words}\nwrite a.txt x'"
    done = subprocess.run(["/bin/sh", "-c", script], env=nucleic.env, cwd=nucleic.cwd, capture_output=True, text=True)
    assert done.returncode == 5
    assert "cannot write the transcript" in done.stderr
    assert "make room there and resume the session" in done.stderr
    assert not (nucleic.cwd / "a.txt").exists()


def test_a_current_directory_that_is_gone_is_told_in_one_sentence(nucleic):
    gone = nucleic.cwd / "gone"
    gone.mkdir()
    script = f'cd "{gone}"; rmdir "{gone}"; exec {sys.executable} -P -m nucleic_core run -b demo "say hi"'
    done = subprocess.run(["/bin/sh", "-c", script], env=nucleic.env, cwd=nucleic.cwd, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (
        2,
        "nucleic: The current directory is gone; go to one that exists, or name one (--cwd).\n",
    )


@pytest.mark.parametrize(("prompt", "code"), [("'say hi'", 0), ("-", 2)])
def test_a_closed_stdin_is_an_empty_one(nucleic, prompt, code):
    script = f"exec {sys.executable} -m nucleic_core run -b demo {prompt} <&-"
    done = subprocess.run(["/bin/sh", "-c", script], env=nucleic.env, cwd=nucleic.cwd, capture_output=True, text=True)
    assert done.returncode == code
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize(
    "command", ["run -b demo 'say hi'", "run -b demo --json 'say hi'", "sessions", "backends --json"]
)
def test_a_stdout_that_takes_no_more_is_told_in_one_sentence(nucleic, command):
    script = f"exec {sys.executable} -m nucleic_core {command} >/dev/full"
    done = subprocess.run(["/bin/sh", "-c", script], env=nucleic.env, cwd=nucleic.cwd, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (141, "nucleic: cannot write to stdout: No space left on device\n")


def test_signals_end_a_run_whose_reader_takes_nothing_of_what_is_still_to_be_shown(nucleic):
    running = nucleic.start("run", "-b", "demo", "--json", "say " + "word " * 20_000)
    deadline = time.monotonic() + 20
    while not any(b'"run_finished"' in path.read_bytes() for path in nucleic.home.glob("sessions/*/transcript.jsonl")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    while running.process.poll() is None:
        assert time.monotonic() < deadline
        running.process.send_signal(signal.SIGINT)
        time.sleep(0.2)
    assert running.process.returncode == 130


def test_an_edited_input_that_the_agent_cannot_take_is_refused_and_the_ask_stays_open(nucleic):
    running = nucleic.start("run", "-b", "demo", "--json", "--wait", "run true")
    ask = running.next_ask()
    refused = nucleic("approve", ask, "--input", "[1]")
    assert refused.returncode == 2
    assert "cannot be given this input" in refused.stderr
    assert nucleic("approve", ask).returncode == 0
    assert running.end() == 0
    assert [e["decision"]["type"] for e in running.events if e["kind"] == "approval_resolved"] == ["allow"]


def test_text_that_is_no_utf_8_is_sent_and_given_with_replacement_characters(nucleic):
    running = nucleic.start("run", "-b", "demo", "--json", "--wait", "run true")
    session = running.until(lambda event: event["kind"] == "session_started")["session"]
    ask = running.next_ask()
    assert nucleic("send", session, b"say \xff").returncode == 0
    assert nucleic("deny", ask, "--reason", b"no \xff").returncode == 0
    assert running.end() == 0
    assert [e["text"] for e in running.events if e["kind"] == "user_message"][-1] == "say \ufffd"
    assert [e["decision"]["reason"] for e in running.events if e["kind"] == "approval_resolved"] == ["no \ufffd"]
