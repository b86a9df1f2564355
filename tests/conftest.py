"""What many tests begin with."""

import pytest

import pfl_lib


@pytest.fixture(scope="session")
def data():
    """The digits: 1,797 small images that come with scikit-learn."""
    return pfl_lib.data.load("digits")
