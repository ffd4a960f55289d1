//! What all steps share: the clients, and the values of a small group of two prefill ranks.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use interlock_protos::bootstrap::v1::bootstrap_service_client::BootstrapServiceClient;
use interlock_protos::bootstrap::v1::{Instance, ParallelSizes, RankKey, RegisterRouteRequest, Route};
use interlock_protos::kv::v1::PoolName;
use interlock_protos::preprocess::v1::preprocess_service_client::PreprocessServiceClient;
use tonic::transport::{Channel, Endpoint};

/// A call that is not answered by then fails: none of this is slow. A stream may stay open for longer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The services, and the folder with `expected.json` and its pictures.
pub struct Story {
    bootstrap: BootstrapServiceClient<Channel>,
    preprocess: PreprocessServiceClient<Channel>,
    pub pictures: PathBuf,
}

impl Story {
    /// Connections are made by the first call, and made anew after a loss.
    pub fn new(bootstrap: &str, preprocess: &str, pictures: PathBuf) -> Result<Self> {
        Ok(Self {
            bootstrap: BootstrapServiceClient::new(channel(bootstrap)?),
            preprocess: PreprocessServiceClient::new(channel(preprocess)?),
            pictures,
        })
    }

    /// A client of Bootstrap. Clones share one connection.
    pub fn bootstrap(&self) -> BootstrapServiceClient<Channel> {
        self.bootstrap.clone()
    }

    /// A client of Preprocess. Clones share one connection.
    pub fn preprocess(&self) -> PreprocessServiceClient<Channel> {
        self.preprocess.clone()
    }

    /// A ready group of two ranks, and the revision at which it became ready.
    pub async fn ready_group(&self, step: &str) -> Result<(Launch, u64)> {
        let launch = Launch::new(step);
        let mut bootstrap = self.bootstrap();
        bootstrap.register_route(launch.rank(0, None)).await?;
        let second = bootstrap.register_route(launch.rank(1, None)).await?.into_inner();
        Ok((launch, second.revision))
    }
}

fn channel(address: &str) -> Result<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).with_context(|| format!("address {address}"))?;
    Ok(endpoint.timeout(TIMEOUT).connect_lazy())
}

/// Unix time in nanoseconds: what instances and incarnations are ordered by.
pub fn unix_nanoseconds() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is set");
    u64::try_from(now.as_nanos()).expect("a time before the year 2554")
}

/// One launch of a group of two data-parallel ranks, in a group that nobody else uses.
pub struct Launch {
    pub group: String,
    pub instance: Instance,
}

impl Launch {
    pub fn new(step: &str) -> Self {
        let started_at = unix_nanoseconds();
        let id = format!("{started_at:x}-{}", std::process::id());
        Self { group: format!("rust-{step}-{id}"), instance: Instance { id, started_at } }
    }

    /// Asks to register the rank `dp`.
    pub fn rank(&self, dp: u32, expected_revision: Option<u64>) -> RegisterRouteRequest {
        RegisterRouteRequest {
            group: self.group.clone(),
            route: Some(self.route(dp)),
            instance: Some(self.instance.clone()),
            expected_revision,
            lease_ttl: None,
        }
    }

    /// Asks to register another route than that of `rank`.
    pub fn other(&self, route: Route) -> RegisterRouteRequest {
        RegisterRouteRequest { route: Some(route), ..self.rank(0, None) }
    }

    /// The route of the rank `dp`.
    pub fn route(&self, dp: u32) -> Route {
        Route {
            key: Some(RankKey { dp, ..RankKey::default() }),
            incarnation: self.instance.started_at,
            sizes: Some(ParallelSizes { dp: 2, cp: 1, tp: 1, pp: 1 }),
            rank_ip: "127.0.0.1".into(),
            rank_port: 9000 + dp,
            page_size: 64,
            kv_cache_dtype: Some("bfloat16".into()),
            pools: vec![PoolName::Kv.into(), PoolName::Swa.into()],
            ..Route::default()
        }
    }
}
