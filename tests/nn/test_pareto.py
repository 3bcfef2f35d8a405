from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy.optimize import linprog

from fairdial.nn.pareto import epo_weights, non_uniformity, reference_vectors

GRADIENTS = [
    "random",
    "of unequal length",
    "parallel",
    "nearly parallel",
    "opposite",
    "nearly opposite",
    "one zero",
]
LOSSES = ["ordinary", "extreme", "near balance"]


class Draws(NamedTuple):
    losses: Any  # (n, m)
    gradients: Any  # (n, m, d)
    preferences: Any  # (n, m)

    @property
    def gram(self) -> Any:
        return self.gradients @ self.gradients.transpose(0, 2, 1)

    def weights(self, **options: bool) -> Any:
        return epo_weights(self.losses, self.gram, self.preferences, **options)


def draw(seed: int, n: int, gradients: str, losses: str, m: int = 2) -> Draws:
    rng = np.random.default_rng(seed)
    G = rng.standard_normal((n, m, 5))
    factor = 10.0 ** rng.uniform(-2, 2, (n, 1))
    match gradients:
        case "of unequal length":
            G *= 10.0 ** rng.uniform(-3, 3, (n, m, 1))
        case "parallel":
            G[:, 1] = factor * G[:, 0]
        case "nearly parallel":
            G[:, 1] = factor * (G[:, 0] + 1e-5 * G[:, 1])
        case "opposite":
            G[:, 1] = -factor * G[:, 0]
        case "nearly opposite":
            G[:, 1] = -factor * (G[:, 0] + 1e-5 * G[:, 1])
        case "one zero":
            G[np.arange(n), rng.integers(m, size=n)] = 0.0
    if m == 2:
        angles = rng.uniform(0.01, 0.99, n) * np.pi / 2
        r = np.column_stack((np.cos(angles), np.sin(angles)))
    else:
        r = rng.uniform(0.05, 1.0, (n, m))
    match losses:
        case "extreme":
            values = 10.0 ** rng.uniform(-8, 8, (n, m))
        case "near balance":
            values = (1.0 + 10.0 ** rng.uniform(-7, -1.5, (n, m))) / r
        case _:
            values = np.exp(rng.standard_normal((n, m)))
    return Draws(values, G, r)


# ---- the rule, problem by problem --------------------------------------------------------------


class Program(NamedTuple):
    """Maximise ``gain . alpha`` over the simplex subject to ``rows @ alpha >= floors``."""

    gain: Any
    rows: Any
    floors: Any
    balance: bool


def program(losses: Any, gram: Any, preferences: Any, restricted: bool) -> Program:
    m = len(losses)
    C = gram / np.abs(gram).max()
    rl = [float(r * x) for r, x in zip(preferences, losses, strict=True)]
    share = [x / sum(rl) for x in rl]
    mu = sum(x * np.log(m * x) for x in share)
    a = np.array([r * (np.log(m * x) - mu) for r, x in zip(preferences, share, strict=True)])
    c = C @ a
    if mu > 1e-4:
        rows, floors = [], []
        for j in range(m):
            if rl[j] == max(rl) or not (c > 0).any():
                floor = 0.0
            elif c[j] > 0:
                continue
            else:
                floor = c[j]
            rows.append(C[j])
            floors.append(floor)
        return Program(c, np.array(rows), np.array(floors), True)
    rows, floors = [*C], [0.0] * m
    if restricted and np.abs(c).max() > 1e-12 * np.abs(C).max():
        rows.append(c)
        floors.append(min(c.max(), 0.0))
    return Program(np.ones(m) @ C, np.array(rows), np.array(floors), False)


def solved(problem: Program) -> Any:
    """By a solver, with every row and the gain at a size of 1."""
    size = np.maximum(np.abs(problem.rows).max(axis=1), 1e-300)
    found = linprog(
        -problem.gain / max(np.abs(problem.gain).max(), 1e-300),
        A_ub=-problem.rows / size[:, None],
        b_ub=-problem.floors / size,
        A_eq=np.ones((1, len(problem.gain))),
        b_eq=[1.0],
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    assert found.success, found.message
    return found.x


def shortfall(problem: Program, alpha: Any) -> float:
    """By how much the worst row misses its floor, relative to the row."""
    size = np.maximum(np.abs(problem.rows).max(axis=1), 1e-300)
    return float(np.max((problem.floors - problem.rows @ alpha) / size))


# ---- two losses --------------------------------------------------------------------------------


@pytest.mark.parametrize("restricted", [True, False])
@pytest.mark.parametrize("losses", LOSSES)
@pytest.mark.parametrize("gradients", GRADIENTS)
def test_two_losses_are_weighted_as_by_a_linear_program(
    gradients: str, losses: str, restricted: bool
) -> None:
    n = 125  # 5,250 programs in all
    draws = draw(GRADIENTS.index(gradients), n, gradients, losses)
    found, modes = draws.weights(restricted=restricted), set()
    for i in range(n):
        problem = program(draws.losses[i], draws.gram[i], draws.preferences[i], restricted)
        expected = solved(problem)
        size = np.abs(problem.gain).max()
        assert shortfall(problem, found[i]) <= 1e-11
        assert problem.gain @ found[i] == pytest.approx(problem.gain @ expected, abs=1e-11 * size)
        if abs(problem.gain[0] - problem.gain[1]) > 1e-3 * size:  # there is one optimum
            np.testing.assert_allclose(found[i], expected, rtol=0, atol=1e-11)
        modes.add(problem.balance)
    assert (losses != "near balance") in modes


@pytest.mark.parametrize("losses", LOSSES)
@pytest.mark.parametrize("gradients", GRADIENTS)
@pytest.mark.parametrize("m", [2, 3])
def test_weights_lie_in_the_simplex(m: int, gradients: str, losses: str) -> None:
    draws = draw(20, 30 if m > 2 else 2000, gradients, losses, m)
    for restricted in (True, False):
        alpha = draws.weights(restricted=restricted)
        assert alpha.shape == draws.losses.shape
        assert (alpha >= 0.0).all()
        np.testing.assert_allclose(alpha.sum(axis=1), 1.0, rtol=0, atol=1e-15)


@pytest.mark.parametrize("losses", LOSSES)
@pytest.mark.parametrize("m", [2, 3])
def test_stacked_problems_are_each_alone(m: int, losses: str) -> None:
    draws = draw(21, 40, "random", losses, m)
    together = draws.weights()
    for i in range(40):
        alone = Draws(*(part[i : i + 1] for part in draws)).weights()
        np.testing.assert_array_equal(together[i], alone[0])


@pytest.mark.parametrize("losses", LOSSES)
@pytest.mark.parametrize("m", [2, 3])
def test_renaming_the_losses_renames_the_weights(m: int, losses: str) -> None:
    draws = draw(22, 100, "random", losses, m)
    turned = Draws(*(np.roll(part, 1, axis=1) for part in draws))
    np.testing.assert_allclose(turned.weights(), np.roll(draws.weights(), 1, axis=1), atol=1e-8)


@pytest.mark.parametrize("losses", LOSSES)
@pytest.mark.parametrize("m", [2, 3])
@pytest.mark.parametrize("scale", [1e-140, 1e-30, 3e7, 1e140])
def test_the_scale_of_the_gradients_is_irrelevant(scale: float, m: int, losses: str) -> None:
    draws = draw(23, 100, "random", losses, m)
    scaled = draws._replace(gradients=scale * draws.gradients)
    np.testing.assert_allclose(scaled.weights(), draws.weights(), rtol=0, atol=1e-9)


# ---- three losses ------------------------------------------------------------------------------


def simplex_grid(parts: int) -> Any:
    i, j = (axis.ravel() for axis in np.mgrid[: parts + 1, : parts + 1])
    grid = np.column_stack((i, j, parts - i - j))
    return grid[grid[:, 2] >= 0] / parts


def corners(problem: Program) -> Any:
    """Wherever two of the lines that bound the feasible set meet, if it is feasible."""
    size = np.abs(problem.rows).max(axis=1)
    lines = np.vstack((np.eye(3), problem.rows / size[:, None]))
    values = np.concatenate((np.zeros(3), problem.floors / size))
    points = []
    for i in range(len(lines)):
        for j in range(i):
            system = np.vstack((lines[[i, j]], np.ones(3)))
            if np.linalg.cond(system) < 1e8:
                points.append(np.linalg.solve(system, [values[i], values[j], 1.0]))
    return np.array([x for x in points if x.min() >= -1e-9 and shortfall(problem, x) <= 1e-9])


@pytest.mark.parametrize("restricted", [True, False])
@pytest.mark.parametrize("losses", LOSSES)
@pytest.mark.parametrize("gradients", ["random", "of unequal length"])
def test_three_losses_are_weighted_as_by_brute_force(
    gradients: str, losses: str, restricted: bool
) -> None:
    n, grid = 60, simplex_grid(40)
    draws = draw(30, n, gradients, losses, m=3)
    found, some_are_cut_off = draws.weights(restricted=restricted), False
    for i in range(n):
        problem = program(draws.losses[i], draws.gram[i], draws.preferences[i], restricted)
        size = np.abs(problem.gain).max()
        best = problem.gain @ found[i]
        meets = corners(problem)
        if len(meets) == 0:  # with three losses the restricted row can be too much to ask
            assert restricted
            assert not problem.balance
            expected = draws.preferences[i] / draws.preferences[i].sum()
            np.testing.assert_allclose(found[i], expected, rtol=1e-12)
            continue
        assert shortfall(problem, found[i]) <= 1e-8
        feasible = (problem.rows @ grid.T >= problem.floors[:, None]).all(axis=0)
        assert best >= (grid[feasible] @ problem.gain).max(initial=-np.inf) - 1e-8 * size
        assert best == pytest.approx((meets @ problem.gain).max(), abs=1e-7 * size)
        some_are_cut_off |= best < problem.gain.max() - 0.01 * size
    assert some_are_cut_off


def test_small_preferences_are_still_distinguished() -> None:
    draws = draw(32, 60, "random", "ordinary", m=3)
    draws = draws._replace(preferences=1e-9 * draws.preferences)
    found = draws.weights()
    for i in range(60):
        problem = program(draws.losses[i], draws.gram[i], draws.preferences[i], True)
        best = (corners(problem) @ problem.gain).max()
        assert problem.gain @ found[i] == pytest.approx(best, rel=1e-6)


def test_every_loss_that_ties_for_the_largest_is_held() -> None:
    draws = draw(31, 300, "random", "ordinary", m=3)
    losses = np.broadcast_to([2.0, 2.0, 1.0], (300, 3))
    draws = draws._replace(losses=losses, preferences=np.ones((300, 3)))
    change = np.einsum("nij,nj->ni", draws.gram, draws.weights())  # how fast each loss falls
    assert (change[:, :2] >= -1e-7).all()
    assert (change[:, 2] < -0.01).any()


# ---- non-uniformity ----------------------------------------------------------------------------


@pytest.mark.parametrize("m", [2, 3, 5])
def test_non_uniformity_is_zero_only_where_weighted_losses_are_equal(m: int) -> None:
    rng = np.random.default_rng(40)
    r = rng.uniform(0.01, 1.0, (500, m))
    equal = rng.uniform(0.01, 10.0, (500, 1)) / r
    np.testing.assert_allclose(non_uniformity(equal, r)[0], 0.0, atol=1e-15)
    np.testing.assert_allclose(non_uniformity(equal, r)[1], 0.0, atol=1e-14)
    for off in (1e-3, -1e-3, 0.5, 100.0):
        unequal = equal.copy()
        unequal[:, -1] *= 1.0 + off
        assert (non_uniformity(unequal, r)[0] > 1e-8).all()


@pytest.mark.parametrize("m", [2, 3, 5])
def test_non_uniformity_lies_between_zero_and_log_m(m: int) -> None:
    rng = np.random.default_rng(41)
    losses, r = 10.0 ** rng.uniform(-15, 8, (2000, m)), rng.random((2000, m))
    mu = non_uniformity(losses, r)[0]
    assert (mu >= -1e-15).all()
    assert (mu <= np.log(m) + 1e-15).all()
    one_alone = np.eye(m)
    np.testing.assert_allclose(non_uniformity(one_alone, np.ones((m, m)))[0], np.log(m), rtol=1e-9)


def test_non_uniformity_of_two_losses_has_a_closed_form() -> None:
    mu, a = non_uniformity(np.array([[3.0, 0.5]]), np.array([[1.0, 2.0]]))  # shares 3/4 and 1/4
    expected = 0.75 * np.log(1.5) + 0.25 * np.log(0.5)
    assert mu[0] == pytest.approx(expected, rel=1e-14)
    assert a[0] == pytest.approx([np.log(1.5) - expected, 2 * (np.log(0.5) - expected)], rel=1e-14)


def test_non_uniformity_is_free_of_the_losses_scale() -> None:
    draws = draw(42, 200, "random", "ordinary", m=3)
    mu, a = non_uniformity(draws.losses, draws.preferences)
    for scale in (1e-6, 7.0, 1e12):
        scaled_mu, scaled_a = non_uniformity(scale * draws.losses, draws.preferences)
        np.testing.assert_allclose(scaled_mu, mu, rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(scaled_a, a, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("m", [2, 3])
def test_a_is_the_gradient_of_non_uniformity_by_the_losses(m: int) -> None:
    draws = draw(43, 50, "random", "ordinary", m)
    total = (draws.losses * draws.preferences).sum(axis=1)
    _, a = non_uniformity(draws.losses, draws.preferences)
    for j in range(m):
        step = 1e-6 * np.eye(m)[j]
        ahead, back = (
            non_uniformity(draws.losses + s * step, draws.preferences)[0] for s in (1, -1)
        )
        np.testing.assert_allclose(a[:, j], total * (ahead - back) / 2e-6, rtol=1e-6, atol=1e-8)


def test_preferences_and_losses_of_zero_give_numbers() -> None:
    losses = np.array([[1.0, 2.0], [0.0, 1.0], [0.0, 0.0], [1e-320, 1e300], [1.0, 1.0]])
    r = np.array([[1.0, 0.0], [0.5, 0.5], [1.0, 1.0], [1.0, 1.0], [1e-320, 1.0]])
    mu, a = non_uniformity(losses, r)
    assert np.isfinite(mu).all()
    assert np.isfinite(a).all()
    np.testing.assert_allclose(mu, np.log(2) * np.array([1, 1, 0, 1, 1]), atol=1e-9)
    assert a[0, 1] == 0.0  # the limit of r log r
    alpha = epo_weights(losses, np.broadcast_to(np.eye(2), (5, 2, 2)), r)
    assert (alpha >= 0).all()
    np.testing.assert_allclose(alpha.sum(axis=1), 1.0)


# ---- a problem with real gradients -------------------------------------------------------------


def hills(x: Any, centres: Any) -> tuple[Any, Any]:
    """``1 - exp(-|x - p|^2)`` for each centre p: losses (n, m) and gradients (n, m, d)."""
    away = x[:, None] - centres
    nearness = np.exp(-(away**2).sum(axis=-1))
    return 1.0 - nearness, 2.0 * away * nearness[..., None]


@pytest.mark.parametrize("m", [2, 3])
def test_a_step_changes_non_uniformity_as_promised(m: int) -> None:
    rng = np.random.default_rng(50)
    n, d = 40, 6
    centres, x = rng.uniform(-0.6, 0.6, (m, d)), rng.uniform(-0.6, 0.6, (n, d))
    r = rng.uniform(0.1, 1.0, (n, m))
    losses, G = hills(x, centres)
    gram = G @ G.transpose(0, 2, 1)
    alpha = epo_weights(losses, gram, r)
    direction = np.einsum("ni,nid->nd", alpha, G)
    _, a = non_uniformity(losses, r)
    promised = -np.einsum("ni,nij,nj->n", alpha, gram, a) / (r * losses).sum(axis=1)
    step = 1e-6
    ahead, back = (
        non_uniformity(hills(x - s * direction, centres)[0], r)[0] for s in (step, -step)
    )
    assert np.abs(promised).max() > 0.1
    np.testing.assert_allclose((ahead - back) / (2 * step), promised, rtol=1e-6, atol=1e-8)


class Walk(NamedTuple):
    x: Any  # (n, 20)
    losses: Any  # (steps, n, 2)
    non_uniformities: Any  # (steps, n)


def walk(angles: Any, steps: int, base: Any = 0.0, rate: float = 0.1) -> Walk:
    """Steps of the bi-convex problem from random starts, one for each angle."""
    d = 20
    centre = np.ones(d) / np.sqrt(d)
    x = np.random.default_rng(51).uniform(-0.3, 0.3, (len(angles), d))
    r = np.column_stack((np.cos(angles), np.sin(angles)))
    path, mus = [], []
    for _ in range(steps):
        losses, G = hills(x, np.stack((centre, -centre)))
        losses = losses + base
        path.append(losses)
        mus.append(non_uniformity(losses, r)[0])
        alpha = epo_weights(losses, G @ G.transpose(0, 2, 1), r)
        x = x - rate * 2.0 * np.einsum("ni,nid->nd", alpha, G)
    return Walk(x, np.array(path), np.array(mus))


def test_steps_end_on_the_ray_and_on_the_pareto_set() -> None:
    angles = np.repeat([np.pi / 8, np.pi / 4, 3 * np.pi / 8], 5)
    end = walk(angles, 300)
    assert (end.non_uniformities[0] > 1e-3).any()
    assert (end.non_uniformities[-20:] <= 1e-4).all()
    first, second = (end.losses[-1] * np.column_stack((np.cos(angles), np.sin(angles)))).T
    np.testing.assert_allclose(first, second, rtol=0.03)  # mu = 1e-4 is a gap of 2.9%
    along = end.x.sum(axis=1) / np.sqrt(20)  # the Pareto set is the segment between the centres
    assert (np.abs(along) < 1.0).all()
    np.testing.assert_allclose(end.x, np.outer(along, np.ones(20) / np.sqrt(20)), atol=1e-4)
    assert (along[:5] > 0.3).all()  # a larger preference for the first loss ends nearer to it
    assert (np.abs(along[5:10]) < 0.02).all()
    assert (along[10:] < -0.3).all()


def test_near_an_axis_the_ray_is_reached_only_much_later() -> None:
    angles, _ = reference_vectors(10)
    path = walk(angles, 1500).non_uniformities
    assert (path[150, 1:-1] <= 1.1e-4).all()
    assert (path[150, [0, -1]] > 0.5).all()
    assert (path[-1] <= 1.1e-4).all()  # it does cross the Pareto set of this problem


def test_a_ray_out_of_reach_is_sought_at_the_cost_of_the_other_loss() -> None:
    angles, _ = reference_vectors(10)
    ends = walk(angles[[0, -1]], 1500, base=0.3)
    assert (ends.non_uniformities > 0.1).all()
    preferred, other = ends.losses[-1, [0, 1], [0, 1]], ends.losses[-1, [0, 1], [1, 0]]
    np.testing.assert_allclose(preferred, 0.3, atol=0.01)  # its least value
    assert (other > ends.losses[:, [0, 1], [1, 0]].min(axis=0) + 0.05).all()


# ---- what may ascend ---------------------------------------------------------------------------


def change_of(draws: Draws, alpha: Any) -> Any:
    """How fast each loss falls along the step, relative to the larger gradient."""
    scale = np.abs(draws.gram).max(axis=(1, 2))[:, None]
    return np.einsum("nij,nj->ni", draws.gram, alpha) / scale


@pytest.mark.parametrize("restricted", [True, False])
@pytest.mark.parametrize("gradients", GRADIENTS)
def test_no_loss_ascends_in_descent(gradients: str, restricted: bool) -> None:
    draws = draw(60, 3000, gradients, "near balance")
    descent = non_uniformity(draws.losses, draws.preferences)[0] <= 1e-4
    assert descent.sum() > 1000
    change = change_of(draws, draws.weights(restricted=restricted))[descent]
    assert change.min() >= -1e-12


@pytest.mark.parametrize("preferences", [(1.0, 0.0), (0.0, 1.0)])
def test_no_loss_ascends_on_an_axis(preferences: tuple[float, float]) -> None:
    draws = draw(64, 1000, "random", "ordinary")
    draws = draws._replace(preferences=np.broadcast_to(preferences, (1000, 2)))
    assert change_of(draws, draws.weights()).min() >= -1e-12


@pytest.mark.parametrize("gradients", GRADIENTS)
@pytest.mark.parametrize("losses", ["ordinary", "extreme"])
def test_in_balance_only_the_loss_that_is_not_largest_may_ascend(
    losses: str, gradients: str
) -> None:
    draws = draw(61, 3000, gradients, losses)
    rows = np.arange(3000)
    largest = np.argmax(draws.losses * draws.preferences, axis=1)
    change = change_of(draws, draws.weights())
    assert change[rows, largest].min() >= -1e-12
    ascends = (change[rows, 1 - largest] < -1e-9).mean()
    if gradients == "random":
        assert 0.2 < ascends < 0.6
    if gradients == "parallel":
        assert ascends == 0.0


@pytest.mark.parametrize("gradients", GRADIENTS)
def test_a_balance_step_raises_non_uniformity_only_where_every_gradient_does(
    gradients: str,
) -> None:
    draws = draw(62, 3000, gradients, "ordinary")
    mu, a = non_uniformity(draws.losses, draws.preferences)
    c = np.einsum("nij,nj->ni", draws.gram, a)
    gain = (draws.weights() * c).sum(axis=1)
    helped = (mu > 1e-4) & (c > 0).any(axis=1)
    assert helped.sum() > 1000
    assert (gain[helped] >= -1e-12 * np.abs(c).max(axis=1)[helped]).all()


def test_restricted_descent_keeps_non_uniformity_where_relaxed_descent_need_not() -> None:
    draws = draw(63, 3000, "random", "near balance")
    mu, a = non_uniformity(draws.losses, draws.preferences)
    c = np.einsum("nij,nj->ni", draws.gram, a)
    floor = np.minimum(c.max(axis=1), 0.0)
    size = np.abs(c).max(axis=1)
    descent = mu <= 1e-4
    gain = {kind: (draws.weights(restricted=kind) * c).sum(axis=1) for kind in (True, False)}
    assert ((gain[True] - floor) / size)[descent].min() >= -1e-9
    assert ((gain[False] - floor) / size)[descent].min() < -0.1


# ---- degenerate problems -----------------------------------------------------------------------


def test_at_exact_balance_float_noise_does_not_choose_the_vertex() -> None:
    draws = draw(70, 4000, "random", "ordinary")
    draws = draws._replace(losses=draws.losses[:, :1] / draws.preferences)
    mu, a = non_uniformity(draws.losses, draws.preferences)
    assert np.abs(mu).max() < 1e-14
    assert ((a != 0).any(axis=1)).mean() > 0.1  # noise there is
    C = draws.gram
    steepest = C.sum(axis=1).argmax(axis=1)  # the gradient along which both losses fall fastest
    other, n = 1 - steepest, np.arange(4000)
    conflict = np.minimum(C[:, 0, 1], 0.0)  # where they conflict, the other loss must not rise
    share = C[n, other, other] / (C[n, other, other] - conflict)
    np.testing.assert_allclose(draws.weights()[n, steepest], share, atol=1e-9)
    np.testing.assert_array_equal(draws.weights(), draws.weights(restricted=False))


@pytest.mark.parametrize("m", [2, 3])
def test_opposite_gradients_in_balance_stay_where_they_are(m: int) -> None:
    draws = draw(71, 50, "random", "ordinary", m)
    pulls = draws.gradients - draws.gradients.mean(axis=1, keepdims=True)  # they sum to zero
    alone = draws._replace(losses=1.0 / draws.preferences, gradients=pulls)
    np.testing.assert_allclose(alone.weights(), 1.0 / m, atol=1e-6)


def test_a_gram_matrix_of_single_precision_is_enough() -> None:
    draws = draw(72, 2000, "opposite", "near balance")
    single = draws.gradients.astype(np.float32)
    rough = single @ single.transpose(0, 2, 1)
    assert (np.linalg.det(rough.astype(np.float64)) < 0).any()  # not semi-definite any more
    found = epo_weights(draws.losses.astype(np.float32), rough, draws.preferences)
    np.testing.assert_array_equal(
        found, epo_weights(draws.losses.astype(np.float32), rough.astype(float), draws.preferences)
    )
    length = np.linalg.norm(draws.gradients, axis=2)
    balanced = length[:, ::-1] / length.sum(axis=1, keepdims=True)
    descent = non_uniformity(draws.losses, draws.preferences)[0] < 0.9e-4
    assert descent.sum() > 500
    np.testing.assert_allclose(found[descent], balanced[descent], atol=1e-5)


def spoil(case: str, losses: Any, gram: Any) -> None:
    match case:
        case "zero gradients":
            gram[:] = 0.0
        case "no descent":  # no Gram matrix: the rows contradict each other
            gram[:] = 4.0 * np.eye(len(gram)) - 3.0
        case "gradient overflows":
            gram[0] = np.inf
        case "trace overflows":
            gram[:] = 1.5e308 * np.eye(len(gram))
        case "gradient is not a number":
            gram[0, 1] = np.nan
        case "loss overflows":
            losses[0] = np.inf
        case "loss is not a number":
            losses[1] = np.nan


@pytest.mark.parametrize("losses", LOSSES)
@pytest.mark.parametrize("m", [2, 3])
@pytest.mark.parametrize(
    "case",
    [
        "zero gradients",
        "no descent",
        "gradient overflows",
        "trace overflows",
        "gradient is not a number",
        "loss overflows",
        "loss is not a number",
    ],
)
def test_where_there_is_no_answer_the_preferences_are_the_weights(
    case: str, m: int, losses: str
) -> None:
    draws = draw(73, 3, "random", losses, m)
    values, gram = draws.losses.copy(), draws.gram
    if case == "no descent":
        values[1] = 1.0 / draws.preferences[1]  # in balance, some row may be let go
    spoil(case, values[1], gram[1])
    alpha = epo_weights(values, gram, draws.preferences)
    np.testing.assert_allclose(
        alpha[1], draws.preferences[1] / draws.preferences[1].sum(), rtol=1e-15
    )
    np.testing.assert_array_equal(alpha[[0, 2]], draws.weights()[[0, 2]])  # the others go on


# ---- reference vectors -------------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 3, 10])
def test_reference_vectors_are_evenly_spaced_unit_vectors(n: int) -> None:
    angles, vectors = reference_vectors(n)
    assert angles[0] == pytest.approx(1e-4 * np.pi / 2, rel=1e-12)
    assert angles[-1] == pytest.approx((1 - 1e-4) * np.pi / 2, rel=1e-12)
    np.testing.assert_allclose(np.diff(angles), np.diff(angles)[0], rtol=1e-9)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, rtol=1e-15)
    np.testing.assert_allclose(np.arctan2(vectors[:, 1], vectors[:, 0]), angles, rtol=1e-9)
    np.testing.assert_allclose(vectors[::-1, ::-1], vectors, rtol=1e-9)
    assert (vectors > 0).all()


def test_one_reference_vector_is_in_the_middle() -> None:
    angles, vectors = reference_vectors(1)
    assert angles == pytest.approx([np.pi / 4])
    assert vectors[0] == pytest.approx([np.sqrt(0.5)] * 2)


def test_without_offset_the_reference_vectors_reach_the_axes() -> None:
    angles, vectors = reference_vectors(5, offset=0.0)
    np.testing.assert_allclose(angles, np.linspace(0, np.pi / 2, 5))
    np.testing.assert_allclose(vectors[[0, -1]], np.eye(2), atol=1e-15)
