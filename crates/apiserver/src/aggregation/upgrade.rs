//! What comes in while a request is being answered: a body that nobody has read yet, and perhaps another protocol.

use std::sync::Mutex;

use http::{Response, header};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::copy_bidirectional;

use crate::answer::{Answer, Body};
use crate::audit::Record;
use crate::outgoing::Outgoing;

/// What a request has besides its head, as long as nobody took it.
#[derive(Default)]
pub(crate) struct Streams(Mutex<Option<Arriving>>);

/// A body on its way, and the connection after it.
pub(crate) struct Arriving {
    pub body: Outgoing,
    pub upgrade: Option<OnUpgrade>,
}

impl Streams {
    /// What is still to come of a request.
    pub fn new(body: Outgoing, upgrade: Option<OnUpgrade>) -> Streams {
        Streams(Mutex::new(Some(Arriving { body, upgrade })))
    }

    /// Takes it; there is nothing the second time, nor for a request that was read as a whole.
    pub fn take(&self) -> Option<Arriving> {
        self.0.lock().expect("nothing panics while it is held").take()
    }
}

/// Lets client and server talk to each other as they like from now on. The request is over when they have done.
pub(super) fn join(response: Response<Incoming>, client: Option<OnUpgrade>, record: Record) -> Answer {
    let mut answer = Answer::new(Body::from(""));
    *answer.status_mut() = response.status();
    *answer.headers_mut() = response.headers().clone();
    answer.headers_mut().remove(header::CONTENT_LENGTH);
    if let Some(client) = client {
        tokio::spawn(async move {
            let (Ok(server), Ok(client)) = (hyper::upgrade::on(response).await, client.await) else { return };
            let _ = copy_bidirectional(&mut TokioIo::new(client), &mut TokioIo::new(server)).await;
            drop(record);
        });
    }
    answer
}
