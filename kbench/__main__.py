"""`python -m kbench` is `kbench`."""

from kbench.cli import main

main()
