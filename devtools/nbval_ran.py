"""A pytest plugin beside nbval: compare what devtools.runner ran, instead of running it again.

nbval asks a kernel to run each cell and reads what comes back. This plugin answers in the kernel's
place with the outputs that papermill got (devtools/executed.py); all else is nbval's own.
"""

import functools
import uuid
from collections import deque

import pytest

from devtools import executed

today = functools.cache(executed.fingerprint)


class Ran:
    """What nbval needs of a kernel, for a notebook that has been run."""

    def __init__(self, path):
        notebook = executed.current(path, today())
        if notebook is None:
            pytest.fail(f"{path.name} was not run as it is now: `make notebooks`", pytrace=False)
        self.cells, self.messages = iter(executed.code_cells(notebook)), deque()

    def execute_cell_input(self, source, allow_stdin=None):
        cell = next(cell for cell in self.cells if cell.source == source)  # skipped ones go by
        about = {"msg_id": uuid.uuid4().hex}
        for output in cell.outputs:
            self._say(output.output_type, output, about)
        self._say("status", {"execution_state": "idle"}, about)
        return about["msg_id"]

    def _say(self, kind, content, about):
        self.messages.append({"msg_type": kind, "content": content, "parent_header": about})

    def get_message(self, stream, timeout=None):
        return self.messages.popleft()

    def await_reply(self, msg_id, timeout=None):
        pass

    def await_idle(self, parent_id, timeout):
        self.messages.clear()

    def is_alive(self):
        return True

    def stop(self):
        pass


def pytest_configure(config):
    from nbval.plugin import IPyNbFile

    def setup(self):
        self.kernel = Ran(self.path)
        self.setup_sanitize_files()

    IPyNbFile.setup = setup
