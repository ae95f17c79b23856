//! Where upstream keeps the objects of a resource in etcd.

/// What the keys of a keyspace begin with, after the prefix of all keys. Custom objects lie under their group.
pub(crate) fn resource_prefix(space: &str, is_custom: bool) -> &str {
    match space {
        _ if is_custom => space,
        // Kubernetes: some prefixes are older than the names (kubeapiserver/default_storage_factory_builder.go).
        "replicationcontrollers" => "controllers",
        "endpoints" => "services/endpoints",
        "nodes" => "minions",
        "services" => "services/specs",
        "networking.k8s.io/ingresses" => "ingress",
        // Kubernetes: both have a server of their own, whose resources lie under their group.
        "apiextensions.k8s.io/customresourcedefinitions" | "apiregistration.k8s.io/apiservices" => {
            space
        }
        _ => space.rsplit('/').next().unwrap_or(space),
    }
}

/// The prefix of all keys, with a slash at both ends. Kubernetes: `--etcd-prefix` is cleaned as a path
/// (storage/etcd3/store.go).
pub(crate) fn key_prefix(etcd_prefix: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in etcd_prefix.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    match parts.is_empty() {
        true => "/".into(),
        false => format!("/{}/", parts.join("/")),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use mizzen_store::{Codec as _, Store};

    use super::*;
    use crate::{Key, Resource, StorageCodec};

    /// Kubernetes: test/integration/etcd/data.go.
    const PATHS: &str = include_str!("storage_prefix.table");

    #[test]
    fn every_built_in_kind_lies_where_upstream_has_it() {
        let lines = PATHS.lines().filter(|line| !line.starts_with('#'));
        let paths: HashMap<&str, &str> = lines.filter_map(|line| line.split_once(' ')).collect();
        let catalog = mizzen_kinds::catalog();
        let codec = StorageCodec::new("/registry", catalog.stored_kinds());
        let store = Store::in_memory(Default::default());
        let is_stored = |kind: &mizzen_object::Kind| kind.verbs.iter().any(|verb| *verb == "watch");
        let mut n_kinds = 0;
        for (kind, stored) in catalog.stored_kinds().filter(|(kind, _)| is_stored(kind)) {
            let resource = match kind.gvk.group.as_str() {
                "" => kind.plural.to_string(),
                group => format!("{group}/{}", kind.plural),
            };
            let namespace = match kind.is_namespaced() {
                true => "namespace",
                false => "",
            };
            let key = Key::new(namespace, "name");
            let path = format!("{}{}", codec.prefix(&kind.space()), key.stored());
            assert_eq!(
                paths.get(resource.as_str()),
                Some(&path.as_str()),
                "{resource}"
            );
            let stored = Some(stored).filter(|stored| stored.gvk != kind.gvk);
            assert_eq!(Resource::new(&store, kind, stored).storage_key(&key), path);
            n_kinds += 1;
        }
        assert!(n_kinds > 50, "{n_kinds} kinds are stored");
    }

    #[test]
    fn the_prefix_of_all_keys_is_a_clean_path() {
        for (flag, expected) in [
            ("/registry", "/registry/"),
            ("registry/", "/registry/"),
            ("/a//b/./c/../d", "/a/b/d/"),
            ("", "/"),
            ("/", "/"),
        ] {
            assert_eq!(key_prefix(flag), expected, "{flag}");
        }
    }

    #[test]
    fn a_custom_object_lies_under_its_group() {
        assert_eq!(
            resource_prefix("networking.k8s.io/ingresses", true),
            "networking.k8s.io/ingresses"
        );
        assert_eq!(
            resource_prefix("networking.k8s.io/ingresses", false),
            "ingress"
        );
    }
}
