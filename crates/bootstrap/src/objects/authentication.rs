//! The ConfigMap `extension-apiserver-authentication`, with which aggregated API servers authenticate clients. Every API
//! server adds its certificate authorities.
//!
//! Kubernetes: entries of other servers are kept, except expired certificates
//! (clusterauthenticationtrust/cluster_authentication_trust_controller.go).

use std::time::Duration;

use http::Method;
use mizzen_apiserver::Server;
use mizzen_authentication::{ProxyHeaders, TrustedAuthorities};
use mizzen_registry::Store;
use mizzen_value::{Value, json, value};
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use x509_parser::parse_x509_certificate;

use crate::loopback_client::{KUBE_APISERVER, LoopbackClient};
use crate::pki::der_to_pem;

const PATH: &str = "/api/v1/namespaces/kube-system/configmaps";
const NAME: &str = "extension-apiserver-authentication";
/// How often it is reconciled without a change.
const INTERVAL: Duration = Duration::from_secs(60);

/// The authorities that the servers of a store have published there; empty before the first one has started.
/// ConfigMaps of the store have been read.
pub fn published(store: &Store) -> TrustedAuthorities {
    let stored = store.keyspace("configmaps").snapshot();
    let record = stored.get(&format!("kube-system/{NAME}"));
    let config_map = record.and_then(|record| json::parse(&record.value).ok());
    let data = &config_map.unwrap_or_default()["data"];
    TrustedAuthorities {
        clients: data["client-ca-file"].str().into(),
        front_proxies: data["requestheader-client-ca-file"].str().into(),
        ..TrustedAuthorities::default()
    }
}

/// Writes it whenever the authorities change, and restores it. Never returns.
pub async fn reconcile(server: Server, mut trusted: watch::Receiver<TrustedAuthorities>) {
    loop {
        tokio::select! {
            Ok(()) = trusted.changed() => {}
            () = sleep(INTERVAL) => {}
        }
        let now = trusted.borrow_and_update().clone();
        if let Err(error) = write(&server, &now).await {
            tracing::warn!(
                error,
                "cannot write the authentication configuration of aggregated API servers"
            );
        }
    }
}

/// Adds the authorities of this server, if they are missing.
pub(super) async fn write(server: &Server, trusted: &TrustedAuthorities) -> Result<(), String> {
    let client = LoopbackClient::new(server, KUBE_APISERVER);
    let own = format!("{PATH}/{NAME}");
    let (code, stored) = client.call(Method::GET, &own, None).await?;
    let data = combined(&stored["data"], trusted, server.registry().now());
    if code == 404 {
        let metadata = value!({ "name": NAME, "namespace": "kube-system" });
        let object = value!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": (metadata), "data": (data) });
        return client
            .call(Method::POST, PATH, Some(&object))
            .await
            .map(drop);
    }
    if stored["data"] == data {
        return Ok(());
    }
    let mut object = stored;
    object.set("data", data);
    client
        .call(Method::PUT, &own, Some(&object))
        .await
        .map(drop)
}

/// The entries of other servers and of this one.
fn combined(stored: &Value, trusted: &TrustedAuthorities, now: i64) -> Value {
    let texts = |field: &str, own: &[String]| {
        let entries = json::parse(stored[field].str().as_bytes()).unwrap_or_default();
        let all = entries
            .list()
            .iter()
            .cloned()
            .chain(own.iter().map(Value::from));
        Value::from(json::to_string(&Value::List(unique(all))))
    };
    let authorities =
        |field: &str, own: &str| Value::from(unexpired(stored[field].str(), own, now));
    let ProxyHeaders {
        users,
        uids,
        groups,
        extras,
    } = &trusted.headers;
    value!({
        "client-ca-file": (authorities("client-ca-file", &trusted.clients)),
        "requestheader-allowed-names": (texts("requestheader-allowed-names", &trusted.allowed)),
        "requestheader-client-ca-file": (authorities("requestheader-client-ca-file", &trusted.front_proxies)),
        "requestheader-extra-headers-prefix": (texts("requestheader-extra-headers-prefix", extras)),
        "requestheader-group-headers": (texts("requestheader-group-headers", groups)),
        "requestheader-uid-headers": (texts("requestheader-uid-headers", uids)),
        "requestheader-username-headers": (texts("requestheader-username-headers", users))
    })
}

/// The certificates of both that have not expired, each once.
fn unexpired(stored: &str, own: &str, now: i64) -> String {
    let certificates = |pem: &str| {
        CertificateDer::pem_slice_iter(pem.as_bytes())
            .flatten()
            .collect::<Vec<_>>()
    };
    let is_expired = |certificate: &CertificateDer| {
        parse_x509_certificate(certificate)
            .is_ok_and(|(_, parsed)| parsed.validity().not_after.timestamp() <= now)
    };
    let all = certificates(stored).into_iter().chain(certificates(own));
    let valid = unique(all.filter(|certificate| !is_expired(certificate)));
    valid
        .iter()
        .map(|certificate| der_to_pem(certificate))
        .collect()
}

fn unique<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    all.fold(Vec::new(), |mut kept, one| {
        if !kept.contains(&one) {
            kept.push(one);
        }
        kept
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mizzen_apiserver::Options;
    use mizzen_apiserver::clock::{SystemRandom, VirtualClock};
    use mizzen_registry::Registry;
    use mizzen_store::Store;
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    fn authority(name: &str, until: i32) -> String {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.not_after = date_time_ymd(until, 1, 1);
        params
            .self_signed(&KeyPair::generate().unwrap())
            .unwrap()
            .pem()
            .replace('\r', "")
    }

    fn trusted(clients: &str) -> TrustedAuthorities {
        let (clients, front_proxies) = (clients.to_owned(), authority("proxies", 2100));
        TrustedAuthorities {
            clients,
            front_proxies,
            allowed: vec!["mesh".into()],
            ..TrustedAuthorities::default()
        }
    }

    /// In the year 2027.
    async fn server() -> Server {
        let clock = Arc::new(VirtualClock::starting_at(1_800_000_000));
        let registry = Registry::new(
            Store::in_memory(Default::default()),
            clock,
            Arc::new(SystemRandom),
        );
        let server = mizzen_controlplane::server(registry, Options::default());
        server.start().await;
        let namespace = value!({ "metadata": { "name": "kube-system" } });
        let client = LoopbackClient::new(&server, KUBE_APISERVER);
        client
            .call(Method::POST, "/api/v1/namespaces", Some(&namespace))
            .await
            .unwrap();
        server
    }

    async fn found(server: &Server) -> Value {
        let client = LoopbackClient::new(server, KUBE_APISERVER);
        client
            .call(Method::GET, &format!("{PATH}/{NAME}"), None)
            .await
            .unwrap()
            .1
    }

    #[tokio::test(start_paused = true)]
    async fn changed_authorities_are_written_and_a_deleted_config_map_is_restored() {
        let (server, one, two) = (
            server().await,
            authority("one", 2100),
            authority("two", 2100),
        );
        let first = trusted(&one);
        write(&server, &first).await.unwrap();
        let before = found(&server).await;
        assert_eq!(before["data"]["client-ca-file"].str(), one);
        let (sender, receiver) = watch::channel(first.clone());
        let task = tokio::spawn(reconcile(server.clone(), receiver));
        sleep(INTERVAL * 3).await;
        assert_eq!(found(&server).await, before, "nothing has changed");

        sender.send_replace(TrustedAuthorities {
            clients: two.clone(),
            ..first
        });
        sleep(Duration::from_millis(1)).await;
        assert_eq!(
            found(&server).await["data"]["client-ca-file"].str(),
            format!("{one}{two}")
        );

        let client = LoopbackClient::new(&server, KUBE_APISERVER);
        client
            .call(Method::DELETE, &format!("{PATH}/{NAME}"), None)
            .await
            .unwrap();
        drop(sender);
        sleep(INTERVAL * 2).await;
        assert_eq!(found(&server).await["data"]["client-ca-file"].str(), two);
        task.abort();
    }

    #[test]
    fn entries_of_other_servers_are_kept_until_they_expire() {
        let [old, own, other] = [("old", 2020), ("own", 2100), ("other", 2100)]
            .map(|(name, until)| authority(name, until));
        let trusted = trusted(&own);
        let mut others = combined(&Value::Null, &trusted, 1_800_000_000);
        assert_eq!(
            combined(&others, &trusted, 1_800_000_000),
            others,
            "once is enough"
        );
        others.set("client-ca-file", format!("# others\n{old}{other}{own}"));
        others.set("requestheader-allowed-names", r#"["a","mesh"]"#);
        others.set("requestheader-group-headers", "nonsense");
        let data = combined(&others, &trusted, 1_800_000_000);
        assert_eq!(data["client-ca-file"].str(), format!("{other}{own}"));
        assert_eq!(data["requestheader-allowed-names"].str(), r#"["a","mesh"]"#);
        assert_eq!(
            data["requestheader-group-headers"].str(),
            r#"["X-Remote-Group"]"#
        );
    }
}
