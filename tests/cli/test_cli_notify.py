"""When `--notify` counts a session as waiting, over scripted agents."""

import trio

from core_agents import Scripted, open_fake, wait_for
from nucleic_core._cli.notify import Notifier
from nucleic_core.events import AssistantText


async def test_the_end_of_a_sub_agents_turn_keeps_nobody_waiting(tmp_path, monkeypatch):
    monkeypatch.setattr("nucleic_core._cli.notify._SETTLES", 0)
    told = tmp_path / "told"
    notifier = Notifier(f'echo "$NUCLEIC_STATUS" >> {told}')
    script = """prompt(); tell("call", id="c1", tool="Agent", input={}); tell("turn", parent="c1")
done(parent="c1"); time.sleep(0.2); tell("say", text="still at work"); hear()"""
    async with open_fake(Scripted(script), cwd=tmp_path) as session, trio.open_nursery() as nursery:
        nursery.start_soon(notifier.watch, session)
        await wait_for(session, AssistantText)
        await trio.sleep(0.1)
        assert not told.exists()
        nursery.cancel_scope.cancel()
