"""The services of the client programs."""

import pytest

from interlock_cli.demo.clients.services import ServiceError, Services


def test_a_service_that_does_not_start_is_told_with_what_it_said(tmp_path):
    (tmp_path / "state").write_text("no folder")
    with (
        pytest.raises(ServiceError, match=r"^bootstrap did not start: .*state"),
        Services(tmp_path / "state", tmp_path),
    ):
        pass
