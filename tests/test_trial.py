"""The queue of long runs: result files say what is done, and a failure does not stop it."""

import json
import shlex
import subprocess
import sys
from dataclasses import replace
from functools import partial

import pytest

from devtools import trial
from tests.support.paths import ROOT

JOB = {
    "experiment": "own_leap",
    "methods": ["LGA"],
    "cases": ["a", "b"],
    "seeds": 2,
    "rounds": 10,
    "minutes": 3,
}


def held(case, seed, rounds=10, method="LGA"):
    return {"case": case, "method": method, "seed": seed, "rounds": [5, rounds]}


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A project of its own with one job in the queue."""
    monkeypatch.setattr(trial, "ROOT", tmp_path)
    monkeypatch.setattr(trial.os, "nice", lambda by: None)
    monkeypatch.delenv("PFL_NO_COMMIT", raising=False)
    (tmp_path / "results" / "own_leap").mkdir(parents=True)
    (tmp_path / "results" / "trial.json").write_text(json.dumps({"jobs": [JOB]}))
    monkeypatch.setattr(trial, "QUEUE", tmp_path / "results" / "trial.json")

    def store(*runs):
        path = tmp_path / "results" / "own_leap" / "paper.json"
        path.write_text(json.dumps({"runs": runs}))

    return store


def jobs():
    return trial.queue(trial.QUEUE)


def test_a_job_is_done_when_the_result_file_holds_all_of_it(place):
    (job,) = jobs()
    assert len(job.missing()) == 4
    place(held("a", 0), held("a", 1), held("b", 0), held("b", 1, rounds=9))
    assert job.missing() == [("b", "LGA", 1)], "a shorter run is not the run"
    place(*(held(c, s) for c in "ab" for s in range(2)), held("c", 0))
    assert job.missing() == [] and trial.left(jobs()) == []
    assert "1 of 1 jobs done; about 0.0 hours left" in trial.listing(jobs())


def test_a_run_that_diverged_is_done(place, tmp_path):
    (job,) = jobs()
    ends = [held(c, s, rounds=2) for c in "ab" for s in range(2)]
    path = tmp_path / "results" / "own_leap" / "paper.json"
    path.write_text(json.dumps({"runs": [], "diverged": ends}))
    assert job.missing() == []


def test_the_command_names_cases_and_methods(place):
    (job,) = jobs()
    whole = replace(job, experiment="fedala_s_p")
    assert whole.command()[-2:] == ["fedala_s_p", "SCALE=paper"], "it cannot run parts of its table"
    seeds = replace(job, experiment="fedala_published").command()[-1]
    assert seeds == "SEEDS=0;1"
    place(*(held(c, 0) for c in "ab"))  # what is there is not run again
    assert replace(job, experiment="own_leap").missing() == [("a", "LGA", 1), ("b", "LGA", 1)]
    grouped = replace(job, experiment="fedamp_grouped", parameters={"DATA": "mnist"})
    assert grouped.command()[-3:] == ["SCALE=paper", "METHODS=LGA", "DATA=mnist"]


def working(monkeypatch, code, then=lambda: None):
    """Let the queue call this instead of a notebook; git stays real."""
    real = subprocess.run

    def run(command, **options):
        if command[0] == "git":
            return real(command, **options)
        then()
        return subprocess.CompletedProcess(command, code)

    monkeypatch.setattr(trial.subprocess, "run", run)


def test_a_finished_job_is_committed(place, monkeypatch, tmp_path, capsys):
    for command in (["init", "-q"], ["config", "user.email", "a@b"], ["config", "user.name", "a"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    working(monkeypatch, 0, lambda: place(*(held(c, s) for c in "ab" for s in range(2))))
    assert trial.work(jobs) == 0
    assert "committed results/own_leap/paper.json" in capsys.readouterr().out
    log = subprocess.run(
        ["git", "log", "--format=%s"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert log.stdout.strip() == "Trial: LGA on a, b"


def test_a_job_that_fails_or_leaves_something_out_is_named(place, monkeypatch, capsys):
    working(monkeypatch, 1)
    assert trial.work(jobs) == 1
    working(monkeypatch, 0, lambda: place(held("a", 0)))
    assert trial.work(jobs) == 1
    assert capsys.readouterr().out.count("failed: own_leap: LGA on a, b (2 seeds)") == 2


def test_it_can_be_stopped(place, monkeypatch, capsys):
    def stop():
        raise KeyboardInterrupt

    working(monkeypatch, 0, stop)
    assert trial.work(jobs) == 130
    assert "goes on from the last checkpoint" in capsys.readouterr().out


def test_what_is_put_into_the_queue_while_it_works_is_next(place, monkeypatch, capsys):
    first, second = dict(JOB, cases=["b"]), dict(JOB, cases=["a"])
    runs = []

    def works():
        case = "a" if runs else "b"
        runs.extend(held(case, seed) for seed in (0, 1))
        place(*runs)
        trial.QUEUE.write_text(json.dumps({"jobs": [second, first]}))

    trial.QUEUE.write_text(json.dumps({"jobs": [first]}))
    working(monkeypatch, 0, works)
    assert trial.work(jobs) == 0
    assert "== 1 left, about 0.1 hours: own_leap: LGA on a (2 seeds)" in capsys.readouterr().out


def test_sigterm_stops_the_queue_and_the_job_that_runs():
    """A process of its own, whose only job sleeps; it holds the output open while it lives."""
    script = (
        "import sys\n"
        "from devtools import trial\n"
        "child = 'import time; print(\"begun\", flush=True); time.sleep(600)'\n"
        "trial.Job.command = lambda job: [sys.executable, '-c', child]\n"
        "trial.Job.missing = lambda job: [('a', 'LGA', 0)]\n"
        "sys.exit(trial.main([]))\n"
    )
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline().startswith("==")
        assert process.stdout.readline() == "begun\n"
        process.terminate()
        rest, _ = process.communicate(timeout=20)
        assert process.returncode == 130 and "goes on from the last checkpoint" in rest


def test_jobs_are_chosen_by_their_words_and_in_their_order(place, monkeypatch, capsys):
    rows = [dict(JOB, cases=[case]) for case in ("a", "b", "c")]
    trial.QUEUE.write_text(json.dumps({"jobs": rows}))
    rows = jobs()
    monkeypatch.setattr(trial, "queue", lambda: rows)
    jobs_of = partial(trial.choose, rows)
    assert [j.cases for j in jobs_of(())] == [("a",), ("b",), ("c",)]
    assert [j.cases for j in jobs_of(("on c", "own_leap"))] == [("c",), ("a",), ("b",)]
    assert trial.main(["list", "on b"]) == 0
    listed = capsys.readouterr().out
    assert "LGA on b" in listed and "LGA on a" not in listed and "0 of 1 jobs done" in listed
    runs = []

    def works():
        runs.extend(held("cb"[len(runs) // 2], seed) for seed in (0, 1))
        place(*runs)

    working(monkeypatch, 0, works)
    monkeypatch.setattr(trial.signal, "signal", lambda *what: None)
    assert trial.main(["on c", "on b"]) == 0, "the job on a is left alone"
    assert [run["case"] for run in runs] == ["c", "c", "b", "b"]
    with pytest.raises(ValueError, match="no job is called 'on d'"):
        trial.main(["on d"])
    assert trial.main(["--help"]) == 2


def test_a_queue_that_is_none_is_refused(place):
    trial.QUEUE.write_text('{"jobs": [{"experiment": "own_leap"}]}')
    with pytest.raises(ValueError, match="not a list of jobs"):
        jobs()


def test_every_job_of_the_queue_is_one_that_its_notebook_can_run():
    """The notebook is there and can run a single method; only quick ones share a job."""
    queued = trial.queue()
    assert len({job.words for job in queued}) == len(queued)
    for job in queued:
        path = trial.find_experiment(job.experiment)
        known = trial.parameters(trial.nbformat.read(path, as_version=4))
        assert "METHODS" in known and job.minutes > 0, job.words
        assert len(job.methods) == 1 or job.minutes < 30, job.words


@pytest.mark.parametrize(
    ("given", "expected"),
    [((), []), (("ONLY=spfl_table1: SPFL on;plga_order",), ["spfl_table1: SPFL on", "plga_order"])],
)
def test_make_hands_on_what_was_chosen_and_nothing_else(given, expected):
    """JOBS, the number of processes, always has a value: it must not choose jobs."""
    command = ["make", "--no-print-directory", "-no", ".venv/.installed", "trial", *given]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert shlex.split(done.stdout)[1:] == ["-m", "devtools.trial", *expected]
