"""The known answers (known_answers.json), each computed twice by other code than ours."""

import json
from pathlib import Path

import torch

ANSWERS = json.loads(Path(__file__).with_name("known_answers.json").read_text())


def known(case, name):
    """The answer as a float64 tensor."""
    return torch.tensor(ANSWERS[case][name], dtype=torch.float64)


def key(case, beginning):
    """The one name in a case that begins so: some are whole sentences."""
    (found,) = [name for name in ANSWERS[case] if name.startswith(beginning)]
    return found


def assert_known(actual, case, name):
    """``actual`` is that answer, to rtol 1e-9 and atol 1e-12."""
    actual = torch.as_tensor(actual, dtype=torch.float64)
    torch.testing.assert_close(actual, known(case, name), rtol=1e-9, atol=1e-12)
