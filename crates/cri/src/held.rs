//! A connection for one call, which the runtime finishes even if this process is killed meanwhile.
//!
//! A runtime gives up a call whose connection is closed, and of a container whose start was given up it is not known
//! whether its process has run. So another process has the socket open, too, for as long as a start takes.

use std::future::ready;
use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::Stdio;

use http::Uri;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

/// How many seconds a call goes on without this process.
const HOLD: &str = "20";

/// A connection, and the process that has it open, too.
pub(crate) struct HeldConnection {
    pub channel: Channel,
    holder: Option<Child>,
}

impl HeldConnection {
    pub(crate) async fn open(socket: &Path) -> io::Result<HeldConnection> {
        let stream = UnixStream::connect(socket).await?;
        // Without it this is a connection as any other.
        let holder = hold(&stream).ok();
        let mut stream = Some(TokioIo::new(stream));
        let connector = service_fn(move |_: Uri| {
            let lost = || io::Error::from(io::ErrorKind::ConnectionReset);
            ready(stream.take().ok_or_else(lost))
        });
        let endpoint = Endpoint::from_static("http://localhost");
        let channel = endpoint.connect_with_connector(connector).await;
        let channel = channel.map_err(io::Error::other)?;
        Ok(HeldConnection { channel, holder })
    }

    /// Ends the other process, once the call has ended.
    pub(crate) fn close(self) {
        if let Some(mut holder) = self.holder {
            let _ = holder.start_kill();
        }
    }
}

/// A process with the socket, in a group of its own: what interrupts this process at a terminal leaves it alone.
fn hold(stream: &UnixStream) -> io::Result<Child> {
    let socket = stream.as_fd().try_clone_to_owned()?;
    Command::new("sleep")
        .arg(HOLD)
        .stdin(Stdio::null())
        .stdout(socket)
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
}
