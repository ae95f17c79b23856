//! Priority and fairness of the server's requests: `mizzen-flowcontrol` has the queues.

use std::sync::{Arc, Weak};

use http::{HeaderValue, header};
use mizzen_flowcontrol::{BORROWING_PERIOD, ConfigSources, FlowRequest, TooManyRequests};
use mizzen_value::Value;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::request::Request;
use crate::response::{self, Response};
use crate::server::{Server, ServerParts};

/// The field manager of the status of flow schemas.
const MANAGER: &str = "api-priority-and-fairness-config-consumer-v1";
const SCHEMAS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas";

/// Waits for the seats of a request. The error is the response to a rejected one: 429 with a `Retry-After` header.
pub(crate) async fn admit(server: &ServerParts, request: &Request) -> Result<(), Response> {
    let waiting = FlowRequest {
        user: &request.user,
        info: &request.info,
        query: &request.query,
        uri: &request.uri,
        resource: request.resource(),
        queue_deadline: request.deadline.queue_deadline(),
        ticket: &request.ticket,
    };
    let admitted = server.flow_control.admit(&waiting).await;
    admitted.map_err(|TooManyRequests { retry_after }| {
        let mut answer = response::text(429, "Too many requests, please try again later.\n");
        let seconds = HeaderValue::from(retry_after);
        answer.headers_mut().insert(header::RETRY_AFTER, seconds);
        answer
    })
}

/// Starts the loops that adjust borrowing and that maintain the status of flow schemas.
pub(crate) fn start(server: &Arc<ServerParts>) {
    let Some(sources) = server.flow_control.sources() else {
        return;
    };
    let (sources, server) = (sources.clone(), Arc::downgrade(server));
    tokio::spawn(run_status_updates(server.clone(), sources));
    tokio::spawn(async move {
        let mut ticks = interval_at(Instant::now() + BORROWING_PERIOD, BORROWING_PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let Some(server) = server.upgrade() else {
                return;
            };
            server.flow_control.update_borrowing();
        }
    });
}

/// Writes the Dangling condition of flow schemas after each change, until the server stops.
async fn run_status_updates(server: Weak<ServerParts>, sources: ConfigSources) {
    loop {
        let changed = sources.next_change();
        match server.upgrade() {
            Some(server) => {
                for (name, status) in sources.outdated_statuses(&server.registry.timestamp()) {
                    apply_status(&Server(server.clone()), &name, &status).await;
                }
            }
            None => return,
        }
        tokio::select! {
            () = changed => {}
            () = stopped(&server) => return,
        }
    }
}

async fn stopped(server: &Weak<ServerParts>) {
    let Some(mut stopping) = server.upgrade().map(|server| server.stopping.subscribe()) else {
        return;
    };
    let _ = stopping.wait_for(|stopping| *stopping).await;
}

/// Applies a status. Not found means that the schema was deleted; a changed one is handled after
/// its own event.
async fn apply_status(server: &Server, name: &str, status: &Value) {
    let path = format!("{SCHEMAS}/{name}/status?fieldManager={MANAGER}&force=true");
    let media_type = "application/apply-patch+yaml";
    let (code, _) = server.patch(&path, media_type, status).await;
    if !matches!(code, 200 | 404) {
        tracing::debug!(name, code, "cannot write the status of a flow schema");
    }
}
