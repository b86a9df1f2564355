"""The project's own tools, each run as `python -m devtools.NAME`, most of them by `make`.

Style and lists (`make format`): notebooks, readme, reference.
Running notebooks: runner, with kernels; executed keeps the outputs, nbval_ran compares them; colab
runs each alone on a bare machine.
The book: book builds it, with reader (plain copies), policy (what pages may load) and teaching
(course material, from slides, graded, formula_sheet, page); pdf prints it, as print says; chapters
reads the notebooks for all of them; sphinxext holds the extensions of Sphinx.
Testing: stages, browser, links.
Measuring: trial (long runs), measure (the site), trust (attacks and privacy), flower with cables,
lying_app and secagg_app (networks), picture (the README's animation).
Installing and publishing: install, oldest, lock, release; vendor fetches scripts of others.
"""
