"""pFedGraph: a graph of who works with whom, learned by the server (Ye et al., ICML 2023)."""

from dataclasses import dataclass

import torch

from pfl_lib import _check
from pfl_lib.methods._attention_mixing import mix
from pfl_lib.methods._hyper import between, choice, positive
from pfl_lib.methods._similarity import cosine_similarities
from pfl_lib.methods._tensors import checked, same_shape
from pfl_lib.methods.base import Algorithm, State
from pfl_lib.work import Work, local_step, train


def pfedgraph_weights(similarities, shares, alpha):
    """a_i = argmin_a α·‖a − p‖² − Σ_j s_ij a_j, with a ≥ 0 and Σ_j a_j = 1: a row of the graph.

    ``similarities`` s are cosines of the clients' updates, ``shares`` p their shares of all
    samples. A large α keeps to FedAvg's weights p, a small one to those alike. The quadratic
    programme asks for the nearest point to p + s_i/(2α) in the simplex; by its optimality
    conditions that is max(0, p + s_i/(2α) − θ), with the θ for which the row sums to 1.

    Equation label: eq-pfedgraph-weights

    >>> S = torch.tensor([[1.0, 0.5, -1.0], [0.5, 1.0, -1.0], [-1.0, -1.0, 1.0]])
    >>> pfedgraph_weights(S, torch.full((3,), 1 / 3), alpha=0.8)
    tensor([[0.6562, 0.3438, 0.0000],
            [0.3438, 0.6562, 0.0000],
            [0.0000, 0.0000, 1.0000]])
    """
    _check.models("similarities", similarities)
    alpha = _check.positive("alpha", alpha)
    m = len(similarities)
    if similarities.shape != (m, m) or getattr(shares, "shape", None) != (m,):
        raise ValueError(
            "similarities must be square and shares one number for each row, got shapes "
            f"{tuple(similarities.shape)} and {tuple(getattr(shares, 'shape', ()))}"
        )
    weights = _on_the_simplex(shares.double() + similarities.double() / (2 * alpha))
    return (weights / weights.sum(1, keepdim=True)).to(similarities)


def _on_the_simplex(target):
    """The nearest weights to each row that are not negative and sum to 1, by SciPy on the CPU."""
    from scipy.optimize import brentq  # imported late, since it takes time

    rows = []
    target = target.cpu().numpy()
    for v in target - target.max(1, keepdims=True):  # θ lies between −1 and 0 then
        theta = brentq(lambda t, v=v: (v - t).clip(0).sum() - 1, -2, 0, xtol=1e-15)
        rows.append(torch.from_numpy((v - theta).clip(0)))
    return torch.stack(rows)


def pfedgraph_gradient(grad, w, direction, lam):
    """∇F_i(w) − (λ/‖w‖)·(d − ⟨d, ŵ⟩ŵ) with ŵ = w/‖w‖: the slope of F_i(w) − λ·⟨d, ŵ⟩.

    The direction d_i = Σ_j a_ij w_j/‖w_j‖ makes ⟨d_i, ŵ⟩ the mean cosine between w and the models
    that client i hears. The pull turns w and never changes its length.

    Equation label: eq-pfedgraph-gradient

    >>> w, d = torch.tensor([0.0, 2.0]), torch.tensor([1.0, 0.0])
    >>> pfedgraph_gradient(torch.zeros(2), w, d, lam=0.1)
    tensor([-0.0500,  0.0000])
    """
    same_shape(grad=grad, w=w, direction=direction)
    lam = checked(_check.between, "lam", lam, -1, 1)
    length = torch.linalg.vector_norm(w, dim=-1, keepdim=True).clamp(min=1e-12)
    unit = w / length
    return grad - lam / length * (direction - (direction * unit).sum(-1, keepdim=True) * unit)


@local_step("pfedgraph", reveals="")
def turn(s, batch, client):
    """One step on the loss and the mean cosine with the models that the client hears."""
    g = client.grad(s["w"], batch)
    return client.move(s, pfedgraph_gradient(g, s["w"], s["direction"], client.numbers["lam"]))


def unit(w):
    """The models' directions: rows of length 1."""
    return w / w.norm(dim=1, keepdim=True).clamp(min=1e-12)


@dataclass(frozen=True)
class PFedGraph(Algorithm):
    """A participant of a round hears the others by the graph, and begins the next one there.

    ``alpha`` weighs sample counts against similarity, ``lam`` how strongly local training is
    turned towards the models heard (a negative one turns it away).  ``since``: updates are counted
    from the common "start", or from where the client began this "round".  Cosines above ``snap``
    count as 1; None leaves them as they are.

    >>> import pfl_lib
    >>> method = pfl_lib.algorithm("pfedgraph")
    >>> history = pfl_lib.run(method, pfl_lib.example(), 3, progress=False)
    >>> history.last > 0.6
    True
    """

    alpha: float = positive(0.8)
    lam: float = between(0.01, -1, 1)
    since: str = choice("start", ("start", "round"))
    snap: float | None = between(None, 0, 1)
    name, label = "pfedgraph", "pFedGraph"
    family, order = "pair by pair", 10
    place = (3, 4, 2)
    idea = (
        "The server learns a graph: for each client the weights of all others, which balance how "
        "alike the models' updates are against how many samples each client has. Clients begin at "
        "their mixture and are turned towards it while they train."
    )
    note = (
        "Each row of the graph is a small quadratic programme. A client hears itself by the same "
        "rule as the others, with similarity 1."
    )
    equations = ["eq-pfedgraph-weights", "eq-fedamp-message", "eq-pfedgraph-gradient"]
    chapter = "11b_methods"
    paper = "after Ye et al., ICML 2023, and the authors' public code"
    shared, private = "their models, pairwise", "the whole model"
    weights_by = "angles between updates, and sample counts"
    cost = "3Σ"
    tested = "the client's own model w, trained"
    newcomer = "a model trained alone, then its row of the graph, then a round from that mixture"

    def start(self, fed):
        w = fed.initial()
        graph = torch.eye(fed.m, dtype=w.dtype, device=w.device)
        return State(w=w, u=w, direction=torch.zeros_like(w), graph=graph)

    def download(self, state, fed, who):
        return State(w=state.u[who], direction=state.direction[who])

    def local(self, state, received, fed, who):
        return received.set(w=self.turned(received, fed, who))

    def turned(self, received, fed, who, **options):
        """The clients' models, trained while they are turned towards those heard."""
        rows = {"w": received.w, "direction": received.direction}
        work = Work(rows, "pfedgraph", numbers={"lam": self.lam}, **options)
        return fed.perform(work, who)["w"]

    def upload(self, state, done, fed, who):
        begin = fed.initial()[who] if self.since == "start" else state.u[who]
        graph = self.graph(done.w - begin, fed.sizes[who])
        whole = torch.zeros_like(state.graph[who]).index_copy(1, who, graph)
        return state.put(
            who, w=done.w, u=mix(graph, done.w), direction=mix(graph, unit(done.w)), graph=whole
        )

    def graph(self, updates, sizes):
        """The graph of clients with these updates and sample counts."""
        similar = cosine_similarities(updates)
        if self.snap is not None:
            similar = torch.where(similar > self.snap, 1, similar)
        return pfedgraph_weights(similar, sizes / sizes.sum(), self.alpha)

    def newcomer_models(self, state, fed, newcomers):
        """A newcomer knows no earlier round: updates are counted from the common start."""
        start = newcomers.initial()
        alone = train(newcomers, start, newcomers.everyone, tag="newcomer")
        u, direction = [], []
        for own, size in zip(alone, newcomers.sizes):  # each alone with the members
            w = torch.cat([state.w, own[None]])
            row = self.graph(w - start[:1], torch.cat([fed.sizes, size[None]]))[-1:]
            u.append(mix(row, w))
            direction.append(mix(row, unit(w)))
        received = State(w=torch.cat(u), direction=torch.cat(direction))
        return self.turned(received, newcomers, newcomers.everyone, uploaded=False)

    def extra_models(self, state, fed):
        return {"u": state.u}

    def sent(self, fed, who, k):
        return 3 * fed.d * len(who)  # the mixture and the direction down, the model up
