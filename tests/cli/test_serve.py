"""`interlock serve`: real processes."""

import json
import re
import signal
import socket
import sqlite3
import subprocess
import uuid
from contextlib import closing

import pytest

from cli.running import PATIENCE, error_line
from etcd_cluster import free_ports, shared_cluster
from interlock.client import BootstrapClient, InterlockError, PreprocessClient, RetryPolicy
from interlock.serving.access import AccessSettings
from interlock.serving.config import declared_settings
from interlock.serving.logs import LogSettings
from interlock.serving.metrics import MetricsSettings
from interlock.serving.server import ServerSettings
from interlock.serving.tls import TlsSettings
from interlock_bootstrap.settings import BootstrapSettings
from interlock_bootstrap.stores.etcd.settings import EtcdSettings
from interlock_bootstrap.stores.sqlite import SqliteSettings
from interlock_preprocess.settings import PreprocessSettings


def _serves(address: str) -> list[str]:
    """Which of the services answer at an address."""
    answering = []
    with BootstrapClient(address, retry=RetryPolicy(attempts=1)) as bootstrap:
        try:
            list(bootstrap.list_groups())
            answering.append("bootstrap")
        except InterlockError:
            pass
    with PreprocessClient(address, retry=RetryPolicy(attempts=1)) as preprocess:
        try:
            preprocess.list_profiles()
            answering.append("preprocess")
        except InterlockError:
            pass
    return answering


@pytest.mark.parametrize(
    ("name", "services"),
    [("bootstrap", ["bootstrap"]), ("preprocess", ["preprocess"]), ("all", ["bootstrap", "preprocess"])],
)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_says_where_it_listens_serves_what_was_asked_and_stops_cleanly(
    start, tmp_path, name, services, number
):
    server = start("serve", name, "--port", "0", "--log-format", "json")
    line = server.stdout.readline()
    saying = f"interlock: serving {' and '.join(services)} on "
    assert line.startswith(saying)
    address, _, kept = line.removeprefix(saying).strip().partition("; groups are kept in ")
    assert kept == (str(tmp_path / "state/interlock/bootstrap.db") if "bootstrap" in services else "")
    assert _serves(address) == services
    server.send_signal(number)
    stdout, stderr = server.communicate(timeout=PATIENCE)
    assert (server.returncode, stdout) == (0, "")
    entries = [json.loads(entry) for entry in stderr.splitlines()]
    assert f"serving on {address}" in [entry["message"] for entry in entries]
    assert entries[-1]["message"] == "stopped"
    assert _serves(address) == []


def test_a_signal_that_follows_the_line_at_once_stops_it_cleanly(start):
    server = start("serve", "all", "--port", "0", "--json", "--log-level", "error")
    announced = json.loads(server.stdout.readline())
    server.send_signal(signal.SIGTERM)
    assert server.communicate(timeout=PATIENCE) == ("", "")
    assert server.returncode == 0
    assert announced["serving"] == ["bootstrap", "preprocess"]


def test_a_port_that_is_taken_is_one_line(run):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = run("serve", "bootstrap", "--port", port)
    assert (result.returncode, result.stdout) == (1, "")
    assert error_line(result).startswith(f"127.0.0.1:{port} is taken: ")


COMMON = [ServerSettings, AccessSettings, TlsSettings, MetricsSettings, LogSettings]


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("bootstrap", [*COMMON, BootstrapSettings, SqliteSettings, EtcdSettings]),
        ("preprocess", [*COMMON, PreprocessSettings]),
        ("all", [*COMMON, BootstrapSettings, SqliteSettings, EtcdSettings, PreprocessSettings]),
    ],
)
def test_every_setting_of_a_service_is_an_option_with_its_default_and_variable(invoke, name, kinds):
    help_text = " ".join(invoke("serve", name, "--help").stdout.split())
    _, *sections = re.split(r"Options \[(\w+)\]: ", help_text)
    assert sections[::2] == [kind.table for kind in kinds]
    for kind, section in zip(kinds, sections[1::2], strict=True):
        for setting in declared_settings(kind):
            default = "not set" if setting.default is None else str(setting.default).lower()
            assert f"{setting.flag} " in section
            assert f"[default: {default}; env: {setting.variable}]" in section
    for kind in {BootstrapSettings, SqliteSettings, EtcdSettings, PreprocessSettings} - set(kinds):
        assert not any(setting.variable in help_text for setting in declared_settings(kind))


def test_a_flag_goes_before_the_environment_that_before_the_file(tmp_path, start):
    def port() -> int:
        with socket.create_server(("127.0.0.1", 0)) as free:
            return int(free.getsockname()[1])

    ports = {"file": port(), "environment": port(), "flag": port()}
    (tmp_path / "settings.toml").write_text(
        f"[server]\nport = {ports['file']}\n[logs]\nlevel = 'error'\n[preprocess]\nkernel = 'reference'\n"
    )

    def listens(*args: str, **variables: str) -> str:
        server = start("serve", "preprocess", "--json", *args, variables=variables)
        address = json.loads(server.stdout.readline())["address"]
        with PreprocessClient(address) as client:
            assert client.list_profiles().kernel == "reference"
        server.terminate()
        assert server.communicate(timeout=PATIENCE) == ("", "")
        return str(address)

    by_file = ["--config", "settings.toml"]
    assert listens(*by_file) == f"127.0.0.1:{ports['file']}"
    assert listens(INTERLOCK_CONFIG="settings.toml") == f"127.0.0.1:{ports['file']}"
    by_variable = {"INTERLOCK_SERVER_PORT": str(ports["environment"])}
    assert listens(*by_file, **by_variable) == f"127.0.0.1:{ports['environment']}"
    assert listens(*by_file, "--port", str(ports["flag"]), **by_variable) == f"127.0.0.1:{ports['flag']}"


@pytest.mark.parametrize(
    ("text", "args", "line"),
    [
        ("[serve]\nport = 1", [], "settings.toml: unknown table [serve]; did you mean 'server'?"),
        ("[server]\nprot = 1", [], "settings.toml: [server] has no setting 'prot'; did you mean 'port'?"),
        ("[preprocess]\nworker_threads = 'x'", [], "settings.toml: [preprocess] worker_threads: expected an integer"),
        ("port", [], "settings.toml: no valid TOML: "),
        ("", ["--config", "missing.toml"], "missing.toml: No such file or directory"),
        ("", ["--host", "localhost"], "--host: expected an IP address such as 127.0.0.1"),
        ("", ["--grace-seconds", "-1"], "--grace-seconds: expected a number, at least 0"),
        ("", ["--log-format", "xml"], "invalid value for '--log-format': 'xml' is not one of "),
        ("", ["--max-watchers", "1"], "no such option '--max-watchers'"),
        ("", ["--kernel", "nonsuch"], "no kernel 'nonsuch' here; "),
    ],
)
def test_a_wrong_setting_is_one_line_and_exit_code_2(run, tmp_path, text, args, line):
    (tmp_path / "settings.toml").write_text(text)
    result = run("serve", "preprocess", "--config", "settings.toml", "--port", "0", *args)
    assert (result.returncode, result.stdout) == (2, "")
    assert line in error_line(result)


def test_a_wrong_variable_is_one_line_that_names_it(start):
    server = start("serve", "bootstrap", variables={"INTERLOCK_SERVER_PORT": "many"})
    assert server.communicate(timeout=PATIENCE) == (
        "",
        "interlock: INTERLOCK_SERVER_PORT: expected an integer from 0 to 65535, got 'many'; "
        "see 'interlock serve bootstrap --help'\n",
    )
    assert server.returncode == 2


def _served(start, *args: str) -> tuple[subprocess.Popen[str], str, str]:
    """A server of Bootstrap, its address, and where it says that groups are kept."""
    server = start("serve", "bootstrap", "--port", "0", "--json", "--log-level", "error", *args)
    announced = json.loads(server.stdout.readline())
    return server, announced["address"], announced["kept_in"]


RANK = ["route", "register", "prefill-a", "--rank-ip", "10.0.0.1", "--rank-port", "9000", "--page-size", "64"]


def _groups(run, address: str) -> list[tuple[str, int]]:
    listed = json.loads(run("group", "list", "--address", address, "--json").stdout)
    return [(group["group"], group["revision"]) for group in listed["groups"]]


def test_a_server_that_was_killed_begins_with_what_it_had_acknowledged(start, run, tmp_path):
    server, address, kept = _served(start, "--state-folder", "kept here")
    assert kept == "kept here/bootstrap.db"
    registered = json.loads(run(*RANK, "--address", address, "--json").stdout)
    server.kill()
    server.wait(PATIENCE)
    _, address, _ = _served(start, "--state-folder", "kept here")
    assert _groups(run, address) == [("prefill-a", registered["revision"])]


def test_a_memory_store_says_that_it_forgets_and_does(start, run, tmp_path):
    server, address, kept = _served(start, "--store", "memory")
    assert kept == "memory, which a restart forgets"
    assert run(*RANK, "--address", address).returncode == 0
    server.terminate()
    assert server.wait(PATIENCE) == 0
    _, address, _ = _served(start, "--store", "memory")
    assert _groups(run, address) == []
    assert not (tmp_path / "state").exists()


def test_the_help_tells_the_stores_apart(invoke):
    for name, stores in {"bootstrap": True, "all": True, "preprocess": False}.items():
        help_text = " ".join(invoke("serve", name, "--help").stdout.split())
        told = ["Stores (--store): sqlite One server", " etcd Any number of servers", " memory Nothing is kept"]
        assert [text in help_text for text in told] == [stores] * 3


def test_servers_over_etcd_are_one_truth_and_say_where_it_is(start, run):
    endpoints, prefix = shared_cluster().endpoints, f"/cli/{uuid.uuid4()}"
    over_etcd = ["--store", "etcd", "--etcd-endpoints", endpoints, "--etcd-prefix", prefix]
    addresses = []
    for _ in range(2):
        _, address, kept = _served(start, *over_etcd)
        assert kept == f"etcd at {endpoints} under {prefix}"
        addresses.append(address)
    registered = json.loads(run(*RANK, "--address", addresses[0], "--json").stdout)
    info = json.loads(run("info", "prefill-a", "--address", addresses[1], "--json").stdout)
    assert info["revision"] == registered["revision"]


def test_an_etcd_that_does_not_answer_is_one_line_and_exit_code_3(run):
    (port,) = free_ports(1)
    quickly = ["--etcd-request-timeout-seconds", "0.5", "--etcd-attempt-timeout-seconds", "0.2"]
    result = run(
        "serve", "bootstrap", "--port", "0", "--store", "etcd", "--etcd-endpoints", f"localhost:{port}", *quickly
    )
    assert (result.returncode, result.stdout) == (3, "")
    line = error_line(result)
    assert line.startswith(f"etcd at localhost:{port} does not answer (")
    assert line.endswith("): start it, or name its members by --etcd-endpoints")


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (["--etcd-endpoints", "nowhere"], "[etcd] endpoints: expected `host:port`, got 'nowhere'"),
        (["--etcd-progress-seconds", "x"], "--etcd-progress-seconds: expected a number, at least 0.05, got 'x'"),
        (["--store", "redis"], "invalid value for '--store': 'redis' is not one of 'sqlite', 'etcd', 'memory'"),
    ],
)
def test_a_wrong_setting_of_a_store_is_named_by_its_flag(invoke, args, line):
    result = invoke("serve", "bootstrap", *args)
    assert (result.exit_code, result.stdout) == (2, "")
    assert error_line(result).startswith(line)


def test_a_certificate_for_etcd_that_is_not_there_is_named(run):
    over_tls = ["--store", "etcd", "--etcd-endpoints", "https://localhost:1", "--etcd-ca-file", "ca.pem"]
    result = run("serve", "bootstrap", "--port", "0", *over_tls)
    assert (result.returncode, result.stdout) == (4, "")
    assert error_line(result) == "cannot read ca.pem, named for etcd: No such file or directory"


def test_a_second_server_on_the_same_folder_is_told_who_has_it(start, run, tmp_path):
    server, address, _ = _served(start)
    result = run("serve", "bootstrap", "--port", "0")
    assert (result.returncode, result.stdout) == (4, "")
    folder = tmp_path / "state/interlock"
    assert error_line(result).startswith(f"the store in {folder} is in use by another process (pid {server.pid}, ")
    assert _groups(run, address) == []
    server.kill()
    server.wait(PATIENCE)
    _served(start)  # whatever the lock file still says


def test_a_damaged_store_is_one_line_that_says_what_to_do(run, tmp_path):
    (tmp_path / "bootstrap.db").write_text("no database, although long enough to be one" * 100)
    result = run("serve", "all", "--port", "0", "--state-folder", tmp_path, "--log-level", "error")
    assert (result.returncode, result.stdout) == (4, "")
    assert "bootstrap.db is damaged (file is not a database): bring it back from a backup" in error_line(result)


def test_a_store_of_a_newer_version_is_one_line_that_says_what_to_do(start, run, tmp_path):
    server, _, kept = _served(start)
    server.terminate()
    assert server.wait(PATIENCE) == 0
    with closing(sqlite3.connect(kept)) as connection:
        connection.execute("PRAGMA user_version = 99")
    result = run("serve", "bootstrap", "--port", "0", "--log-level", "error")
    assert (result.returncode, result.stdout) == (4, "")
    assert error_line(result).startswith(
        f"{kept} was written by a newer version of Interlock (schema 99; this version "
    )
