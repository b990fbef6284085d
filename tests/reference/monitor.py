"""The monitor straight from docs/theory/monitoring.md: all losses are kept, and sums are loops."""

import math

LOOK = 64
BETS = [2.0**-k for k in range(1, 6)]
RATES = [2.0**-k for k in range(1, 9)]


def share(look):
    return 1.0 / math.log2(look + 2) - 1.0 / math.log2(look + 3)


def at_most(losses, begin, stop, alpha, cap):
    """The bound (3) of the average expected loss of losses[begin:stop], both multiples of LOOK."""
    spread = 0.0
    for i in range(begin, stop):
        known = losses[begin : i // LOOK * LOOK]
        expected = sum(known) / len(known) if known else 0.0
        spread += (losses[i] - expected) ** 2
    delta = alpha / 2 * share(begin // LOOK)
    slacks = [
        ((-math.log(1 - rate) - rate) * spread / cap + cap * math.log(len(RATES) / delta)) / rate
        for rate in RATES
    ]
    return (sum(losses[begin:stop]) + min(slacks)) / (stop - begin)


def capital(losses, look, level, stop):
    """What the bets that begin at a look have at row `stop`."""
    total = 0.0
    for bet in BETS:
        one = share(look) / len(BETS)
        for loss in losses[LOOK * look : stop]:
            one *= 1.0 + bet * (loss / level - 1.0)
        total += one
    return total


def is_kept(look, now):
    """Whether a look that ended earlier still has a suspicion when the look `now` begins."""
    power = 1
    while look % (2 * power) == 0:
        power *= 2
    return now - look < 4 * power


def alarms(losses, alpha=0.01, rise=0.01, cap=4.0):
    """All alarms, as (row, since, before, now, capped before, capped now, cap)."""
    uncapped = [max(loss, 0.0) for loss in losses]
    losses = [min(loss, cap) for loss in uncapped]
    found, begin, levels = [], 0, {}
    for now in range(len(losses) // LOOK):
        start, stop = LOOK * now, LOOK * (now + 1)
        if start > begin:
            levels[now] = (1 + rise) * at_most(losses, begin, start, alpha, cap)
        levels = {look: level for look, level in levels.items() if is_kept(look, now)}
        capitals = {look: capital(losses, look, level, stop) for look, level in levels.items()}
        if sum(capitals.values()) >= 2 / alpha:
            since = LOOK * max(capitals, key=capitals.get)
            means = [
                sum(some[first:last]) / (last - first)
                for some in (uncapped, losses)
                for first, last in ((begin, since), (since, stop))
            ]
            found.append((stop, since, *means, cap))
            begin, levels = stop, {}
    return found
