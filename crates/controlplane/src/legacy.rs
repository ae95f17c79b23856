//! Hints at `--legacy-apis`, for clients that look for an API version that Kubernetes has removed.
//!
//! A hint is a `Warning` header. It is given where a client has asked for such a version and found nothing, so that
//! ordinary use is silent.

use mizzen_kinds::legacy_kinds;

use mizzen_apiserver::extend::Hints;
use mizzen_apiserver::request::Request;

use crate::runtime_config::is_legacy;

/// Hints of a server that does not serve the removed versions.
pub(crate) struct LegacyHints;

impl Hints for LegacyHints {
    /// The path is that of a removed version, of a group that has no other, or of something below.
    fn not_found(&self, request: &Request) -> Option<String> {
        let mut parts = request
            .uri
            .path()
            .strip_prefix("/apis/")?
            .split('/')
            .filter(|part| !part.is_empty());
        let (group, version) = (parts.next()?, parts.next());
        let version = match version {
            Some(version) => version,
            None => {
                legacy_kinds()
                    .iter()
                    .find(|kind| kind.group == group)?
                    .version
            }
        };
        is_legacy(group, version).then(|| {
            format!("{group}/{version} is not served; start the server with --legacy-apis to serve removed API versions")
        })
    }

    /// The hint for kubectl or Helm that ask for all definitions. Kubernetes: they do when
    /// OpenAPI does not have the version of a manifest, to see if it is a custom one
    /// (k8s.io/cli-runtime/pkg/resource/crd_finder.go), and fail with "no matches for kind" if not.
    fn list_definitions(&self, request: &Request) -> Option<String> {
        let agent = request.header("user-agent");
        let reads_manifests = ["kubectl", "Helm/"]
            .iter()
            .any(|name| agent.starts_with(name));
        let asks_for_all =
            request.query.text("limit").is_empty() && request.query.text("watch").is_empty();
        (reads_manifests && asks_for_all).then(|| {
            "API versions that Kubernetes has removed, such as extensions/v1beta1, are served only with --legacy-apis".into()
        })
    }
}
