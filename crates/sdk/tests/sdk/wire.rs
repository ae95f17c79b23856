//! A connection that breaks: within a line, with an error, or while a line arrives that does not belong there.
//!
//! `mizzen_testing` injects faults into requests and events. Reflectors must also survive what happens below them, in the
//! bytes of a response, and what a test does to the connections of one client alone.

use parking_lot::Mutex;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body as ClientBody;
use mizzen_apiserver::{Body, Options, Server, User};
use mizzen_registry::Registry;
use mizzen_testing::Cluster;
use tokio::sync::watch;
use tower::Service;

/// A transport to an API server on the store of a cluster. Clones share it.
#[derive(Clone)]
pub(crate) struct Wire {
    registry: Registry,
    server: Arc<Mutex<Server>>,
    faults: Arc<Mutex<Faults>>,
    pub n_lists: Arc<AtomicUsize>,
    pub n_watches: Arc<AtomicUsize>,
    /// Whether requests over this transport get no response.
    is_cut_off: Arc<AtomicBool>,
    /// How all open connections end.
    ends: watch::Sender<End>,
}

/// The end of a healthy connection.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum End {
    /// A regular end of the stream.
    #[default]
    Closed,
    /// An I/O error.
    Reset,
}

/// Faults to inject.
#[derive(Default)]
pub(crate) struct Faults {
    /// The byte counts after which the next watches break off, in order.
    pub cuts: Vec<usize>,
    /// Watches that fail with this status code.
    pub refused: Vec<u16>,
    /// A line that is inserted into the next watch after so many others.
    pub insert: Option<(usize, String)>,
}

impl Wire {
    /// Another API server beside the one of the cluster, which is not disturbed when this one restarts.
    pub(crate) fn to(cluster: &Cluster) -> Wire {
        let registry = cluster.server().parts().registry.clone();
        Wire {
            server: Arc::new(Mutex::new(serve(&registry))),
            registry,
            faults: Arc::default(),
            n_lists: Arc::default(),
            n_watches: Arc::default(),
            is_cut_off: Arc::default(),
            ends: watch::Sender::default(),
        }
    }

    /// Restarts the server on the same store.
    pub(crate) fn restart(&self) {
        let mut server = self.server.lock();
        server.stop();
        *server = serve(&self.registry);
    }

    /// Ends all open connections, as a server that shuts down does.
    pub(crate) fn hang_up(&self, end: End) {
        self.ends.send_replace(end);
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(self.clone(), "default")
    }

    pub(crate) fn cut_off(&self) {
        self.is_cut_off.store(true, Ordering::Relaxed);
    }

    pub(crate) fn faults(&self, set: impl FnOnce(&mut Faults)) {
        set(&mut self.faults.lock());
    }

    async fn answer(self, request: Request<ClientBody>) -> Response<Faulty> {
        if self.is_cut_off.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        let (parts, body) = request.into_parts();
        let query = parts.uri.query().unwrap_or_default().to_string();
        let watch = query.contains("watch=true");
        let body = body
            .collect()
            .await
            .map(|body| body.to_bytes())
            .unwrap_or_default();
        let counter = if watch {
            &self.n_watches
        } else {
            &self.n_lists
        };
        if parts.method == "GET" {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        let faults = std::mem::take(&mut *self.faults.lock());
        let (faults, later) = if watch {
            faults.split()
        } else {
            (Faults::default(), faults)
        };
        *self.faults.lock() = later;
        if let Some(code) = faults.refused.first() {
            let status = serde_json::json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": "refused", "reason": "Refused", "code": code,
            });
            let body = Faulty::new(
                Body::from(status.to_string()),
                Faults::default(),
                self.end(),
            );
            return Response::builder().status(*code).body(body).unwrap();
        }
        let (user, server) = (Some(User::master("admin")), self.server.lock().clone());
        let answer = server
            .call(user, parts.method, parts.uri, parts.headers, body)
            .await;
        let end = self.end();
        answer.map(|body| Faulty::new(body, faults, end))
    }

    /// When and how the next connection ends.
    fn end(&self) -> Pin<Box<dyn Future<Output = End> + Send>> {
        let mut ends = self.ends.subscribe();
        Box::pin(async move {
            if ends.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
            *ends.borrow()
        })
    }
}

fn serve(registry: &Registry) -> Server {
    mizzen_controlplane::server(registry.clone(), Options::default())
}

impl Faults {
    /// The faults of one watch and of later ones.
    fn split(mut self) -> (Faults, Faults) {
        let mut now = Faults::default();
        if !self.refused.is_empty() {
            now.refused.push(self.refused.remove(0));
        } else {
            if !self.cuts.is_empty() {
                now.cuts.push(self.cuts.remove(0));
            }
            now.insert = self.insert.take();
        }
        (now, self)
    }
}

impl Service<Request<ClientBody>> for Wire {
    type Response = Response<Faulty>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Faulty>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<ClientBody>) -> Self::Future {
        let wire = self.clone();
        Box::pin(async move { Ok(wire.answer(request).await) })
    }
}

/// A response body that may break off or contain an inserted line.
pub(crate) struct Faulty {
    inner: Body,
    cut: Option<usize>,
    insert: Option<(usize, String)>,
    n_lines: usize,
    end: Pin<Box<dyn Future<Output = End> + Send>>,
}

/// The connection broke.
#[derive(Debug, thiserror::Error)]
#[error("connection reset")]
pub(crate) struct Reset;

impl Faulty {
    fn new(inner: Body, faults: Faults, end: Pin<Box<dyn Future<Output = End> + Send>>) -> Faulty {
        Faulty {
            inner,
            cut: faults.cuts.first().copied(),
            insert: faults.insert,
            n_lines: 0,
            end,
        }
    }

    fn cut(&mut self, bytes: Bytes) -> Result<Frame<Bytes>, Reset> {
        match &mut self.cut {
            Some(0) => Err(Reset),
            Some(left) => {
                let bytes = bytes.slice(..bytes.len().min(*left));
                *left -= bytes.len();
                Ok(Frame::data(bytes))
            }
            None => Ok(Frame::data(bytes)),
        }
    }
}

impl http_body::Body for Faulty {
    type Data = Bytes;
    type Error = Reset;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context,
    ) -> Poll<Option<Result<Frame<Bytes>, Reset>>> {
        if self
            .insert
            .as_ref()
            .is_some_and(|(after, _)| *after <= self.n_lines)
            && let Some((_, line)) = self.insert.take()
        {
            return Poll::Ready(Some(Ok(Frame::data(Bytes::from(line + "\n")))));
        }
        if self.cut == Some(0) {
            return Poll::Ready(Some(Err(Reset)));
        }
        match Pin::new(&mut self.inner).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => {
                let bytes = frame.into_data().unwrap_or_default();
                self.n_lines += bytes.iter().filter(|byte| **byte == b'\n').count();
                Poll::Ready(Some(self.cut(bytes)))
            }
            Poll::Ready(Some(Err(_))) => Poll::Ready(Some(Err(Reset))),
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => self.end.as_mut().poll(context).map(|end| match end {
                End::Closed => None,
                End::Reset => Some(Err(Reset)),
            }),
        }
    }
}
