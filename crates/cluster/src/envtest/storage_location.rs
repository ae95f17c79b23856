//! How the API server learns from `--etcd-servers` where to store objects: it asks the `etcd` of envtest, which is this
//! binary, for its data directory. Any other etcd stores them itself.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mizzen_apiserver::clock::WallClock;
use mizzen_transport::{CallLimit, Client, RedirectingCall, Target, Trust, read_body};
use mizzen_value::{json, value};
use tokio::time::{Instant, sleep, timeout};
use tracing::warn;

/// How long the API server waits for etcd at most: some harnesses start both at once.
const WAIT: Duration = Duration::from_secs(20);
/// When etcd is late enough to be logged.
const LATE: Duration = Duration::from_secs(1);
/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(20);
/// The timeout of one attempt, and the limit of its response.
const ATTEMPT: Duration = Duration::from_secs(2);
const MAX_BYTES: usize = 64 << 10;

/// Where objects are stored, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StorageLocation {
    /// The data directory of etcd.
    pub data_dir: PathBuf,
    /// Whether writes are acknowledged before they are on disk.
    pub unsafe_no_fsync: bool,
}

impl StorageLocation {
    /// The path at which `etcd` serves it.
    pub(super) const PATH: &str = "/mizzen/storage";

    /// The response of `etcd`.
    pub(super) fn to_json(&self) -> String {
        let data_dir = self.data_dir.display().to_string();
        let location = value!({ "dataDir": data_dir, "unsafeNoFsync": (self.unsafe_no_fsync) });
        json::to_string(&location)
    }

    fn parse(text: &[u8]) -> Option<StorageLocation> {
        let location = json::parse(text).ok()?;
        let data_dir = location["dataDir"].as_str()?.into();
        Some(StorageLocation {
            data_dir,
            unsafe_no_fsync: location["unsafeNoFsync"].as_bool()?,
        })
    }

    /// Asks a server whether it is the etcd of `mizzen envtest`. An etcd cluster is not, nor is a server that does not answer
    /// within `limit`, and 20 seconds.
    pub(crate) async fn find(server: &str, limit: Duration) -> Option<StorageLocation> {
        // envtest's has no TLS.
        if !server.starts_with("http://") {
            return None;
        }
        let client = Client::new(Arc::new(WallClock), None);
        let began = Instant::now();
        let found = timeout(WAIT.min(limit), async {
            let mut is_logged = false;
            loop {
                let error = match ask(&client, server).await {
                    Ok(answer) => return answer,
                    Err(error) => error,
                };
                if began.elapsed() > LATE && !is_logged {
                    warn!(endpoint = server, %error, "waiting for etcd");
                    is_logged = true;
                }
                sleep(PAUSE).await;
            }
        });
        found.await.unwrap_or_default()
    }
}

/// The storage location of a server; none if it has none.
async fn ask(client: &Client, server: &str) -> Result<Option<StorageLocation>, String> {
    let limit = CallLimit {
        until: Instant::now() + ATTEMPT,
        bytes: MAX_BYTES,
    };
    let url = format!("{}{}", server.trim_end_matches('/'), StorageLocation::PATH);
    let response = RedirectingCall::get(&url)
        .send(client, limit.until, |uri| Target::at(uri, &Trust::System))
        .await
        .map_err(|error| error.to_string())?;
    if !response.status().is_success() {
        return Ok(None);
    }
    let body = read_body(response.into_body(), limit)
        .await
        .map_err(|error| error.to_string())?;
    Ok(StorageLocation::parse(&body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_survives_its_response() {
        let location = StorageLocation {
            data_dir: "/tmp/k8s_test_framework_\"1\"".into(),
            unsafe_no_fsync: true,
        };
        let parsed = StorageLocation::parse(location.to_json().as_bytes());
        assert_eq!(parsed, Some(location));
        assert_eq!(StorageLocation::parse(b"404 page not found"), None);
    }
}
