"""What people see and type.

`output` writes without blocking the loop, `keyboard` reads lines; `wording` says events in words, `screen` puts them on
the terminal with a status line, `asking` turns an ask into questions and the answers into a decision.
"""
