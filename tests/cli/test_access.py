"""TLS and tokens as a person sets them up: by the command alone."""

import json

import pytest

from interlock.serving.credentials import read_credentials, token_sha256


@pytest.fixture
def certificates(invoke, tmp_path):
    return json.loads(invoke("certs", "dev", tmp_path / "certs", "--json").stdout)


@pytest.fixture
def served(start, invoke, certificates, tmp_path):
    """Both services with TLS, for one token; gives the address and the options that reach it."""
    made = json.loads(invoke("token", "new", "--id", "me", "--role", "read", "--group", "a*", "--json").stdout)
    (tmp_path / "credentials.toml").write_text(made["entry"])
    (tmp_path / "token").write_text(made["token"] + "\n")
    tls = ("--tls-certificate-file", certificates["server_certificate"], "--tls-key-file", certificates["server_key"])
    store = ("--store", "memory", "--port", "0", "--json", "--log-level", "error")
    server = start("serve", "bootstrap", *store, *tls, "--credentials-file", "credentials.toml")
    address = json.loads(server.stdout.readline())["address"]
    return address, ("--ca-file", certificates["ca"], "--token-file", tmp_path / "token")


def test_a_command_with_ca_and_token_is_let_in(run, served):
    address, options = served
    result = run(*options, "group", "list", "--json", "--address", address)
    assert (result.returncode, json.loads(result.stdout)) == (0, {"groups": []})


def test_without_a_token_with_a_wrong_one_and_for_another_group_it_is_told_why(run, served, tmp_path):
    address, options = served
    (tmp_path / "wrong").write_text("interlock_wrong")
    for given, command, message in (
        (options[:2], ("group", "list"), "send the header `authorization: Bearer TOKEN`"),
        ((*options[:2], "--token-file", tmp_path / "wrong"), ("group", "list"), "the token is unknown or has expired"),
        (options, ("info", "b"), "'me' has nothing to do with group 'b'; its groups are a*"),
    ):
        result = run(*given, *command, "--address", address)
        assert (result.returncode, result.stdout) == (1, "")
        assert message in result.stderr


def test_without_tls_it_finds_no_service(run, served):
    address, options = served
    assert run(*options[2:], "group", "list", "--address", address, "--timeout", "1").returncode == 3


def test_a_token_file_that_is_not_there_is_a_fault_of_the_command_line(run, served):
    result = run("--token-file", "none", "group", "list")
    assert (result.returncode, result.stderr) == (
        2,
        "interlock: none: No such file or directory; see 'interlock group list --help'\n",
    )


def test_a_new_token_is_kept_nowhere_and_its_entry_is_added_to_the_file(run, tmp_path):
    file = tmp_path / "credentials.toml"
    command = ("token", "new", "--id", "team a", "--role", "register", "--role", "read", "--days", "3", "--file", file)
    results = [run(*command) for _ in range(2)]
    assert [(result.returncode, result.stderr) for result in results] == [(0, "")] * 2
    known = read_credentials(file)
    for result in results:
        caller = known.of_token(token_sha256(result.stdout.strip()), 0)
        assert (caller.id, sorted(caller.roles), caller.groups) == ("team a", ["read", "register"], ())
        assert result.stdout.strip() not in file.read_text()


def test_without_a_file_the_entry_is_shown_beside_the_token(run, tmp_path):
    result = run("token", "new", "--id", "me", "--role", "read")
    (tmp_path / "credentials.toml").write_text(result.stderr)
    known = read_credentials(tmp_path / "credentials.toml")
    assert known.of_token(token_sha256(result.stdout.strip()), 0).id == "me"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--host", "0.0.0.0"), "without credentials everyone could do everything"),
        (("--credentials-file", "none"), "none: No such file or directory"),
        (("--tls-key-file", "x"), "[tls] certificate_file and key_file go together"),
        (("--tls-key-file", "x", "--tls-certificate-file", "y"), "y: No such file or directory"),
    ],
)
def test_a_server_that_cannot_be_safe_as_asked_does_not_start(run, flags, message):
    result = run("serve", "bootstrap", "--store", "memory", "--port", "0", *flags)
    assert (result.returncode, result.stdout) == (2, "")
    assert message in result.stderr
