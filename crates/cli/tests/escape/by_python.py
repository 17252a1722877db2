"""Starts a program in a sandbox of the Python package: `FORKLESS_TEST_ESCAPE_BY="python3 …/by_python.py" cargo test --test escape`."""

import sys

import forkless

mode, here, *words = sys.argv[1:]
how = {"mode": "landlock"} if mode == "landlock" else {"network": "refused"} if mode == "refused" else {}
sys.exit(forkless.run(words, sandbox=forkless.Sandbox(read=here, **how), cwd="/", close_fds=True).returncode)
