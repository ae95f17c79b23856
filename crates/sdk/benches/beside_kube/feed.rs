//! The input of both sides: pods in pages, then updates.
//!
//! Pages are encoded before the measurement, so that only the reader's work is measured.

use parking_lot::Mutex;
use std::convert::Infallible;
use std::future::Ready;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use kube::Client;
use kube::client::Body as ClientBody;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tower::Service;

/// The number of pods.
pub(crate) const N_PODS: usize = 100_000;
/// The number of nodes, namespaces and owners.
const NODES: usize = 5_000;
const NAMESPACES: usize = 100;
const PODS_OF_AN_OWNER: usize = 3;
/// The number of watch lines per chunk: 16 of 4 KB.
const LINES: usize = 16;
/// The page size that both sides request.
const PAGE: usize = 500;

/// A pod with two containers, 4 KB. The text between `~` and `~` differs per pod.
const POD: &str = include_str!("pod.json");

/// Writes the JSON of a pod at a version.
pub(crate) fn write_pod(text: &mut String, number: usize, version: usize) {
    for (at, part) in POD.trim_end().split('~').enumerate() {
        match (at % 2, part) {
            (0, plain) => text.push_str(plain),
            (_, "number") => text.push_str(&format!("{number:012}")),
            (_, "version") => text.push_str(&version.to_string()),
            (_, "namespace") => text.push_str(&(number % NAMESPACES).to_string()),
            (_, "owner") => text.push_str(&(number / PODS_OF_AN_OWNER).to_string()),
            (_, "node") => text.push_str(&(number % NODES).to_string()),
            (_, unknown) => panic!("{unknown} in pod.json"),
        }
    }
}

/// The resource version of the list.
pub(crate) const LISTED: usize = N_PODS + 1;

/// A server with one list and one watch.
#[derive(Clone)]
pub(crate) struct Feed {
    pages: Arc<Vec<Bytes>>,
    updates: Arc<Mutex<Option<Receiver<Bytes>>>>,
}

impl Feed {
    /// A client of so many pods, and the sender of its watch lines.
    pub(crate) fn open(n_pods: usize) -> (Client, Sender<Bytes>) {
        let (sender, updates) = channel(64);
        let pages = (0..n_pods).step_by(PAGE);
        let pages = pages.map(|first| page(first, n_pods)).collect();
        let feed = Feed {
            pages: Arc::new(pages),
            updates: Arc::new(Mutex::new(Some(updates))),
        };
        (Client::new(feed, "default"), sender)
    }

    fn answer(&self, query: &str) -> Lines {
        if query.contains("watch=true") {
            return Lines {
                page: None,
                updates: self.updates.lock().take(),
                is_watch: true,
            };
        }
        let number = |part: &str| {
            part.strip_prefix("continue=")
                .and_then(|token| token.parse::<usize>().ok())
        };
        let at = query.split('&').find_map(number).unwrap_or_default();
        Lines {
            page: Some(self.pages[at / PAGE].clone()),
            updates: None,
            is_watch: false,
        }
    }
}

fn page(first: usize, n_pods: usize) -> Bytes {
    let last = first + PAGE;
    let next = if last < n_pods {
        last.to_string()
    } else {
        String::new()
    };
    let mut text = format!(
        r#"{{"kind":"PodList","apiVersion":"v1","metadata":{{"resourceVersion":"{LISTED}","continue":"{next}"}},"items":["#
    );
    for number in first..last {
        if number > first {
            text.push(',');
        }
        write_pod(&mut text, number, number + 1);
    }
    text.push_str("]}");
    text.shrink_to_fit();
    text.into()
}

/// Writes a watch line.
pub(crate) fn write_update(text: &mut String, number: usize, version: usize) {
    text.push_str(r#"{"type":"MODIFIED","object":"#);
    write_pod(text, number, version);
    text.push_str("}\n");
}

/// Sends updates of one pod after the other, up to `n_updates`.
pub(crate) async fn update(sender: Sender<Bytes>, n_updates: usize) -> Sender<Bytes> {
    for first in (0..n_updates).step_by(LINES) {
        let mut text = String::with_capacity(LINES * (POD.len() + 100));
        for at in first..first + LINES {
            write_update(&mut text, at % N_PODS, LISTED + 1 + at);
        }
        if sender.send(text.into()).await.is_err() {
            break;
        }
    }
    sender
}

impl Service<Request<ClientBody>> for Feed {
    type Response = Response<Lines>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Lines>, Infallible>>;

    fn poll_ready(&mut self, _context: &mut Context) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<ClientBody>) -> Self::Future {
        let lines = self.answer(request.uri().query().unwrap_or_default());
        std::future::ready(Ok(Response::new(lines)))
    }
}

/// A page, or an endless watch.
pub(crate) struct Lines {
    page: Option<Bytes>,
    updates: Option<Receiver<Bytes>>,
    is_watch: bool,
}

impl http_body::Body for Lines {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if !self.is_watch {
            return Poll::Ready(self.page.take().map(|page| Ok(Frame::data(page))));
        }
        let Some(updates) = &mut self.updates else {
            return Poll::Pending;
        };
        match updates.poll_recv(context) {
            Poll::Ready(Some(lines)) => Poll::Ready(Some(Ok(Frame::data(lines)))),
            _ => Poll::Pending,
        }
    }
}
