//! Registers the one rank of a group, and reads what a decode server needs to know of it. Shown in docs/clients.md.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use interlock_protos::bootstrap::v1::bootstrap_service_client::BootstrapServiceClient;
use interlock_protos::bootstrap::v1::{
    GetPrefillServerInfoRequest, Instance, ParallelSizes, RankKey, RegisterRouteRequest, Route,
};
use tonic::transport::Endpoint;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let address = std::env::args().nth(1).context("usage: ten_lines HOST:PORT")?;
    let now = u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos())?;
    // ten lines
    let group = String::from("prefill-a");
    let endpoint = Endpoint::from_shared(format!("http://{address}"))?.timeout(Duration::from_secs(10));
    let mut bootstrap = BootstrapServiceClient::new(endpoint.connect().await?);
    let instance = Instance { id: format!("launch-{now}"), started_at: now };
    let sizes = ParallelSizes { dp: 1, cp: 1, tp: 1, pp: 1 };
    let address = Route { rank_ip: "::1".into(), rank_port: 9000, page_size: 64, ..Route::default() };
    let route = Route { key: Some(RankKey::default()), incarnation: now, sizes: Some(sizes), ..address };
    let mut request = RegisterRouteRequest { group: group.clone(), ..RegisterRouteRequest::default() };
    (request.instance, request.route) = (Some(instance), Some(route));
    let registered = bootstrap.register_route(request).await?.into_inner();
    let query = GetPrefillServerInfoRequest { group, min_revision: Some(registered.revision) };
    let ready = bootstrap.get_prefill_server_info(query).await?.into_inner();
    println!("ready at revision {}: {} tokens a page", ready.revision, ready.info.unwrap_or_default().page_size);
    // that is all
    Ok(())
}
