"""Messages of the library name arguments of Python: here they become options."""

import ast
import re
import shlex

_TEXT = r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
_ROLE = re.compile(rf"\broles=\{{{_TEXT}: {_TEXT}\}}")
_ARGUMENT = re.compile(rf"\b(decimal|device|encoding|target)={_TEXT}")
_WHOLE = {
    "n_jobs": "--jobs",
    "on_bad=print": "--on-bad-row skip",
    "shuffle=True": "--shuffle",
    "reward_range=(low, high)": "--reward-range LOW HIGH",
}


def as_flags(message: str) -> str:
    """Return a message with arguments as options.

    >>> as_flags("name the encoding: encoding='cp1252'; or roles={'zip code': 'category'}")
    "name the encoding: --encoding cp1252; or --role 'zip code=category'"
    """
    for argument, option in _WHOLE.items():
        message = message.replace(argument, option)
    message = _ROLE.sub(lambda found: f"--role {_quoted('=', *found.groups())}", message)
    return _ARGUMENT.sub(lambda found: f"--{found[1]} {_quoted('', found[2])}", message)


def _quoted(between: str, *literals: str) -> str:
    return shlex.quote(between.join(map(ast.literal_eval, literals)))
