"""Sums, refreshes and lower bounds on a device of PyTorch (extra ``gpu``).

Everything here has a compiled counterpart on the CPU; it is in float64, on the same schedule, for
sizes at which matrix products are nearly all of the work. Results agree with the CPU's to
rounding; they are not the same bits, because a device adds up in an order of its own.
"""
