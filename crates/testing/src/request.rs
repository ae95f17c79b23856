//! What a request is about, derived from its path.

/// The resource, object and subresource of a path.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct RequestTarget<'a> {
    pub(crate) resource: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) subresource: &'a str,
}

impl<'a> RequestTarget<'a> {
    pub(crate) fn parse(path: &'a str) -> RequestTarget<'a> {
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let parts = match parts.first() {
            Some(&"api") => parts.get(2..),
            Some(&"apis") => parts.get(3..),
            _ => None,
        };
        let parts = parts.unwrap_or_default();
        let (namespace, parts) = match parts {
            ["namespaces", namespace, rest @ ..]
                if !matches!(rest.first(), None | Some(&"status" | &"finalize")) =>
            {
                (*namespace, rest)
            }
            parts => ("", parts),
        };
        let part = |idx: usize| parts.get(idx).copied().unwrap_or_default();
        RequestTarget {
            resource: part(0),
            namespace,
            name: part(1),
            subresource: part(2),
        }
    }

    /// The resource with its subresource: `pods/status`. Names are left out: they may be random.
    pub(crate) fn resource_path(&self) -> String {
        match self.subresource {
            "" => self.resource.into(),
            subresource => format!("{}/{subresource}", self.resource),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, expected: [&str; 4]) {
        let [resource, namespace, name, subresource] = expected;
        let expected = RequestTarget {
            resource,
            namespace,
            name,
            subresource,
        };
        assert_eq!(RequestTarget::parse(path), expected, "{path}");
    }

    #[test]
    fn a_path_names_resource_object_and_subresource() {
        check("/api/v1/pods", ["pods", "", "", ""]);
        check("/api/v1/namespaces/shop", ["namespaces", "", "shop", ""]);
        check(
            "/api/v1/namespaces/shop/finalize",
            ["namespaces", "", "shop", "finalize"],
        );
        check(
            "/apis/apps/v1/namespaces/shop/deployments/web/status",
            ["deployments", "shop", "web", "status"],
        );
        check("/healthz", ["", "", "", ""]);
    }
}
