"""`interlock info`."""

import click

from interlock_cli.output import echo_json, echo_table, json_option
from interlock_cli.services import bootstrap_at, bootstrap_options, refused


@click.command()
@click.argument("group")
@bootstrap_options
@json_option
def info(group: str, address: str, timeout: float, as_json: bool) -> None:
    """Show what the ranks of a group share.

    This is what a decode server gets to know of a prefill server (GROUP). A group that is not ready has none yet: the
    keys of the ranks that are missing or undeclared are shown, and the exit code is 1.

    \b
    Examples:
      interlock info prefill-a
      interlock info prefill-a --json
    """
    from interlock.client import NotReadyError
    from interlock_cli.documents import contract_rows, document

    with bootstrap_at(address, timeout) as client:
        try:
            ready = client.get_prefill_server_info(group)
        except NotReadyError as error:
            state = error.state
            if not as_json:
                lacking = [(key, "missing") for key in state.missing_keys]
                lacking += [(key, "undeclared") for key in state.undeclared_keys]
                echo_table(["RANK", "STATE"], sorted(lacking))
            end = refused(error)
            end.facts["state"] = document(state)
            raise end from None
    if as_json:
        echo_json({"group": group, **document(ready)})
        return
    rows: list[tuple[str, object]] = [(name, getattr(ready, name)) for name in ("revision", "epoch", "instance")]
    echo_table(["FIELD", "VALUE"], [*rows, *contract_rows(ready.info)])
