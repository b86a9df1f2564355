"""Run `make` targets one after the other and print the time of each (`make test`).

python -m devtools.stages lint unit notebooks book site
"""

import os
import subprocess
import sys
import time

from devtools.runner import clock


def processor():
    """Seconds of processor time that finished children have used."""
    times = os.times()
    return times.children_user + times.children_system


def summary(rows):
    """One line per stage: name, verdict, time."""
    lines = [
        f"  {name:<10} {verdict:<8} {clock(wall):>6} min  ({clock(cpu)} of processor time)"
        for name, verdict, wall, cpu in rows
    ]
    total = clock(sum(row[2] for row in rows))
    return "\n".join(["", "== summary", *lines, f"  {'together':<19} {total:>6} min"])


def main(stages):
    rows, code = [], 0
    for stage in stages:
        began, used = time.monotonic(), processor()
        try:
            command = ["make", "--no-print-directory", stage]
            code = subprocess.run(command, check=False).returncode
        except KeyboardInterrupt:
            code = 130
        verdict = "passed" if code == 0 else "stopped" if code == 130 else "FAILED"
        rows.append((stage, verdict, time.monotonic() - began, processor() - used))
        if code:
            break
    print(summary(rows), flush=True)
    left = stages[len(rows) :]
    if left:
        print(f"  not run: {', '.join(left)}")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
