"""Tables of Hugging Face, partitioners of Flower Datasets: stand-ins here, the packages if there.

The stand-ins do what the adapters ask of the packages; the last tests hold them against the real
ones, wherever these are installed.
"""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import pfl_lib
from pfl_lib import partition
from pfl_lib.data import from_arrays, from_huggingface


class Table:
    """As much of a ``datasets.Dataset`` as is asked for."""

    def __init__(self, features=None, **columns):
        self.columns, self.features = columns, features or {}
        self.column_names = list(columns)

    def with_format(self, kind):
        assert kind == "numpy"
        return {name: np.asarray(values) for name, values in self.columns.items()}

    def __len__(self):
        return len(next(iter(self.columns.values())))

    def __getitem__(self, name):
        return self.columns[name]

    @classmethod
    def from_dict(cls, columns):
        return cls(**columns)


def pictures(n=12, channels=3, first=0):
    x = np.arange(first, first + n * 20 * channels).reshape(n, 4, 5, channels) % 256
    return x.astype(np.uint8)


# ---- Hugging Face -------------------------------------------------------------------------------
def test_pictures_come_with_channels_last_and_named_classes():
    features = {"label": SimpleNamespace(names=["cat", "dog"])}
    x = pictures()
    table = Table(features, image=x, label=np.arange(12) % 2, who=np.arange(12) // 4)
    made = from_huggingface(table, x="image", y="label", client="who", test=0.5)
    assert made.kind == "image" and made.shape == (3, 4, 5)
    assert made.classes == ("cat", "dog") and made.client == "who"
    first = made.x[0].numpy().transpose(1, 2, 0)
    assert any(np.array_equal(first, one) for one in x)
    assert partition.natural(made).m == 3


def test_two_parts_keep_their_own_split():
    parts = {
        "train": Table(image=pictures(8, 1), label=[0, 1] * 4),
        "test": Table(image=pictures(4, 1, first=160), label=[1, 0] * 2),
    }
    made = from_huggingface(parts, x="image", y="label")
    assert (made.n_train, made.n_test) == (8, 4)
    np.testing.assert_array_equal(made.x[:8, 0].numpy(), parts["train"]["image"][..., 0])
    assert made.y[8:].tolist() == [1, 0, 1, 0]


def test_several_columns_are_features_and_others_are_kept():
    table = Table(
        a=np.arange(12.0), b=np.ones(12) * np.arange(12) % 5, y=["no", "yes"] * 6,
        ward=list("uuuuvvvvwwww"), bout=np.arange(12) // 2, sex=list("fm") * 6,
    )  # fmt: skip
    options = {"client": "ward", "columns": ["sex"], "group": "bout", "split": "group", "test": 0.4}
    made = from_huggingface(table, x=["a", "b"], y="y", **options)
    assert made.shape == (2,) and set(made.columns) == {"ward", "sex", "bout"}
    assert made.together == "bout" and made.columns["ward"].names == ("u", "v", "w")


@pytest.mark.parametrize(
    ("table", "options", "words"),
    [
        (Table(a=[1.0]), {"x": "b", "y": "a"}, "table must have a column 'b'; it has a"),
        ({"train": Table(a=[1.0])}, {"x": "a", "y": "a"}, "parts 'train' and 'test'.*has 'train'"),
        (
            Table(a=np.array([[1], [1, 2]], dtype=object), y=[0, 1]),
            {"x": "a", "y": "y"},
            "column 'a' must hold numbers, all of one shape",
        ),
        (
            {"train": Table(a=[1.0], y=[0]), "test": Table(a=[1.0], y=[0])},
            {"x": "a", "y": "y", "test": 0.5},
            "test and split must not be given",
        ),
    ],
)
def test_what_does_not_fit_is_refused(table, options, words):
    with pytest.raises(ValueError, match=words):
        from_huggingface(table, **options)


def test_what_is_no_table_is_refused():
    with pytest.raises(TypeError, match=r"table must be a datasets\.Dataset.*got ndarray"):
        from_huggingface(np.ones(3), x="a", y="b")


# ---- Flower -------------------------------------------------------------------------------------
class Dealer:
    """As much of a partitioner as is asked for: sample i goes to client i mod 3."""

    num_partitions, dataset = 3, None
    take = staticmethod(lambda table, number: [r for r in table["row"] if r % 3 == number])

    def is_dataset_assigned(self):
        return self.dataset is not None

    def load_partition(self, number):
        return {"row": self.take(self.dataset, number)}


@pytest.fixture
def packages(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(Dataset=Table))


def test_a_partitioner_deals_the_training_part(packages):
    data = pfl_lib.data.load("digits")
    dealer = Dealer()
    clients = partition.from_flower(data, dealer, test_share=0.2)
    assert dealer.dataset["label"] == data.y[: data.n_train].tolist()
    assert clients.m == 3 and clients.ids == ("0", "1", "2") and clients.source
    for i, (train, test) in enumerate(zip(clients.train, clients.test)):
        both = torch.cat([train, test]).sort().values
        assert torch.equal(both, torch.arange(i, data.n_train, 3))
        assert len(test) == round(0.2 * len(both))
    fed = pfl_lib.Federation(data, clients, "logistic_regression", device="cpu")
    assert pfl_lib.run(pfl_lib.algorithm("fedavg"), fed, 1, progress=False).last > 0.1


def test_small_clients_are_left_out_and_columns_are_handed_over(packages):
    data = from_arrays(np.random.rand(20, 2), np.arange(20) % 2, ["ann", "bob"] * 10, test=0.1)
    dealer = Dealer()
    dealer.take = lambda table, number: table["row"][: (1, 9, 0)[number]]
    clients = partition.from_flower(data, dealer)
    assert clients.ids == ("1",) and set(dealer.dataset["client"]) == {"ann", "bob"}
    nobody = Dealer()
    nobody.take = lambda table, number: []
    with pytest.raises(ValueError, match="Dealer gives no client min_samples=2"):
        partition.from_flower(data, nobody)


def test_a_used_partitioner_is_refused(packages):
    used = Dealer()
    used.dataset = "another table"
    with pytest.raises(ValueError, match="must be a fresh one"):
        partition.from_flower(pfl_lib.data.load("digits"), used)


def test_without_the_package_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ImportError, match="from_flower needs the package flwr-datasets: pip"):
        partition.from_flower(pfl_lib.data.load("digits"), Dealer())


# ---- the packages themselves --------------------------------------------------------------------
def test_a_real_table_of_hugging_face():
    datasets = pytest.importorskip("datasets")
    images = pytest.importorskip("PIL.Image")
    features = datasets.Features(
        {"image": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"])}
    )
    x = pictures(6)
    columns = {"image": [images.fromarray(one) for one in x], "label": [0, 1] * 3}
    part = datasets.Dataset.from_dict(columns, features=features)
    both = datasets.DatasetDict({"train": part, "test": part.select([0, 1])})
    made = from_huggingface(both, x="image", y="label")
    assert made.classes == ("cat", "dog") and (made.n_train, made.n_test) == (6, 2)
    np.testing.assert_array_equal(made.x[:6].numpy(), x.transpose(0, 3, 1, 2))
    words = datasets.Dataset.from_dict(
        {"a": [1.0, 2.0] * 4, "b": [3.0, 4.0] * 4, "y": ["p", "q"] * 4}
    )
    assert from_huggingface(words, x=["a", "b"], y="y").classes == ("p", "q")


def test_real_partitioners_of_flower():
    partitioners = pytest.importorskip("flwr_datasets.partitioner")
    data = from_arrays(np.random.rand(120, 3), np.arange(120) % 4, np.arange(120) // 24, test=0.1)
    natural = partition.from_flower(data, partitioners.NaturalIdPartitioner("client"))
    assert natural.m == 5 and sorted(natural.ids) == list("01234")
    for who, train in zip(natural.ids, natural.train):
        assert set(data.columns["client"].values[train].tolist()) == {int(who)}
    dealt = partitioners.DirichletPartitioner(
        4, partition_by="label", alpha=0.5, min_partition_size=5
    )
    clients = partition.from_flower(data, dealt)
    rows = torch.cat([*clients.train, *clients.test])
    assert clients.m == 4 and torch.equal(rows.sort().values, torch.arange(data.n_train))
