"""The modes of several ridges at once: the twin of `folklearn.numerics.leaders`."""

from typing import Any, NamedTuple

from folklearn.numerics.leaders import MOST_HALVINGS, SUFFICIENT
from folklearn.numerics.on_torch.device import Device
from folklearn.numerics.on_torch.expand import add_products, expand
from folklearn.numerics.on_torch.linear import Factor, factored
from folklearn.numerics.on_torch.quadratic import curvature, pulled, ridged, solved


class Kept(NamedTuple):
    """Rows that are held as rows: X (m, d), targets Y (m, K), weights and norms (m,)."""

    X: Any
    Y: Any
    weights: Any
    norms: Any


def curved(device: Device, S: Any, kept: Kept, W: Any) -> Any:
    """Return S and the true curvature of rows at W (K, d)."""
    if not len(kept.X):
        return S
    expanded = expand(device, kept.X @ W.T, kept.Y, kept.weights, kept.norms, 0.0)
    both = S.clone()
    add_products(both, expanded.coefficients, kept.X)
    return both


def moved(
    device: Device, S: Any, G: Any, bent: Any, kept: Kept, ridges: Any, W: Any, n_steps: int
) -> Any:
    """Return models W (E, K, d), each moved towards the mode of its ridge (E,).

    `bent` is the curvature from which steps are taken. A model whose matrix has no factor stays.
    """
    K = W.shape[1]
    H = curvature(device, bent)
    factors = [factored(device, ridged(H, float(ridge), K)) for ridge in ridges]
    able = [e for e, factor in enumerate(factors) if factor is not None]
    if not able:
        return W
    found = W.clone()
    own = [factor for factor in factors if factor is not None]
    walk = _walked if len(kept.X) else _jumped
    found[able] = walk(device, S, G, own, kept, ridges[able], W[able], n_steps)
    return found


def _steps(device: Device, factors: list[Factor], gradients: Any) -> Any:
    """Return each model's own step (E, K, d)."""
    steps = [solved(f, g[None]) for f, g in zip(factors, gradients, strict=True)]
    return device.torch.cat(steps)


def _jumped(
    device: Device, S: Any, G: Any, factors: list[Factor], kept: Kept, lam: Any, W: Any, n: int
) -> Any:
    steps = _steps(device, factors, G.expand_as(W))
    finite = steps.isfinite().all(dim=2).all(dim=1)
    return device.torch.where(finite[:, None, None], steps, W)


def _inner(A: Any, B: Any) -> Any:
    return (A * B).sum(dim=(1, 2))


def _true_loss(Z: Any, kept: Kept) -> tuple[Any, Any]:
    """Return the losses (E,) of rows at logits Z (E, m, K), and w(p - y)."""
    A = Z - Z.amax(2, keepdim=True)
    powers = A.exp()
    totals = powers.sum(2, keepdim=True)
    w = kept.weights[:, None]
    loss = (w * (totals.log() - (kept.Y * A).sum(2, keepdim=True))).sum(dim=(1, 2))
    return loss, w * (powers / totals - kept.Y)


def _walked(
    device: Device, S: Any, G: Any, factors: list[Factor], kept: Kept, lam: Any, W: Any, n: int
) -> Any:
    """Take damped Newton steps; a model whose step leads nowhere goes no further."""
    torch, X = device.torch, kept.X
    ridge = lam[:, None, None]
    Z = X @ W.transpose(1, 2)
    pull = pulled(device, S, W)
    loss, slopes = _true_loss(Z, kept)
    going = torch.ones_like(lam, dtype=torch.bool)
    for _ in range(n):
        gradient = G + 2.0 * (pull + ridge * W) + slopes.transpose(1, 2) @ X
        step = _steps(device, factors, gradient)
        slope = _inner(gradient, step)
        going &= (slope < 0.0) & step.isfinite().all(dim=2).all(dim=1)
        step = torch.where(going[:, None, None], step, 0.0)
        ZD = X @ step.transpose(1, 2)
        pull_step = pulled(device, S, step)
        linear = _inner(G + 2.0 * (pull + ridge * W), step)
        square = _inner(pull_step + ridge * step, step)
        t, decided = torch.ones_like(lam), ~going
        there, slopes_there, enough = loss, slopes, decided
        for _ in range(MOST_HALVINGS):
            there, slopes_there = _true_loss(Z + t[:, None, None] * ZD, kept)
            enough = there - loss + t * (linear + t * square) <= SUFFICIENT * t * slope
            if bool((enough | decided).all()):
                break
            t = torch.where(enough, t, 0.5 * t)
        going &= enough
        took = torch.where(going, t, 0.0)[:, None, None]
        W, pull, Z = W + took * step, pull + took * pull_step, Z + took * ZD
        loss = torch.where(going, there, loss)
        slopes = torch.where(going[:, None, None], slopes_there, slopes)
    return W
