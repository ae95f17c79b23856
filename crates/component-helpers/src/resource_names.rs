//! Classification of resource names.
//!
//! Kubernetes: pkg/apis/core/helper/helpers.go.

use mizzen_object::validate::names::is_qualified_name;

/// Whether it is Kubernetes' own: without a domain, or with Kubernetes'.
pub fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Whether it is an extended resource: not native, and such that a quota can name its requests.
pub fn is_extended(name: &str) -> bool {
    !is_native(name)
        && !name.starts_with("requests.")
        && is_qualified_name(&format!("requests.{name}")).is_empty()
}

/// Whether it is huge pages of some size.
pub fn is_huge_page(name: &str) -> bool {
    name.starts_with("hugepages-")
}

/// Whether more of it may be promised than there is.
pub fn is_overcommit_allowed(name: &str) -> bool {
    is_native(name) && !is_huge_page(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_native_extended_or_huge_pages() {
        // The name; whether it is native, extended, huge pages, may be overcommitted.
        let cases = [
            ("cpu", true, false, false, true),
            ("hugepages-2Mi", true, false, true, false),
            ("attachable-volumes-x", true, false, false, true),
            ("kubernetes.io/x", true, false, false, true),
            ("scheduling.kubernetes.io/x", true, false, false, true),
            ("example.com/gpu", false, true, false, false),
            ("requests.example.com/gpu", false, false, false, false),
            ("example.com/g pu", false, false, false, false),
            ("Example.com/gpu", false, false, false, false),
            ("a/b/c", false, false, false, false),
        ];
        for (name, native, extended, huge, overcommit) in cases {
            assert_eq!(is_native(name), native, "{name}");
            assert_eq!(is_extended(name), extended, "{name}");
            assert_eq!(is_huge_page(name), huge, "{name}");
            assert_eq!(is_overcommit_allowed(name), overcommit, "{name}");
        }
    }
}
