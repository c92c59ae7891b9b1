"""Commands that reach a session of another process through its host's control socket."""

import json
import os
import sys

from nucleic_core._wire.descendants import pid_namespace


def test_an_ask_is_approved_from_another_process(nucleic):
    running = nucleic.start("run", "-b", "demo", "--json", "--wait", "write a.txt x")
    assert nucleic("approve", running.next_ask()).returncode == 0
    assert running.end() == 0
    assert (nucleic.cwd / "a.txt").exists()
    assert [e["decided_by"] for e in running.events if e["kind"] == "approval_resolved"] == ["socket:cli"]


def test_who_answered_is_recorded_by_the_name_that_was_given(nucleic):
    running = nucleic.start("run", "-b", "demo", "--json", "--wait", "run true")
    assert nucleic("approve", running.next_ask(), "--as", "ann").returncode == 0
    assert running.end() == 0
    assert [e["decided_by"] for e in running.events if e["kind"] == "approval_resolved"] == ["socket:cli:ann"]


def test_the_second_answer_is_told_who_was_first_while_the_session_lives(nucleic):
    running = nucleic.start("run", "-b", "demo", "--json", "--wait", "run true\nrun true")
    ask = running.next_ask()
    nucleic("deny", ask, "--reason", "not now")
    late = nucleic("approve", ask)
    assert (late.returncode, late.stderr) == (
        2,
        f"nucleic: {ask} was already answered by socket:cli; nothing was changed.\n",
    )
    nucleic("deny", running.next_ask(), "--cancel")
    assert running.end() == 4
    told = [event["content"] for event in running.events if event["kind"] == "tool_result"]
    assert told[0] == "not now"


def test_always_and_an_edited_input_go_through_the_socket(nucleic):
    running = nucleic.start("run", "-b", "demo", "--json", "--wait", "run echo one\nwrite a.txt x\nwrite b.txt x")
    nucleic("approve", running.next_ask(), "--input", '{"command": "echo two"}')
    nucleic("approve", running.next_ask(), "--always", "pattern", "--pattern", "*.txt")
    assert running.end() == 0
    resolved = [event for event in running.events if event["kind"] == "approval_resolved"]
    assert [event["decided_by"].split(":")[0] for event in resolved] == ["socket", "socket", "rule"]
    assert next(event["content"] for event in running.events if event["kind"] == "tool_result") == "two\n"


def test_a_question_is_answered_by_number_text_or_id(nucleic):
    prompt = "ask One? | red | blue\nask Two?\nask Three?\nask Four?"
    running = nucleic.start("run", "-b", "demo", "--json", "--wait", prompt)
    ask = running.next_ask()
    assert "There is no option 3; they go from 1 to 2." in nucleic("answer", ask, "3").stderr
    assert nucleic("answer", ask, "2").returncode == 0
    assert nucleic("answer", running.next_ask(), "a = b").returncode == 0
    assert nucleic("answer", running.next_ask(), "answer=by id").returncode == 0
    assert nucleic("answer", running.next_ask()).returncode == 0
    assert running.end() == 0
    answers = [event["decision"]["answers"] for event in running.events if event["kind"] == "question_answered"]
    assert answers == [{"answer": "blue"}, {"answer": "a = b"}, {"answer": "by id"}, None]


def test_an_approval_is_no_question(nucleic):
    running = nucleic.start("run", "-b", "demo", "--json", "--wait", "run true")
    ask = running.next_ask()
    done = nucleic("answer", ask, "yes")
    assert done.returncode == 2
    assert "is no question; use `nucleic approve` or `nucleic deny`." in done.stderr


def test_send_queues_and_interrupt_stops_the_turn(nucleic):
    running = nucleic.start("run", "-b", "demo", "--json", "sleep 30")
    running.until(lambda event: event["kind"] == "turn_started")
    session = running.events[0]["session"]
    sent = nucleic("send", session[:8], "say from outside")
    accepted = running.until(lambda event: event["kind"] == "input_accepted")
    assert (accepted["input"], accepted["state"]) == (sent.stdout.strip(), "queued")
    steered = nucleic("send", session, "--steer", "now")
    assert steered.returncode == 2
    assert "demo cannot steer a running turn" in steered.stderr
    assert nucleic("interrupt", session[:8]).returncode == 0
    assert running.end() == 0
    turns = [event["outcome"] for event in running.events if event["kind"] == "turn_completed"]
    assert turns == ["interrupted", "completed"]
    gone = nucleic("interrupt", session)
    assert gone.returncode == 2
    assert f"is not running. Take it up with `nucleic resume {session[:8]}`." in gone.stderr


def test_an_agents_own_shell_may_not_approve(nucleic):
    approve = f"NUCLEIC_HOME={nucleic.home} {sys.executable} -m nucleic_core approve $(cat ask); echo code $?"
    running = nucleic.start("run", "-b", "demo", "--json", "--wait", f"run {approve}\nrun true")
    first = running.next_ask()
    (nucleic.cwd / "ask").write_text(first)
    nucleic("approve", first)
    result = running.until(lambda event: event["kind"] == "tool_result")
    assert "An agent's own processes may not answer asks or steer sessions.\ncode 2\n" in result["content"]


def test_what_a_dead_host_left_behind_is_removed(nucleic):
    nucleic("run", "-b", "demo", "say hi")
    hosts = nucleic.home / "hosts"
    dead = hosts / "4194303-00000000"  # one below the highest process id there can be
    card = {"pid": 4194303, "pid_namespace": pid_namespace(), "socket": "/nowhere", "sessions": ["x"]}
    dead.write_text(json.dumps(card))
    elsewhere = hosts / "4194303-00000001"
    elsewhere.write_text(json.dumps({**card, "pid_namespace": 1}))
    junk = hosts / f"{os.getpid()}-00000000"
    junk.write_text("no card")
    assert nucleic("approve", "x").returncode == 2
    assert not dead.exists()
    assert elsewhere.exists()  # its process may well live, in another container
    assert junk.exists()
