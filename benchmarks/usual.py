"""The usual way, written plainly: for each client a DataLoader, a module, an optimiser, a loop.

This is how federated libraries in PyTorch train their clients, one after the other.
"""

import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from pfl_lib import models


class UsualWay:
    """The same clients, model and optimiser as a federation, trained the usual way."""

    def __init__(self, fed):
        self.fed = fed
        self.module = models.build(fed.model_name, fed.data)
        self.sets = []
        for index in fed.partition.train:
            x = fed.data.normalised(fed.data.x[index], fed.dtype)
            self.sets.append(TensorDataset(x, fed.data.y[index]))

    def train(self, start):
        settings = self.fed.settings
        kind = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[settings.optimizer]
        trained = []
        for row, samples in zip(start, self.sets):
            torch.nn.utils.vector_to_parameters(row.clone(), self.module.parameters())
            loader = DataLoader(samples, batch_size=settings.batch_size, shuffle=True)
            optimizer = kind(self.module.parameters(), lr=settings.lr)
            for _ in range(settings.epochs):
                for x, y in loader:
                    optimizer.zero_grad()
                    cross_entropy(self.module(x), y).backward()
                    optimizer.step()
            flat = torch.nn.utils.parameters_to_vector(self.module.parameters())
            trained.append(flat.detach().clone())
        return torch.stack(trained)


def fedamp_server_pairwise(w, sigma, self_weight):
    """FedAMP's server step with a Python loop over pairs of clients."""
    m = len(w)
    messages = []
    for i in range(m):
        scores = {j: torch.exp(-((w[i] - w[j]) ** 2).sum() / sigma) for j in range(m) if j != i}
        total = sum(scores.values())
        message = self_weight * w[i]
        for j, score in scores.items():
            message = message + (1 - self_weight) * score / total * w[j]
        messages.append(message)
    return torch.stack(messages)
