"""Every chapter leads to its own situation in the playground.

The link stands at the end of the box that opens a chapter; the address behind it holds methods,
clients and knobs (``ADDRESS`` in pfl_lib/book/explore/playground.js). On paper there is none.
"""

from docutils import nodes
from sphinx.errors import ExtensionError

PLAY = "notebooks/play"
BOX = "What you will be able to do"
SITUATIONS = {
    "01_fedavg": (
        "twelve clients alone, and the same twelve averaged",
        "m=separate&b=fedavg&d=alike",
    ),
    "02_data": (
        "what becomes of the average when each group sees only three of the ten digits?",
        "m=separate&b=fedavg&d=classes&h=5",
    ),
    "03_personalised": (
        "one pair of names is swapped: alone, or tied to the average by a spring?",
        "m=separate&b=ditto&h=1",
    ),
    "03b_judging": (
        "two methods that differ by little; replay them with 100 seeds",
        "look=seeds&m=fedavg&b=ditto&d=natural",
    ),
    "04_fedamp": (
        "three hidden groups, and clients that find those who resemble them",
        "m=fedavg&b=fedamp&s=0.1",
    ),
    "05_convergence": (
        "one local step per round: watch FedAMP's curve flatten, then allow twenty",
        "m=fedavg&b=fedamp&l=1",
    ),
    "05b_beyond": (
        "widen σ step by step: where do the groups collapse into one?",
        "m=separate&b=fedamp&s=0.3",
    ),
    "05c_proofs": (
        "the proofs take the exact solution at home: how near do twenty local steps come?",
        "m=fedavg&b=fedamp&l=20",
    ),
    "06_heurfedamp": (
        "distances against angles, on the same clients",
        "m=fedamp&b=heurfedamp&h=2",
    ),
    "07_fedacs": (
        "raise p until hardly anybody hears anybody",
        "m=heurfedamp&b=fedacs&p=0.5",
    ),
    "08_spfl": (
        "follow updates that point your way, where each group sees four of the ten digits",
        "m=fedavg&b=spfl&d=classes&h=4",
    ),
    "09_plga": (
        "half of the clients stay away from every round",
        "m=fedavg&b=fedamp&d=alike&away=6",
    ),
    "10_fedala": (
        "plain fine-tuning against a learned mixture, where each group sees four digits",
        "m=fedavg-ft&b=fedala&d=classes&h=4",
    ),
    "11_family": (
        "take any two of nine methods, here a spring to the average against fine-tuning",
        "m=fedavg-ft&b=ditto&d=classes&h=4",
    ),
    "11b_methods": (
        "two ways to be personal: a spring to the average, or a learned mixture with it",
        "m=ditto&b=fedala&d=classes&h=4",
    ),
    "12_privacy": (
        "one rule needs only a sum, the other every model: what does the difference buy?",
        "m=fedavg&b=fedamp&d=classes&h=5",
    ),
    "12b_trust": (
        "client 5 sends its model with the sign turned: who notices?",
        "m=fedavg&b=fedamp&d=alike&liar=5",
    ),
    "12c_guarantees": (
        "what is cooperation worth, before any noise is paid for?",
        "m=separate&b=fedavg-ft&d=classes&h=2",
    ),
    "13_which": (
        "draw the map: who wins for how much data, and how much disagreement?",
        "look=map&m=fedavg&b=ditto",
    ),
    "network": (
        "a network on a bad day: half of the clients do not answer",
        "m=fedavg&b=fedavg-ft&d=classes&h=4&away=6",
    ),
    "own_clients": (
        "clients as they were collected, and too few digits each",
        "m=separate&b=fedavg-ft&d=natural&n=10",
    ),
}


def lead_to_play(app, doctree, docname):
    situation = SITUATIONS.get(docname.removeprefix("notebooks/"))
    if app.builder.name != "html" or situation is None or PLAY not in app.env.found_docs:
        return
    for box in doctree.findall(nodes.admonition):
        if box.children and box.children[0].astext() == BOX:
            break
    else:
        raise ExtensionError(f"{docname} has no box “{BOX}” to lead to the playground from")
    words, address = situation
    target = f"{app.builder.get_relative_uri(docname, PLAY)}#{address}"
    link = nodes.reference("", words, internal=True, refuri=target, classes=["pfl-situation"])
    box += nodes.paragraph("", "", nodes.strong("", "In the playground:"), nodes.Text(" "), link)


def setup(app):
    app.connect("doctree-resolved", lead_to_play)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
