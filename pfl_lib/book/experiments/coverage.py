"""Every table and figure of the five papers: where it is in this book, and at which scale."""

from pfl_lib._show import Link, Shown
from pfl_lib.book.experiments.overview import carries
from pfl_lib.book.experiments.results import SCALES, stored

V1, AMP, SPFL, ACS, ALA = "FedAMP v1", "FedAMP", "SPFL/PLGA", "FedACS", "FedALA"
#: paper, table or figure, what it shows, the experiment or page that has it ("" for none; after
#: "#" the case of the experiment that is meant), and what is missing there
ITEMS = (
    (AMP, "Figure 1", "the mechanism of messages", "04_fedamp", ""),
    (AMP, "Table 1", "IID clients", "fedamp_iid", ""),
    (AMP, "Table 2", "two classes each", "fedamp_pathological", ""),
    (AMP, "Table 3", "hidden groups", "fedamp_grouped", ""),
    (AMP, "Table 3", "hidden groups, open readings", "fedamp_readings", "MNIST only"),
    (AMP, "Tables 1 to 3", "open readings, twelve columns", "fedamp_columns", ""),
    (AMP, "Figure 2", "accuracy of the single clients", "fedamp_clients", ""),
    (AMP, "Figure 3", "collaboration weights on EMNIST", "fedamp_weights", ""),
    (V1, "Table 1", "hidden groups", "fedamp_grouped", ""),
    (V1, "Tables 2 to 4", "hyper-parameters", "api/experiments", ""),
    (V1, "Table 5", "IID clients", "fedamp_iid", ""),
    (V1, "Table 6", "two classes each", "fedamp_pathological", ""),
    (V1, "Figure 1", "patterns of the weights", "fedamp_weights", ""),
    (V1, "Figures 2 to 5", "wrong labels", "fedamp_dirty", ""),
    (V1, "Figures 6 to 9", "clients that stay away", "fedamp_dropped", ""),
    (SPFL, "Figure 1", "late clients, a drawing", "09_plga", ""),
    (SPFL, "Table 1", "SPFL and baselines", "spfl_table1", "5 of 8 columns"),
    (SPFL, "Table 2", "late clients", "plga_table2", "EMNIST and CIFAR100"),
    (SPFL, "Table 2", "order of the samples", "plga_order", "MNIST only"),
    (SPFL, "Figure 2", "PLGA's ten clients", "plga_table2", "EMNIST and CIFAR100"),
    (SPFL, "Table 3", "sizes of the data sets", "datasets", ""),
    (SPFL, "Figure 3", "how clients are dealt, a drawing", "02_data", ""),
    (SPFL, "Table 4", "the network", "api/models", ""),
    (SPFL, "Tables 5 and 6", "FedAvg against training alone", "spfl_layers", "some columns"),
    (SPFL, "Figures 4 and 5", "cosines of updates", "spfl_layers", "EMNIST and CIFAR100"),
    (SPFL, "Table 7", "SPFL's knobs", "spfl_knobs", "CIFAR10, EMNIST and CIFAR100"),
    (SPFL, "Figure 6", "SPFL's ten clients", "spfl_table1", "EMNIST and CIFAR100"),
    (SPFL, "Table 8", "fine-tuning SPFL's models", "spfl_finetune", "EMNIST and CIFAR100"),
    (ACS, "Table 1", "global and personal models", "fedacs_table1", ""),
    (ACS, "Table 2", "Dirichlet parameters", "fedacs_dirichlet", ""),
    (ACS, "Figure 1", "eight methods, four settings", "fedacs_figure1", "CIFAR10"),
    (ALA, "Figures 1 and 2", "how ALA works, drawings", "10_fedala", ""),
    (ALA, "Table 1", "share of data s, layers p", "fedala_s_p", "CIFAR100 for Tiny-ImageNet"),
    (ALA, "Table 2", "fourteen methods", "fedala_main", "Tiny-ImageNet"),
    (ALA, "Table 2", "AG News", "fedala_agnews", ""),
    (
        ALA,
        "Table 2",
        "the authors' blocks of clients",
        "fedala_published#MNIST, blocks",
        "Cifar10 and Cifar100",
    ),
    (ALA, "Table 3", "time and traffic", "fedala_cost", "minutes until convergence"),
    (
        ALA,
        "Table 4",
        "heterogeneity, clients, ALA added",
        "fedala_table4",
        "Tiny-ImageNet; 8 of 14 methods where no ALA is added",
    ),
    (ALA, "Figure 3", "learning the weights pass by pass", "fedala_weights", ""),
    (ALA, "Figure 4", "a client's trajectory", "fedala_trajectory", ""),
    (ALA, "Figure 5", "loss before and after mixing", "fedala_convergence", ""),
    (ALA, "Table 5", "which layers p means", "10_fedala", ""),
    (ALA, "Table 6", "range p of ALA, fastText", "fedala_agnews", "the CNN's half"),
    (ALA, "Table 7", "MNIST, and half of 100 clients", "fedala_table7", ""),
    (
        *(ALA, "Table 7", "MNIST, the authors' own clients"),
        "fedala_published#MNIST, FedALA's clients",
        "",
    ),
    (
        ALA,
        "Figures 6 to 9",
        "who holds what",
        "fedala_published",
        "drawn for the scale that is run",
    ),
)
#: An experiment that reads the stored runs of another.
READS = {"fedamp_clients": "fedamp_grouped"}


def coverage(results=None):
    """One row for every table and figure: where it is, at which scale, what is missing.

    >>> from pfl_lib.book.experiments.coverage import coverage
    >>> len(coverage().rows) == len(ITEMS)
    True
    """
    results = stored() if results is None else results
    rows = []
    for paper, item, shows, where, missing in ITEMS:
        rows.append((paper, item, shows, _link(where), _scale(where, results), missing))
    head = ("paper", "table or figure", "shows", "where", "scale", "missing there")
    return Shown(head, rows, sortable=True)


def _is_experiment(where):
    return where.split("_")[0] in ("fedamp", "spfl", "plga", "fedacs", "fedala")


def _link(where):
    where = where.partition("#")[0]
    if not where:
        return ""
    if _is_experiment(where):
        return Link(where, f"experiments/{where}.html")
    chapter = where[:2].isdigit()
    return Link(where, f"{where}.html" if chapter else f"../book/{where}.html")


def _scale(where, results):
    if not _is_experiment(where):
        return "explained" if where else "not run"
    page, _, case = where.partition("#")
    name, held = READS.get(page, page), []
    for scale in SCALES:
        if found := results.get((name, scale)):
            found = found.within([case]) if case else found
            rows = sum(len(found.methods_in(c)) for c in found.cases)
            few = f", {rows} row{'s' * (rows > 1)}" * (scale == "paper")  # they come in one by one
            if rows:
                held.append(f"{scale}{few} ({carries(name, scale, found)})")
    return "; ".join(held) or "not run"
