"""What holds for every formula: precision kept, device kept, docstrings true, vmap where needed."""

import ast
import inspect
import math
import re
from pathlib import Path

import pytest
import torch

from pfl_lib import attention as att
from pfl_lib import formulas, methods
from tests.support.calls import example_call

STAGES = [slice(0, 2), slice(2, 5)]
A = att.negative_exponential(sigma=2.0)


def curve(w):
    return w * w + w


def call(name, x):
    """One ordinary call of every public formula; ``x(*shape)`` makes its tensors.

    A formula that is not listed is called as in its docstring's example.
    """
    f = formulas
    listed = {
        "squared_distances": lambda: f.squared_distances(x(3, 5)),
        "cosine_similarities": lambda: f.cosine_similarities(x(3, 5)),
        "median_sigma": lambda: f.median_sigma(x(3, 5)),
        "fedamp_weights": lambda: f.fedamp_weights(x(3, 5), A.with_sigma(x()), 0.1),
        "mix": lambda: f.mix(x(3, 3), x(3, 5)),
        "attention_weights": lambda: [
            f.attention_weights(x(3, 5), att.by_name(kind, 2.0), 0.1) for kind in att.KINDS
        ],
        "heurfedamp_weights": lambda: f.heurfedamp_weights(x(3, 5), 5.0, x(3)),
        "largest_convex_alpha": lambda: f.largest_convex_alpha(x(3, 5), A),
        "safe_alpha": lambda: f.safe_alpha(A.with_sigma(x()), 3),
        "fedamp_objective": lambda: f.fedamp_objective(x(3, 5), A),
        "fedamp_gradient": lambda: f.fedamp_gradient(x(3, 5), A),
        "proximal_step_quadratic": lambda: f.proximal_step_quadratic(x(3, 5), x(5), x(5), 0.5),
        "fedacs_threshold": lambda: f.fedacs_threshold(x(3, 3), 0.4),
        "fedacs_select": lambda: f.fedacs_select(x(3, 3), 0.1, "keep"),
        "fedacs_weights": lambda: f.fedacs_weights(x(3, 5), 0.5),
        "fedacs_local": lambda: f.fedacs_local(x(5), x(5), 0.1),
        "sngs": lambda: f.sngs(x(3, 5), STAGES),
        "spfl_weights": lambda: f.spfl_weights(x(2, 3, 3), "size_renorm", x(3)),
        "spfl_step": lambda: f.spfl_step(x(3, 5), x(3, 5), x(2, 3, 3), stages=STAGES),
        "spfl_w_step": lambda: f.spfl_w_step(x(3, 5), x(2, 3, 3), STAGES),
        "spfl_local_step": lambda: f.spfl_local_step(x(5), curve, 0.1),
        "straggler_similarity": lambda: f.straggler_similarity(x(5), x(5), x(5), STAGES),
        "leap_term": lambda: f.leap_term(x(5), x(5), x(5), x(5), "delay_compensated", 0.1, 5),
        "leap": lambda: f.leap(x(5), x(5), x(5), x(5), stages=STAGES),
        "plga_personal": lambda: f.plga_personal(x(5), x(5), x(2), STAGES),
        "ala_mix": lambda: f.ala_mix(x(5), x(5), x(5), x(5) > 0),
        "ala_step": lambda: f.ala_step(x(5), x(5), x(5), x(5), 1.0, x(5) > 0),
        "pfedgraph_weights": lambda: f.pfedgraph_weights(
            f.cosine_similarities(x(3, 5)), x(3).abs(), 0.8
        ),
        "pfedgraph_gradient": lambda: f.pfedgraph_gradient(x(5), x(5), x(5), 0.1),
        "fedbuff_weight": lambda: f.fedbuff_weight(x(3)),
        "fedbuff_step": lambda: f.fedbuff_step(x(5), x(5), 3),
        "cluster_average": lambda: f.cluster_average(
            x(2, 5), x(3, 5), torch.arange(3, device=x().device) % 2, x(3).abs()
        ),
        "cfl_norms": lambda: f.cfl_norms(x(3, 5), x(3).abs()),
        "ifca_choice": lambda: x(3) * f.ifca_choice(x(3, 2)),
        "cfl_split": lambda: x(3) * f.cfl_split(f.cosine_similarities(x(3, 5))),
        "label_prior_shift": lambda: f.label_prior_shift(x(3, 5).abs()),
        "weighted_average": lambda: f.weighted_average(x(3, 5), x(3)),
        "split_model": lambda: f.split_model(x(5), x(3, 5), x(5) > 0.5),
        "class_means": lambda: f.class_means(x(3, 4, 2), x(3, 4)),
        "balanced_logits": lambda: f.balanced_logits(x(5, 4), x(4), 0.5),
        "feddbe_bias": lambda: f.feddbe_bias(x(3, 4, 2), x(3, 4), x(3, 2)),
        "feddbe_pull": lambda: f.feddbe_pull(x(2), x(2), 0.5),
        "fedproto_pull": lambda: f.fedproto_pull(x(4, 2), x(4, 2), 0.5, x(4) > 0.5),
        "nearest_mean": lambda: f.nearest_mean(x(4, 2), x(4) > 0.5),
        "fedpac_pull": lambda: f.fedpac_pull(x(5, 2), x(5, 2), 0.5),
        "fedpac_matrix": lambda: f.fedpac_matrix(x(3, 4, 2), x(3), 1),
        "fedas_align": lambda: f.fedas_align(x(5, 2), x(5, 4), x(4, 2)),
        "fedas_weights": lambda: f.fedas_weights(x(3)),
        "fedprox_gradient": lambda: f.fedprox_gradient(x(5), x(5), x(5), 0.1),
        "scaffold_gradient": lambda: f.scaffold_gradient(x(5), x(5), x(5)),
        "scaffold_control": lambda: f.scaffold_control(x(5), x(5), x(5), x(5), 0.1, 5),
        "scaffold_server": lambda: f.scaffold_server(x(5), x(5), x(3, 5), x(3, 5), x(3, 5), 4),
        "fedasync_mixing": lambda: f.fedasync_mixing(0.6, x(3), 0.5),
        "fedasync_update": lambda: f.fedasync_update(x(5), x(5), x()),
        "apfl_mix": lambda: f.apfl_mix(x(), x(5), x(5)),
        "apfl_step": lambda: f.apfl_step(x(), x(5), x(5), x(5), x(5), 0.1),
        "perfedavg_adapt": lambda: f.perfedavg_adapt(x(5), curve, 0.1),
        "perfedavg_step": lambda: [
            f.perfedavg_step(x(5), curve, curve, 0.1, 0.1, rule) for rule in ("fo", "hf", "exact")
        ],
        "pfedme_inner": lambda: f.pfedme_inner(x(5), curve, 15.0, 0.01, 2),
        "pfedme_local": lambda: f.pfedme_local(x(5), x(5), 15.0, 0.01),
        "pfedme_server": lambda: f.pfedme_server(x(5), x(5), 0.5),
        "ditto_gradient": lambda: f.ditto_gradient(x(5), x(5), x(5), 0.1),
        "fedfomo_scores": lambda: f.fedfomo_scores(x(5), x(), x(3, 5), x(3)),
        "fedfomo_weights": lambda: f.fedfomo_weights(x(3)),
        "fedfomo_update": lambda: f.fedfomo_update(x(5), x(3, 5), x(3)),
        "apple_mix": lambda: f.apple_mix(x(3), x(3, 5)),
        "apple_gradients": lambda: f.apple_gradients(x(5), x(3), x(3, 5), 1, x(3), 0.1, x()),
        "apple_schedule": lambda: f.apple_schedule(x(3), 400),
        "fedphp_momentum": lambda: f.fedphp_momentum(0.9, x(3), 10),
        "fedphp_update": lambda: f.fedphp_update(x(5), x(5), x()),
        "partialfed_temperature": lambda: f.partialfed_temperature(x(3)),
        "gumbel_softmax": lambda: f.gumbel_softmax(x(4, 2), x(4, 2), 0.5, hard=True),
        "partialfed_mix": lambda: f.partialfed_mix(x(2), x(5), x(5), STAGES),
    }
    if name in listed:
        return listed[name]()
    given = example_call(getattr(formulas, name))
    like = {k: v.to(x()) for k, v in given.items() if isinstance(v, torch.Tensor)}
    return getattr(formulas, name)(**{**given, **like})


every = pytest.mark.parametrize("name", formulas.__all__)


def tensors(result):
    return list(result) if isinstance(result, (list, tuple)) else [result]


def maker(dtype, device="cpu"):
    def x(*shape):
        return torch.rand(shape, dtype=dtype, device=device)

    return x


@every
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_precision_is_kept(name, dtype):
    for result in tensors(call(name, maker(dtype))):
        assert result.dtype == dtype
        assert bool(result.isfinite().all())


BY_SCIPY = ("cfl_split", "pfedgraph_weights")  # small matrices, for which the server's CPU will do


@pytest.mark.parametrize("name", [name for name in formulas.__all__ if name not in BY_SCIPY])
def test_nothing_visits_the_cpu(name):
    # Meta tensors have shapes and a device of their own, and no numbers: a look at one (.item(),
    # bool()) raises, and so does mixing them with tensors made on the CPU.
    for result in tensors(call(name, maker(torch.float32, "meta"))):
        assert result.device.type == "meta"


def test_the_watch_for_strays_sees_them():
    x = torch.rand(3, device="meta")
    for stray in (
        lambda: x + torch.rand(3),
        lambda: torch.where(x > 0, torch.rand(3), x),
        lambda: torch.eye(3) @ x,
        lambda: x.sum().item(),
        lambda: bool(x.sum() > 0),
    ):
        with pytest.raises((RuntimeError, NotImplementedError)):
            stray()


CLIENT_SIDE = {
    "fedacs_local": lambda w, v, s: formulas.fedacs_local(w, v, 0.1),
    "spfl_local_step": lambda w, v, s: formulas.spfl_local_step(w, curve, 0.1),
    "leap": lambda w, v, s: formulas.leap(w, v, w + v, v * v, stages=STAGES),
    "plga_personal": lambda w, v, s: formulas.plga_personal(w, v, s),
    "ala_mix": lambda w, v, s: formulas.ala_mix(w, v, v + w, w > 0.5),
    "ala_step": lambda w, v, s: formulas.ala_step(w, v, v + w, v, 1.0, w > 0.5),
    "fedprox_gradient": lambda w, v, s: formulas.fedprox_gradient(w, v, w + v, s),
    "scaffold_gradient": lambda w, v, s: formulas.scaffold_gradient(w, v, w + v),
    "scaffold_control": lambda w, v, s: formulas.scaffold_control(w, v, w, v, 0.1, s),
    "apfl_mix": lambda w, v, s: formulas.apfl_mix(s, w, v),
    "apfl_step": lambda w, v, s: formulas.apfl_step(s, w, v, w, v, 0.1)[0],
    "perfedavg_exact": lambda w, v, s: formulas.perfedavg_step(w, curve, curve, 0.1, s, "exact"),
    "perfedavg_hf": lambda w, v, s: formulas.perfedavg_step(w, curve, curve, 0.1, s, "hf"),
    "pfedme_inner": lambda w, v, s: formulas.pfedme_inner(w, curve, s, 0.1, 2, start=v),
    "pfedme_local": lambda w, v, s: formulas.pfedme_local(w, v, s, 0.1),
    "pfedgraph_gradient": lambda w, v, s: formulas.pfedgraph_gradient(w, v, w + v, 0.1),
    "ditto_gradient": lambda w, v, s: formulas.ditto_gradient(w, v, w + v, s),
    "fedfomo": lambda w, v, s: formulas.fedfomo_update(
        w,
        torch.stack([v, w]),
        formulas.fedfomo_weights(formulas.fedfomo_scores(w, s, torch.stack([v, w]), v[:2])),
    ),
    "apple_gradients": lambda w, v, s: formulas.apple_gradients(
        w, v[:2], torch.stack([v, w]), (s > 0.5).long(), w[:2], 0.1, s
    )[0],
    "fedphp_update": lambda w, v, s: formulas.fedphp_update(w, v, s),
    "gumbel_softmax": lambda w, v, s: formulas.gumbel_softmax(w, v, s, hard=True),
    "partialfed_mix": lambda w, v, s: formulas.partialfed_mix(w[:2], v, v + w, STAGES),
}


@pytest.mark.parametrize("name", CLIENT_SIDE)
def test_client_side_formulas_run_for_all_clients_at_once(name):
    one = CLIENT_SIDE[name]
    w, v, s = maker(torch.float64)(4, 5), maker(torch.float64)(4, 5), maker(torch.float64)(4)
    singly = torch.stack([one(w[i], v[i], s[i]) for i in range(4)])
    torch.testing.assert_close(torch.func.vmap(one)(w, v, s), singly)


# ---- what the docstrings promise

LABEL = re.compile(r"^ *Equation label: (eq-[a-z0-9-]+)$", re.MULTILINE)


@every
def test_docstring_has_one_label_and_an_example(name):
    text = getattr(formulas, name).__doc__
    assert len(LABEL.findall(text)) == 1, f"{name} needs one line 'Equation label: eq-…'"
    assert ">>> " in text


def test_labels_are_used_once():
    labels = [LABEL.findall(getattr(formulas, name).__doc__)[0] for name in formulas.__all__]
    labels += [LABEL.findall(kind.__doc__)[0] for kind in (att.Attention, *att.KINDS.values())]
    assert len(set(labels)) == len(labels) == len(formulas.__all__) + 1 + len(att.KINDS)


def test_every_equation_of_the_methods_is_a_formula():
    """Read from the text of the files, not from the library."""
    labelled = {
        node.name
        for path in Path(methods.__file__).parent.glob("*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and LABEL.search(ast.get_docstring(node) or "")
    }
    assert labelled == set(formulas.__all__)


def test_no_equation_asks_for_a_number_of_a_tensor():
    sources = {name: inspect.getsource(getattr(formulas, name)) for name in formulas.__all__}
    for name, source in {**sources, "attention": Path(att.__file__).read_text()}.items():
        asked = {n.attr for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Attribute)}
        assert not asked & {"item", "cpu", "numpy", "tolist"}, name


def test_inputs_are_not_changed():
    for name in formulas.__all__:
        made = []

        def x(*shape, made=made):
            made.append(torch.rand(shape, dtype=torch.float64))
            return made[-1]

        generator = torch.random.get_rng_state()
        call(name, x)
        torch.random.set_rng_state(generator)
        for tensor in made:
            assert torch.equal(tensor, torch.rand(tensor.shape, dtype=torch.float64)), name


def test_sigma_of_the_papers_is_finite_everywhere():
    """FedAMP's tables run from σ = 0.1 to 10⁶; weights stay finite in float32."""
    W = 10 * torch.randn(6, 50)
    for sigma in (0.1, 10.0, 100.0, 1e6):
        for kind in att.KINDS:
            xi = formulas.attention_weights(W, att.by_name(kind, sigma), 0.05)
            assert bool(xi.isfinite().all())
            assert math.isclose(float(xi.sum()), 6, rel_tol=1e-5)
