"""Data from memory, natural clients, and partitions that remember what they were made for."""

import datetime
from dataclasses import replace

import numpy as np
import pandas
import pytest
import torch

import pfl_lib
from pfl_lib import data, partition
from pfl_lib._dealing import groups_for_test, share_for_test
from pfl_lib.data import from_arrays

RANDOM = np.random.default_rng(0)


def people(n=120, who=5, **more):
    """Features of five people, two classes."""
    x = RANDOM.normal(3.0, 2.0, (n, 4))
    return from_arrays(x, np.arange(n) // 3 % 2, np.arange(n) % who, **more)


def frame(n=60):
    """Features with an index, labels and clients with the same."""
    x = pandas.DataFrame(np.random.default_rng(1).normal(size=(n, 2)), columns=["a", "b"])
    return x, pandas.Series(np.arange(n) % 2), pandas.Series(np.arange(n) % 3)


@pytest.mark.parametrize("argument", ["y", "client", "weight", "test", "group", "note of mine"])
def test_pandas_rows_in_another_order_are_refused(argument):
    x, y, whose = frame()
    given = {"y": y, "client": whose, "weight": y + 1.0, "test": whose == 0}
    if argument == "group":
        given |= {"group": whose, "split": "group", "test": 0.3}
    if argument == "note of mine":
        given["columns"] = {argument: y}
    right = from_arrays(x, **given)
    mixed = x.sample(frac=1, random_state=0)
    wrong = given | {"columns": {argument: y.loc[mixed.index]}}
    if argument != "note of mine":
        wrong = given | {argument: given[argument].loc[mixed.index]}
    with pytest.raises(ValueError, match=rf"{argument} must have the index of x.*\.loc\[x\.index"):
        from_arrays(x, **wrong)
    aligned = {
        name: value.loc[mixed.index] if hasattr(value, "loc") else value
        for name, value in given.items()
        if name != "columns"
    }
    again = from_arrays(mixed, **aligned)
    assert again.y.bincount().tolist() == right.y.bincount().tolist()
    # arrays have no index, and a frame's own columns are in its order
    from_arrays(mixed.assign(label=y), "label", whose.to_numpy())


def test_two_series_beside_an_array_must_agree():
    x, y, whose = frame()
    with pytest.raises(ValueError, match="client must have the index of y"):
        from_arrays(x.to_numpy(), y, whose[::-1])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (lambda x, y: (x, y.where(y == 1).astype(float)), "30 of 60 are missing"),
        (lambda x, y: (x.set_axis(["a", "a"], axis=1), y), "several are called a$"),
        (lambda x, y: (x, y, [datetime.date(2026, 1, 1)] * 60), "list of date; .str.v. for v"),
        (lambda x, y: (x, y, pandas.to_datetime(["2026-01-01"] * 60)), "of datetime64; "),
        (lambda x, y: (torch.eye(60).to_sparse(), y), r"give x\.to_dense\(\)"),
        (lambda x, y: (x.iloc[:, :0], y), r"x must be numbers.*\(60, 0\)"),
        (lambda x, y: (masked(x), y), "x has 120 missing values"),
        (lambda x, y: (x, masked(y)), "y must have a value for each sample, 60 of 60"),
        (lambda x, y: (x, y, masked(y)), "client must have a value for each sample"),
        (lambda x, y: (x * 1e300, y), "x must hold numbers that float32 can"),
        (lambda x, y: (x * [1, 0] + [0, 1e-20] * x, y), "feature 1 varies by less than float32"),
        (lambda x, y: (x + [0, 1e12], y), "feature 1 varies by less than float32"),
        (lambda x, y: (x, y * 1e300), "y must hold numbers that float32 can"),
    ],
)
def test_an_error_says_what_is_wrong(given, words):
    x, y, _ = frame()
    with pytest.raises((ValueError, TypeError), match=words):
        from_arrays(*given(x, y))


def masked(values):
    """A NumPy array all of whose values are masked, which is to say that they are not there."""
    return np.ma.array(values.to_numpy(), mask=True)


def test_what_is_masked_is_missing_and_half_precision_is_read():
    x, y, _ = frame()
    holes = np.ma.array(x.to_numpy(), mask=x.to_numpy() > x.to_numpy().mean())
    as_nan = holes.filled(np.nan)
    here, there = (from_arrays(v, y.to_numpy(), missing="mean") for v in (holes, as_nan))
    assert torch.equal(here.x, there.x) and here.x.isfinite().all()
    rows = torch.tensor(x.to_numpy())
    for dtype in (torch.float16, torch.bfloat16):
        read = from_arrays(rows.to(dtype), y.to_numpy())
        assert torch.equal(read.x, from_arrays(rows.to(dtype).double(), y.to_numpy()).x)


def test_classes_are_named_once_each():
    x, y, _ = frame()
    with pytest.raises(ValueError, match="classes must differ from one another"):
        from_arrays(x, y, classes=["ill", "ill"])


def test_negative_token_ids_have_no_vocabulary_to_lie_in():
    with pytest.raises(ValueError, match=r"ids must be 0 or more, got -1\.\.-1"):
        from_arrays(np.full((6, 2), -1), np.arange(6) % 2, kind="text")


# ---- kinds and forms ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "kind", "shape"),
    [
        (RANDOM.normal(size=(12, 3)), "tabular", (3,)),
        (RANDOM.normal(size=(12, 2, 7)), "series", (2, 7)),
        (RANDOM.integers(0, 256, (12, 5, 4)), "image", (1, 5, 4)),
        (RANDOM.random((12, 3, 5, 4)), "image", (3, 5, 4)),
        (torch.rand(12, 6, dtype=torch.float64), "tabular", (6,)),
        (torch.randint(0, 255, (12, 1, 4, 4), dtype=torch.uint8), "image", (1, 4, 4)),
    ],
)
def test_arrays_of_every_kind(x, kind, shape):
    made = from_arrays(x, ["a", "b", "c"] * 4)
    assert made.kind == kind and made.shape == shape and made.classes == ("a", "b", "c")
    assert (made.n_train, made.n_test) == (9, 3) and made.client == ""
    assert torch.isfinite(made.normalized(made.x)).all()


def test_images_with_their_channels_last_are_refused_with_what_would_be_right():
    photos = RANDOM.random((12, 8, 9, 3))
    with pytest.raises(ValueError, match=r"channels seem to be last: x\.transpose\(0, 3, 1, 2\)"):
        from_arrays(photos, np.arange(12) % 2)
    assert from_arrays(photos.transpose(0, 3, 1, 2), np.arange(12) % 2).shape == (3, 8, 9)


def test_whole_numbers_in_a_table_are_features_or_tokens_as_one_says():
    ids = RANDOM.integers(0, 9, (12, 5))
    text = from_arrays(ids, np.arange(12) % 2, kind="text", vocabulary=11)
    assert text.kind == "text" and text.vocabulary == 11 and text.x.dtype == torch.int64
    assert from_arrays(ids, np.arange(12) % 2, kind="tabular").x.dtype == torch.float32
    with pytest.raises(ValueError, match="kind must be given"):
        from_arrays(ids, np.arange(12) % 2)
    with pytest.raises(ValueError, match=r"0\.\.4"):
        from_arrays(ids, np.arange(12) % 2, kind="text", vocabulary=5)


def test_a_frame_gives_its_columns_by_name_and_needs_no_import_of_pandas():
    frame = pandas.DataFrame(
        {
            "age": RANDOM.normal(50, 9, 40),
            "ill": ["yes", "no"] * 20,
            "hospital": np.repeat(["Bonn", "Ulm"], 20),
            "smokes": RANDOM.integers(0, 2, 40).astype(bool),
            "visit": np.repeat(np.arange(10), 4),
        }
    )
    made = from_arrays(frame, "ill", "hospital", group="visit", split="group", name="clinic")
    assert made.shape == (2,) and made.classes == ("no", "yes") and made.client == "hospital"
    assert made.columns["hospital"].names == ("Bonn", "Ulm")
    visits = made.columns["visit"].values
    assert not set(visits[: made.n_train].tolist()) & set(visits[made.n_train :].tolist())
    # every row kept what it had: the whole ages stand beside their hospitals
    ages = {(round(float(a), 3), h) for a, h in zip(frame["age"], frame["hospital"])}
    names = made.columns["hospital"].names
    ours = zip(made.x[:, 0].tolist(), made.columns["hospital"].values.tolist())
    assert {(round(a, 3), names[h]) for a, h in ours} == ages
    with pytest.raises(TypeError, match=r"columns that do not: hospital \(.*get_dummies"):
        from_arrays(frame, "ill")
    frame["since"] = pandas.Timestamp("2020-01-01")
    with pytest.raises(TypeError, match=r"columns that do not: since \(datetime.*days since"):
        from_arrays(frame, "ill", "hospital")
    del frame["since"]
    with pytest.raises(ValueError, match="client must be one value for each sample or the name"):
        from_arrays(frame, "ill", "clinic")


@pytest.mark.parametrize(
    "whose",
    [
        ["a", None, "b", "a"],
        pandas.array(["a", "b", None, None], dtype="string"),
        pandas.array([1, None, 2, 2], dtype="Int64"),
        np.array([1.0, np.nan, 2.0, 2.0]),
    ],
    ids=["words", "pandas words", "pandas numbers", "numbers"],
)
def test_samples_that_belong_to_nobody_are_counted(whose):
    with pytest.raises(ValueError, match=r"client must have .* [12] of 4 are missing"):
        from_arrays(np.eye(4), [0, 1, 0, 1], client=whose)
    with pytest.raises(ValueError, match=r"hospital must have .* are missing"):
        from_arrays(np.eye(4), [0, 1, 0, 1], columns={"hospital": whose})


def test_labels_of_any_whole_numbers_or_words():
    x = np.zeros((6, 2)) + np.arange(6)[:, None]
    made = from_arrays(x, np.array([-1, 1] * 3))
    assert made.classes == ("-1", "1") and sorted(made.y.tolist()) == [0, 0, 0, 1, 1, 1]
    made = from_arrays(x, ["b", "a"] * 3, classes=["b", "a"], test=np.arange(6) > 3)
    assert made.y.tolist() == [0, 1, 0, 1, 0, 1] and made.classes == ("b", "a")
    with pytest.raises(ValueError, match="y has labels that classes does not name: c"):
        from_arrays(x, ["b", "c"] * 3, classes=["b", "a"])
    assert from_arrays(x, [0, 2] * 3).classes == ("0", "1", "2")


def test_a_mask_that_is_read_only_is_taken_in_silence(recwarn):
    """As pandas hands it out."""
    mask = np.arange(6) > 3
    mask.flags.writeable = False
    made = from_arrays(np.random.default_rng(0).random((6, 2)), [0, 1] * 3, test=mask)
    assert made.n_test == 2 and len(recwarn) == 0


# ---- scale ----------------------------------------------------------------------------------


def test_features_are_standardised_by_the_training_part_alone():
    x = RANDOM.normal(5.0, 3.0, (40, 3))
    x[:, 1] = 7.0  # constant
    tested = np.arange(40) >= 30
    x[tested] += 1000.0  # what is tested must not be seen
    made = from_arrays(x, np.arange(40) % 2, test=tested)
    train = made.normalized(made.x_train, torch.float64)
    torch.testing.assert_close(
        train.mean(0), torch.zeros(3, dtype=torch.float64), atol=1e-5, rtol=0
    )
    spread = train.std(0, correction=0)
    torch.testing.assert_close(spread, torch.tensor([1.0, 0.0, 1.0]).double(), atol=1e-5, rtol=0)
    assert made.normalized(made.x_test).mean() > 100
    series = from_arrays(x.reshape(20, 3, 2), np.arange(20) % 2)
    assert len(series.mean) == 3
    within = series.normalized(series.x_train, torch.float64)
    assert float(within.mean((0, 2)).abs().max()) < 1e-5


def test_missing_values_are_refused_filled_or_flagged():
    x = np.arange(20.0).reshape(10, 2)
    x[[0, 9], 1] = np.nan
    tested = np.arange(10) > 7
    given = {"test": tested}
    with pytest.raises(ValueError, match="2 missing values"):
        from_arrays(x, [0, 1] * 5, **given)
    filled = from_arrays(x, [0, 1] * 5, missing="mean", **given)
    mean = np.mean([3, 5, 7, 9, 11, 13, 15])  # of the training part
    assert filled.x[0, 1] == filled.x[9, 1] == mean and filled.shape == (2,)
    flagged = from_arrays(x, [0, 1] * 5, missing="flag", **given)
    assert flagged.x[:, 2].tolist() == [1, 0, 0, 0, 0, 0, 0, 0, 0, 1]


# ---- what is tested -------------------------------------------------------------------------


def test_a_random_share_is_taken_from_every_class_of_every_client():
    y = torch.tensor([0] * 80 + [1] * 20)
    mask = share_for_test(y, 0.25, 0, "try")
    assert int(mask[:80].sum()) == 20 and int(mask[80:].sum()) == 5
    assert torch.equal(mask, share_for_test(y, 0.25, 0, "try"))
    assert not torch.equal(mask, share_for_test(y, 0.25, 1, "try"))
    for n in (2, 3, 7):
        for share in (0.01, 0.5, 0.99):
            assert 0 < int(share_for_test(torch.zeros(n), share, 0).sum()) < n
    assert not share_for_test(torch.zeros(1), 0.9, 0).any()


def test_the_last_samples_of_each_client_by_time():
    whose = np.arange(40) % 4
    moment = np.arange(40)
    made = from_arrays(
        RANDOM.normal(size=(40, 2)),
        moment % 2,
        whose,
        split="time",
        test=0.3,
        columns={"moment": moment},
    )
    clients = partition.natural(made)
    when = made.columns["moment"].values
    for train, test in zip(clients.train, clients.test):
        assert len(test) == 3 and int(when[train].max()) < int(when[test].min())


def test_groups_stay_whole_and_every_class_keeps_something_to_train_on():
    y = torch.arange(3).repeat_interleave(20)
    groups = torch.arange(12).repeat_interleave(5)
    mask = groups_for_test(y, groups, 0.25, 0, "try")
    assert [int(mask[y == c].sum()) for c in range(3)] == [5, 5, 5]
    assert all(len(mask[groups == g].unique()) == 1 for g in range(12))
    alone = groups_for_test(torch.zeros(6), torch.zeros(6), 0.5, 0)
    assert not alone.any()


# ---- natural clients ------------------------------------------------------------------------


def visits():
    """Ten patients, each of whom was seen in all three hospitals."""
    x, n = np.random.default_rng(1).normal(size=(120, 2)), np.arange(120)
    return from_arrays(x, n % 2, n % 3, group=n % 10, split="group", test=0.3)


def crossing(made, train, test):
    """Groups that lie on both sides."""
    seen = [set(made.groups[torch.cat(list(rows))].tolist()) for rows in (train, test)]
    return seen[0] & seen[1]


def test_a_group_of_several_clients_lies_on_one_side():
    made = visits()
    clients = partition.natural(made)
    assert clients.m == 3 and crossing(made, clients.train, clients.test) == set()
    anew = partition.natural(made, test_share=0.3)
    assert crossing(made, anew.train, anew.test) == set()
    _, chosen = partition.hold_out(clients, 0.3, data=made)
    assert crossing(made, chosen.train, chosen.test) == set()
    assert all(map(len, chosen.test))


def test_what_cannot_be_held_out_without_tearing_a_group_is_named():
    n = np.arange(40)
    made = from_arrays(
        np.ones((40, 2)), n % 2, n % 2, group=np.where(n < 30, "ann", "bob"),
        split="group", test=0.3,
    )  # fmt: skip
    clients = partition.natural(made)
    with pytest.raises(ValueError, match=r"client 0 has nothing .* group (ann|bob)"):
        partition.hold_out(clients, data=made)
    partition.hold_out(clients)  # at random, as without groups


def test_what_is_held_out_of_data_in_time_is_the_last():
    made = people(split="time")
    clients = partition.natural(made)
    fed = pfl_lib.Federation(made, clients, "logistic_regression", shuffle=False)
    tested, chosen = fed.hold_out(0.2)
    for i in range(clients.m):
        train, held = chosen.partition.train[i], chosen.partition.test[i]
        assert train.max() < held.min() and len(held) == round(0.2 * len(clients.train[i]))
        assert torch.equal(tested.partition.test[i], clients.test[i])
    anew = partition.natural(made, test_share=0.3)
    assert all(train.max() < test.min() for train, test in zip(anew.train, anew.test))
    mixed = replace(clients, train=[rows.flip(0) for rows in clients.train])
    for one, other in zip(partition.hold_out(mixed, data=made)[1].test, chosen.partition.test):
        assert set(one.tolist()) == set(other.tolist())


def test_natural_clients_hold_their_own_samples_and_nothing_else():
    made = people()
    clients = partition.natural(made)
    clients.check(made)
    whose = made.columns["client"].values
    assert clients.m == 5 and clients.ids == ("0", "1", "2", "3", "4")
    for i, rows in enumerate(zip(clients.train, clients.test)):
        assert [set(whose[part].tolist()) for part in rows] == [{i}, {i}]
    assert sum(map(len, clients.train)) == made.n_train
    few = partition.natural(made, clients=2, seed=1)
    assert few.m == 2 and set(few.ids) < set(clients.ids)
    assert few.ids == partition.natural(made, clients=2, seed=1).ids


def test_a_share_is_drawn_from_one_part_and_the_other_stays_unused():
    made = people()
    clients = partition.natural(made, test_share=0.5)
    used = torch.cat([*clients.train, *clients.test])
    assert int(used.max()) < made.n_train
    later = partition.natural(made, test_share=0.5, part="test")
    assert int(torch.cat([*later.train, *later.test]).min()) >= made.n_train


def test_clients_with_too_little_are_left_out():
    whose = [0] * 30 + [1] * 3 + [2]
    made = from_arrays(RANDOM.normal(size=(34, 2)), np.arange(34) % 2, whose)
    assert partition.natural(made, min_samples=1).ids == ("0", "1")
    assert partition.natural(made, min_samples=5).ids == ("0",)
    with pytest.raises(ValueError, match="min_samples=50"):
        partition.natural(made, min_samples=50)


def test_hidden_groups_may_come_from_a_column():
    whose = np.arange(60) % 6
    made = from_arrays(
        RANDOM.normal(size=(60, 2)),
        np.arange(60) // 6 % 2,
        whose,
        columns={"terrain": np.where(whose < 2, "bare", "wood"), "row": np.arange(60)},
    )
    clients = partition.natural(made, groups="terrain")
    assert clients.groups.tolist() == [0, 0, 1, 1, 1, 1]
    with pytest.raises(ValueError, match="differs between samples of one client"):
        partition.natural(made, groups="row")


def test_newcomers_are_in_no_other_partition():
    made = people()
    everyone = partition.natural(made)
    members, newcomers = partition.set_aside(everyone, 2, seed=3)
    assert sorted(members.ids + newcomers.ids) == sorted(everyone.ids) and newcomers.m == 2
    trained = set(torch.cat([*members.train, *members.test]).tolist())
    assert not trained & set(torch.cat([*newcomers.train, *newcomers.test]).tolist())
    noisy = partition.label_noise(everyone, made, client_share=1.0)
    early, late = partition.set_aside(noisy, 2, seed=3)
    assert early.ids == members.ids
    assert all(len(a) == len(b) for a, b in zip(late.labels, late.train))


@pytest.mark.parametrize("engine", ["loop", "stacked", "threads"])
def test_a_federation_of_people_trains(engine):
    made = people(test=0.2)
    x = made.normalized(made.x, torch.float64)
    learnable = replace(made, y=(x[:, 0] > 0).long())
    fed = pfl_lib.Federation(
        learnable, partition.natural(learnable), "logistic_regression", lr=0.5, engine=engine
    )
    history = pfl_lib.run(pfl_lib.algorithm("fedavg"), fed, rounds=20, progress=False)
    assert sum(history.accuracy[-1]) / fed.m > 0.85


# ---- a partition remembers its data set -----------------------------------------------------


@pytest.fixture(scope="module")
def digits():
    return data.load("digits")


def test_another_data_sets_partition_is_refused(digits):
    clients = partition.iid(digits, clients=4)
    other = data.load("mnist5k")
    with pytest.raises(ValueError, match=r"was made for digits with 1,797 .* data is mnist5k"):
        pfl_lib.Federation(other, clients, "logistic_regression")
    with pytest.raises(ValueError, match="was made for digits"):
        clients.check(other)
    with pytest.raises(ValueError, match="was made for digits"):
        partition.label_noise(clients, other)
    shuffled = torch.randperm(len(digits), generator=torch.Generator().manual_seed(0))
    with pytest.raises(ValueError, match="was made for digits"):
        clients.check(replace(digits, x=digits.x[shuffled], y=digits.y[shuffled]))


def test_the_same_samples_in_another_form_are_the_same_data_set(digits):
    clients = partition.iid(digits, clients=4)
    clients.check(digits.halved())
    clients.check(replace(digits, y=9 - digits.y))
    partition.Partition("by hand", clients.train, clients.test).check(data.load("mnist5k"))


def test_what_is_remembered_is_saved_and_old_files_still_load(digits, tmp_path):
    made = people()
    clients = partition.natural(made)
    clients.save(tmp_path / "new.npz")
    again = partition.load(tmp_path / "new.npz")
    assert again.ids == clients.ids and again.source == clients.source
    again.check(made)
    with pytest.raises(ValueError, match="was made for own"):
        again.check(digits)
    with np.load(tmp_path / "new.npz") as arrays:
        old = {key: arrays[key] for key in arrays if key != "origin"}
        np.savez(tmp_path / "old.npz", **old)
        np.savez(tmp_path / "bad.npz", **old, origin=np.array('[[], {"name": 3}]'))
    assert partition.load(tmp_path / "old.npz").source is None
    with pytest.raises(ValueError, match=r"bad\.npz: not a saved partition"):
        partition.load(tmp_path / "bad.npz")


def test_what_a_result_calls_a_partition_has_not_changed(digits):
    clients = partition.iid(digits, clients=4)
    by_hand = partition.Partition("iid", clients.train, clients.test)
    names = {
        pfl_lib.Federation(digits, p, "logistic_regression").describe()["partition"]
        for p in (clients, by_hand)
    }
    assert names == {"iid-635d6a41325b7766"}


@pytest.mark.parametrize("share", [0.01, 0.5, 0.99])
def test_class_subset_leaves_nobody_empty(digits, share):
    partition.class_subset(digits, clients=20, test_share=share).check(digits)
