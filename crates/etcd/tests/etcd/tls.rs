//! TLS with client certificates.

use std::fs;

use mizzen_etcd::client::{CallError, Client, Code, Outcome};
use mizzen_etcd::messages::RequestOp;

use crate::calls::{get, put, unconditional};
use crate::server::{self, Cluster, Etcd, Options, TlsFiles};

async fn start(etcd: &Etcd) -> Cluster {
    let options = Options {
        tls: true,
        ..Options::default()
    };
    etcd.start(options).await
}

async fn write(client: &Client) -> Result<(), CallError> {
    let put = unconditional(RequestOp::put("/a", "1", 0));
    client.txn(put).await.map(drop)
}

#[tokio::test]
async fn a_client_with_a_certificate_is_served() {
    for etcd in server::installed() {
        let cluster = start(&etcd).await;
        let client = cluster.client();
        put(&client, "/a", "1").await;
        let read = client.range(get("/a")).await.expect("a read");
        assert_eq!(read.kvs[0].value, "1");
    }
}

#[tokio::test]
async fn an_address_without_scheme_has_tls_if_files_for_it_are_given() {
    for etcd in server::installed() {
        let cluster = start(&etcd).await;
        let mut config = cluster.config();
        config.endpoints[0] = config.endpoints[0].replace("https://", "");
        let client = Client::connect(config).expect("a good configuration");
        write(&client).await.expect("a write");
    }
}

#[tokio::test]
async fn a_member_of_another_authority_is_refused() {
    for etcd in server::installed() {
        let cluster = start(&etcd).await;
        let dir = tempfile::tempdir().unwrap();
        let mut config = cluster.config();
        config.ca_file = Some(TlsFiles::create(dir.path()).ca);
        let client = Client::connect(config).expect("a good configuration");
        let error = write(&client).await.expect_err("another authority");
        assert_eq!(
            (error.code, error.outcome),
            (Code::Unavailable, Outcome::NotExecuted)
        );
        let expected = format!("connection to {}: ", cluster.endpoint(0));
        assert!(error.message.starts_with(&expected), "{error}");
        assert!(
            error
                .message
                .contains("certificate signed by unknown authority"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_client_without_a_certificate_is_told_so() {
    for etcd in server::installed() {
        let cluster = start(&etcd).await;
        let mut config = cluster.config();
        (config.cert_file, config.key_file) = (None, None);
        let client = Client::connect(config).expect("a good configuration");
        let error = write(&client).await.expect_err("no certificate");
        assert!(error.is_unavailable(), "{error:?}");
        assert!(error.message.contains("ertificate"), "{error}");
    }
}

#[tokio::test]
async fn certificates_are_read_again_for_a_new_connection() {
    for etcd in server::installed() {
        let cluster = start(&etcd).await;
        let tls = cluster.tls.clone().expect("with TLS");
        let dir = tempfile::tempdir().unwrap();
        let mut config = cluster.config();
        config.ca_file = Some(TlsFiles::create(dir.path()).ca);
        let ca_file = config.ca_file.clone().expect("just set");
        let client = Client::connect(config).expect("a good configuration");
        write(&client).await.expect_err("another authority");
        fs::copy(&tls.ca, &ca_file).unwrap();
        write(&client).await.expect("the right authority");
    }
}
