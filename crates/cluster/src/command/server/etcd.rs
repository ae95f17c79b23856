//! Which etcd cluster has the objects, and how they lie in it.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use mizzen_apiserver::clock::WallClock;
use mizzen_encryption::{EncryptedCodec, Encryption};
use mizzen_etcd::client::{Client, Config, ConfigError};
use mizzen_etcd::{ClusterOverride, EngineOptions};
use mizzen_object::Kind;
use mizzen_registry::{Codec, StorageCodec, Store};

/// The arguments that name an etcd cluster.
#[derive(Args, Clone)]
pub(crate) struct EtcdArgs {
    /// Use the etcd cluster at these URLs for objects, as Kubernetes does; the data directory keeps certificates and keys
    #[arg(
        long,
        visible_alias = "etcd",
        value_name = "URL,…",
        value_delimiter = ','
    )]
    pub etcd_servers: Vec<String>,
    /// Trust the certificate authorities in this PEM file for etcd, instead of those of the machine
    #[arg(long, value_name = "FILE", requires = "etcd_servers")]
    etcd_cafile: Option<PathBuf>,
    /// Authenticate to etcd with the certificate in this PEM file
    #[arg(long, value_name = "FILE", requires = "etcd_keyfile")]
    etcd_certfile: Option<PathBuf>,
    /// The private key of --etcd-certfile
    #[arg(long, value_name = "FILE", requires = "etcd_certfile")]
    etcd_keyfile: Option<PathBuf>,
    /// Use the keys of etcd below this prefix
    #[arg(long, value_name = "PREFIX", default_value = "/registry")]
    etcd_prefix: String,
    /// Use another etcd cluster for a resource: GROUP/RESOURCE#URL;URL,…
    #[arg(long, value_name = "OVERRIDE,…", value_delimiter = ',', value_parser = parse_override, requires = "etcd_servers")]
    etcd_servers_overrides: Vec<EtcdOverride>,
}

/// A resource that is stored in another etcd cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
struct EtcdOverride {
    /// The keyspace of the resource.
    space: String,
    servers: Vec<String>,
}

impl EtcdArgs {
    /// Whether an etcd cluster is named.
    pub(crate) fn is_given(&self) -> bool {
        !self.etcd_servers.is_empty()
    }

    /// A client of the cluster. Must be called within a tokio runtime.
    pub(crate) fn client(&self) -> Result<Client, ConfigError> {
        self.connect(&self.etcd_servers)
    }

    /// The store in etcd. Must be called within a tokio runtime.
    pub(crate) fn store(&self, options: EngineOptions) -> Result<Store, ConfigError> {
        let mut overrides = Vec::new();
        for (servers, spaces) in by_servers(&self.etcd_servers_overrides) {
            let client = self.connect(servers)?;
            overrides.push(ClusterOverride { spaces, client });
        }
        let options = EngineOptions {
            overrides,
            ..options
        };
        Ok(mizzen_etcd::store(self.client()?, options))
    }

    /// The keyspaces that are in other etcd clusters.
    pub(crate) fn overridden(&self) -> impl Iterator<Item = String> {
        let overrides = self.etcd_servers_overrides.iter();
        overrides.map(|one| one.space.clone())
    }

    /// The prefix of keys of which upstream knows nothing.
    pub(crate) fn own_prefix(&self) -> String {
        StorageCodec::new(&self.etcd_prefix, []).prefix("mizzen")
    }

    fn connect(&self, servers: &[String]) -> Result<Client, ConfigError> {
        Client::connect(Config {
            ca_file: self.etcd_cafile.clone(),
            cert_file: self.etcd_certfile.clone(),
            key_file: self.etcd_keyfile.clone(),
            ..Config::new(servers.to_vec(), Arc::new(WallClock))
        })
    }

    /// How objects lie in etcd.
    pub(crate) fn codec(&self, encryption: Option<&Arc<Encryption>>) -> Arc<dyn Codec> {
        // Whatever versions are served, an etcd has those in which its objects were written last.
        let catalog = mizzen_kinds::storage_catalog();
        let mut plain = StorageCodec::new(&self.etcd_prefix, catalog.stored_kinds())
            .with_keyspace("ranges", &mizzen_kinds::range_allocation());
        let is_endpoints = |kind: &&Kind| kind.gvk.group.is_empty() && kind.gvk.kind == "Endpoints";
        if let Some(endpoints) = catalog.kinds.iter().find(is_endpoints) {
            plain = plain
                .with_keyspace("masterleases", endpoints)
                .with_keyspace("peerserverleases", endpoints);
        }
        let plain = Arc::new(plain);
        match encryption {
            Some(encryption) => Arc::new(EncryptedCodec::new(plain, encryption.clone())),
            None => plain,
        }
    }
}

/// The keyspaces of each cluster that overrides name, in the order of the overrides. The same servers in another order are
/// the same cluster, as in upstream's health checks (server/options/etcd.go).
fn by_servers(overrides: &[EtcdOverride]) -> Vec<(&[String], Vec<String>)> {
    let sorted = |servers: &[String]| {
        let mut servers = servers.to_vec();
        servers.sort();
        servers
    };
    let mut clusters: Vec<(&[String], Vec<String>)> = Vec::new();
    for EtcdOverride { space, servers } in overrides {
        let same = |(known, _): &&mut (&[String], _)| sorted(known) == sorted(servers);
        match clusters.iter_mut().find(same) {
            Some((_, spaces)) => spaces.push(space.clone()),
            None => clusters.push((servers, vec![space.clone()])),
        }
    }
    clusters
}

/// Parses `GROUP/RESOURCE#URL;URL`. The core group is empty: `/events#http://…`.
fn parse_override(text: &str) -> Result<EtcdOverride, String> {
    let malformed = || {
        format!(
            "{text:?} is not GROUP/RESOURCE#URL;URL; the core group is empty, as in /events#http://127.0.0.1:2379"
        )
    };
    let (resource, servers) = text.split_once('#').ok_or_else(malformed)?;
    let (group, resource) = resource.split_once('/').ok_or_else(malformed)?;
    if resource.is_empty() || resource.contains('/') || servers.is_empty() {
        return Err(malformed());
    }
    let space = match group {
        "" => resource.into(),
        group => format!("{group}/{resource}"),
    };
    let servers = servers.split(';').map(str::to_owned).collect();
    Ok(EtcdOverride { space, servers })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use bytes::Bytes;
    use mizzen_value::json;

    use super::*;

    /// The file with the kinds that upstream's schemes register.
    const UPSTREAM: &str = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../registry/tests/registry/upstream.kinds"
    );

    fn args() -> EtcdArgs {
        EtcdArgs {
            etcd_servers: Vec::new(),
            etcd_cafile: None,
            etcd_certfile: None,
            etcd_keyfile: None,
            etcd_prefix: "registry".into(),
            etcd_servers_overrides: Vec::new(),
        }
    }

    #[test]
    fn own_keys_are_below_the_prefix_of_all_keys() {
        assert_eq!(args().own_prefix(), "/registry/mizzen/");
    }

    #[test]
    fn every_version_that_upstream_decodes_is_decoded_and_written_in_upstreams() {
        let (codec, upstream) = (args().codec(None), fs::read_to_string(UPSTREAM).unwrap());
        let (mut n_versions, mut n_kinds) = (0, 0);
        for kind in mizzen_kinds::catalog().kinds {
            if kind.stored.is_some() || !kind.verbs.iter().any(|verb| verb == "watch") {
                continue;
            }
            n_kinds += 1;
            let (name, group) = (kind.gvk.kind.as_str(), kind.gvk.group.as_str());
            let encoding = match name {
                "HorizontalPodAutoscaler" => "v2",
                "CustomResourceDefinition"
                | "MutatingAdmissionPolicy"
                | "MutatingAdmissionPolicyBinding" => "v1beta1",
                _ => "v1",
            };
            let expected = match group {
                "" => encoding.to_owned(),
                group => format!("{group}/{encoding}"),
            };
            for api_version in upstream.lines().filter_map(|line| {
                let (api_version, _) = line.split_once(' ').filter(|(_, it)| *it == name)?;
                let from = api_version.rsplit_once('/').map_or("", |(group, _)| group);
                let may_be = match group {
                    "" => name == "Event" && from == "events.k8s.io",
                    "apps" | "networking.k8s.io" => from == "extensions",
                    _ => false,
                };
                (from == group || may_be).then_some(api_version)
            }) {
                n_versions += 1;
                let text = format!(
                    r#"{{"kind":"{name}","apiVersion":"{api_version}","metadata":{{"name":"a"}}}}"#
                );
                let space = kind.space();
                let write = |bytes: &Bytes| {
                    let (draft, _) = codec.decode(&space, "ns/a", bytes);
                    assert!(draft.stamp.is_some(), "{api_version} {name} is decoded");
                    codec.encode(&space, "ns/a", &draft).unwrap().bytes
                };
                let written = write(&text.into());
                let object = json::parse(&written).unwrap();
                assert_eq!(object["apiVersion"].str(), expected, "{api_version} {name}");
                // The version that is written may have a default where that of the text has none.
                let written = write(&written);
                assert_eq!(write(&written), written, "{api_version} {name}");
            }
        }
        assert_eq!((n_kinds, n_versions), (58, 129));
    }

    #[test]
    fn an_override_names_a_resource_and_its_servers() {
        let parsed = parse_override("apps/deployments#http://a:1;http://b:2").unwrap();
        assert_eq!(parsed.space, "apps/deployments");
        assert_eq!(parsed.servers, ["http://a:1", "http://b:2"]);
        assert_eq!(
            parse_override("/events#http://a:1").unwrap().space,
            "events"
        );
    }

    #[test]
    fn overrides_with_the_same_servers_are_one_cluster() {
        let parsed = [
            "a/x#http://1:1;http://2:1",
            "/y#http://3:1",
            "/z#http://2:1;http://1:1",
        ];
        let parsed = parsed.map(|text| parse_override(text).unwrap());
        let clusters = by_servers(&parsed);
        let spaces: Vec<_> = clusters.iter().map(|(_, spaces)| &spaces[..]).collect();
        assert_eq!(spaces, [&["a/x", "z"][..], &["y"]]);
    }

    #[test]
    fn an_override_without_group_resource_or_server_is_rejected() {
        for text in [
            "events#http://a:1",
            "/events",
            "/#http://a:1",
            "/events#",
            "a/b/c#x",
        ] {
            assert!(
                parse_override(text)
                    .unwrap_err()
                    .contains("is not GROUP/RESOURCE#URL")
            );
        }
    }
}
