"""Errors, by cause. Each message names what happened and what to do next.

An agent that fails is an outcome (`RunResult.outcome`), not an exception; these are for everything else.
They are raised plain, never inside an exception group.
"""


class NucleicError(Exception):
    """Base of every error that Nucleic raises on purpose."""


class BackendMissing(NucleicError):
    """The backend is not installed, or the program it drives is not on this machine."""


class BackendBroken(NucleicError):
    """The backend's plugin is installed but cannot be used: it failed to load, or breaks the plugin contract."""


class StartFailed(NucleicError):
    """The agent's process could not be started, or ended before it was ready. The message holds the end of its stderr."""


class HandshakeTimeout(StartFailed):
    """The agent did not get ready in time: its process in `ProcessSpec.start_timeout` seconds, its driver's entry in 120."""


class AgentGone(NucleicError):
    """The agent's process is gone, so nothing can be sent to it. Resume the session to go on."""


class AgentRefused(NucleicError):
    """The agent answered a request of ours with an error. The message holds its own words."""


class AgentSilent(NucleicError):
    """The agent did not answer a request of ours in time. It may be stuck: interrupt the turn, or end the session."""


class AgentFailed(NucleicError):
    """`RunResult.check()` found an outcome other than completed."""


class ApprovalClosed(NucleicError):
    """The ask was answered or closed before this answer came; `by` says who or what closed it.

    `by` is empty when no ask of that id was ever open in this session.
    """

    def __init__(self, message: str, *, by: str = "") -> None:
        super().__init__(message)
        self.by = by


class Unsupported(NucleicError):
    """This backend cannot do what was asked. Raised before anything is spawned where that is possible."""


class BadSettings(NucleicError):
    """A settings file, rules file or option value is not valid; the message says where."""


class BadDirectory(NucleicError):
    """The run's working directory does not exist, is no directory, or has a name that is no UTF-8."""


class SessionBusy(NucleicError):
    """Another process holds this session's transcript; one session has one writer."""


class SessionNotFound(NucleicError):
    """No session has this id under NUCLEIC_HOME."""


class TranscriptFailed(NucleicError):
    """The transcript cannot be written or read. Nothing runs that cannot be recorded."""
