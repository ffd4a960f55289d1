//! What decode servers and routers ask: whether they fit, who serves a room, and for how long they wait.

use std::error::Error;
use std::iter;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use interlock_protos::bootstrap::v1::{
    CheckCompatibilityRequest, DecodeServer, GetPrefillServerInfoRequest, Incompatibility, ParallelSizes,
    QueryDpRanksRequest, RegisterDpRanksRequest, RoomAssignment,
};
use tonic::{Code, Request, Status, TimeoutExpired};

use crate::story::{Launch, Story};

/// A decode server that fits, and one that does not, with every field in which it does not.
pub async fn compatibility(story: &Story) -> Result<String> {
    let (launch, _) = story.ready_group("compatibility").await?;
    let fitting = DecodeServer {
        page_size: 64,
        kv_cache_dtype: Some("bfloat16".into()),
        sizes: Some(ParallelSizes { dp: 1, cp: 1, tp: 1, pp: 1 }),
        ..DecodeServer::default()
    };
    let misfit = DecodeServer { page_size: 128, kv_cache_dtype: Some("fp8_e4m3".into()), ..fitting.clone() };

    let none = incompatibilities(story, &launch, fitting).await?;
    ensure!(none.is_empty(), "a decode server that fits was told {none:?}");
    let mut found: Vec<String> = incompatibilities(story, &launch, misfit)
        .await?
        .iter()
        .map(|found| format!("{} {}, not {}", found.field, found.prefill_value, found.decode_value))
        .collect();
    found.sort();
    let found = found.join("; ");
    let due = "kv_cache_dtype bfloat16, not fp8_e4m3; page_size 64, not 128";
    ensure!(found == due, "other violations: {found}");
    Ok(format!("one fits; the other is told {found}"))
}

async fn incompatibilities(story: &Story, launch: &Launch, server: DecodeServer) -> Result<Vec<Incompatibility>> {
    let request = CheckCompatibilityRequest {
        group: launch.group.clone(),
        decode_server: Some(server),
        ..CheckCompatibilityRequest::default()
    };
    let answer = story.bootstrap().check_compatibility(request).await?.into_inner();
    ensure!(answer.ready, "the group is not ready");
    Ok(answer.incompatibilities)
}

/// Rooms of the whole uint64 come back as they were.
pub async fn rooms(story: &Story) -> Result<String> {
    let (Launch { group, .. }, _) = story.ready_group("rooms").await?;
    let mut bootstrap = story.bootstrap();
    let assignments: Vec<_> = [(1 << 53) + 1, 1 << 63, u64::MAX]
        .into_iter()
        .zip([0, 1, 0])
        .map(|(room, dp_rank)| RoomAssignment { room, dp_rank })
        .collect();
    let large: Vec<u64> = assignments.iter().map(|assignment| assignment.room).collect();
    let request = RegisterDpRanksRequest { group: group.clone(), assignments: assignments.clone() };
    let registered = bootstrap.register_dp_ranks(request).await?.into_inner().registered;
    ensure!(registered == 3, "{registered} rooms are new, not 3");

    let unknown = 1 << 53;
    let rooms = large.iter().copied().chain([unknown]).collect();
    let mut found = bootstrap.query_dp_ranks(QueryDpRanksRequest { group, rooms }).await?.into_inner().assignments;
    found.sort_by_key(|assignment| assignment.room);
    ensure!(found == assignments, "the rooms came back as {found:?}");
    let told: Vec<String> = large.iter().map(u64::to_string).collect();
    Ok(format!("{} came back; {unknown} is unknown", told.join(", ")))
}

/// A call that waits for a revision that does not come ends when it said it would.
pub async fn deadline(story: &Story) -> Result<String> {
    let (launch, revision) = story.ready_group("deadline").await?;
    let patience = Duration::from_millis(300);
    let started = Instant::now();
    let mut request =
        Request::new(GetPrefillServerInfoRequest { group: launch.group, min_revision: Some(revision + 1) });
    request.set_timeout(patience);
    let Err(ended) = story.bootstrap().get_prefill_server_info(request).await else { bail!("the call was answered") };
    let waited = started.elapsed();
    ensure!(is_deadline(&ended), "ended with {:?}: {}", ended.code(), ended.message());
    ensure!(waited >= patience / 2 && waited < 10 * patience, "ended after {waited:?}");
    Ok(format!("revision {} did not come in {} ms", revision + 1, patience.as_millis()))
}

/// Whether a call ended because its time was over. Where tonic's own clock is first, its code is CANCELLED.
fn is_deadline(status: &Status) -> bool {
    let mut causes = iter::successors(status.source(), |&cause| cause.source());
    status.code() == Code::DeadlineExceeded || causes.any(<dyn Error>::is::<TimeoutExpired>)
}
