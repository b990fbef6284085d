"""The modes of several ridges at once: the twin of `folklearn.kernels.newton`."""

from typing import Any

from folklearn.kernels.evidence import n_pairs
from folklearn.kernels.experts import STEPS_OF_NEWTON
from folklearn.kernels.newton import MOST_HALVINGS, SUFFICIENT
from folklearn.kernels.on_torch.device import Device
from folklearn.kernels.on_torch.expand import DeviceRows, Point, add_products
from folklearn.kernels.on_torch.quadratic import (
    Factor,
    add_ridge,
    curvature,
    factorise,
    newton_steps,
    pull,
)


def moved(device: Device, S: Any, G: Any, kept: DeviceRows, at: Any, ridges: Any, W: Any) -> Any:
    """Return models W (E, K, d), each moved towards the mode of its ridge (E,).

    Steps are taken with the curvature that rows have at the model `at` (K, d). A model whose
    matrix has no factor stays.
    """
    K = W.shape[1]
    H = curvature(device, _curved(device, S, kept, at), K)
    found = [factorise(device, add_ridge(H, float(ridge), K)) for ridge in ridges]
    factors = {e: factor for e, factor in enumerate(found) if factor is not None}
    able = list(factors)
    if not able:
        return W
    after = W.clone()
    if len(kept.X):
        own = _Objective(device, S, G, kept, ridges[able])
        after[able] = own.walked(list(factors.values()), W[able])
    else:
        steps = _steps(device, list(factors.values()), G.expand_as(W[able]))
        after[able] = device.torch.where(_are_finite(steps), steps, W[able])
    return after


def moved_by_few(device: Device, kept: DeviceRows, at: Any, ridges: Any, W: Any) -> Any:
    """Return `moved` for rows alone, fewer than features, without a sum.

    What is orthogonal to all rows is 0 in the mode of a ridge: there are as many unknowns for
    each class as rows.
    """
    span = device.torch.linalg.qr(kept.X.T)[0]
    m, (_, K, _) = len(kept.X), W.shape
    S, G = device.zeros(n_pairs(K), m, m), device.zeros(K, m)
    within = kept._replace(X=kept.X @ span)
    return moved(device, S, G, within, at @ span, ridges, W @ span) @ span.T


def _curved(device: Device, S: Any, kept: DeviceRows, W: Any) -> Any:
    """Return S and the true curvature of rows at W (K, d)."""
    if not len(kept.X):
        return S
    both = S.clone()
    add_products(both, Point(device, kept.X @ W.T, kept).expand(0.0).coefficients, kept.X)
    return both


def _steps(device: Device, factors: list[Factor], gradients: Any) -> Any:
    """Return each model's own step (E, K, d)."""
    steps = [newton_steps(f, g[None]) for f, g in zip(factors, gradients, strict=True)]
    return device.torch.cat(steps)


def _are_finite(steps: Any) -> Any:
    """Tell for each model, (E, 1, 1), whether its step is."""
    return steps.isfinite().all(dim=2, keepdim=True).all(dim=1, keepdim=True)


def _inner(A: Any, B: Any) -> Any:
    return (A * B).sum(dim=(1, 2))


class _Objective:
    """Ridges (E,), a sum, and the true loss of rows, for as many models W (E, K, d)."""

    def __init__(self, device: Device, S: Any, G: Any, kept: DeviceRows, ridges: Any) -> None:
        self._device, self._S, self._G, self._kept = device, S, G, kept
        self._ridges = ridges[:, None, None]

    def _true_loss(self, Z: Any) -> tuple[Any, Any]:
        """Return the losses (E,) of the rows at logits Z (E, m, K), and w(p - y)."""
        Y, w = self._kept.Y, self._kept.weights[:, None]
        A = Z - Z.amax(2, keepdim=True)
        powers = A.exp()
        totals = powers.sum(2, keepdim=True)
        losses = (w * (totals.log() - (Y * A).sum(2, keepdim=True))).sum(dim=(1, 2))
        return losses, w * (powers / totals - Y)

    def walked(self, factors: list[Factor], W: Any) -> Any:
        """Take damped Newton steps; a model whose step leads nowhere goes no further."""
        torch, X, ridges = self._device.torch, self._kept.X, self._ridges
        Z = X @ W.transpose(1, 2)
        pulls = pull(self._device, self._S, W)
        loss, slopes = self._true_loss(Z)
        going = torch.ones_like(loss, dtype=torch.bool)
        for _ in range(STEPS_OF_NEWTON):
            quadratic = self._G + 2.0 * (pulls + ridges * W)
            gradient = quadratic + slopes.transpose(1, 2) @ X
            step = _steps(self._device, factors, gradient)
            slope = _inner(gradient, step)
            going &= (slope < 0.0) & _are_finite(step).flatten()
            step = torch.where(going[:, None, None], step, 0.0)
            ZD = X @ step.transpose(1, 2)
            pull_step = pull(self._device, self._S, step)
            linear = _inner(quadratic, step)
            square = _inner(pull_step + ridges * step, step)
            t, decided = torch.ones_like(loss), ~going
            there, slopes_there, enough = loss, slopes, decided
            for _ in range(MOST_HALVINGS):
                there, slopes_there = self._true_loss(Z + t[:, None, None] * ZD)
                enough = there - loss + t * (linear + t * square) <= SUFFICIENT * t * slope
                if bool((enough | decided).all()):
                    break
                t = torch.where(enough, t, 0.5 * t)
            going &= enough
            took = torch.where(going, t, 0.0)[:, None, None]
            W, pulls, Z = W + took * step, pulls + took * pull_step, Z + took * ZD
            loss = torch.where(going, there, loss)
            slopes = torch.where(going[:, None, None], slopes_there, slopes)
        return W
