"""``python -m fairdial``: the command line."""

from fairdial.cli import main

main(prog_name="fairdial")
