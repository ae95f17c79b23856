//! Between clients and servers: forwards requests and events, except that it may have a bug.

use std::collections::HashMap;

use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use parking_lot::Mutex;
use serde_json::Value;

use super::recorder::PATH;
use crate::client::{Answer, Client};

/// Forwards everything by default.
#[derive(Default)]
pub(crate) struct Proxy {
    bug: Option<PlantedBug>,
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
            state: Mutex::default(),
        }
    }

    /// Sends a request.
    pub(crate) async fn send(
        &self,
        client: &Client,
        method: &str,
        path: &str,
        body: String,
    ) -> Result<Answer, hyper::Error> {
        let is_due = self.is_due(method, path, &body);
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
        if self.bug == Some(PlantedBug::MixedList) && path == PATH && answer.status == 200 {
            answer.body = self.mix(&answer);
        }
        if method == "GET" && answer.status == 200 {
            let mut state = self.state.lock();
            state.cache.insert(path.into(), answer.body.clone());
        }
        Ok(answer)
    }

    /// Whether a request is one that the bug concerns.
    fn is_due(&self, method: &str, path: &str, body: &str) -> bool {
        let (is_candidate, every) = match (self.bug, method) {
            (Some(PlantedBug::StaleRead), "GET") => (path.starts_with(&format!("{PATH}/")), 4),
            (Some(PlantedBug::DroppedWrite), "PUT") => (!body.contains("resourceVersion"), 8),
            _ => return false,
        };
        let mut state = self.state.lock();
        state.n_requests += usize::from(is_candidate);
        is_candidate && state.n_requests.is_multiple_of(every)
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

    /// Whether an event is delivered.
    pub(crate) fn delivers(&self) -> bool {
        let mut state = self.state.lock();
        state.n_events += 1;
        self.bug != Some(PlantedBug::LostEvent) || state.n_events != 20
    }
}

/// The same content, as a new object that no client looks at.
fn redirect(body: &str) -> String {
    let mut object: Value = serde_json::from_str(body).unwrap();
    object["metadata"] = serde_json::json!({"generateName": "other-"});
    object.to_string()
}
