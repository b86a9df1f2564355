"""How much memory may be had: of the machine, and of the container one sits in."""

import pytest
import torch

from pfl_lib.local import memory

GIB = 2**30


def group(folder, version, limit, used, files=0):
    """A control group's files, as Linux shows them."""
    names = {
        2: ("memory.max", "memory.current", "inactive_file"),
        1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    }
    most, now, stat = names[version]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / most).write_text(f"{limit}\n")
    (folder / now).write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 1\n{stat} {files}\n")


def left(root, *membership):
    listed = root / "membership"
    listed.write_text("".join(f"{line}\n" for line in membership))
    memory._groups_with_limits.cache_clear()
    return memory.left_in_container(root, listed)


def test_a_containers_limit_counts(tmp_path):
    group(tmp_path, 2, limit=8 * GIB, used=3 * GIB, files=1 * GIB)
    assert left(tmp_path, "0::/") == 6 * GIB  # remembered files are given up when needed


def test_version_1_has_other_names(tmp_path):
    group(tmp_path / "memory" / "mine", 1, limit=4 * GIB, used=1 * GIB)
    assert left(tmp_path, "4:memory:/mine", "0::/") == 3 * GIB
    assert left(tmp_path, "4:cpu,memory:/mine") == 3 * GIB
    assert left(tmp_path, "4:cpu:/mine") == memory.PLENTY


def test_the_limits_above_count_too(tmp_path):
    group(tmp_path / "user", 2, limit=2 * GIB, used=1 * GIB)
    group(tmp_path / "user" / "mine", 2, limit="max", used=1 * GIB)
    assert left(tmp_path, "0::/user/mine") == 1 * GIB


def test_a_group_out_of_sight_is_looked_for_at_the_top(tmp_path):
    """Inside a container the path may be that of the host, which is not mounted there."""
    group(tmp_path, 2, limit=2 * GIB, used=1 * GIB)
    assert left(tmp_path, "0::/docker/0123") == 1 * GIB


@pytest.mark.parametrize("limit", ["max", "", "nonsense"])
def test_no_limit_is_plenty(tmp_path, limit):
    group(tmp_path, 2, limit=limit, used=1)
    assert left(tmp_path, "0::/") == memory.PLENTY
    assert memory.left_in_container(tmp_path, tmp_path / "no such file") == memory.PLENTY


def test_more_taken_than_allowed_leaves_nothing(tmp_path):
    group(tmp_path, 2, limit=1 * GIB, used=2 * GIB)
    assert left(tmp_path, "0::/") == 0


def test_the_smaller_of_machine_and_container_is_free(monkeypatch):
    cpu = torch.device("cpu")
    monkeypatch.setattr(memory, "left_in_container", lambda: 5)
    assert memory.free_memory(cpu) == 5
    monkeypatch.setattr(memory, "left_in_container", lambda: memory.PLENTY)
    assert 5 < memory.free_memory(cpu) <= memory.PLENTY
