"""The command line `nucleic`: one module a command, each loaded when it is called.

`group` names the commands, `exits` says what the process ends with. What several commands share: `arguments` and `choice`
(from options to a run), `conversation` (a run on the console or as JSON), `console` (what people see and type),
`client` and `finding` (live hosts and sessions).
"""

from collections.abc import Sequence
from typing import NoReturn


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and end the process. `arguments`: instead of `sys.argv[1:]`."""
    import sys

    from nucleic_core._cli.exits import ending
    from nucleic_core._cli.group import nucleic

    def call() -> object:
        return nucleic.main(args=arguments, prog_name="nucleic", standalone_mode=False)

    sys.exit(ending(call))
