"""The commands and what they share; importing this module needs the extra `cli`."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from folklearn import __version__
from folklearn.cli.audit import audit
from folklearn.cli.compare import compare
from folklearn.cli.inspect import export, inspect, report
from folklearn.cli.options import expand_source
from folklearn.cli.policy_value import policy_value
from folklearn.cli.predict import predict
from folklearn.cli.run import run
from folklearn.cli.serve import KEY_COMMANDS, backup, key, serve
from folklearn.cli.warmup import warmup
from folklearn.errors import FolklearnError

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


class _Command(_PlainFlags, TyperCommand):
    pass


class _Group(_PlainFlags, TyperGroup):
    pass


app = typer.Typer(cls=_Group, add_completion=False, pretty_exceptions_enable=False)
_COMMANDS: tuple[Callable[..., None], ...] = (
    run, predict, inspect, report, export, audit, compare, policy_value, serve, backup, warmup,
)  # fmt: skip
for _command in _COMMANDS:
    app.command(cls=_Command)(expand_source(_command))
_keys = typer.Typer(cls=_Group, callback=key, invoke_without_command=True)
for _name, _command in KEY_COMMANDS.items():
    _keys.command(_name, cls=_Command)(_command)
app.add_typer(_keys, name="key")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"folklearn {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def folklearn(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Learn to classify rows as they come, and prove how much better a linear model could do."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def dispatch(arguments: Sequence[str] | None) -> int:
    """Run the command that the arguments name; raise FolklearnError for wrong options."""
    try:
        code = app(arguments, prog_name="folklearn", standalone_mode=False)
    except _UsageError as error:
        raise FolklearnError(error.format_message()) from None
    except typer.Abort:
        raise KeyboardInterrupt from None
    if code == _CTRL_C:
        raise KeyboardInterrupt
    return code if isinstance(code, int) else 0
