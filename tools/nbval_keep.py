"""A pytest plugin beside nbval: keep what the cells printed, for the book (see executed.py)."""

import pytest
from executed import keep

_CHANGES_OUTPUT = {"clear_output", "update_display_data"}  # nbval does not follow these


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    if type(item).__name__ != "IPyNbCell" or report.when != "call":
        return
    file = item.parent
    file.kept = [*getattr(file, "kept", []), item.test_outputs if report.passed else None]
    cells = sum(cell.cell_type == "code" for cell in file.nb.cells)
    if len(file.kept) == cells and None not in file.kept and not file.unclear:
        keep(str(file.path), file.kept)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    if type(item).__name__ == "IPyNbCell" and not hasattr(item.parent, "unclear"):
        _watch(item.parent)


def _watch(file):
    """Remember whether a message came that changes output already written."""
    file.unclear, read = False, file.get_kernel_message

    def get_kernel_message(*args, **kwargs):
        message = read(*args, **kwargs)
        file.unclear |= message["msg_type"] in _CHANGES_OUTPUT
        return message

    file.get_kernel_message = get_kernel_message
