"""When each alert fires and when it does not: series as `promtool test rules` has them, a sample a minute."""

from dataclasses import dataclass

_B, _P, _E = (f'job="interlock-{name}",pod="{name}-0"' for name in ("bootstrap", "preprocess", "etcd"))
_COUNT = "grpc_server_call_duration_seconds_count"
_FAILED, _SERVED = "interlock_preprocess_pictures_failed_total", "interlock_preprocess_pictures_served_total"
_METHOD = 'grpc_method="interlock.bootstrap.v1.BootstrapService/ListGroups"'
_COMMITS = "interlock_store_commit_seconds_bucket"
_JOB = 'namespace="interlock",cronjob="interlock-etcd-backup"'
_CERTIFICATE = 'namespace="interlock",name="interlock-bootstrap"'


@dataclass(frozen=True)
class Case:
    """One alert: series with which it fires, and others, much the same, with which it does not."""

    alert: str
    minutes: int
    """When it is looked at."""
    fires: dict[str, str]
    quiet: dict[str, str]


CASES = [
    Case("InterlockNotScraped", 5, {f"up{{{_B}}}": "1 0x9"}, {f"up{{{_B}}}": "1 0 0 1x9"}),
    Case(
        "InterlockCallsFail",
        9,
        {f'{_COUNT}{{{_B},{_METHOD},grpc_status="INTERNAL"}}': "0+1x10"},
        {f'{_COUNT}{{{_B},{_METHOD},grpc_status="UNAVAILABLE"}}': "0+9x10"},
    ),
    Case(
        "InterlockCallersRejected",
        10,
        {f'interlock_refusals_total{{{_B},{_METHOD},reason="NOT_PERMITTED"}}': "0+3x10"},
        {f'interlock_refusals_total{{{_B},{_METHOD},reason="NOT_PERMITTED"}}': "0+1x10"},
    ),
    Case("InterlockBootstrapMissing", 3, {f"up{{{_B}}}": "0x9"}, {f"up{{{_B}}}": "1x9"}),
    Case(
        "InterlockStoreUnavailable",
        9,
        {f'interlock_refusals_total{{{_B},{_METHOD},reason="STORE_UNAVAILABLE"}}': "0+1x10"},
        {f'interlock_refusals_total{{{_B},{_METHOD},reason="NOT_READY"}}': "0+9x10"},
    ),
    Case(
        "InterlockStoreSlow",
        20,
        {f'{_COMMITS}{{{_B},le="{bound}"}}': step for bound, step in (("0.5", "0+9x20"), ("1.0", "0+10x20"))}
        | {f'{_COMMITS}{{{_B},le="+Inf"}}': "0+10x20"},
        {f'{_COMMITS}{{{_B},le="{bound}"}}': "0+10x20" for bound in ("0.25", "0.5", "1.0", "+Inf")},
    ),
    Case(
        "InterlockGroupNotReady",
        12,
        {f'interlock_group_ranks_missing{{{_B},group="prefill-a"}}': "3x20"},
        {f'interlock_group_ranks_missing{{{_B},group="prefill-a"}}': "3x9 stale"},
    ),
    Case(
        "InterlockLeasesExpire",
        10,
        {f"interlock_lease_expiries_total{{{_B}}}": "0+1x20"},
        {f"interlock_lease_expiries_total{{{_B}}}": "0 1x20"},
    ),
    Case(
        "InterlockRanksDoNotFit",
        5,
        {f'interlock_refusals_total{{{_B},{_METHOD},reason="CONTRACT_MISMATCH"}}': "0 0 1x9"},
        {f'interlock_refusals_total{{{_B},{_METHOD},reason="REVISION_CONFLICT"}}': "0 0 1x9"},
    ),
    Case(
        "InterlockWatchersNearLimit",
        12,
        {f"interlock_watchers{{{_B}}}": "9000x20"},
        {f"interlock_watchers{{{_B}}}": "7000x20"},
    ),
    Case(
        "InterlockPreprocessOverloaded",
        15,
        {f'{_FAILED}{{{_P},reason="OVERLOADED"}}': "0+5x20", f"{_SERVED}{{{_P}}}": "0+100x20"},
        {f'{_FAILED}{{{_P},reason="OVERLOADED"}}': "0x20", f"{_SERVED}{{{_P}}}": "0x20"},
    ),
    Case(
        "InterlockPreprocessBehind",
        16,
        {f"interlock_preprocess_demand{{{_P}}}": "3x20"},
        {f"interlock_preprocess_demand{{{_P}}}": "1.5x20"},
    ),
    Case(
        "InterlockPreprocessMemoryFull",
        12,
        {
            f'interlock_preprocess_budget_taken_bytes{{{_P},budget="work"}}': "95x20",
            f'interlock_preprocess_budget_limit_bytes{{{_P},budget="work"}}': "100x20",
        },
        {
            f'interlock_preprocess_budget_taken_bytes{{{_P},budget="cache"}}': "100x20",
            f'interlock_preprocess_budget_limit_bytes{{{_P},budget="cache"}}': "100x20",
        },
    ),
    Case(
        "InterlockPicturesDamaged",
        9,
        {f'{_FAILED}{{{_P},reason="INTERNAL"}}': "0+1x10"},
        {f'{_FAILED}{{{_P},reason="IMAGE_DAMAGED"}}': "0+9x10"},
    ),
    Case(
        "InterlockEtcdNoLeader",
        3,
        {f"etcd_server_has_leader{{{_E}}}": "0x9"},
        {f"etcd_server_has_leader{{{_E}}}": "1x9"},
    ),
    Case(
        "InterlockEtcdNearlyFull",
        12,
        {f"etcd_mvcc_db_total_size_in_bytes{{{_E}}}": "85x20", f"etcd_server_quota_backend_bytes{{{_E}}}": "100x20"},
        {f"etcd_mvcc_db_total_size_in_bytes{{{_E}}}": "75x20", f"etcd_server_quota_backend_bytes{{{_E}}}": "100x20"},
    ),
    Case(
        "InterlockBackupOld",
        800,
        {f"kube_cronjob_status_last_successful_time{{{_JOB}}}": "0x900"},
        {f"kube_cronjob_status_last_successful_time{{{_JOB}}}": "21600x900"},
    ),
    Case(
        "InterlockCertificateExpires",
        70,
        {f"certmanager_certificate_expiration_timestamp_seconds{{{_CERTIFICATE}}}": "500000x80"},
        {f"certmanager_certificate_expiration_timestamp_seconds{{{_CERTIFICATE}}}": "900000x80"},
    ),
]
