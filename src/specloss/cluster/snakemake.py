"""Snakemake as `specloss run` calls it: a process group of its own, whose chatter is left out."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from specloss.common.oneline import plain
from specloss.common.processes import die_with_parent
from specloss.common.yamlfile import ConfigError

# Two lines a job, hundreds of jobs: nobody reads them, and --quiet does not cover them
SCHEDULER_CHATTER = re.compile(r"Select jobs to execute\.\.\.|Execute \d+ jobs\.\.\.|Touching output file ")


def run_snakemake(config: Path, arguments: Sequence[str]) -> int:
    """Run Snakemake on a config with further arguments, targets first; its exit status.

    ConfigError where there is no Snakefile.
    """
    if not Path("Snakefile").exists() and not {"-s", "--snakefile"} & set(arguments):
        raise ConfigError(f"no Snakefile in {Path.cwd()}; run specloss from the project's root")
    # the given arguments come last, as of an option that stands twice the last counts; before them an option that takes
    # one value, or targets would be taken for more of its values
    command = [sys.executable, "-m", "snakemake", "--configfile", str(config)]
    command += ["--quiet", "rules", "progress", "host", "--rerun-incomplete", "--keep-going"]
    command += [] if any(word.startswith(("-j", "--jobs")) for word in arguments) else ["--cores", "all"]
    command += ["--scheduler", "greedy", *arguments]
    # A group of its own: Ctrl-C and `kill` reach it and its jobs once, sent to a terminal or to this process alone
    process = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
        preexec_fn=die_with_parent,
    )
    sent: list[int] = []

    def pass_on(number: int, frame: object) -> None:
        sent.append(number)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, pass_on)
    hidden = False
    for line in process.stderr or ():
        # where Snakemake was when it was told to stop, mostly in an import, is of no use to who told it
        hidden = hidden or (bool(sent) and line.startswith("Traceback "))
        if not hidden and not SCHEDULER_CHATTER.match(line):
            print(plain(line.removesuffix("\n")), file=sys.stderr, flush=True)
    if hidden:
        print("specloss: stopped by " + signal.Signals(sent[0]).name, file=sys.stderr)
    return abs(process.wait())
