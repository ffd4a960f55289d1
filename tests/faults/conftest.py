"""Clusters that the tests of faults share: starting one takes longer than most tests."""

from collections.abc import AsyncIterator

import pytest

from faults.clusters import IMPATIENT, Cluster, running_cluster, running_single


@pytest.fixture(scope="session")
async def cluster(tmp_path_factory) -> AsyncIterator[Cluster]:
    """Three replicas over three etcd members. Whoever breaks it heals it."""
    async with running_cluster(tmp_path_factory.mktemp("cluster"), IMPATIENT) as running:
        yield running


@pytest.fixture(scope="session")
async def single(tmp_path_factory) -> AsyncIterator[Cluster]:
    """One server with SQLite. Whoever breaks it heals it."""
    async with running_single(tmp_path_factory.mktemp("single")) as running:
        yield running
