//! Client certificates, valid and forged, presented to the real server over TLS.

use std::sync::Arc;

use http_body_util::Full;
use hyper::Request;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    SigningKey as _,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::ResolvesClientCert;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{
    ClientConfig, RootCertStore, SignatureScheme, SupportedProtocolVersion,
};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::client::{Client, Credentials};
use crate::http::check_alive;
use crate::process::{Home, Process, STEP_TIMEOUT};

/// A user in `system:masters`.
fn admin() -> CertificateParams {
    let mut admin = CertificateParams::default();
    admin.distinguished_name.push(DnType::CommonName, "admin");
    admin
        .distinguished_name
        .push(DnType::OrganizationName, "system:masters");
    admin
}

/// A certificate, and its key.
fn sign(params: &CertificateParams, issuer: &Issuer<KeyPair>) -> (Vec<u8>, Vec<u8>) {
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, issuer).unwrap();
    (
        certificate.pem().into_bytes(),
        key.serialize_pem().into_bytes(),
    )
}

/// An authority with the name of the cluster's.
fn other_authority() -> Issuer<'static, KeyPair> {
    let mut authority = CertificateParams::default();
    authority
        .distinguished_name
        .push(DnType::CommonName, "mizzen");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    Issuer::new(authority, KeyPair::generate().unwrap())
}

#[tokio::test]
async fn a_certificate_of_an_unknown_authority_is_rejected() {
    let home = Home::on_disk().with("--token-auth-file=tokens.csv");
    std::fs::write(
        home.path().join("tokens.csv"),
        "secret,jane,7,system:masters\n",
    )
    .unwrap();
    let process = home.start().await;
    let file = |name: &str| std::fs::read_to_string(home.data_dir().join(name)).unwrap();
    let own =
        Issuer::from_ca_cert_pem(&file("ca.crt"), KeyPair::from_pem(&file("ca.key")).unwrap())
            .unwrap();
    let (mut expired, mut server, mut anything) = (admin(), admin(), admin());
    expired.not_after = rcgen::date_time_ymd(2020, 1, 1);
    server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    anything.extended_key_usages = vec![ExtendedKeyUsagePurpose::Any];
    for (why, user, expected) in [
        ("another authority", sign(&admin(), &other_authority()), 401),
        ("its time has passed", sign(&expired, &own), 401),
        ("it is for servers", sign(&server, &own), 401),
        (
            "it has no name",
            sign(&CertificateParams::default(), &other_authority()),
            401,
        ),
        ("it is good", sign(&anything, &own), 200),
    ] {
        let credentials = Credentials {
            user: Some(user),
            ..process.credentials.clone()
        };
        for protocol in ["http/1.1", "h2"] {
            // A connection of an unauthenticated client is closed after one request.
            let connect =
                async || Client::connect(&process.address, &credentials, &[protocol]).await;
            for path in ["/api/v1/secrets", "/healthz"] {
                let answer = connect().await.get(path).await;
                assert_eq!(answer.status, expected, "{why}: {path}: {}", answer.text());
            }
            let client = connect().await;
            let request = Request::get(client.uri("/api/v1/secrets"))
                .header("authorization", "Bearer secret");
            let answer = client
                .fetch(request.body(Full::default()).unwrap())
                .await
                .unwrap();
            assert_eq!(answer.status, 200, "{why}: {}", answer.text());
        }
    }
    check_alive(&process).await;
}

#[tokio::test]
async fn a_client_certificate_takes_precedence_over_a_token() {
    let home = Home::on_disk().with("--token-auth-file=tokens.csv");
    std::fs::write(home.path().join("tokens.csv"), "secret,jane,7\n").unwrap();
    let process = home.start().await;
    const REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let review = async |credentials: &Credentials, token: &str| {
        let client = Client::connect(&process.address, credentials, &["h2"]).await;
        let request = Request::post(client.uri(REVIEWS)).header("content-type", "application/json");
        let request = request.header("authorization", format!("Bearer {token}"));
        let body =
            Full::from(r#"{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1"}"#);
        client.fetch(request.body(body).unwrap()).await.unwrap()
    };
    let anonymous = Credentials {
        user: None,
        ..process.credentials.clone()
    };
    for token in ["secret", "bad"] {
        let answer = review(&process.credentials, token).await.expect(201).json();
        let user = &answer["status"]["userInfo"];
        assert_eq!(
            (&user["username"], &user["uid"]),
            (&"admin".into(), &"admin".into()),
            "{answer}"
        );
        let id = user["extra"]["authentication.kubernetes.io/credential-id"][0]
            .as_str()
            .unwrap();
        assert!(id.starts_with("X509SHA256="), "{answer}");
    }
    let answer = review(&anonymous, "secret").await.expect(201).json();
    assert_eq!(answer["status"]["userInfo"]["username"], "jane");
    assert_eq!(review(&anonymous, "bad").await.status, 401);
}

/// Presents a certificate and signs with a key, which need not match.
#[derive(Debug)]
struct Thief(Arc<CertifiedKey>);

impl ResolvesClientCert for Thief {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

#[tokio::test]
async fn a_client_certificate_needs_its_key() {
    let process = Home::in_memory().start().await;
    let (certificate, _) = process.credentials.user.clone().unwrap();
    let certificate = CertificateDer::from_pem_slice(&certificate).unwrap();
    for version in [&TLS12, &TLS13] {
        let refused = show(
            &process,
            &certificate,
            &KeyPair::generate().unwrap(),
            version,
        )
        .await;
        assert!(refused.contains("alert"), "{refused}");
    }
    check_alive(&process).await;
}

/// The response to a client with this certificate and key that lists secrets.
async fn show(
    process: &Process,
    certificate: &CertificateDer<'static>,
    key: &KeyPair,
    version: &'static SupportedProtocolVersion,
) -> String {
    let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap();
    let key = ring::default_provider()
        .key_provider
        .load_private_key(key)
        .unwrap();
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(&process.credentials.authority).unwrap())
        .unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots)
        .with_client_cert_resolver(Arc::new(Thief(Arc::new(CertifiedKey::new(
            vec![certificate.clone()],
            key,
        )))));
    let talk = async {
        let tcp = TcpStream::connect(&process.address).await?;
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let mut stream = TlsConnector::from(Arc::new(config))
            .connect(name, tcp)
            .await?;
        stream
            .write_all(b"GET /api/v1/secrets HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            .await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        std::io::Result::Ok(answer)
    };
    let answer = timeout(STEP_TIMEOUT, talk)
        .await
        .expect("the server hangs up");
    answer.unwrap_or_else(|error| error.to_string())
}

/// The default of `openssl x509 -req`.
#[tokio::test]
async fn a_version_1_certificate_is_accepted() {
    let home = Home::on_disk();
    let process = home.start().await;
    let file = |name: &str| std::fs::read_to_string(home.data_dir().join(name)).unwrap();
    let key = || KeyPair::from_pem(&file("ca.key")).unwrap();
    let own = Issuer::from_ca_cert_pem(&file("ca.crt"), key()).unwrap();
    let (mine, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let mut expired = admin();
    expired.not_after = rcgen::date_time_ymd(2020, 1, 1);
    let signed = |params: &CertificateParams, authority: &KeyPair| {
        first_version(params.signed_by(&mine, &own).unwrap().der(), authority)
    };
    for version in [&TLS12, &TLS13] {
        for (certificate, key, expected) in [
            (signed(&admin(), &key()), &mine, "HTTP/1.1 200"),
            (signed(&admin(), &key()), &other, "alert"),
            (signed(&admin(), &other), &mine, "HTTP/1.1 401"),
            (signed(&expired, &key()), &mine, "HTTP/1.1 401"),
        ] {
            let answer = show(&process, &certificate, key, version).await;
            assert!(answer.contains(expected), "{expected}: {answer}");
        }
    }
}

/// The same certificate without version and extensions, signed with an elliptic curve key.
fn first_version(der: &[u8], authority: &KeyPair) -> CertificateDer<'static> {
    let parsed = X509Certificate::from_der(der).unwrap().1;
    let tbs = parsed.tbs_certificate.as_ref();
    let at = |part: &[u8]| part.as_ptr() as usize - tbs.as_ptr() as usize;
    let (serial, key) = (parsed.tbs_certificate.raw_serial(), parsed.public_key().raw);
    let signed = sequence(&tbs[at(serial) - 2..at(key) + key.len()]);
    let signature = [&[0], &*authority.sign(&signed).unwrap()].concat();
    let algorithm = b"\x30\x0a\x06\x08\x2a\x86\x48\xce\x3d\x04\x03\x02";
    let signature = [&[3, u8::try_from(signature.len()).unwrap()], &*signature].concat();
    sequence(&[&*signed, algorithm, &signature].concat()).into()
}

fn sequence(content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(content.len()).unwrap().to_be_bytes();
    [&[0x30, 0x82], &length, content].concat()
}
