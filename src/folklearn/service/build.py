"""Which program wrote something: equal bytes are promised between equal builds on one machine."""

import json
import platform

import numba
import numpy
import scipy

import folklearn

BUILD = json.dumps(
    {
        "folklearn": folklearn.__version__,
        "numba": numba.__version__,
        "numpy": numpy.__version__,
        "scipy": scipy.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
    }
)
