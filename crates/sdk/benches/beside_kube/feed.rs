//! What both sides are fed: 100,000 pods in pages, then as many updates as they can take.
//!
//! Pages are made before anything is measured, so that what is measured is the work of whoever reads them.

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

/// How many pods there are.
pub(crate) const N_PODS: usize = 100_000;
/// On how many nodes, namespaces, and under how many owners they are.
const NODES: usize = 5_000;
const NAMESPACES: usize = 100;
const PODS_OF_AN_OWNER: usize = 3;
/// How many lines of a watch arrive together: 16 of 4 KB.
const LINES: usize = 16;
/// How many pods a page has; what both sides ask for.
const PAGE: usize = 500;

/// A pod of two containers, 4 KB. Between `~` and `~` is what differs.
const POD: &str = include_str!("pod.json");

/// Writes the text of a pod as it is at a version.
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

/// The version of the list.
pub(crate) const LISTED: usize = N_PODS + 1;

/// A server that knows one list and one watch.
#[derive(Clone)]
pub(crate) struct Feed {
    pages: Arc<Vec<Bytes>>,
    updates: Arc<Mutex<Option<Receiver<Bytes>>>>,
}

impl Feed {
    /// A client of it, and where its watch takes its lines from.
    pub(crate) fn open() -> (Client, Sender<Bytes>) {
        let (sender, updates) = channel(64);
        let pages = (0..N_PODS).step_by(PAGE).map(page).collect();
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

fn page(first: usize) -> Bytes {
    let last = first + PAGE;
    let next = if last < N_PODS {
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

/// Updates one pod after the other for as long as somebody takes them, up to `n_updates`.
pub(crate) async fn update(sender: Sender<Bytes>, n_updates: usize) -> Sender<Bytes> {
    for first in (0..n_updates).step_by(LINES) {
        let mut text = String::with_capacity(LINES * (POD.len() + 100));
        for at in first..first + LINES {
            text.push_str(r#"{"type":"MODIFIED","object":"#);
            write_pod(&mut text, at % N_PODS, LISTED + 1 + at);
            text.push_str("}\n");
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

/// A page, or a watch that never ends.
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
