//! Between clients and servers: forwards requests and events. In front of the first server it may have a bug, as if that
//! server had it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use parking_lot::Mutex;
use serde_json::Value;

use super::recorder::PATH;
use crate::client::{Answer, Client};

/// The server with the bug.
const BUGGY: usize = 0;
/// One in so many requests that the bug concerns gets a wrong response.
const EVERY: usize = 4;
/// The event that is lost.
const LOST: usize = 10;

/// Forwards everything by default.
#[derive(Default)]
pub(crate) struct Proxy {
    bug: Option<PlantedBug>,
    is_fixed: AtomicBool,
    state: Mutex<BugState>,
}

/// What the proxy does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlantedBug {
    /// Some reads of an object are answered from a cache.
    StaleRead,
    /// Some updates are acknowledged, with a revision that is new, and not carried out.
    DroppedWrite,
    /// One event is not delivered.
    LostEvent,
    /// Some lists have the items of the list before.
    MixedList,
}

#[derive(Default)]
struct BugState {
    /// Earlier responses, by path.
    cache: HashMap<String, Bytes>,
    n_requests: usize,
    n_events: usize,
}

impl Proxy {
    pub(crate) fn with(bug: PlantedBug) -> Proxy {
        Proxy {
            bug: Some(bug),
            ..Proxy::default()
        }
    }

    /// From now on it has no bug.
    pub(crate) fn fix(&self) {
        self.is_fixed.store(true, Ordering::Relaxed);
    }

    /// What is wrong with a server.
    fn bug_of(&self, server_idx: usize) -> Option<PlantedBug> {
        let is_fixed = self.is_fixed.load(Ordering::Relaxed);
        self.bug.filter(|_| server_idx == BUGGY && !is_fixed)
    }

    /// Sends a request to a server.
    pub(crate) async fn send(
        &self,
        server_idx: usize,
        client: &Client,
        method: &str,
        path: &str,
        body: String,
    ) -> Result<Answer, hyper::Error> {
        let bug = self.bug_of(server_idx);
        let is_due = self.is_due(bug, method, path, &body);
        let cached = self.state.lock().cache.get(path).cloned();
        if let (true, "GET", Some(body)) = (is_due, method, cached) {
            return Ok(Answer { status: 200, body });
        }
        let (method, path, body) = match (is_due, method) {
            (true, "PUT") => ("POST", PATH, redirect(&body)),
            _ => (method, path, body),
        };
        let request = Request::builder()
            .method(method)
            .uri(client.uri(path))
            .header("content-type", "application/json");
        let request = request.body(Full::new(Bytes::from(body))).unwrap();
        let mut answer = client.fetch(request).await?;
        if is_due && answer.status == 201 {
            answer.status = 200;
        }
        if bug == Some(PlantedBug::MixedList) && path == PATH && answer.status == 200 {
            answer.body = self.mix(&answer);
        }
        if bug.is_some() && method == "GET" && answer.status == 200 {
            let mut state = self.state.lock();
            state.cache.insert(path.into(), answer.body.clone());
        }
        Ok(answer)
    }

    /// Whether a request is one that the bug concerns.
    fn is_due(&self, bug: Option<PlantedBug>, method: &str, path: &str, body: &str) -> bool {
        let is_candidate = match (bug, method) {
            (Some(PlantedBug::StaleRead), "GET") => path.starts_with(&format!("{PATH}/")),
            (Some(PlantedBug::DroppedWrite), "PUT") => !body.contains("resourceVersion"),
            _ => return false,
        };
        let mut state = self.state.lock();
        state.n_requests += usize::from(is_candidate);
        is_candidate && state.n_requests.is_multiple_of(EVERY)
    }

    /// A list with the items of an earlier one.
    fn mix(&self, answer: &Answer) -> Bytes {
        let state = self.state.lock();
        let Some(earlier) = state.cache.get(PATH) else {
            return answer.body.clone();
        };
        let (mut list, earlier): (Value, Value) =
            (answer.json(), serde_json::from_slice(earlier).unwrap());
        list["items"] = earlier["items"].clone();
        list.to_string().into()
    }

    /// Whether an event of a server is delivered.
    pub(crate) fn delivers(&self, server_idx: usize) -> bool {
        if self.bug_of(server_idx) != Some(PlantedBug::LostEvent) {
            return true;
        }
        let mut state = self.state.lock();
        state.n_events += 1;
        state.n_events != LOST
    }
}

/// The same content, as a new object that no client looks at.
fn redirect(body: &str) -> String {
    let mut object: Value = serde_json::from_str(body).unwrap();
    object["metadata"] = serde_json::json!({"generateName": "other-"});
    object.to_string()
}
