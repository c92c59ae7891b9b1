"""What a run may add to a codex command line, and what it may not."""

import pytest
from nucleic_codex.overrides import refuse

from nucleic_core.errors import Unsupported


@pytest.mark.parametrize(
    "args",
    [
        (),
        ("-c", "model_reasoning_effort=high"),
        ("--config", "model_providers.x={base_url='http://127.0.0.1:1'}"),
        ("--config=analytics.enabled=false",),
        ("-cweb_search=true",),
        ("--enable", "goals", "--disable=apps"),
        ("-c", "mcp_servers.x.command='x'"),
        ("-c", "features.goals=true"),
    ],
)
def test_configuration_that_nucleic_does_not_answer_for_may_be_added(args):
    refuse(args)


@pytest.mark.parametrize(
    "args",
    [
        ("-c", "approval_policy=never"),
        ("-c", " approval_policy = 'never'"),
        ("-c", '"approval_policy"=never'),
        ("-capproval_policy=never",),
        ("--config=sandbox_mode=danger-full-access",),
        ("-c", "approvals_reviewer='auto_review'"),
        ("-c", "hooks.PreToolUse=[]"),
        ("-c", "hooks={state={}}"),
        ("-c", "features.hooks=false"),
        ("-c", "features={hooks=false}"),
        ("-c", "features={ goals = true, guardian_approval = true }"),
        ("--disable", "hooks"),
        ("--disable=hooks",),
        ("--enable=guardianv3",),
        ("-c", "projects={'/repo'={trust_level='trusted'}}"),
        ("-c", "mcp_servers.x.default_tools_approval_mode='approve'"),
        ("-c", "mcp_servers={x={tools={t={approval_mode='approve'}}}}"),
        ("-c", "profile=yolo"),
        ("-c", "notify=['/bin/sh']"),
        ("-c", "model=x"),
        ("-c", "goals"),
        ("-c",),
        ("--listen", "ws://127.0.0.1:1"),
        ("--dangerously-bypass-hook-trust",),
        ("--dangerously-bypass-approvals-and-sandbox",),
        ("-s", "danger-full-access"),
        ("-a", "never"),
        ("-p", "yolo"),
        ("daemon",),
        ("--", "daemon"),
        ("--a-flag-of-a-later-version",),
    ],
)
def test_what_decides_about_approvals_sandbox_hooks_and_trust_is_refused(args):
    with pytest.raises(Unsupported, match="refused"):
        refuse(args)


def test_a_refusal_says_why_and_what_to_use_instead():
    with pytest.raises(Unsupported, match="-c sandbox_mode is refused: .* give it as sandbox"):
        refuse(("-c", "sandbox_mode=read-only"))
