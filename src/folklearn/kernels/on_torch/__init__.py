"""The same sums, refreshes and floors on a device of PyTorch (extra ``gpu``).

Everything here is a twin of compiled code beside it, in float64 and on the same schedule, for
sizes at which matrix products are nearly all of the work. Results agree with the CPU's to
rounding; they are not the same bits, because a device adds up in an order of its own.
"""
