"""`interlock doctor`: what is wrong with a server, as seen from here."""

import click

from interlock_cli.connection import connection_credentials
from interlock_cli.errors import ExitCode, ended
from interlock_cli.extras import extra
from interlock_cli.output import echo_json, echo_table, json_option
from interlock_cli.services import calling, timeout_option


@click.command()
@click.argument("address", metavar="HOST:PORT")
@timeout_option("How long to wait for each answer.")
@json_option
def doctor(address: str, timeout: float, as_json: bool) -> None:
    """Find out what is wrong with the server at HOST:PORT, step by step.

    Whether it is reached, speaks TLS, is well; its version, and how its clock differs from this one; what the token or
    certificate at hand is good for; the store of a Bootstrap service; kernel and shared memory of a Preprocess service.
    Changes nothing. Exit code 1 if something is wrong, 3 if nothing answers.

    \b
    Examples:
      interlock doctor 127.0.0.1:50051
      interlock doctor 127.0.0.1:50051 --json
    """
    with extra("bootstrap"):
        from interlock_cli.doctor import Verdict, examine

    with calling():
        findings = list(examine(address, connection_credentials(), timeout))
    if as_json:
        echo_json({"address": address, "findings": [finding._asdict() for finding in findings]})
    else:
        rows = [(finding.check, finding.verdict, finding.seen) for finding in findings]
        echo_table(["CHECK", "VERDICT", "WHAT WAS SEEN"], rows)
    wrong = [finding.check for finding in findings if finding.verdict is Verdict.WRONG]
    if wrong:
        ended(ExitCode.UNREACHABLE if {"reached", "answers"} & {*wrong} else ExitCode.FAILED)
