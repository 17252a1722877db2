"""What forkless costs in a language: the time of an import, and that of a call beside those of other packages.

    python languages.py --node DIRECTORY --node-packages DIRECTORY --perl DIRECTORY [--turns N]

It runs in a Python that has the package forkless, and sh, plumbum, trio and anyio where they are to be compared. --node: the package forkless;
--node-packages: where node_modules has execa and zx; --perl: `blib` of the distribution. The interpreters take turns for the imports. For the calls, the
packages of a language take turns in one process. Writes a table in Markdown.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))


def imports(options):
    """By language: the interpreter without the package, and with it."""
    node, perl = options.node, ["perl", f"-I{options.perl}/lib", f"-I{options.perl}/arch"]
    return {
        "Python": {
            "subprocess": [sys.executable, "-c", "import subprocess"],
            "forkless": [sys.executable, "-c", "import subprocess, forkless"],
            "asyncio": [sys.executable, "-c", "import asyncio"],
            "forkless.asyncio": [sys.executable, "-c", "import asyncio, forkless.asyncio"],
        },
        "Node": {
            "child_process": ["node", "-e", "require('child_process')"],
            "install()": ["node", "-e", f"require('child_process'); require({node!r}).install()"],
            "run": ["node", "-e", f"require('child_process'); require({node!r}).run"],
            "execa": ["node", "--input-type=module", "-e", f"import '{options.node_packages}/node_modules/execa/index.js'"],
        },
        "Perl": {
            "nothing": [*perl, "-e", "1"],
            "Forkless": [*perl, "-MForkless", "-e", "1"],
            "Forkless::Command": [*perl, "-MForkless::Command", "-e", "1"],
            "IPC::Run": [*perl, "-MIPC::Run", "-e", "1"],
        },
    }


def import_times(commands, turns):
    times = {name: [] for name in commands}
    for turn in range(turns + 1):
        for name, words in commands.items():
            begun = time.perf_counter()
            subprocess.run(words, check=True, stdin=subprocess.DEVNULL)
            if turn:
                times[name].append(time.perf_counter() - begun)
    return times


def call_times(options, turns):
    perl = ["perl", f"-I{options.perl}/lib", f"-I{options.perl}/arch"]
    commands = {
        "Python": [sys.executable, f"{HERE}/calls.py", str(turns)],
        "Node": ["node", f"{HERE}/calls.js", str(turns), options.node, options.node_packages],
        "Perl": [*perl, f"{HERE}/calls.pl", str(turns)],
    }
    # zx starts bash with a socket as standard input; without this bash could take itself for one of sshd, and read ~/.bashrc.
    env = {**os.environ, "SHLVL": "2"}
    return {language: json.loads(subprocess.check_output(words, env=env)) for language, words in commands.items()}


def table(times, base=None):
    rows = []
    for name, one in times.items():
        one = sorted(one)
        p50, p99 = statistics.median(one), one[len(one) * 99 // 100]
        added = f" {(p50 - statistics.median(times[base])) * 1e3:.1f} |" if base else ""
        rows.append(f"| {name} | {p50 * 1e3:.2f} | {p99 * 1e3:.2f} |{added}")
    return "\n".join(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--node", required=True)
    parser.add_argument("--node-packages", required=True)
    parser.add_argument("--perl", required=True)
    parser.add_argument("--turns", type=int, default=30)
    options = parser.parse_args()
    versions = [f"Python {platform.python_version()}", f"Node {subprocess.check_output(['node', '--version'], text=True).strip()}"]
    versions.append(subprocess.check_output(["perl", "-e", "printf 'perl %vd', $^V"], text=True))
    print(f"# Languages\n\n{', '.join(versions)}; Linux {platform.release()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}. {options.turns} turns.\n")
    print("## Import\n\nThe whole process, in ms, and what it has more than the first of its language.\n")
    for language, commands in imports(options).items():
        times = import_times(commands, options.turns)
        print(f"| {language} | p50 | p99 | more |\n| --- | --: | --: | --: |\n{table(times, next(iter(times)))}\n")
    print("## Call\n\n`/bin/true` with captured output, in ms.\n")
    for language, times in call_times(options, options.turns).items():
        print(f"| {language} | p50 | p99 |\n| --- | --: | --: |\n{table(times)}\n")


main()
