//! The unread body of a request and protocol upgrades.

use parking_lot::Mutex;
use std::io;
use std::pin::pin;
use std::time::Duration;

use http::header;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use mizzen_audit::AuditRecord;
use mizzen_outgoing::Outgoing;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, copy};
use tokio::time::timeout;

use crate::response::{Body, Response};

/// How long closing a connection may take.
const LINGER: Duration = Duration::from_secs(10);

/// The unread body and the upgrade of a request, until they are taken.
#[derive(Default)]
pub struct RequestStreams(Mutex<Option<UnreadStreams>>);

/// An unread body, and the connection after an upgrade.
pub struct UnreadStreams {
    /// The body, as far as it has not been read.
    pub body: Outgoing,
    /// The connection, if the client asks for another protocol.
    pub upgrade: Option<OnUpgrade>,
}

impl RequestStreams {
    pub(crate) fn new(body: Outgoing, upgrade: Option<OnUpgrade>) -> RequestStreams {
        RequestStreams(Mutex::new(Some(UnreadStreams { body, upgrade })))
    }

    /// Takes them. `None` the second time, or if the body has been read.
    pub fn take(&self) -> Option<UnreadStreams> {
        self.0.lock().take()
    }
}

/// Copies bytes between client and server in both directions. The end of one direction is forwarded, and the other one has
/// ten seconds to end, too; an error ends both. Kubernetes: upstream closes both at once
/// (apimachinery/pkg/util/proxy/upgradeaware.go), so that an answer to the last bytes may be lost.
pub fn join(
    response: http::Response<Incoming>,
    client: Option<OnUpgrade>,
    record: AuditRecord,
) -> Response {
    let mut answer = Response::new(Body::from(""));
    *answer.status_mut() = response.status();
    *answer.headers_mut() = response.headers().clone();
    answer.headers_mut().remove(header::CONTENT_LENGTH);
    if let Some(client) = client {
        tokio::spawn(async move {
            let (Ok(server), Ok(client)) = (hyper::upgrade::on(response).await, client.await)
            else {
                return;
            };
            let (mut from_client, mut to_client) = tokio::io::split(TokioIo::new(client));
            let (mut from_server, mut to_server) = tokio::io::split(TokioIo::new(server));
            {
                let mut upward = pin!(forward(&mut from_client, &mut to_server));
                let mut downward = pin!(forward(&mut from_server, &mut to_client));
                tokio::select! {
                    ended = &mut upward => {
                        if ended.is_ok() {
                            let _ = timeout(LINGER, downward).await;
                        }
                    }
                    ended = &mut downward => {
                        if ended.is_ok() {
                            let _ = timeout(LINGER, upward).await;
                        }
                    }
                }
            }
            let _ = timeout(LINGER, async {
                tokio::join!(to_client.shutdown(), to_server.shutdown())
            })
            .await;
            drop(record);
        });
    }
    answer
}

/// Copies bytes until their end, which is forwarded, too.
async fn forward(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
) -> io::Result<()> {
    copy(from, to).await?;
    to.shutdown().await
}
