//! containerd beyond the container runtime interface: what that interface has no call for.
//!
//! | part | what it has |
//! |---|---|
//! | `messages` | the messages of containerd's own services |
//! | `content` | blobs: written, read, labelled |
//! | `snapshot` | the files of an image, as mounts |
//! | `unpack` | layers made snapshots |
//! | `archive` | tarballs of images |
//! | `import` | a tarball made images of the runtime |
//!
//! containerd serves them on the socket of the interface, in namespaces of its own.
//!
//! Invariant: what is written while an image is imported has a lease. Without one the garbage
//! collection of containerd removes it before an image refers to it.

mod archive;
mod content;
mod import;
mod messages;
mod snapshot;
mod unpack;

use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mizzen_value::json;
use prost::Message;
use tonic::Request;
use tonic::metadata::{Ascii, MetadataValue};

pub use archive::ArchiveError;
pub use import::{ImportError, ImportedImage};
pub use messages::SnapshotMount;
use messages::*;
pub use unpack::UnpackError;

use crate::client::{CallError, CriClient};
use crate::messages::{Empty, StatusRequest};

/// The namespace of the images and containers of the interface.
const NAMESPACE: &str = "k8s.io";
/// The snapshotter of containerd's default configuration.
const DEFAULT_SNAPSHOTTER: &str = "overlayfs";
/// The deadline of calls that do little.
const QUICK: Duration = Duration::from_secs(60);
/// The deadline of calls that depend on the size of an image.
const LONG: Duration = Duration::from_secs(1800);

/// A request of containerd's services.
trait ContainerdRequest: Message + 'static {
    /// The method, as a path.
    const METHOD: &'static str;
    /// How long the call may take.
    const DEADLINE: Duration;
    /// The response.
    type Response: Message + Default + 'static;
}

/// Declares the method, the deadline and the response of requests.
macro_rules! calls {
    ($($method:literal $request:ty => $response:ty, $deadline:ident;)*) => {$(
        impl ContainerdRequest for $request {
            const METHOD: &'static str = concat!("/containerd.services.", $method);
            const DEADLINE: Duration = $deadline;
            type Response = $response;
        }
    )*};
}

calls! {
    "leases.v1.Leases/Create" CreateLeaseRequest => Empty, QUICK;
    "leases.v1.Leases/Delete" DeleteLeaseRequest => Empty, QUICK;
    "content.v1.Content/Info" ContentInfoRequest => ContentInfoResponse, QUICK;
    "content.v1.Content/Update" UpdateContentRequest => ContentInfoResponse, QUICK;
    "images.v1.Images/Get" GetImageRequest => GetImageResponse, QUICK;
    "images.v1.Images/Create" CreateImageRequest => GetImageResponse, QUICK;
    "images.v1.Images/Update" UpdateImageRequest => GetImageResponse, QUICK;
    "snapshots.v1.Snapshots/Prepare" PrepareSnapshotRequest => MountsResponse, QUICK;
    "snapshots.v1.Snapshots/View" ViewSnapshotRequest => MountsResponse, QUICK;
    "snapshots.v1.Snapshots/Mounts" MountsRequest => MountsResponse, QUICK;
    "snapshots.v1.Snapshots/Commit" CommitSnapshotRequest => Empty, QUICK;
    "snapshots.v1.Snapshots/Remove" RemoveSnapshotRequest => Empty, QUICK;
    "snapshots.v1.Snapshots/Stat" StatSnapshotRequest => Empty, QUICK;
    "diff.v1.Diff/Apply" ApplyRequest => ApplyResponse, LONG;
}

/// The services of containerd. It is cheap to clone.
#[derive(Debug, Clone)]
pub struct Containerd {
    client: CriClient,
    snapshotter: String,
    /// The lease of what is made.
    lease: Option<MetadataValue<Ascii>>,
}

impl Containerd {
    /// The services of a runtime; `None` if it is not containerd.
    pub async fn of(client: &CriClient) -> Option<Containerd> {
        if client.version().runtime_name != "containerd" {
            return None;
        }
        let status = client.call(StatusRequest { verbose: true }).await;
        let config = status
            .ok()
            .and_then(|mut status| status.info.remove("config"));
        Some(Containerd {
            client: client.clone(),
            snapshotter: snapshotter(config.as_deref().unwrap_or_default()),
            lease: None,
        })
    }

    async fn call<R: ContainerdRequest>(&self, request: R) -> Result<R::Response, CallError> {
        let request = self.request(request);
        self.client.unary(R::METHOD, request, R::DEADLINE).await
    }

    /// A request with its namespace and its lease.
    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        let metadata = request.metadata_mut();
        metadata.insert(
            "containerd-namespace",
            MetadataValue::from_static(NAMESPACE),
        );
        if let Some(lease) = &self.lease {
            metadata.insert("containerd-lease", lease.clone());
        }
        request
    }
}

/// The snapshotter in the configuration of the interface.
fn snapshotter(config: &str) -> String {
    let config = json::parse(config.as_bytes()).unwrap_or_default();
    match config["containerd"]["snapshotter"].str() {
        "" => DEFAULT_SNAPSHOTTER.into(),
        name => name.into(),
    }
}

/// The wall-clock time.
#[allow(
    clippy::disallowed_methods,
    reason = "another process, containerd, compares it with its own clock"
)]
fn since_1970() -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default()
}

/// A SHA-256 digest as blobs are named by it.
fn digest_text(digest: &[u8]) -> String {
    let mut text = String::from("sha256:");
    for byte in digest {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_snapshotter_is_that_of_the_configuration() {
        let native = r#"{"containerd":{"snapshotter":"native"}}"#;
        assert_eq!(snapshotter(native), "native");
        assert_eq!(snapshotter("{}"), "overlayfs");
        assert_eq!(snapshotter(""), "overlayfs");
    }
}
