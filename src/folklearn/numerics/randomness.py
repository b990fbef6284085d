"""The state of a NumPy generator as JSON and back, so that a saved learner resumes exactly."""

from typing import Any

import numpy as np

_KINDS = {"PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64"}


def generator_state(rng: np.random.Generator) -> Any:
    """Return the state of a generator, of numbers, strings, lists and dictionaries."""
    return _plain(rng.bit_generator.state)


def generator_from(state: Any) -> np.random.Generator:
    """Return a generator in a state that `generator_state` wrote; ValueError if it is none."""
    try:
        if state["bit_generator"] not in _KINDS:
            raise ValueError(f"no bit generator {state['bit_generator']!r}")
        bits = getattr(np.random, state["bit_generator"])()
        bits.state = _arrays(state)
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"not the state of a generator: {error!r}") from None
    return np.random.Generator(bits)


def _plain(state: Any) -> Any:
    if isinstance(state, dict):
        return {key: _plain(value) for key, value in state.items()}
    return state.tolist() if isinstance(state, np.ndarray | np.generic) else state


def _arrays(state: Any) -> Any:
    if isinstance(state, dict):
        return {key: _arrays(value) for key, value in state.items()}
    return np.array(state, np.uint64) if isinstance(state, list) else state
