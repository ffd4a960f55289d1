"""TLS, certificates and users towards etcd."""

import pytest

from bootstrap.stores.etcd.replicas import replica, same_everywhere
from etcd_cluster import etcd_cluster, make_certificates
from interlock_bootstrap.stores import CannotOpenStoreError, StoreUnreachableError
from interlock_bootstrap.stores.etcd.settings import EtcdSettings
from topology.examples import register, route

ROOT = "root:root-secret"


@pytest.fixture
def certificates(tmp_path):
    return make_certificates(tmp_path)


@pytest.fixture
def cluster(certificates):
    """Asks for certificates and for users; `interlock` may do everything under /interlock/, `guest` nothing."""
    with etcd_cluster(1, certificates) as cluster:
        cluster.etcdctl("user", "add", ROOT)
        cluster.etcdctl("user", "grant-role", "root", "root")
        cluster.etcdctl("role", "add", "interlock")
        cluster.etcdctl("role", "grant-permission", "interlock", "--prefix=true", "readwrite", "/interlock/")
        for user in ("interlock", "guest"):
            cluster.etcdctl("user", "add", f"{user}:{user}-secret")
        cluster.etcdctl("user", "grant-role", "interlock", "interlock")
        cluster.etcdctl("auth", "enable")
        yield cluster


@pytest.fixture
def settings(cluster, certificates, tmp_path):
    def make(**changes):
        (tmp_path / "password").write_text(f"{changes.get('user', 'interlock')}-secret\n")
        values = {
            "endpoints": cluster.endpoints,
            "ca_file": certificates.ca,
            "cert_file": certificates.certificate,
            "key_file": certificates.key,
            "user": "interlock",
            "password_file": tmp_path / "password",
            "request_timeout_seconds": 5.0,
        }
        return EtcdSettings(**{**values, **changes})

    return make


async def test_a_store_with_certificates_and_user_does_all_that_it_does_without(settings):
    async with replica(settings()) as first, replica(settings()) as second:
        await first.registry.change("a", register(route(0), lease_ttl=60_000))
        await second.registry.change("a", register(route(1), lease_ttl=60_000))
        assert (await same_everywhere([first, second], "a")).ready
        with first.store.watch("a") as watch:
            after = (await second.registry.change("a", register(route(1, incarnation=101), lease_ttl=1_000))).topology
            assert (await watch.next()).after == after
            assert (await watch.next()).after.registered == 1  # its lease ran out
        assert await first.store.register_rooms("a", 1, {1: 1}) == (1, 0)


async def test_a_login_that_is_no_longer_good_is_renewed(settings, cluster):
    async with replica(settings(staleness_bound_seconds=60)) as only:
        before = (await only.registry.change("a", register(route(0)))).topology
        cluster.etcdctl("auth", "disable", user=ROOT)
        cluster.etcdctl("auth", "enable")  # which knows nothing of earlier logins
        after = (await only.registry.change("a", register(route(1)))).topology
        assert after.revision == before.revision + 1


async def test_a_user_that_may_nothing_is_refused_at_the_start(settings):
    with pytest.raises(CannotOpenStoreError, match="permission denied"):
        async with replica(settings(user="guest")):
            pass


async def test_a_wrong_password_is_refused_at_the_start(settings, tmp_path):
    wrong = settings()
    (tmp_path / "password").write_text("wrong")
    with pytest.raises(CannotOpenStoreError, match="invalid user ID or password"):
        async with replica(wrong):
            pass


async def test_who_has_no_certificate_is_not_let_in(settings):
    with pytest.raises(StoreUnreachableError, match="does not answer"):
        async with replica(settings(cert_file=None, key_file=None, request_timeout_seconds=0.5)):
            pass


async def test_an_etcd_with_certificates_of_another_ca_is_not_trusted(settings, tmp_path):
    (tmp_path / "other").mkdir()
    others = make_certificates(tmp_path / "other")
    with pytest.raises(StoreUnreachableError, match="does not answer"):
        async with replica(settings(ca_file=others.ca, request_timeout_seconds=0.5)):
            pass
