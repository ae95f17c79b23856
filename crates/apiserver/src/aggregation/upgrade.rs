//! What comes in while a request is being answered: a body that nobody has read yet, and perhaps another protocol.

use parking_lot::Mutex;
use std::time::Duration;

use http::{Response, header};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncWriteExt as _, copy};
use tokio::time::timeout;

use crate::answer::{Answer, Body};
use crate::audit::Record;
use crate::outgoing::Outgoing;

/// How long a connection that is over may take to be closed.
const LINGER: Duration = Duration::from_secs(10);

/// What a request has besides its head, as long as nobody took it.
#[derive(Default)]
pub struct Streams(Mutex<Option<Arriving>>);

/// A body on its way, and the connection after it.
pub struct Arriving {
    /// The body, as far as it has not been read.
    pub body: Outgoing,
    /// The connection, if the client asks for another protocol.
    pub upgrade: Option<OnUpgrade>,
}

impl Streams {
    /// What is still to come of a request.
    pub(crate) fn new(body: Outgoing, upgrade: Option<OnUpgrade>) -> Streams {
        Streams(Mutex::new(Some(Arriving { body, upgrade })))
    }

    /// Takes it; there is nothing the second time, nor for a request that was read as a whole.
    pub fn take(&self) -> Option<Arriving> {
        self.0.lock().take()
    }
}

/// Lets client and server talk to each other as they like from now on. The request is over when one of them has done, as with
/// upstream (apimachinery/pkg/util/proxy/upgradeaware.go).
pub fn join(response: Response<Incoming>, client: Option<OnUpgrade>, record: Record) -> Answer {
    let mut answer = Answer::new(Body::from(""));
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
            tokio::select! {
                _ = copy(&mut from_client, &mut to_server) => {}
                _ = copy(&mut from_server, &mut to_client) => {}
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
