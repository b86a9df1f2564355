"""How near two models are: squared distances and cosines of all pairs at once.

Row i of ``W`` (m, d) is client i's model (or its update). Everything is a Gram matrix, summed in
double precision over blocks of columns. Models that differ little lie close together and far from
zero, and a float32 Gram matrix would lose exactly the digits that tell them apart: distances centre
the rows first, and where two models are still much nearer to each other than to the rest, the
products too are taken in double precision.
"""

import torch

from pfl_lib import _check
from pfl_lib._threads import each
from pfl_lib.methods._tensors import own

_CLOSE = 0.1  # of the rows' squared lengths: nearer pairs need double precision
_COLUMNS = 4096  # columns widened at a time: the block fits the cache, W is never copied whole
_SUMS = 8  # partial sums, one for each piece of work that a thread takes
ROWS = 1024  # rows of an m × m matrix taken at a time: what is worked out on the way stays small


def squared_distances(W):
    """t_ij = ‖w_i − w_j‖² of all pairs: symmetric, never negative, exactly zero on the diagonal.

    FedAMP v1 Eq. (8), AAAI Eq. (7). Rows are centred by their mean before the Gram matrix, since
    distances do not change and cancellation does.

    Equation label: eq-squared-distances

    >>> squared_distances(torch.tensor([[1.0, 0.0], [0.5, 0.5], [-1.0, 2.0]]))
    tensor([[0.0000, 0.5000, 8.0000],
            [0.5000, 0.0000, 4.5000],
            [8.0000, 4.5000, 0.0000]])
    """
    _check.models("W", W)
    # looking whether a pair is close would make a GPU wait: there, double precision at once
    precisions = (W.dtype, _wide(W)) if W.device.type == "cpu" else (_wide(W),)
    for products in precisions:
        gram = _gram(W, products, centered=True)
        length, close, blocks = gram.diagonal(), False, []
        for me, mine, rows in zip(own(W).split(ROWS), length.split(ROWS), gram.split(ROWS)):
            both = mine[:, None] + length[None, :]
            t = (both - 2 * rows).clamp(min=0).masked_fill(me, 0)
            close = close or (products != _wide(W) and bool(((t < _CLOSE * both) & ~me).any()))
            blocks.append(t.to(W.dtype))
        if not close:
            return torch.cat(blocks)


def cosine_similarities(W):
    """cos(w_i, w_j) of all pairs, in [−1, 1]; the diagonal is exactly 1.

    FedAMP v1 Sec. 3.3, FedACS Sec. 2.2, SPFL Eq. (3). A zero vector has no direction: its cosine
    with everything, itself included, is taken as 0.

    Equation label: eq-cosine-similarity

    >>> cosine_similarities(torch.tensor([[2.0, 0.0], [1.0, 1.0], [0.0, 0.0]]))
    tensor([[1.0000, 0.7071, 0.0000],
            [0.7071, 1.0000, 0.0000],
            [0.0000, 0.0000, 0.0000]])
    """
    _check.models("W", W)
    gram = _gram(W, _wide(W), centered=False)
    squares = gram.diagonal()
    alive = squares > torch.finfo(squares.dtype).tiny
    length = torch.where(alive, squares, 1).sqrt()  # of a zero row: 0/1, hence cosine 0
    cosines = (gram / (length[:, None] * length[None, :])).clamp(-1, 1)
    return torch.where(own(W), alive[:, None].to(gram.dtype), cosines).to(W.dtype)


def median_sigma(W, multiple=1.0):
    """A width for the attention: ``multiple`` times the median of ‖w_i − w_j‖² over i < j.

    Not in the papers, whose σ runs from 0.1 to 10⁶; the median makes σ follow the scale of the
    models. A 0-dim tensor, always positive: when more than half of the pairs coincide the mean
    stands in, and 1 when all do.

    Equation label: eq-median-sigma

    >>> median_sigma(torch.tensor([[1.0, 0.0], [0.5, 0.5], [-1.0, 2.0]]))
    tensor(4.5000)
    """
    _check.models("W", W)
    multiple = _check.positive("multiple", multiple)
    m = W.shape[0]
    if m == 1:
        return W.new_ones(())
    t = torch.cat([row[i + 1 :] for i, row in enumerate(squared_distances(W))])
    middle = (t.kthvalue((len(t) + 1) // 2).values + t.kthvalue(len(t) // 2 + 1).values) / 2
    mean = t.mean()
    middle = torch.where(middle > 0, middle, torch.where(mean > 0, mean, 1))
    return (multiple * middle).clamp(min=torch.finfo(W.dtype).tiny)


def _wide(W):
    return W.dtype if W.device.type == "mps" else torch.float64  # Apple's GPU has no doubles


def _bound_to_this_thread(W):
    """Other threads do not inherit vmap, derivatives, ``no_grad`` or modes that count operators."""
    return (
        W.device.type != "cpu"
        or W.requires_grad
        or torch._C._functorch.is_functorch_wrapped_tensor(W)
        or torch._C._len_torch_dispatch_stack() > 0
    )


def _gram(W, products, centered):
    """W·Wᵀ with products in one precision and their sum over the blocks in double precision."""
    m, blocks = len(W), W.split(_COLUMNS, dim=1)

    def summed(blocks):
        total = W.new_zeros((m, m), dtype=_wide(W))
        for block in blocks:
            block = block.to(products)
            if centered:
                block = block - block.mean(0)
            total += block @ block.T
        return total

    if m > ROWS or len(blocks) == 1 or _bound_to_this_thread(W):
        total = summed(blocks)  # with many rows each product keeps all cores busy by itself
    else:
        some = -(-len(blocks) // _SUMS)
        jobs = [blocks[at : at + some] for at in range(0, len(blocks), some)]
        cores = torch.get_num_threads()
        total, *others = each(summed, jobs, cores) if cores > 1 else map(summed, jobs)
        for other in others:
            total += other
    return (total + total.T).div_(2)  # a matrix product need not round both halves alike
