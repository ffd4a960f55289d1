"""The etcd store: topologies and rooms in etcd, for several replicas of the service.

- `settings`: what can be set. `store`: the store itself.
- `client`: the few RPCs of etcd. `follower`, `copies`: what a replica knows, by watching etcd.
- `keys`, `records`: what etcd holds. `leases`, `rooms`: what hangs on etcd's leases.
- `v1`, `v3`: messages of our records and of etcd's RPCs, with the stubs made of them.
"""
