"""The federation on this machine: its clients' data, batches, engines and memory."""

from pfl_lib.local.federation import LocalFederation

__all__ = ["LocalFederation"]
