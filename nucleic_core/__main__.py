"""`python -m nucleic_core` is the command `nucleic`."""

from nucleic_core._cli import main

main()
