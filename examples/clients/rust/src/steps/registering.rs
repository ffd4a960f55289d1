//! How prefill ranks register: by compare-and-swap, against others, and not at all where they do not fit.

use anyhow::{Result, ensure};
use interlock_protos::bootstrap::v1::{ContractMismatch, GetPrefillServerInfoRequest, RevisionConflict, Route};
use tonic::Code;

use crate::refusals::{detail_of, refusal_of};
use crate::story::{Launch, Story};

/// Two ranks, each from the revision before it.
pub async fn register(story: &Story) -> Result<String> {
    let launch = Launch::new("register");
    let mut bootstrap = story.bootstrap();
    let first = bootstrap.register_route(launch.rank(0, Some(0))).await?.into_inner();
    ensure!(!first.ready && (first.registered, first.expected) == (1, 2), "the first rank is not one of two");
    let second = bootstrap.register_route(launch.rank(1, Some(first.revision))).await?.into_inner();
    ensure!(second.revision > first.revision, "the revision did not grow");
    ensure!(second.ready && second.registered == 2, "the group is not ready with both ranks");

    let ready = bootstrap.get_prefill_server_info(info_request(&launch)).await?.into_inner();
    ensure!(ready.revision == second.revision, "the group is at revision {}, not {}", ready.revision, second.revision);
    let info = ready.info.unwrap_or_default();
    let route = launch.route(0);
    ensure!((info.page_size, info.sizes) == (route.page_size, route.sizes), "the group's values are not its ranks'");
    Ok(format!("two ranks stand at revision {}", ready.revision))
}

/// Two ranks expect the same revision. The loser goes on from the one that its refusal names.
pub async fn race(story: &Story) -> Result<String> {
    let launch = Launch::new("race");
    let mut bootstrap = story.bootstrap();
    let winner = bootstrap.register_route(launch.rank(0, Some(0))).await?.into_inner();
    let lost = bootstrap.register_route(launch.rank(1, Some(0))).await;
    let conflict: RevisionConflict = detail_of(&refusal_of(lost, Code::Aborted, "REVISION_CONFLICT")?)?;
    ensure!(conflict.revision == winner.revision, "the refusal names revision {}", conflict.revision);
    ensure!(conflict.instance.as_ref() == Some(&launch.instance), "the refusal names another instance");
    ensure!(conflict.standing_route.is_none(), "the refusal shows a route under a key that nobody registered");

    let second = bootstrap.register_route(launch.rank(1, Some(conflict.revision))).await?.into_inner();
    ensure!(second.ready, "the group is not ready with both ranks");
    Ok(format!("lost to revision {}, stands at {}", conflict.revision, second.revision))
}

/// A rank with other values than its group is refused, with every field and both values.
pub async fn mismatch(story: &Story) -> Result<String> {
    let (launch, revision) = story.ready_group("mismatch").await?;
    let misfit = Route { page_size: 128, kv_cache_dtype: Some("fp8_e4m3".into()), ..launch.route(1) };
    let mut bootstrap = story.bootstrap();
    let answer = bootstrap.register_route(launch.other(misfit)).await;
    let refusal = refusal_of(answer, Code::FailedPrecondition, "CONTRACT_MISMATCH")?;
    let mut told: Vec<String> = detail_of::<ContractMismatch>(&refusal)?
        .mismatches
        .iter()
        .map(|m| format!("{}: {} stands, {} was offered", m.field, m.standing_value, m.offered_value))
        .collect();
    told.sort();
    let told = told.join("; ");
    let due = "kv_cache_dtype: bfloat16 stands, fp8_e4m3 was offered; page_size: 64 stands, 128 was offered";
    ensure!(told == due, "refused for other differences: {told}");

    let after = bootstrap.get_prefill_server_info(info_request(&launch)).await?.into_inner();
    ensure!(after.revision == revision, "the refused request left something behind");
    Ok(told)
}

fn info_request(launch: &Launch) -> GetPrefillServerInfoRequest {
    GetPrefillServerInfoRequest { group: launch.group.clone(), min_revision: None }
}
