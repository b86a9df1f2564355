"""Result files as they will be when more of the queue of long runs has been done."""

import copy
import json

from devtools import trial
from pfl_lib.book.experiments import stored
from pfl_lib.methods import BY_NAME
from tests.support.paths import ROOT

#: What the pages' own ``extra`` functions give, where no run of the experiment is stored yet.
EXTRA = {"fedamp_readings": {"inside": 0.5}, "fedamp_columns": {}}
#: What a page says of its runs at this scale, where those of a smaller one serve as patterns.
NETWORK = {"data": "mnist", "model": "mcmahan_cnn", "parameters": 1_663_370}
SMALL = {"data": "mnist", "model": "mlp", "parameters": 8_000}
LARGER = {"fedamp_readings": (NETWORK, 40), "fedamp_columns": (SMALL, 20)}
NUMBERS = ("last", "best", "worst 10 %", "clients", "extra")
EMPTY = {
    "about": "a run that is not there yet",
    "source": "Huang et al. (FedAMP, AAAI 2021), Table 3",
    "judged": "best",
    "date": "2026-01-01",
    "minutes": 1.0,
    "machine": "none",
    "cases": [],
    "runs": [],
}


def jobs(experiment=None):
    """The jobs of the queue that are not done yet, of one experiment or of all."""
    return [j for j in trial.left(trial.queue()) if experiment in (None, j.experiment)]


def grown(experiment, done, broken=False):
    """The record of an experiment with the rows that these jobs will add; the numbers are made up.

    With ``broken`` their models did not stay finite, and they are kept as such runs are.
    Where nothing is stored at this scale, the cases are those of another scale: some of them have
    no row, as in a file that is half done.
    """
    kept, scale = stored(experiment), done[0].scale
    at_hand = kept.get(scale) or next(iter(kept.values()), None)
    record = copy.deepcopy(at_hand.record) if at_hand else dict(EMPTY, cases=[], runs=[])
    patterns = list(record["runs"])
    record |= {"experiment": experiment, "scale": scale, "canary": [], "seeds": [0]}
    if scale not in kept:
        record["runs"] = []
    for job in done:
        for case in job.cases:
            if case not in [entry["case"] for entry in record["cases"]]:
                printed = () if "first six rounds" in case else job.methods  # as its page says
                record["cases"].append({"case": case, "paper": dict.fromkeys(printed, 90.0)})
            for entry in record["cases"]:
                if entry["case"] == case:
                    entry["rounds"] = job.rounds
            long = [r for r in record["runs"] if r["case"] != case or r["rounds"][-1] == job.rounds]
            record["runs"] = long  # as ``measure`` does
            before = [r for r in patterns if r["case"] == case] if scale in kept else []
            rows = [_row(job, case, method, patterns, before) for method in job.methods]
            if broken:
                ends = {"round": 1, "what": "made up", "rounds": [], "mean by round": []}
                kept_of = ("case", "method", "seed", "settings")
                rows = [{name: row[name] for name in kept_of} | ends for row in rows]
            record.setdefault("diverged" if broken else "runs", []).extend(rows)
    return record


def _row(job, case, method, patterns, before):
    """A finished run of this method, made up after a stored one of the experiment; one that there
    is already, but shorter, keeps its numbers."""
    like = [r for r in patterns if r["method"] == method] or patterns
    extra = like[0]["extra"] if like else EXTRA[job.experiment]
    network, clients = LARGER.get(job.experiment, ({}, len(like[0]["clients"]) if like else 0))
    settings = (like[0]["settings"] if like else {}) | network
    settings["data"] = "fashion_mnist" if "FMNIST" in case else settings["data"]
    labels = {kind.label: kind for kind in BY_NAME.values()}
    kind = labels.get(method) or labels.get(method.split(",")[0]) or BY_NAME["fedacs"]
    settings |= {"algorithm": kind.name, "fedamp.sigma": 100.0}
    same = [r for r in before if r["method"] == method]
    kept = {name: same[0][name] for name in NUMBERS} if same else {}
    return {
        "case": case,
        "method": method,
        "seed": 0,
        "last": 0.9,
        "best": 0.91,
        "best round": job.rounds,
        "worst 10 %": 0.8,
        "seconds": 60.0,
        "sent": 1_000_000,
        "tested": "the model",
        "clients": [0.9] * clients,
        "rounds": [1, job.rounds],
        "mean by round": [0.5, 0.9],
        "extra_models": {"u": [0.5, 0.9]} if kind.name in ("fedamp", "heurfedamp") else {},
        "extra": {name: 0.5 for name in extra},
        "settings": settings,
    } | kept


def a_book(folder, records):
    """A folder in which ``stored`` finds these records in place of the committed ones."""
    (folder / "_toc.yml").write_text("", encoding="utf-8")
    for record in records:
        path = folder / "results" / record["experiment"] / f"{record['scale']}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(record), encoding="utf-8")
    return folder


def reading_cells(path):
    """The code of a page that reads stored results: all before it runs something itself."""
    cells = json.loads((ROOT / path).read_text(encoding="utf-8"))["cells"]
    for cell in cells:
        tags = cell["metadata"].get("tags", ())
        if "parameters" in tags:
            return
        if cell["cell_type"] == "code" and "setup" not in tags:
            yield "".join(cell["source"])
