"""What can be set of the etcd store, and what is refused."""

from pathlib import Path

import pytest

from interlock.serving.config import SettingsError
from interlock_bootstrap.stores.etcd.settings import EtcdSettings


@pytest.mark.parametrize(
    ("endpoints", "targets", "tls"),
    [
        ("127.0.0.1:2379", ["127.0.0.1:2379"], False),
        ("http://a:1, http://b:65535/", ["a:1", "b:65535"], False),
        ("https://a:2379,https://[::1]:2379", ["a:2379", "[::1]:2379"], True),
        ("etcd-0.etcd:2379,etcd-1.etcd:2379", ["etcd-0.etcd:2379", "etcd-1.etcd:2379"], False),
    ],
)
def test_endpoints_are_read(endpoints, targets, tls):
    settings = EtcdSettings(endpoints=endpoints)
    assert (settings.targets(), settings.tls) == (targets, tls)


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ({"endpoints": ""}, "expected `host:port`, got ''"),
        ({"endpoints": "host"}, "expected `host:port`, got 'host'"),
        ({"endpoints": "host:0"}, "expected `host:port`"),
        ({"endpoints": "host:65536"}, "expected `host:port`"),
        ({"endpoints": "host:etcd"}, "expected `host:port`"),
        ({"endpoints": "a:1,,b:1"}, "expected `host:port`, got ''"),
        ({"endpoints": "https://a:1,b:1"}, "all must begin with https:// alike"),
        ({"endpoints": "a:1,https://b:1"}, "all must begin with http:// alike"),
        ({"endpoints": "ftp://a:1"}, "all must begin with http:// alike"),
        ({"ca_file": Path("ca.pem")}, "endpoints do not begin with https://"),
        ({"endpoints": "https://a:1", "cert_file": Path("c")}, "cert_file and key_file go together"),
        ({"user": "u"}, "user and password_file go together"),
        ({"password_file": Path("p")}, "user and password_file go together"),
        ({"prefix": "//"}, "prefix must be more than slashes"),
        ({"progress_seconds": 3.0}, "at least twice progress_seconds"),
        ({"staleness_bound_seconds": 0.1}, "at least 0.2"),
    ],
)
def test_what_cannot_work_is_refused(values, fault):
    with pytest.raises(SettingsError) as refused:
        EtcdSettings(**values)
    assert fault in str(refused.value)
