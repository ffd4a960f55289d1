"""`interlock doctor` against servers that are well, and against what is not."""

import json
import socket

import pytest


def examined(run, *args, exit_code):
    result = run(*args, "--json")
    assert result.returncode == exit_code, result.stderr + result.stdout
    return {
        finding["check"]: (finding["verdict"], finding["seen"]) for finding in json.loads(result.stdout)["findings"]
    }


def test_a_server_that_is_well(run, services):
    seen = examined(run, "doctor", services, exit_code=0)
    assert [*seen] == [
        *("reached", "TLS", "answers", "version", "clock", "ready"),
        *("Bootstrap", "may at Bootstrap", "groups", "Preprocess", "may at Preprocess", "kernel", "shared memory"),
    ]
    assert {verdict for verdict, _ in seen.values()} <= {"well", "note"}
    assert seen["TLS"] == ("note", "none: whoever can read the network can read everything")
    assert seen["may at Bootstrap"] == ("well", "read and register and admin")
    assert seen["clock"] == ("well", "as this one")


def test_a_person_sees_a_table(run, services):
    lines = run("doctor", services).stdout.splitlines()
    assert lines[0].split() == ["CHECK", "VERDICT", "WHAT", "WAS", "SEEN"]
    assert any(line.split()[:3] == ["ready", "well", "SERVING"] for line in lines)


def test_nothing_there(run):
    seen = examined(run, "doctor", "127.0.0.1:1", exit_code=3)
    assert seen == {"reached": ("wrong", "no TCP connection: Connection refused")}


def test_something_else_there(run):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        seen = examined(run, "doctor", f"127.0.0.1:{other.getsockname()[1]}", "--timeout", "0.5", exit_code=3)
    assert [*seen] == ["reached", "TLS", "answers"]
    assert seen["answers"][0] == "wrong"


def test_no_address(run):
    result = run("doctor", "somewhere")
    assert (result.returncode, "expected host:port" in result.stderr) == (2, True)


@pytest.fixture
def secured(start, invoke, tmp_path):
    files = json.loads(invoke("certs", "dev", tmp_path / "certs", "--days", "3", "--json").stdout)
    token = json.loads(invoke("token", "new", "--id", "me", "--role", "read", "--json").stdout)
    (tmp_path / "credentials.toml").write_text(token["entry"])
    (tmp_path / "token").write_text(token["token"])
    server = start(
        *("serve", "all", "--store", "memory", "--port", "0", "--json", "--log-level", "error"),
        *("--tls-certificate-file", files["server_certificate"], "--tls-key-file", files["server_key"]),
        *("--credentials-file", "credentials.toml"),
    )
    return json.loads(server.stdout.readline())["address"], files["ca"]


def test_tls_its_end_and_what_a_token_is_good_for(run, secured):
    address, ca = secured
    seen = examined(run, "--ca-file", ca, "--token-file", "token", "doctor", address, exit_code=1)
    verdict, text = seen["TLS"]
    assert verdict == "note"
    assert "TLSv1.3, CN=localhost, valid until " in text
    assert seen["may at Bootstrap"] == ("well", "read")
    assert seen["may at Preprocess"] == ("wrong", "nothing: no credentials, or none that the server knows")


def test_tls_where_none_was_given_and_none_where_it_was(run, secured, services):
    address, ca = secured
    seen = examined(run, "doctor", address, "--timeout", "1", exit_code=3)
    assert seen["TLS"] == ("wrong", "the server speaks TLSv1.3; give --ca-file, or --tls for this machine's CAs")
    seen = examined(run, "--ca-file", ca, "doctor", services, "--timeout", "1", exit_code=3)
    assert seen["TLS"] == ("wrong", "the server speaks plain text; leave out --tls and the certificates")
