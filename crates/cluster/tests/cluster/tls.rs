//! TLS flags: versions, cipher suites, SNI certificates.

use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{CertificateParams, KeyPair};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::client::ResolvesClientCert;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{
    CipherSuite, ClientConfig, RootCertStore, SignatureScheme, SupportedProtocolVersion,
};
use x509_parser::prelude::{FromDer as _, ParsedExtension, X509Certificate};

use crate::client::dial;
use crate::process::{Home, Process, STEP_TIMEOUT};

/// A TLS client.
struct Speaker<'a> {
    /// The authorities it trusts, as PEM.
    authority: &'a [u8],
    version: &'static SupportedProtocolVersion,
    cipher: Option<CipherSuite>,
    name: &'static str,
}

impl Speaker<'_> {
    async fn dial(&self, process: &Process) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(self.authority).unwrap())
            .unwrap();
        let mut provider = ring::default_provider();
        provider
            .cipher_suites
            .retain(|suite| self.cipher.is_none_or(|cipher| cipher == suite.suite()));
        let config = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&[self.version])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let tcp = TcpStream::connect(&process.address).await?;
        let connector = TlsConnector::from(Arc::new(config));
        connector
            .connect(ServerName::try_from(self.name).unwrap(), tcp)
            .await
    }

    /// Whether it is served.
    async fn is_served(&self, process: &Process) -> bool {
        let talk = async {
            let mut stream = self.dial(process).await?;
            stream
                .write_all(b"GET /readyz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
                .await?;
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer).await;
            std::io::Result::Ok(answer.starts_with(b"HTTP/1.1 200"))
        };
        timeout(STEP_TIMEOUT, talk)
            .await
            .expect("an answer or a refusal")
            .unwrap_or_default()
    }
}

/// Writes a self-signed certificate; returns its PEM.
fn write(directory: &Path, stem: &str, name: &str) -> (PathBuf, PathBuf, Vec<u8>) {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec![name.to_string()])
        .unwrap()
        .self_signed(&key)
        .unwrap();
    let file = |ending: &str| directory.join(format!("{stem}.{ending}"));
    std::fs::write(file("crt"), certificate.pem()).unwrap();
    std::fs::write(file("key"), key.serialize_pem()).unwrap();
    (file("crt"), file("key"), certificate.pem().into_bytes())
}

#[tokio::test]
async fn tls_1_2_is_served_unless_a_flag_disables_it() {
    for (argument, spoken) in [
        ("--tls-min-version=VersionTLS12", true),
        ("--tls-min-version=VersionTLS13", false),
    ] {
        let process = Home::in_memory().with(argument).start().await;
        let authority = process.credentials.authority.clone();
        let speaker = |version| Speaker {
            authority: &authority,
            version,
            cipher: None,
            name: "localhost",
        };
        assert_eq!(
            speaker(&TLS12).is_served(&process).await,
            spoken,
            "{argument}"
        );
        assert!(speaker(&TLS13).is_served(&process).await, "{argument}");
    }
}

#[tokio::test]
async fn only_configured_cipher_suites_are_offered() {
    let chosen = "--tls-cipher-suites=TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256";
    let process = Home::in_memory().with(chosen).start().await;
    let authority = process.credentials.authority.clone();
    for (version, cipher, spoken) in [
        (
            &TLS12,
            CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
            true,
        ),
        (
            &TLS12,
            CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
            false,
        ),
        (&TLS13, CipherSuite::TLS13_CHACHA20_POLY1305_SHA256, true),
    ] {
        let speaker = Speaker {
            authority: &authority,
            version,
            cipher: Some(cipher),
            name: "localhost",
        };
        assert_eq!(speaker.is_served(&process).await, spoken, "{cipher:?}");
    }
}

#[tokio::test]
async fn invalid_arguments_fail_the_start() {
    let home = Home::in_memory();
    let (crt, _, _) = write(home.path(), "a", "a.example");
    let (_, other, _) = write(home.path(), "b", "b.example");
    let (crt, other) = (crt.to_str().unwrap(), other.to_str().unwrap());
    let pair = format!("{crt},{other}");
    for (arguments, expected) in [
        (
            &["--tls-min-version", "VersionTLS11"][..],
            "VersionTLS11 is insecure",
        ),
        (
            &["--tls-cipher-suites", "TLS_RSA_WITH_RC4_128_SHA"],
            "is not supported",
        ),
        (
            &["--tls-cipher-suites", "NONE"],
            "Cipher suite NONE not supported or doesn't exist",
        ),
        (&["--tls-cert-file", crt], "--tls-private-key-file"),
        (
            &["--tls-cert-file", crt, "--tls-private-key-file", other],
            "does not match its key",
        ),
        (&["--tls-sni-cert-key", &pair], "does not match its key"),
        (
            &["--goaway-chance", "0.5"],
            "can not be less than 0 or greater than 0.02",
        ),
        (
            &["--cors-allowed-origins", "example.com"],
            "does not pin to start/end",
        ),
        (
            &["--strict-transport-security-directives", "max-age"],
            "allowed values",
        ),
        (&["--request-timeout", "soon"], "invalid duration"),
    ] {
        let failed = home
            .fail_with(&[&["--port", "0"], arguments].concat())
            .await;
        let said = String::from_utf8_lossy(&failed.stderr);
        assert!(
            !failed.status.success() && said.contains(expected),
            "{arguments:?}: {said}"
        );
    }
}

#[tokio::test]
async fn a_client_gets_the_certificate_of_its_server_name() {
    let home = Home::in_memory();
    let (crt, key, default) = write(home.path(), "default", "default.example");
    let (other_crt, other_key, other) = write(home.path(), "other", "other.example");
    let pair = format!(
        "--tls-sni-cert-key={},{}",
        other_crt.display(),
        other_key.display()
    );
    let arguments = [
        format!("--tls-cert-file={}", crt.display()),
        format!("--tls-private-key-file={}", key.display()),
        pair,
    ];
    let home = arguments
        .into_iter()
        .fold(home, |home, argument| home.with(argument.leak()));
    let process = home.start().await;
    let own = process.credentials.authority.clone();
    for (authority, name, expected) in [
        (&default, "default.example", true),
        (&other, "other.example", true),
        (&default, "other.example", false),
        // The kubeconfig names the loopback certificate, which the cluster's authority signs.
        (&own, "apiserver-loopback-client", true),
        (&own, "localhost", false),
    ] {
        let speaker = Speaker {
            authority,
            version: &TLS13,
            cipher: None,
            name,
        };
        assert_eq!(speaker.is_served(&process).await, expected, "{name}");
    }
    let kubeconfig = std::fs::read_to_string(home.kubeconfig()).unwrap();
    assert!(
        kubeconfig.contains("tls-server-name: apiserver-loopback-client"),
        "{kubeconfig}"
    );
}

/// Records the authorities that a server sends in its certificate request, and presents none.
#[derive(Debug, Default)]
struct Listener(Mutex<Option<Vec<Vec<u8>>>>);

impl ResolvesClientCert for Listener {
    fn resolve(&self, hints: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        *self.0.lock() = Some(hints.iter().map(|hint| hint.to_vec()).collect());
        None
    }

    fn has_certs(&self) -> bool {
        true
    }
}

#[tokio::test]
async fn the_server_sends_the_names_of_client_authorities() {
    let process = Home::in_memory().start().await;
    let authority = &process.credentials.authority;
    for version in [&TLS12, &TLS13] {
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(authority).unwrap())
            .unwrap();
        let own = roots.subjects()[0].as_ref().to_vec();
        let listener = Arc::new(Listener::default());
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(roots)
            .with_client_cert_resolver(listener.clone());
        let tcp = TcpStream::connect(&process.address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(config))
            .connect(name, tcp)
            .await
            .unwrap();
        let heard = listener
            .0
            .lock()
            .clone()
            .expect("the server asks for a certificate");
        assert_eq!(
            heard.len(),
            2,
            "the authorities of clients and of front proxies"
        );
        assert!(heard.contains(&own));
    }
}

/// OpenSSL's strict verification, the default of Python since 3.13, rejects a certificate without it.
#[tokio::test]
async fn certificates_name_the_key_of_their_authority() {
    let home = Home::in_memory();
    let process = home.start().await;
    let credentials = &process.credentials;
    let connection = dial(&process.address, credentials, &["h2"]).await;
    let served = connection.get_ref().1.peer_certificates().unwrap()[0].clone();
    let admin = CertificateDer::from_pem_slice(credentials.certificate()).unwrap();
    let authority = CertificateDer::from_pem_slice(&credentials.authority).unwrap();
    let (_, authority) = X509Certificate::from_der(&authority).unwrap();
    let key =
        authority
            .iter_extensions()
            .find_map(|extension| match extension.parsed_extension() {
                ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0),
                _ => None,
            });
    assert!(key.is_some());
    for der in [served, admin] {
        let (_, certificate) = X509Certificate::from_der(&der).unwrap();
        let named = certificate.iter_extensions().find_map(|extension| {
            match extension.parsed_extension() {
                ParsedExtension::AuthorityKeyIdentifier(id) => id.key_identifier.as_ref(),
                _ => None,
            }
        });
        assert_eq!(named.map(|id| id.0), key);
    }
    process.stop().await;
}
