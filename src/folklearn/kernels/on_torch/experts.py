"""The sums of a panel of experts on a device, and what happens to them on a schedule.

The twin of `folklearn.kernels.leaders`: models and losses stay in the memo of this machine. All
modes are moved at once, as `folklearn.kernels.newton` moves one. A panel of nothing but leaders
learns whole stretches of rows at once: between two refreshes its models stand still.
"""

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np

from folklearn.arrays import Array, Labels
from folklearn.kernels import experts, leaders, quadratic
from folklearn.kernels.evidence import N_TOTALS, n_pairs
from folklearn.kernels.expert_state import ExpertState
from folklearn.kernels.newton import MOST_HALVINGS, NEGLIGIBLE, SUFFICIENT
from folklearn.kernels.on_torch import Device, back
from folklearn.kernels.on_torch.expand import MAX_COEFFICIENTS, DeviceRows, Point, add_expanded

MOST_ROWS = 1 << 15  # of a stretch, so that there is progress to report


class ExpertSums:
    """The sums of a panel: the leaders', and those of leaders that forget."""

    def __init__(self, device: Device, state: ExpertState) -> None:
        K, d, n_sums = state.K, state.d, state.spec.n_sums
        self.device = device
        self.S = device.zeros(n_sums, n_pairs(K), d, d)
        self.G = device.zeros(n_sums, K, d)
        self._kept = DeviceRows(*(device.zeros(0, *shape) for shape in ((d,), (K,), ())))

    @classmethod
    def of(cls, device: Device, state: ExpertState) -> "ExpertSums":
        """Return a copy of the sums of a whole state."""
        sums = cls(device, state)
        for place in range(len(sums.S) if state.plan[experts.T] else 0):
            summed = state.quadratic(place).to(device)
            sums.S[place], sums.G[place] = summed.S, summed.G
        return sums

    def copy(self) -> "ExpertSums":
        copied = copy.copy(self)  # the kept rows are never written to
        copied.S, copied.G = self.S.clone(), self.G.clone()
        return copied

    def only(self, places: list[int]) -> "ExpertSums":
        """Return some of the sums."""
        if len(places) == len(self.S):
            return self
        fewer = copy.copy(self)
        fewer.S, fewer.G = self.S[places], self.G[places]
        return fewer

    @property
    def n_bytes(self) -> int:
        return int(self.S.nbytes + self.G.nbytes)

    def quadratic(self, place: int) -> quadratic.Quadratic:
        """Return one of the sums, not copied."""
        return quadratic.Quadratic(self.S[place], self.G[place], np.zeros(N_TOTALS), self.device)

    def write(self, state: ExpertState) -> None:
        """Write all sums into a whole state."""
        for place in range(len(self.S)):
            here = self.quadratic(place).to(None)
            state["S"][place], state["G"][place] = here.S, here.G

    def flush(self, state: ExpertState) -> None:
        """Let the rows that wait enter the sums."""
        plan = state.plan
        rows = slice(int(plan[experts.FLUSHED]), int(plan[experts.POSITION]))
        if rows.start < rows.stop:
            recent = self._rows(state, "recent", rows)
            W = self.device.put(state.model(int(plan[experts.BEST])))
            add_expanded(self.device, self.S[0], self.G[0], recent, W)
        plan[experts.FLUSHED] = plan[experts.POSITION]

    def _rows(self, state: ExpertState, which: str, rows: slice) -> DeviceRows:
        return DeviceRows(
            *(self.device.put(state[f"{which}_{axis}"][rows]) for axis in ("x", "y", "w"))
        )

    def _kept_rows(self, state: ExpertState) -> DeviceRows:
        """Return the kept rows; those that are on the device already are not sent again."""
        n_there = len(self._kept.X)
        here = int(state.plan[experts.N_KEPT])
        if n_there < here:
            news = self._rows(state, "kept", slice(n_there, here))
            cat = self.device.torch.cat
            self._kept = DeviceRows(*(cat(both) for both in zip(self._kept, news, strict=True)))
        return self._kept

    def refresh(self, state: ExpertState) -> None:
        """Move the modes of all ridges to where everything seen puts them."""
        spec, plan = state.spec, state.plan
        losses, best = state["losses"].tolist(), 0
        for e in range(1, len(spec.ridges)):
            best = e if losses[e] < leaders.CLEARLY * losses[best] else best
        plan[experts.BEST] = best
        plan[experts.REFRESHES] += 1
        shares = enumerate(state["weights"][: len(spec.ridges)])
        some = [e for e, share in shares if not leaders.skip_refresh(share, plan, e)]
        W = self.device.put(np.stack([state.model(e) for e in [best, *some]]))
        kept = self._kept_rows(state)
        ridges_there = self.device.put(state["ridges"][some])
        if int(plan[experts.T]) == len(kept.X) < state.d:
            models = move_within_span(self.device, kept, W[0], ridges_there, W[1:])
        else:
            S, G = self.S[0], self.G[0]
            models = move_to_modes(self.device, S, G, kept, W[0], ridges_there, W[1:])
        for e, model in zip(some, back(models), strict=True):
            state.set_model(e, model)

    def refresh_forgetting(self, state: ExpertState, f: int) -> None:
        """Discount the sum of a leader that forgets, and learn the rows of the last period."""
        n_modes, plan = len(state.spec.ridges), state.plan
        e, place = n_modes + f, bool(n_modes) + f
        period, keep = state["forgetting"][f]
        stop = int(plan[experts.POSITION])
        rows = self._rows(state, "recent", slice(stop - int(period), stop))
        S, G = self.S[place], self.G[place]
        S *= keep
        G *= keep
        W = self.device.put(state.model(e))
        ridge = self.device.put(state["ridges"][e : e + 1])
        W = move_to_modes(self.device, S, G, rows, W, ridge, W[None])[0]
        state.set_model(e, back(W))
        add_expanded(self.device, S, G, rows, W)

    def run(
        self, state: ExpertState, X: Array, labels: Labels, soft: Array, weights: Array
    ) -> Array:
        """Predict, then learn, rows up to the next refresh; return what was predicted.

        For a panel of leaders by Bayes' rule alone: their weights follow from their losses.
        """
        plan, K, torch = state.plan, state.K, self.device.torch
        self.flush(state)
        plan[experts.POSITION] = plan[experts.FLUSHED] = 0
        at_once = max(1, min(MOST_ROWS, MAX_COEFFICIENTS // n_pairs(K)))
        counts = np.cumsum(weights[:at_once] > 0.0)
        ahead = max(int(plan[experts.NEXT] - plan[experts.T]), 1)
        # The round of the refresh is the last one.
        m = min(int(np.searchsorted(counts, ahead)) + 1, len(counts))
        rows = DeviceRows.of(self.device, K, X[:m], labels[:m], soft[:m], weights[:m])
        linear = self.device.put(state["W"][:-1].reshape(state.d, -1))
        Z = (rows.X @ linear).view(len(rows.X), -1, K)
        predicted = torch.softmax(Z, dim=2).clamp_(min=experts.FLOOR)
        losses = rows.weights[:, None] * _losses(predicted, rows.Y[:, None])
        before = self.device.put(state["losses"])
        after = before + losses.cumsum(0)
        shares = torch.softmax(-(after - losses) / state.max_weight, dim=1)
        mixed = (shares[:, :, None] * predicted).sum(1)
        mixture_loss = (rows.weights * _losses(mixed, rows.Y)).sum()
        counted = weights[:m] > 0.0
        state["losses"][:] = back(after[-1])
        state["weights"][:] = back(torch.softmax(-after[-1] / state.max_weight, dim=0))
        state["credit"][:] += back(shares[self.device.put(counted)].sum(0))
        state["constants"][experts.LOSS] += float(mixture_loss)
        self._learn(state, rows, Z, np.flatnonzero(counted))
        plan[experts.T] += counted.sum()
        plan[experts.ROUNDS] += len(counted)
        state["seen"][-1] = 0.0
        if counted.any() and plan[experts.T] >= plan[experts.NEXT]:
            state.settle(self)
        return back(mixed)

    def _learn(self, state: ExpertState, rows: DeviceRows, Z: Any, counted: Any) -> None:
        """Keep the first rows of all, and let the others enter the sums."""
        spec, plan = state.spec, state.plan
        first = int(plan[experts.N_KEPT])
        kept = counted[: spec.kept - first]
        if len(kept):
            for part, values in zip(("x", "y", "w"), rows, strict=True):
                state[f"kept_{part}"][first : first + len(kept)] = back(values)[kept]
            plan[experts.N_KEPT] += len(kept)
        others = counted[len(kept) :]
        if len(others):
            places = self.device.put(others)
            some, best = rows.of_places(places), int(plan[experts.BEST])
            coefficients, residuals = Point(self.device, Z[places, best], some).expand()
            self.G[0].addmm_(residuals.T, some.X)
            quadratic.add_device_products(self.S[0], coefficients, some.X)


def _losses(P: Any, Y: Any) -> Any:
    return -(Y * P.log()).sum(-1)


def move_to_modes(
    device: Device, S: Any, G: Any, kept: DeviceRows, at: Any, ridges: Any, W: Any
) -> Any:
    """Return models W (E, K, d), each moved towards the mode of its ridge (E,), if it has a factor.

    Steps are taken with the curvature that rows have at the model `at` (K, d).
    """
    K, curved = W.shape[1], S
    if len(kept.X):
        curved = S.clone()
        true_curvature, _ = Point(device, kept.X @ at.T, kept).expand()
        quadratic.add_device_products(curved, true_curvature, kept.X)
    H = quadratic.matrix(curved, K, device, n_rows=K - 1)
    ridged = (quadratic.add_ridge(H, float(ridge), K) for ridge in ridges)
    solvers = [quadratic.factorise(matrix, device) for matrix in ridged]
    able = [e for e, solve in enumerate(solvers) if solve is not None]
    if not able:
        return W
    able_solvers = [solve for solve in solvers if solve is not None]
    after = W.clone()
    if len(kept.X):
        after[able] = _walk(device, S, G, kept, ridges[able], able_solvers, W[able])
    else:
        steps = device.torch.stack([quadratic.newton_step(solve, G) for solve in able_solvers])
        after[able] = device.torch.where(_are_finite(steps), steps, W[able])
    return after


def move_within_span(device: Device, kept: DeviceRows, at: Any, ridges: Any, W: Any) -> Any:
    """Return `move_to_modes` for rows alone, fewer than features: modes lie in their span."""
    span = device.torch.linalg.qr(kept.X.T)[0]
    m, (_, K, _) = len(kept.X), W.shape
    S, G = device.zeros(n_pairs(K), m, m), device.zeros(K, m)
    within = kept._replace(X=kept.X @ span)
    return move_to_modes(device, S, G, within, at @ span, ridges, W @ span) @ span.T


def _walk(
    device: Device, S: Any, G: Any, kept: DeviceRows, ridges: Any, solvers: Sequence[Any], W: Any
) -> Any:
    """Take damped Newton steps with all models; one that gains nothing by it goes no further."""
    torch, X, ridges = device.torch, kept.X, ridges[:, None, None]
    Z = X @ W.transpose(1, 2)
    pulls = quadratic.pull(S, W, device)
    loss, slopes = _true_loss(kept, Z)
    going = torch.ones_like(loss, dtype=torch.bool)
    for _ in range(leaders.STEPS_OF_NEWTON):
        summed = G + 2.0 * (pulls + ridges * W)
        gradient = summed + slopes.transpose(1, 2) @ X
        step = torch.stack(list(map(quadratic.newton_step, solvers, gradient)))
        slope = _inner(gradient, step)
        going &= (-slope > NEGLIGIBLE * loss) & _are_finite(step).flatten()
        step = torch.where(going[:, None, None], step, 0.0)
        ZD = X @ step.transpose(1, 2)
        pull_step = quadratic.pull(S, step, device)
        linear = _inner(summed, step)
        square = _inner(pull_step + ridges * step, step)
        t, decided = torch.ones_like(loss), ~going
        loss_there, slopes_there, enough = loss, slopes, decided
        for _ in range(MOST_HALVINGS):
            loss_there, slopes_there = _true_loss(kept, Z + t[:, None, None] * ZD)
            enough = loss_there - loss + t * (linear + t * square) <= SUFFICIENT * t * slope
            if bool((enough | decided).all()):
                break
            t = torch.where(enough, t, 0.5 * t)
        going &= enough
        took = torch.where(going, t, 0.0)[:, None, None]
        W, pulls, Z = W + took * step, pulls + took * pull_step, Z + took * ZD
        loss = torch.where(going, loss_there, loss)
        slopes = torch.where(going[:, None, None], slopes_there, slopes)
    return W


def _true_loss(kept: DeviceRows, Z: Any) -> tuple[Any, Any]:
    w = kept.weights[:, None]
    A = Z - Z.amax(2, keepdim=True)
    powers = A.exp()
    totals = powers.sum(2, keepdim=True)
    losses = (w * (totals.log() - (kept.Y * A).sum(2, keepdim=True))).sum(dim=(1, 2))
    return losses, w * (powers / totals - kept.Y)


def _are_finite(steps: Any) -> Any:
    return steps.isfinite().all(dim=2, keepdim=True).all(dim=1, keepdim=True)


def _inner(A: Any, B: Any) -> Any:
    return (A * B).sum(dim=(1, 2))
