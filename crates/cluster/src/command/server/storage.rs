//! Where objects are stored: etcd, compaction, and the life of events.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use mizzen_apiserver::clock::WallClock;
use mizzen_etcd::EngineOptions;
use mizzen_etcd::client::{Client, Config, ConfigError};
use mizzen_registry::{Codec, Store};

use super::duration;

/// The arguments of storage.
#[derive(Args, Clone)]
pub(crate) struct StorageArgs {
    /// Store objects in the etcd cluster at these URLs, as Kubernetes does; the data directory keeps certificates and keys
    #[arg(
        long,
        visible_alias = "etcd",
        value_name = "URL,…",
        value_delimiter = ',',
        conflicts_with = "in_memory"
    )]
    pub etcd_servers: Vec<String>,
    /// Whether that is the etcd of `mizzen envtest`: objects are in its data directory.
    #[arg(skip)]
    pub is_envtest: bool,
    /// Whether writes are acknowledged before they are on disk. That etcd says so.
    #[arg(skip)]
    pub unsafe_no_fsync: bool,
    /// Trust the certificate authorities in this PEM file for etcd, instead of those of the machine
    #[arg(
        long,
        value_name = "FILE",
        requires = "etcd_servers",
        conflicts_with = "in_memory"
    )]
    pub etcd_cafile: Option<PathBuf>,
    /// Authenticate to etcd with the certificate in this PEM file
    #[arg(long, value_name = "FILE", requires = "etcd_keyfile")]
    pub etcd_certfile: Option<PathBuf>,
    /// The private key of --etcd-certfile
    #[arg(long, value_name = "FILE", requires = "etcd_certfile")]
    pub etcd_keyfile: Option<PathBuf>,
    /// Store objects below this prefix of etcd's keys
    #[arg(long, value_name = "PREFIX", default_value = "/registry")]
    pub etcd_prefix: String,
    /// Store a resource in another etcd cluster: GROUP/RESOURCE#URL;URL,…
    #[arg(long, value_name = "OVERRIDE,…", value_delimiter = ',', value_parser = parse_override, requires = "etcd_servers", conflicts_with = "in_memory")]
    pub etcd_servers_overrides: Vec<EtcdOverride>,
    /// Report etcd as unhealthy if it does not answer within this time
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "2s")]
    pub etcd_healthcheck_timeout: Duration,
    /// Report the server as not ready if etcd does not answer within this time
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "2s")]
    pub etcd_readycheck_timeout: Duration,
    /// Share a lease of etcd between objects that expire within this many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub lease_reuse_duration_seconds: u64,
    /// Give up if etcd cannot be read within this time at start
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "1m0s")]
    pub storage_initialization_timeout: Duration,
    /// Compact revisions older than this interval, at this interval; 0 never compacts. Continue tokens and exact resource
    /// versions are valid for one to two intervals
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "5m0s")]
    pub etcd_compaction_interval: Duration,
    /// Delete events this long after their last write; 0 keeps them
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "1h0m0s")]
    pub event_ttl: Duration,
}

/// A resource that is stored in another etcd cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EtcdOverride {
    /// The keyspace of the resource.
    space: String,
    servers: Vec<String>,
}

impl StorageArgs {
    /// Whether objects are stored in an etcd cluster.
    pub(crate) fn uses_etcd(&self) -> bool {
        !self.etcd_servers.is_empty() && !self.is_envtest
    }

    /// The store in etcd. Must be called within a tokio runtime.
    pub(crate) fn etcd_store(&self, codec: Arc<dyn Codec>) -> Result<Store, ConfigError> {
        let clock = Arc::new(WallClock);
        let connect = |servers: &[String]| {
            Client::connect(Config {
                ca_file: self.etcd_cafile.clone(),
                cert_file: self.etcd_certfile.clone(),
                key_file: self.etcd_keyfile.clone(),
                ..Config::new(servers.to_vec(), clock.clone())
            })
        };
        let mut overrides = BTreeMap::new();
        for EtcdOverride { space, servers } in &self.etcd_servers_overrides {
            overrides.insert(space.clone(), connect(servers)?);
        }
        let options = EngineOptions {
            overrides,
            lease_reuse: Duration::from_secs(self.lease_reuse_duration_seconds),
            health_timeout: self.etcd_healthcheck_timeout,
            ..EngineOptions::new(codec, clock.clone())
        };
        Ok(mizzen_etcd::store(connect(&self.etcd_servers)?, options))
    }
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
    use super::*;

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
