"""The commands: where each is, and what its options are; importing this needs the extra `cli`."""

import importlib
import shlex
from collections.abc import Callable, Sequence
from contextvars import copy_context
from dataclasses import fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from folklearn import __version__
from folklearn.errors import FolklearnError, spelling

# How the help of every command begins, which the docstring of its function goes on with: here,
# so that help on all of them imports none of them.
SUMMARIES = {
    "run": "Learn rows one after the other, predicting each before its label is seen.",
    "predict": "Predict rows with a saved model, which learns nothing from them.",
    "inspect": "Show what a saved model has learned.",
    "report": "Write one page about a model: how good it is, what is proven, what needs attention.",
    "export": "Write what a saved model predicts as an ONNX file, which other runtimes read.",
    "audit": "Certify predictions that any model made: how much better could a linear model do?",
    "serve": "Serve the models of a folder over HTTP: predict, learn durably, decide, and watch.",
    "backup": "Copy what a service keeps, while it runs; the copy can be served.",
    "key": "Create, list and revoke keys of the service, which may be running meanwhile.",
    "warmup": "Compile what models and decisions use, for a new machine or a container image.",
}
_MODULES = {  # of commands that share one
    "report": "inspect", "export": "inspect", "backup": "serve", "key": "serve", "warmup": "serve",
}  # fmt: skip
_OPTION_OF_ARGUMENT = {"on_bad": "--on-bad-row skip", "shuffle": "--shuffle"}
# Typer of some versions brings its own copy of click; this finds the class in all of them.
_UsageError: Any = typer.BadParameter.__base__
_CTRL_C = 130  # what Typer of some versions returns in place of raising Abort


class _PlainFlags:
    """Show flags without a type, which some versions of Typer print."""

    def get_params(self, ctx: Any) -> list[Any]:
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if getattr(param, "is_flag", False):
                param.metavar = ""
        return params


class Command(_PlainFlags, TyperCommand):
    pass


class Group(_PlainFlags, TyperGroup):
    pass


class _LazyGroup(Group):
    """Commands whose modules are imported when they are called."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:
        name, _, rest = super().resolve_command(ctx, args)
        return name, _load_command(str(name)), rest


def _load_command(name: str) -> Any:
    module = importlib.import_module(f"folklearn.cli.{_MODULES.get(name, name)}")
    group = getattr(module, name)
    if not isinstance(group, typer.Typer):
        function, group = group, typer.Typer(add_completion=False)
        group.command(name, cls=Command)(_expand_options(function))
    command: Any = typer.main.get_command(group)
    command.help = f"{SUMMARIES[name]}\n\n{command.help or ''}".rstrip()
    return command


def _expand_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command with the fields of dataclasses in place of parameters of their types."""
    parameters = signature(command).parameters
    types = {name: parameter.annotation for name, parameter in parameters.items()}
    groups: dict[str, Any] = {name: t for name, t in types.items() if is_dataclass(t)}
    expanded: dict[str, Parameter] = {}
    for name, parameter in parameters.items():
        expanded |= signature(groups[name]).parameters if name in groups else {name: parameter}

    @wraps(command)
    def call_with_groups(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        command(**values)

    keywords = [parameter.replace(kind=Parameter.KEYWORD_ONLY) for parameter in expanded.values()]
    call_with_groups.__signature__ = Signature(keywords)  # type: ignore[attr-defined]
    call_with_groups.__annotations__ = {name: p.annotation for name, p in expanded.items()}
    return call_with_groups


app = typer.Typer(cls=_LazyGroup, add_completion=False, pretty_exceptions_enable=False)
for _name, _summary in SUMMARIES.items():
    app.command(_name, cls=Command, help=_summary)(lambda: None)


@app.callback(invoke_without_command=True)
def folklearn(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", help="Show the version and exit."),
) -> None:
    """Learn to classify rows as they come, and prove how much better a linear model could do."""
    if version:
        typer.echo(f"folklearn {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def dispatch(arguments: Sequence[str] | None) -> int:
    """Run the command that the arguments name; raise FolklearnError for wrong options."""
    try:
        context = copy_context()
        context.run(spelling.set, spell_option)
        code = context.run(app, arguments, prog_name="folklearn", standalone_mode=False)
    except _UsageError as error:
        raise FolklearnError(error.format_message()) from None
    except typer.Abort:
        raise KeyboardInterrupt from None
    if code == _CTRL_C:
        raise KeyboardInterrupt
    return code if isinstance(code, int) else 0


def spell_option(template: str, *values: str) -> str:
    """Return an argument of Python as the option of the command line that sets it.

    >>> spell_option("encoding={!r}", "cp1252"), spell_option("roles={{{!r}: {!r}}}", "a b", "id")
    ('--encoding cp1252', "--role 'a b=id'")
    """
    name = template.partition("=")[0]
    if name == "roles":
        return f"--role {shlex.quote('='.join(values))}"
    return _OPTION_OF_ARGUMENT.get(name) or f"--{name} {shlex.quote(*values)}"
