//! How routers and decode servers follow a group, also over a restart of the server.

use std::error::Error;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use interlock_protos::bootstrap::v1::bootstrap_service_client::BootstrapServiceClient;
use interlock_protos::bootstrap::v1::topology_event::Event;
use interlock_protos::bootstrap::v1::watch_topology_response::Body;
use interlock_protos::bootstrap::v1::{Route, TopologyEvent, WatchTopologyRequest, WatchTopologyResponse};
use tokio::time::{sleep, timeout};
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

use crate::story::{Story, unix_nanoseconds};

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A restart and what follows take a few seconds.
const PATIENCE: Duration = Duration::from_secs(50);

/// What a watch brings.
#[derive(Debug)]
enum News {
    Snapshot {
        routes: Vec<Route>,
    },
    Change {
        events: Vec<TopologyEvent>,
    },
    /// `resumed`: the connection was lost, and the server had nothing new since.
    Progress {
        resumed: bool,
    },
}

/// Follows a group. A lost connection is made again, from the last revision that was told whole: if the group still
/// stands there, the server sends no second snapshot.
struct Watch {
    bootstrap: BootstrapServiceClient<Channel>,
    group: String,
    after_revision: Option<u64>,
    stream: Option<Streaming<WatchTopologyResponse>>,
    pause: Duration,
}

impl Watch {
    fn new(bootstrap: BootstrapServiceClient<Channel>, group: String) -> Self {
        Self { bootstrap, group, after_revision: None, stream: None, pause: FIRST_PAUSE }
    }

    /// The next that is told, and the revision reached with it.
    async fn next(&mut self) -> Result<(u64, News)> {
        let mut resumed = false;
        loop {
            match self.try_next(resumed).await {
                Ok(Some(news)) => return Ok(news),
                Err(status) if !is_loss(&status) => return Err(status.into()),
                Ok(None) | Err(_) => {
                    self.stream = None;
                    resumed = self.after_revision.is_some();
                    sleep(self.pause).await;
                    self.pause = LONGEST_PAUSE.min(2 * self.pause);
                }
            }
        }
    }

    /// As `next`; none if the server ended the stream.
    async fn try_next(&mut self, resumed: bool) -> Result<Option<(u64, News)>, Status> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            closed => {
                let request = WatchTopologyRequest { group: self.group.clone(), after_revision: self.after_revision };
                closed.insert(self.bootstrap.watch_topology(request).await?.into_inner())
            }
        };
        let mut parts = Vec::new();
        while let Some(message) = stream.message().await? {
            self.pause = FIRST_PAUSE;
            let (revision, last) = (message.revision, message.last);
            parts.extend(message.body);
            if last {
                self.after_revision = Some(revision);
                return Ok(Some((revision, news_of(parts, resumed))));
            }
        }
        Ok(None)
    }
}

/// A snapshot or change may come in several messages of one revision.
fn news_of(parts: Vec<Body>, resumed: bool) -> News {
    let (mut routes, mut events) = (Vec::new(), Vec::new());
    let mut news = News::Progress { resumed };
    for part in parts {
        match part {
            Body::Snapshot(snapshot) => {
                routes.extend(snapshot.routes);
                news = News::Snapshot { routes: Vec::new() };
            }
            Body::Change(change) => {
                events.extend(change.events);
                news = News::Change { events: Vec::new() };
            }
            Body::Progress(_) => {}
        }
    }
    match news {
        News::Snapshot { .. } => News::Snapshot { routes },
        News::Change { .. } => News::Change { events },
        progress @ News::Progress { .. } => progress,
    }
}

/// Whether the server or the connection went away: faults of the transport have a cause on this side.
fn is_loss(status: &Status) -> bool {
    status.code() == Code::Unavailable || status.source().is_some()
}

/// The watch stays with its group while the server is killed and started again.
pub async fn watch(story: &Story) -> Result<String> {
    timeout(PATIENCE, watch_over_restart(story)).await.context("the watch did not bring what was due in time")?
}

async fn watch_over_restart(story: &Story) -> Result<String> {
    let (launch, revision) = story.ready_group("watch").await?;
    let mut watch = Watch::new(story.bootstrap(), launch.group.clone());

    let (at, first) = watch.next().await?;
    let News::Snapshot { routes } = first else { bail!("began with {first:?}") };
    ensure!((at, routes.len()) == (revision, 2), "began with {} routes at revision {at}", routes.len());

    crate::say(&serde_json::json!({"step": "watch", "waiting": "restart"}));
    let (at, resumed) = loop {
        match watch.next().await? {
            (_, News::Progress { resumed: false }) => {}
            news => break news,
        }
    };
    ensure!(matches!(resumed, News::Progress { .. }), "nothing had changed, but after the restart came {resumed:?}");
    ensure!(at == revision, "came back to revision {at}, not {revision}");

    let restarted = Route { incarnation: unix_nanoseconds(), ..launch.route(1) };
    let registered = story.bootstrap().register_route(launch.other(restarted.clone())).await?.into_inner();
    let (at, change) = loop {
        match watch.next().await? {
            (at, News::Progress { .. }) if at < registered.revision => {}
            news => break news,
        }
    };
    let News::Change { events } = change else { bail!("a change was due, and {change:?} came") };
    ensure!(at == registered.revision, "the change is of revision {at}");
    let [TopologyEvent { event: Some(Event::RouteRegistered(event)) }] = &events[..] else {
        bail!("the change has the events {events:?}")
    };
    ensure!(event.route.as_ref() == Some(&restarted), "the change has another route");
    Ok(format!("resumed at revision {revision} without a snapshot, then saw exactly revision {at}"))
}
