//! TLS of extenders: server verification and client certificates, on real time.

use parking_lot::Mutex;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mizzen_scheduler::{Configuration, Options};
use mizzen_value::{Value, value};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

use crate::extender::{Asked, serve, wait};
use crate::fixtures::{create_node, create_pod, parse, start_scheduler, start_server};

/// A certificate authority.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
    roots: RootCertStore,
}

impl Authority {
    fn new(name: &str) -> Authority {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(certificate.der().clone()).unwrap();
        Authority {
            pem: certificate.pem(),
            issuer: Issuer::new(params, key),
            roots,
        }
    }

    /// A certificate for a name, and its key.
    fn sign(&self, name: &str, purpose: ExtendedKeyUsagePurpose) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.into()]).unwrap();
        params.extended_key_usages = vec![purpose];
        (params.signed_by(&key, &self.issuer).unwrap(), key)
    }
}

/// An extender that returns `n1` for every pod and records the client certificates.
struct Server {
    port: u16,
    authority: Authority,
    shown: Arc<Mutex<Vec<Option<Vec<u8>>>>>,
}

impl Server {
    /// An extender with a certificate for a name.
    async fn start(name: &str) -> Server {
        let authority = Authority::new("ours");
        let acceptor = TlsAcceptor::from(Arc::new(config(&authority, name)));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let shown: Arc<Mutex<Vec<Option<Vec<u8>>>>> = Arc::default();
        let memory = shown.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // A client that rejects the certificate closes the connection.
                let Ok(stream) = acceptor.accept(stream).await else {
                    continue;
                };
                let chain = stream.get_ref().1.peer_certificates();
                memory.lock().push(chain.map(|chain| chain[0].to_vec()));
                let answer = |_: &str, _: &_| (200, value!({"NodeNames": ["n1"]}));
                tokio::spawn(serve(stream, answer, Asked::default()));
            }
        });
        Server {
            port,
            authority,
            shown,
        }
    }

    /// The configuration of a scheduler that uses this extender, with `more` lines of YAML.
    fn configuration(&self, more: &str) -> Configuration {
        parse(&format!(
            "extenders:\n- urlPrefix: https://127.0.0.1:{}/x\n  filterVerb: filter\n  nodeCacheCapable: true\n  {more}\n",
            self.port
        ))
    }

    /// The node of a pod, or the message of its PodScheduled condition.
    async fn place(&self, more: &str) -> String {
        let cluster = start_server().await;
        create_node(&cluster, "n1", "{}").await;
        start_scheduler(&cluster, self.configuration(more)).await;
        create_pod(&cluster, "p", "{}").await;
        let has_news = |pod: &Value| {
            !pod["spec"]["nodeName"].is_null()
                || !pod["status"]["conditions"][0]["message"].is_null()
        };
        let pod = wait(&cluster, "p", has_news).await;
        match pod["spec"]["nodeName"].str() {
            "" => pod["status"]["conditions"][0]["message"].str().to_string(),
            node => node.to_string(),
        }
    }

    fn refusal(&self, reason: &str) -> String {
        format!(
            "Post \"https://127.0.0.1:{}/x/filter\": tls: failed to verify certificate: x509: {reason}",
            self.port
        )
    }
}

fn config(authority: &Authority, name: &str) -> ServerConfig {
    let (certificate, key) = authority.sign(name, ExtendedKeyUsagePurpose::ServerAuth);
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(ring::default_provider());
    let roots = Arc::new(authority.roots.clone());
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider.clone());
    ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier.allow_unauthenticated().build().unwrap())
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap()
}

fn encoded(pem: &str) -> String {
    STANDARD.encode(pem)
}

#[tokio::test(flavor = "multi_thread")]
async fn extender_of_the_configured_authority_is_trusted() {
    let server = Server::start("127.0.0.1").await;
    let ours = encoded(&server.authority.pem);
    assert_eq!(
        server
            .place(&format!("tlsConfig: {{caData: {ours}}}"))
            .await,
        "n1"
    );
    assert_eq!(
        server
            .place(&format!(
                "enableHTTPS: true\n  tlsConfig: {{caData: {ours}}}"
            ))
            .await,
        "n1"
    );
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ca.crt");
    std::fs::write(&path, &server.authority.pem).unwrap();
    assert_eq!(
        server
            .place(&format!("tlsConfig: {{caFile: '{}'}}", path.display()))
            .await,
        "n1"
    );
    // The server requested no client certificate.
    assert_eq!(*server.shown.lock(), [None, None, None]);
}

const UNKNOWN: &str = "certificate signed by unknown authority";
const IMPOSTOR: &str = "certificate signed by unknown authority (possibly because of \"x509: ECDSA verification \
    failure\" while trying to verify candidate authority certificate \"ours\")";

#[tokio::test(flavor = "multi_thread")]
async fn unknown_authority_is_rejected() {
    let server = Server::start("127.0.0.1").await;
    let trust = |name| {
        format!(
            "tlsConfig: {{caData: {}}}",
            encoded(&Authority::new(name).pem)
        )
    };
    for (more, reason) in [
        (trust("theirs"), UNKNOWN),
        // Another authority of the same name.
        (trust("ours"), IMPOSTOR),
        // The system roots.
        ("enableHTTPS: false".to_string(), UNKNOWN),
    ] {
        assert_eq!(server.place(&more).await, server.refusal(reason), "{more}");
    }
    assert!(server.shown.lock().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn insecure_skips_verification() {
    let server = Server::start("127.0.0.1").await;
    for more in ["tlsConfig: {insecure: true}", "enableHTTPS: true"] {
        assert_eq!(server.place(more).await, "n1", "{more}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_server_name_overrides_the_host() {
    let server = Server::start("extender.example").await;
    let ours = encoded(&server.authority.pem);
    let refused = server
        .place(&format!("tlsConfig: {{caData: {ours}}}"))
        .await;
    assert!(refused.starts_with(&server.refusal("")), "{refused}");
    let more = format!("tlsConfig: {{caData: {ours}, serverName: extender.example}}");
    assert_eq!(server.place(&more).await, "n1");
}

#[tokio::test(flavor = "multi_thread")]
async fn client_certificate_is_presented() {
    let server = Server::start("127.0.0.1").await;
    let (certificate, key) = server
        .authority
        .sign("scheduler", ExtendedKeyUsagePurpose::ClientAuth);
    let (ours, mine, secret) = (
        encoded(&server.authority.pem),
        encoded(&certificate.pem()),
        encoded(&key.serialize_pem()),
    );
    let more = format!("tlsConfig: {{caData: {ours}, certData: {mine}, keyData: {secret}}}");
    assert_eq!(server.place(&more).await, "n1");
    let folder = tempfile::tempdir().unwrap();
    let (cert_file, key_file) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
    std::fs::write(&cert_file, certificate.pem()).unwrap();
    std::fs::write(&key_file, key.serialize_pem()).unwrap();
    let files = format!(
        "certFile: '{}', keyFile: '{}'",
        cert_file.display(),
        key_file.display()
    );
    assert_eq!(
        server
            .place(&format!("tlsConfig: {{insecure: true, {files}}}"))
            .await,
        "n1"
    );
    let shown = Some(certificate.der().to_vec());
    assert_eq!(*server.shown.lock(), [shown.clone(), shown]);
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_tls_configuration_fails_the_start() {
    let cluster = start_server().await;
    let server = Server::start("127.0.0.1").await;
    let (certificate, key) = server
        .authority
        .sign("scheduler", ExtendedKeyUsagePurpose::ClientAuth);
    let (_, other) = server
        .authority
        .sign("scheduler", ExtendedKeyUsagePurpose::ClientAuth);
    let (ours, mine) = (encoded(&server.authority.pem), encoded(&certificate.pem()));
    let (secret, wrong, text) = (
        encoded(&key.serialize_pem()),
        encoded(&other.serialize_pem()),
        encoded("nonsense"),
    );
    for (tls, problem) in [
        (
            "caFile: /nowhere/ca.crt".to_string(),
            "tlsConfig.caFile: cannot read /nowhere/ca.crt: No such file",
        ),
        (
            "certFile: /nowhere/tls.crt".to_string(),
            "tlsConfig.certFile: cannot read /nowhere/tls.crt",
        ),
        (
            "keyFile: /nowhere/tls.key".to_string(),
            "tlsConfig.keyFile: cannot read /nowhere/tls.key",
        ),
        (
            format!("caData: {text}"),
            "tlsConfig.caData: there is no certificate in it",
        ),
        (
            format!("caData: {ours}, insecure: true"),
            "tlsConfig.insecure: must not be set together with",
        ),
        (
            format!("certData: {mine}"),
            "tlsConfig.certData: its key is missing",
        ),
        (
            format!("keyData: {secret}"),
            "tlsConfig.keyData: its certificate is missing",
        ),
        (
            format!("certData: {text}, keyData: {secret}"),
            "tlsConfig.certData: there is no certificate in it",
        ),
        (
            format!("certData: {mine}, keyData: {text}"),
            "tlsConfig.keyData: ",
        ),
        (format!("certData: {mine}, keyData: {wrong}"), "tlsConfig: "),
        ("serverName: '*'".to_string(), "tlsConfig: "),
    ] {
        let configuration = server.configuration(&format!("tlsConfig: {{{tls}}}"));
        let options = Options {
            configuration: Arc::new(configuration),
            ..Options::new(cluster.client())
        };
        let error = mizzen_scheduler::start(options)
            .err()
            .expect(problem)
            .to_string();
        let expected = format!("extender https://127.0.0.1:{}/x: {problem}", server.port);
        assert!(error.starts_with(&expected), "{tls}: {error}");
    }
}
