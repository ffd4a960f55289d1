"""`interlock instance`: launches of a group, for launchers that are not written in Python."""

import click

from interlock_cli.groups import CommandGroup
from interlock_cli.output import echo_json, json_option
from interlock_cli.services import bootstrap_at, bootstrap_options


@click.group(cls=CommandGroup)
def instance() -> None:
    """Mint the instance of a launch.

    An instance names one launch of a group; all ranks of the launch register with the same. A later one ends the epoch
    of the one before.

    \b
    Examples:
      interlock instance mint prefill-a
    """


@instance.command()
@click.argument("group")
@bootstrap_options
@json_option
def mint(group: str, address: str, timeout: float, as_json: bool) -> None:
    """Mint an instance for a new launch of GROUP, newer than every one before, as one line of JSON.

    Nothing changes until a rank registers with it. Mint it once, in the launcher, and hand it to all ranks unchanged:
    the client SDK and `interlock route register` take it from the environment variable INTERLOCK_INSTANCE.

    \b
      export INTERLOCK_INSTANCE="$(interlock instance mint prefill-a)"

    \b
    Examples:
      interlock instance mint prefill-a
    """
    with bootstrap_at(address, timeout) as client:
        from interlock.client import instance_to_text
        from interlock_cli.documents import document

        minted = client.mint_instance(group)
    if as_json:
        echo_json(document(minted))
    else:
        click.echo(instance_to_text(minted))
