"""Run notebooks side by side, each once, and keep their outputs for the tests and the book.

    python -m devtools.runner               all that are not up to date
    python -m devtools.runner PATHS         these

Papermill executes them, one thread each, JOBS at a time (2). Notebooks that are up to date (see
devtools/executed.py) are not run again, so an interrupted run continues where it stopped.
"""

import multiprocessing
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from pathlib import Path

from devtools import executed, kernels
from devtools.notebooks import all_notebooks, is_experiment

CELL_TIMEOUT = 600  # seconds
TRACEBACK = 15  # lines of it that are shown
# a last cell, not kept: the processor time of the kernel and what it has started
CLOCK = "import os; print(sum(os.times()[:4]))"


# ------------------------------------------------------------------------------- in a worker
_kernels = None  # how this worker starts kernels


def _prepare(parent, workspace, address):
    """Set up a worker: it ignores Ctrl-C and ends with its parent; its kernels end with it."""
    global _kernels
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ |= {"OMP_NUM_THREADS": "1", "JUPYTER_RUNTIME_DIR": workspace}
    _kernels = kernels.manager(address, workspace)

    def watch():
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def run_one(path, made_with=None):
    """Run one notebook and keep its outputs, made with the library of fingerprint ``made_with``.

    Returns (seconds, seconds of processor time, error message or None).
    """
    import nbformat
    import papermill

    path, began = Path(path), time.monotonic()
    notebook = nbformat.read(path, as_version=4)  # before it can change
    cells = [*notebook.cells, nbformat.v4.new_code_cell(CLOCK)]
    to_run = nbformat.from_dict({**notebook, "cells": cells})
    try:
        ran = papermill.execute_notebook(
            to_run,
            None,
            parameters={"SCALE": "smoke"} if is_experiment(path) else None,
            cwd=path.parent,
            kernel_name="python3",
            kernel_manager_class=_kernels,
            progress_bar=False,
            execution_timeout=CELL_TIMEOUT,
        )
    except Exception as error:  # the message must name the notebook
        return time.monotonic() - began, 0.0, error_message(path, error, notebook)
    seconds, worked = time.monotonic() - began, float(ran.cells[-1].outputs[0].text)
    outputs = [cell.outputs for cell in executed.code_cells(ran)[:-1]]
    executed.keep(path, outputs, seconds=seconds, notebook=notebook, made_with=made_with)
    return seconds, worked, None


def error_message(path, error, notebook):
    """An error message: the notebook, the cell, and the end of the traceback."""
    head = str(Path(path).resolve().relative_to(executed.ROOT))
    name, lines, source = type(error).__name__, str(error).splitlines(), running(error)
    if hasattr(error, "cell_index"):  # the cell raised it; else its kernel died, or took too long
        name, source = f"{error.ename}: {error.evalue}", error.source
        lines = "\n".join(error.traceback).splitlines()
    elif name == "DeadKernelError":
        lines = ["Kernel died, most often because memory ran out; JOBS=1 runs one at a time."]
    lines = lines[-TRACEBACK:]
    if source is not None:
        head += cell_number(source, notebook)
        begin = source.strip().splitlines()
        lines = [*begin[:3], *(["…"] if len(begin) > 3 else []), "", *lines]
    text = f"{head}: {name}\n" + "\n".join(f"    {line}".rstrip() for line in lines)
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def running(error):
    """The source of the cell that was running when ``error`` was raised, or None."""
    frames = [frame.f_locals for frame, _ in traceback.walk_tb(error.__traceback__)]
    return next((f["cell"].source for f in frames if {"cell", "cell_index"} <= f.keys()), None)


def cell_number(source, notebook):
    """Where that cell is in the notebook on disk, to which papermill may have added one."""
    cells = [cell.source for cell in notebook.cells]
    if source not in cells:
        return ""
    number = cells.index(source)
    run = [cell.cell_type for cell in notebook.cells[: number + 1]].count("code")
    return f", cell {1 + number} (In [{run}])"


# -------------------------------------------------------------------------------- the parent
def clock(seconds):
    """Minutes and seconds, as a stop-watch shows them.

    >>> clock(92.4)
    '1:32'
    """
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


class Progress:
    """One live line on a terminal; elsewhere a plain line for each finished notebook."""

    def __init__(self, total, expected, jobs, stream=None):
        self.total, self.expected, self.jobs = total, expected, jobs
        self.stream = stream or sys.stdout
        self.live = self.stream.isatty()
        self.began, self.done, self.failed, self.spent = time.monotonic(), 0, 0, []

    def line(self, running, waiting):
        """n of N, the names of those running, time elapsed, time left."""
        names = ", ".join(path.stem for path in running)
        elapsed, left = time.monotonic() - self.began, self.left(running, waiting)
        ends = f", about {clock(left)} left" if left is not None else ""
        failed = f", {self.failed} failed" if self.failed else ""
        return f"{self.done} of {self.total} notebooks{failed} | {names} | {clock(elapsed)}{ends}"

    def left(self, running, waiting):
        """An estimate from the last time each was run, or else from the others so far."""
        if not self.spent and not self.expected:
            return None
        known = self.spent or list(self.expected.values())
        usual = sum(known) / len(known)
        ahead = [self.expected.get(path, usual) for path in waiting]
        ahead += [self.expected.get(path, usual) / 2 for path in running]
        return sum(ahead) / self.jobs

    def show(self, running, waiting):
        if self.live:
            width = shutil.get_terminal_size().columns - 1
            self.stream.write(f"\r\x1b[K{self.line(running, waiting)[:width]}")
            self.stream.flush()

    def finished(self, path, seconds, worked, wrong):
        self.done += 1
        self.failed += bool(wrong)
        self.spent.append(seconds)
        if not self.live:
            name, verdict = path.relative_to(executed.ROOT), "FAILED" if wrong else "ran"
            line = f"{self.done} of {self.total}: {name} {verdict} in {seconds:.0f} s"
            line += f" ({worked:.0f} of processor time)" if worked else ""
            print(line, file=self.stream, flush=True)

    def clear(self):
        if self.live:
            self.stream.write("\r\x1b[K")
            self.stream.flush()


def run(paths=None, jobs=None):
    """Run what is not up to date. Returns (how many were run, a list of error messages)."""
    jobs = jobs or int(os.environ.get("JOBS", 2))
    now = executed.fingerprint()
    todo = [path for path in paths or all_notebooks() if not executed.current(path, now)]
    if not todo:
        return 0, []
    expected = {path: seconds for path in todo if (seconds := executed.seconds(path))}
    # the longest first, so that the workers finish together; those never timed come before
    todo.sort(key=lambda path: -expected.get(path, 1e9))
    progress, wrong = Progress(len(todo), expected, jobs), []
    running, waiting = {}, list(todo)
    with tempfile.TemporaryDirectory(prefix="pfl-") as workspace:  # short: sockets have short names
        os.environ["PFL_CANARIES"] = workspace  # all notebooks have the same library
        template = kernels.template(workspace)
        begin = (os.getpid(), workspace, template and template.address)
        pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _prepare, begin)
        try:
            while waiting or running:
                while waiting and len(running) < jobs:
                    path = waiting.pop(0)
                    running[pool.submit(run_one, path, now)] = path
                progress.show(running.values(), waiting)
                for future in wait(running, timeout=0.5, return_when=FIRST_COMPLETED).done:
                    path = running.pop(future)
                    seconds, worked, error = future.result()
                    progress.finished(path, seconds, worked, error)
                    wrong += [error] if error else []
                if template and template.process.poll():  # then no other notebook can run
                    waiting.clear()
        except BaseException:
            for worker in multiprocessing.active_children():
                worker.terminate()
            raise
        finally:
            del os.environ["PFL_CANARIES"]  # whoever builds pages after this has no such folder
            progress.clear()
            pool.shutdown(cancel_futures=True)
            if template:
                template.end()
    return progress.done, wrong


def main(names=()):
    began = time.monotonic()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C
    try:
        count, wrong = run([Path(name).resolve() for name in names])
    except KeyboardInterrupt:
        print("\nstopped; finished notebooks are kept, and the next run continues from there")
        return 130
    for words in wrong:
        print(words)
    done = f"{count} notebook{'s' * (count > 1)} run in {clock(time.monotonic() - began)}"
    done += f", {len(wrong)} failed" if wrong else ""
    print(done if count else "all notebooks are up to date")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
