"""Maintain the notebooks: new, fill, clean, check, run.

    python -m devtools.notebooks new notebooks/05_name.ipynb "A title"   a skeleton to fill
    python -m devtools.notebooks fill PATHS        run, and store the outputs that tests compare
    python -m devtools.notebooks clean [PATHS]   strip outputs, normalise (by default all)
    python -m devtools.notebooks check [PATHS]     report what is wrong
    python -m devtools.notebooks run PATH SCALE=smoke [OTHER=VALUE]   run an experiment
    python -m devtools.notebooks run-all SCALE=laptop                 run all of them

A committed notebook holds no outputs, except in cells tagged `nbval-check-output`, with which tests
compare a fresh run.
"""

import ast
import contextlib
import json
import sys
import tempfile
import threading
import time
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parents[1]
EXPERIMENTS = ROOT / "notebooks" / "experiments"
CHECKED = "nbval-check-output"
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}

# The first code cell of every notebook, into which `clean` writes it: change it only here and run
# `make format`. It never installs torch or numpy, which every place that runs notebooks has. Where
# pip looks for packages is left to pip's settings (PIP_FIND_LINKS and the like; devtools/colab.py).
SETUP = """\
import glob
import importlib.util

if importlib.util.find_spec("pfl_lib") is None:  # Colab and other bare machines
    library = next(iter(glob.glob("pfl_lib-*.whl")), "pfl_lib")  # uploaded, or fetched
    %pip install -q --no-deps {library} mlxtend safetensors seglearn
    %pip install -q anywidget tqdm"""
SETUP_TAGS = ["setup", "remove-cell"]


def all_notebooks():
    """Every notebook of the project: chapters, the reference, experiments."""
    folders = (ROOT / "notebooks", ROOT / "notebooks" / "reference", EXPERIMENTS)
    return [path for folder in folders for path in sorted(folder.glob("*.ipynb"))]


def is_experiment(path):
    return Path(path).resolve().parent.name == "experiments"


def tags(cell):
    return cell.metadata.get("tags", [])


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def has_setup(notebook):
    cells = code_cells(notebook)
    return bool(cells) and "setup" in tags(cells[0])


def setup_cell():
    return nbformat.v4.new_code_cell(SETUP, metadata={"tags": list(SETUP_TAGS)})


# ------------------------------------------------------------------------------------- clean
def clean(notebook):
    """Strip and normalise in place; running it twice changes nothing more."""
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    notebook.metadata = nbformat.from_dict(
        {"kernelspec": KERNEL, "language_info": {"name": "python"}}
    )
    if has_setup(notebook):
        cell = code_cells(notebook)[0]
        cell.source, cell.metadata["tags"] = SETUP, list(SETUP_TAGS)
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number:03d}"  # numbered ids: stable in diffs
        wanted = {k: v for k, v in cell.metadata.items() if k in {"tags", "mystnb"} and v}
        cell.metadata = nbformat.from_dict(wanted)
        if cell.cell_type != "code":
            cell.pop("attachments", None)
            continue
        if CHECKED in tags(cell) and cell.outputs:
            # nbval compares only cells with an execution count
            cell.execution_count = 1
            cell.outputs = [_plain(output) for output in cell.outputs]
        else:
            cell.execution_count, cell.outputs = None, []
    return notebook


def _plain(output):
    """An output without the parts that differ from run to run."""
    if "execution_count" in output:
        output["execution_count"] = 1
    if "metadata" in output:
        output["metadata"] = nbformat.from_dict({})
    return output


def text_of(notebook):
    return nbformat.writes(notebook, version=nbformat.NO_CONVERT, indent=1) + "\n"


def cleaned_text(path):
    return text_of(clean(nbformat.read(path, as_version=4)))


# ------------------------------------------------------------------------------------- check
def problems(path):
    """A list of what is wrong with the notebook at ``path``."""
    notebook = nbformat.read(path, as_version=4)
    cells, found = code_cells(notebook), []
    if notebook.metadata.get("kernelspec") != KERNEL:
        found.append("its kernelspec is not the plain python3 one")
    if not cells or cells[0].source != SETUP or tags(cells[0]) != SETUP_TAGS:
        found.append("its first code cell is not the standard set-up cell")
    if not notebook.cells or not notebook.cells[0].source.startswith("# "):
        found.append("it does not begin with a markdown cell that holds its title")
    for number, cell in enumerate(cells):
        if CHECKED in tags(cell) and not (cell.outputs and cell.execution_count):
            found.append(f"code cell {number} is tagged {CHECKED} but holds no output to compare")
    if is_experiment(path):
        names = parameters(notebook)
        if names is None:
            found.append("it has no cell tagged `parameters`")
        elif names.get("SCALE") != "smoke":
            found.append('its parameters do not begin small: SCALE = "smoke" is missing')
    if path.read_text(encoding="utf-8") != cleaned_text(path):
        found.append("it is not clean: run `make format`")
    return found


def parameters(notebook):
    """The names and default values of the cell tagged `parameters`, or None without such a cell."""
    for cell in code_cells(notebook):
        if "parameters" in tags(cell):
            tree = ast.parse(cell.source)
            return {
                node.targets[0].id: ast.literal_eval(node.value)
                for node in tree.body
                if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
            }
    return None


# -------------------------------------------------------------------------------------- fill
def fill(path):
    """Run the notebook and write it back clean, with the outputs of the cells to be compared."""
    from devtools import executed, runner

    path = Path(path).resolve()
    _, wrong = runner.run([path])
    if wrong:
        raise ValueError("\n".join(wrong))
    path.write_text(
        text_of(clean(executed.current(path, executed.fingerprint()))), encoding="utf-8"
    )


# --------------------------------------------------------------------------------------- run
def run(path, given, out=None):
    """Run the experiment at ``path`` with papermill; returns the path of the executed notebook.

    Papermill only warns of a parameter that the notebook does not have; here it is refused.
    """
    import papermill

    from devtools import kernels

    path = Path(path)
    names = parameters(nbformat.read(path, as_version=4))
    if names is None:
        raise ValueError(f"{path.name} has no cell tagged `parameters`")
    unknown = sorted(set(given) - set(names))
    if unknown:
        raise ValueError(
            f"{path.name} has no parameter {', '.join(unknown)}; it has {', '.join(names)}"
        )
    label = "-".join(str(value) for value in given.values()) or "default"
    out = Path(out or ROOT / "_build" / "experiments" / f"{path.stem}-{label}.ipynb")
    out.parent.mkdir(parents=True, exist_ok=True)
    scale = given.get("SCALE", names.get("SCALE"))
    folders = (ROOT / top / path.stem / str(scale) for top in ("checkpoints", "results"))
    with tempfile.TemporaryDirectory(prefix="pfl-") as workspace, progress_bar(*folders):
        papermill.execute_notebook(
            path,
            out,
            parameters=given,
            cwd=path.parent,
            progress_bar=False,
            kernel_name="python3",
            kernel_manager_class=kernels.manager(None, workspace),
        )
    return out


@contextlib.contextmanager
def progress_bar(*folders):
    """A bar in the terminal that follows what ``experiments.measure`` says in a folder.

    The notebook runs in another process, and its own bars would end up in the notebook.
    """
    from tqdm import tqdm

    over = threading.Event()

    def watch():
        bar = None
        while not over.wait(1 if sys.stderr.isatty() else 60):  # fewer lines in a log file
            files = [folder / "progress.json" for folder in folders]
            # what is older is of an earlier start
            files = [path for path in files if path.exists() and path.stat().st_mtime >= began]
            try:
                progress = json.loads(files[0].read_text())
            except (IndexError, OSError, ValueError):
                continue
            seen = [
                int(p.stem[6:]) for p in (files[0].parent / progress["folder"]).glob("round-*.json")
            ]
            bar = bar or tqdm(total=progress["runs"], unit="run", dynamic_ncols=True)
            bar.n = progress["run"] + max(seen, default=0) / progress["rounds"]
            bar.set_description(
                f"{progress['now']}, round {max(seen, default=0)}/{progress['rounds']}"
            )
        if bar:
            bar.close()

    began = time.time()
    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def run_all(scale):
    """Every experiment at ``scale``, one after the other; what fails is named at the end."""
    failed = []
    for path in sorted(EXPERIMENTS.glob("*.ipynb")):
        began = time.time()
        print(f"== {path.stem}, {scale}", flush=True)
        try:
            run(path, {"SCALE": scale})
            print(f"   {(time.time() - began) / 60:.1f} minutes", flush=True)
        except Exception as error:  # one failure must not stop the others
            failed.append(path.stem)
            print(f"   failed: {str(error)[-2000:]}", flush=True)
    if failed:
        print(f"failed: {', '.join(failed)}; the others are done")
    return int(bool(failed))


def find_experiment(name):
    """The experiment of that name; the error suggests a close match."""
    import difflib

    path = EXPERIMENTS / f"{Path(name).stem}.ipynb"
    if path.exists():
        return path
    known = [p.stem for p in sorted(EXPERIMENTS.glob("*.ipynb"))]
    near = difflib.get_close_matches(Path(name).stem, known, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"there is no experiment {name!r}; there are: {', '.join(known)}.{hint}")


def _value(text):
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


# --------------------------------------------------------------------------------------- new
_BOX = """\
:::{admonition} In this chapter
:class: tip

You will be able to … You need first … Reading time: … minutes; run time: … seconds.
:::"""
CHAPTER = [
    ("markdown", "# TITLE\n\n" + _BOX, {}),
    ("setup", "", {}),
    ("code", "import pfl_lib\n\npfl_lib.__version__", {}),
    ("markdown", "## The problem\n\nOne concrete failure: one figure, one number.", {}),
    ("markdown", "## Predict first\n\nA question with a hidden answer.", {}),
    ("markdown", "## Play with it\n\nThe explorer.", {}),
    ("markdown", "## Derivation\n\nClaim, labelled equation, its reading in words, a check.", {}),
    ("markdown", "## From scratch\n\nAt most forty lines, then the comparison.", {}),
    ("markdown", "## Where it fails, and what it costs", {}),
    ("markdown", "## Summary and exercises", {}),
]
EXPERIMENT = [
    ("markdown", "# TITLE\n\nWhich table or figure this is, and what it takes to run.", {}),
    ("setup", "", {}),
    (
        "markdown",
        "## What we measured\n\nWhat it shows, and what it does not. Once a run is stored, begin "
        "with it: `found = opening(NAME)`, from `pfl_lib.book.experiments`.",
        {},
    ),
    ("markdown", "## Run it yourself", {}),
    (
        "code",
        'SCALE = "smoke"  # or "laptop", or "paper"',
        {"tags": ["parameters"]},
    ),
    (
        "code",
        "from pfl_lib.book.experiments import pick\n\n"
        'at = pick(SCALE, {"smoke": {"rounds": 2}, "laptop": {"rounds": 20}})',
        {"tags": ["run-it-yourself"]},
    ),
]


def new(path, title):
    """A skeleton chapter, or a skeleton experiment when the path is in the experiments' folder."""
    path = Path(path)
    if path.exists():
        raise ValueError(f"{path} exists already")
    notebook = nbformat.v4.new_notebook()
    for kind, source, metadata in EXPERIMENT if is_experiment(path) else CHAPTER:
        if kind == "setup":
            notebook.cells.append(setup_cell())
            continue
        make = nbformat.v4.new_code_cell if kind == "code" else nbformat.v4.new_markdown_cell
        notebook.cells.append(make(source.replace("TITLE", title), metadata=metadata))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text_of(clean(notebook)), encoding="utf-8")
    return path


def main(arguments):
    if not arguments or arguments[0] not in {"new", "fill", "clean", "check", "run", "run-all"}:
        print(__doc__)
        return 2
    command, *rest = arguments
    if command == "new":
        print(f"made {new(rest[0], rest[1] if len(rest) > 1 else Path(rest[0]).stem)}")
        print("Next: name it in _toc.yml; tag the cells whose output is to be compared; `fill` it.")
        return 0
    if command == "run":
        given = dict(pair.split("=", 1) for pair in rest[1:])
        out = run(find_experiment(rest[0]), {k: _value(v) for k, v in given.items()})
        print(f"executed notebook: {out.relative_to(ROOT)}")
        return 0
    if command == "run-all":
        return run_all(rest[0].removeprefix("SCALE="))
    if command == "fill":
        for path in rest:
            fill(path)
        return 0
    paths, bad = [Path(p) for p in rest] or all_notebooks(), 0
    for path in paths:
        if command == "clean":
            text = cleaned_text(path)
            if path.read_text(encoding="utf-8") != text:
                path.write_text(text, encoding="utf-8")
                print(f"cleaned {path}")
        else:
            for problem in problems(path):
                print(f"{path}: {problem}")
                bad += 1
    return int(bad > 0)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (ValueError, OSError) as error:
        sys.exit(f"notebooks.py: {error}")
