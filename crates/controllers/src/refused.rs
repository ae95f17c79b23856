//! Why did the server refuse? What of it a loop must tell apart.

/// Whether nothing can be made because the namespace is about to go.
pub(crate) fn is_terminating(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else {
        return false;
    };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes
        .into_iter()
        .any(|cause| cause.reason == "NamespaceTerminating")
}
