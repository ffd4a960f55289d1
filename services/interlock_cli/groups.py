"""Groups of commands."""

import click

from interlock_cli.errors import ExitCode


class CommandGroup(click.Group):
    """Shows its help when called without a command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help())
            ctx.exit(ExitCode.USAGE)
        return super().parse_args(ctx, args)
