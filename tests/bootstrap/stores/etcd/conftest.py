"""Clusters of three members, for tests that hurt them."""

from collections.abc import Iterator

import pytest

from etcd_cluster import EtcdCluster, etcd_cluster


@pytest.fixture
def three_members() -> Iterator[EtcdCluster]:
    with etcd_cluster(3) as cluster:
        yield cluster
