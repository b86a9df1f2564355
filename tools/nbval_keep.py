"""A pytest plugin beside nbval: keep what the cells printed, for the book (see executed.py)."""

import pytest
from executed import keep

_CHANGES_OUTPUT = {"clear_output", "update_display_data"}  # nbval does not follow these


def _is_cell(item):
    return type(item).__name__ == "IPyNbCell"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item):
    if _is_cell(item) and not hasattr(item.parent, "kept"):
        item.parent.kept, item.parent.unclear, item.parent.seconds = [], False, 0.0
        _watch(item.parent)
        _with_history(item.parent.kernel.kc)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    if not _is_cell(item) or report.when != "call":
        return
    file = item.parent
    file.kept.append(item.test_outputs if report.passed else None)
    file.seconds += call.duration
    cells = sum(cell.cell_type == "code" for cell in file.nb.cells)
    if len(file.kept) == cells and None not in file.kept and not file.unclear:
        keep(str(file.path), file.kept, seconds=file.seconds)


def _watch(file):
    """Remember whether a message came that changes output already written."""
    read = file.get_kernel_message

    def get_kernel_message(*args, **kwargs):
        message = read(*args, **kwargs)
        file.unclear |= message["msg_type"] in _CHANGES_OUTPUT
        return message

    file.get_kernel_message = get_kernel_message


def _with_history(client):
    """Let cells run as in a notebook: without history a closing `;` would not silence a cell."""
    execute = client.execute
    client.execute = lambda *args, **kwargs: execute(*args, **{**kwargs, "store_history": True})
