//! `mizzen controllers` with files of authorities, of the server's certificate and of the token key.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, KeyPair};
use serde_json::{Value, json};
use tokio::process::{Child, Command};
use tokio::time::timeout;
use x509_parser::prelude::{FromDer as _, Pem, X509Certificate};

use crate::client::Client;
use crate::process::{Home, STEP_TIMEOUT};

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
const NODE: &str = "kubernetes.io/kube-apiserver-client-kubelet";

/// The formats of a key file, each with its PKCS #8 equivalent.
const KEYS: [(&str, &str); 4] = [
    (
        include_str!("../../../bootstrap/tests/keys/rsa.pkcs1.pem"),
        include_str!("../../../bootstrap/tests/keys/rsa.pkcs8.pem"),
    ),
    (
        include_str!("../../../bootstrap/tests/keys/rsa.pkcs8.pem"),
        include_str!("../../../bootstrap/tests/keys/rsa.pkcs8.pem"),
    ),
    (
        include_str!("../../../bootstrap/tests/keys/p256.sec1.pem"),
        include_str!("../../../bootstrap/tests/keys/p256.pkcs8.pem"),
    ),
    (
        include_str!("../../../bootstrap/tests/keys/p256.pkcs8.pem"),
        include_str!("../../../bootstrap/tests/keys/p256.pkcs8.pem"),
    ),
];

/// The files of an authority with a key in this format.
fn authority(home: &Home, name: &str, (kept, read): (&str, &str)) -> [PathBuf; 2] {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let certificate = params
        .self_signed(&KeyPair::from_pem(read).unwrap())
        .unwrap()
        .pem();
    [
        write(home, &format!("{name}.crt"), &certificate),
        write(home, &format!("{name}.key"), kept),
    ]
}

fn write(home: &Home, name: &str, text: &str) -> PathBuf {
    let path = home.path().join(name);
    std::fs::write(&path, text).unwrap();
    path
}

/// The controllers with these files.
fn command(home: &Home, files: &[(&str, &Path)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mizzen"));
    command
        .args([
            "controllers",
            "--no-leader-elect",
            "--secure-port=0",
            "--kubeconfig",
        ])
        .arg(home.kubeconfig());
    files.iter().for_each(|(flag, path)| {
        command.arg(flag).arg(path);
    });
    command.stdin(Stdio::null()).kill_on_drop(true);
    command
}

fn run(home: &Home, files: &[(&str, &Path)]) -> Child {
    command(home, files).stderr(Stdio::null()).spawn().unwrap()
}

async fn refused(home: &Home, files: &[(&str, &Path)]) -> String {
    let output = timeout(STEP_TIMEOUT, command(home, files).output())
        .await
        .expect("ends by itself");
    let Output { status, stderr, .. } = output.unwrap();
    assert!(!status.success());
    String::from_utf8(stderr).unwrap()
}

/// Creates a certificate signing request, and approves it.
async fn ask(client: &Client, name: &str, signer: &str) {
    let mut params = CertificateParams::default();
    params
        .distinguished_name
        .push(DnType::CommonName, "system:node:n");
    params
        .distinguished_name
        .push(DnType::OrganizationName, "system:nodes");
    let request = params
        .serialize_request(&KeyPair::generate().unwrap())
        .unwrap()
        .pem()
        .unwrap();
    let spec = json!({
        "request": BASE64_STANDARD.encode(request), "signerName": signer,
        "usages": ["client auth", "digital signature"],
    });
    let request = json!({"metadata": {"name": name}, "spec": spec});
    let mut request = client
        .post(REQUESTS, request.to_string())
        .await
        .expect(201)
        .json();
    request["status"]["conditions"] =
        json!([{"type": "Approved", "status": "True", "reason": "Test", "message": "why not"}]);
    let path = format!("{REQUESTS}/{name}/approval");
    let approved = client.call("PUT", &path, request.to_string()).await;
    // The approving controller may have been first.
    assert!([200, 409].contains(&approved.status), "{}", approved.text());
}

/// The first state of an object in which a field has a text.
async fn said(client: &Client, path: &str, name: &str, field: &str) -> String {
    let mut events = client
        .watch(&format!(
            "{path}?watch=true&fieldSelector=metadata.name={name}"
        ))
        .await;
    loop {
        let event = events.next().await.expect("the watch goes on");
        if let Some(text) = event["object"].pointer(field).and_then(Value::as_str) {
            return text.to_owned();
        }
    }
}

/// The issuer of the certificate of a request.
async fn issuer(client: &Client, name: &str, authority: &Path) -> String {
    let certificate = said(client, REQUESTS, name, "/status/certificate").await;
    let der = |pem: &[u8]| Pem::iter_from_buffer(pem).next().unwrap().unwrap().contents;
    let (certificate, authority) = (
        der(&BASE64_STANDARD.decode(certificate).unwrap()),
        der(&std::fs::read(authority).unwrap()),
    );
    let (certificate, authority) = (
        X509Certificate::from_der(&certificate).unwrap().1,
        X509Certificate::from_der(&authority).unwrap().1,
    );
    certificate
        .verify_signature(Some(authority.public_key()))
        .unwrap();
    certificate.issuer().to_string()
}

#[tokio::test]
async fn certificate_signing_accepts_every_key_format() {
    let home = Home::in_memory();
    let process = home.start().await;
    let client = process.admin().await;
    for (at, key) in KEYS.into_iter().enumerate() {
        let (authority_name, request) = (format!("ca{at}"), format!("r{at}"));
        let [certificate, key] = authority(&home, &authority_name, key);
        let files = [
            ("--cluster-signing-cert-file", &*certificate),
            ("--cluster-signing-key-file", &*key),
        ];
        let _loops = run(&home, &files);
        ask(&client, &request, CLIENT).await;
        assert_eq!(
            issuer(&client, &request, &certificate).await,
            format!("CN={authority_name}")
        );
    }
    process.stop().await;
}

#[tokio::test]
async fn each_signer_may_have_an_authority_of_its_own() {
    let home = Home::in_memory();
    let process = home.start().await;
    let client = process.admin().await;
    let [certificate, key] = authority(&home, "nodes", KEYS[2]);
    let _loops = run(
        &home,
        &[
            ("--cluster-signing-kubelet-client-cert-file", &certificate),
            ("--cluster-signing-kubelet-client-key-file", &key),
        ],
    );
    // The request without an authority comes first, so that it would be signed first.
    ask(&client, "other", CLIENT).await;
    ask(&client, "node", NODE).await;
    assert_eq!(issuer(&client, "node", &certificate).await, "CN=nodes");
    let other = client
        .get(&format!("{REQUESTS}/other"))
        .await
        .expect(200)
        .json();
    assert_eq!(other["status"]["certificate"], Value::Null);
    process.stop().await;
}

#[tokio::test]
async fn controllers_publish_the_root_ca_and_sign_tokens() {
    let home = Home::on_disk();
    let process = home.start().await;
    let client = process.admin().await;
    let (root, key) = (
        home.data_dir().join("ca.crt"),
        home.data_dir().join("sa.key"),
    );
    let _loops = run(
        &home,
        &[
            ("--root-ca-file", &root),
            ("--service-account-private-key-file", &key),
        ],
    );
    let maps = "/api/v1/namespaces/default/configmaps";
    let published = said(&client, maps, "kube-root-ca.crt", "/data/ca.crt").await;
    assert_eq!(published, std::fs::read_to_string(&root).unwrap());

    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    said(&client, accounts, "default", "/metadata/uid").await;
    let secret = json!({
        "metadata": {"name": "t", "annotations": {"kubernetes.io/service-account.name": "default"}},
        "type": "kubernetes.io/service-account-token",
    });
    let secrets = "/api/v1/namespaces/default/secrets";
    client.post(secrets, secret.to_string()).await.expect(201);
    let token = said(&client, secrets, "t", "/data/token").await;
    let token = String::from_utf8(BASE64_STANDARD.decode(token).unwrap()).unwrap();
    let review = json!({"spec": {"token": token}});
    let review = client
        .post(
            "/apis/authentication.k8s.io/v1/tokenreviews",
            review.to_string(),
        )
        .await;
    let review = review.expect(201).json();
    assert_eq!(
        review["status"]["user"]["username"], "system:serviceaccount:default:default",
        "{review}"
    );
    process.stop().await;
}

#[tokio::test]
async fn the_error_names_invalid_files() {
    let home = Home::in_memory();
    let process = home.start().await;
    let [certificate, key] = authority(&home, "one", KEYS[0]);
    let [_, other_key] = authority(&home, "two", KEYS[2]);
    let twice = write(
        &home,
        "twice.crt",
        &std::fs::read_to_string(&certificate).unwrap().repeat(2),
    );
    let nonsense = write(&home, "nonsense", "nonsense");
    let (signing, signing_key) = ("--cluster-signing-cert-file", "--cluster-signing-key-file");
    for (files, expected) in [
        (
            vec![(signing, &*certificate), (signing_key, &*other_key)],
            "one.crt: not a usable key or certificate: private key does not match public key",
        ),
        (
            vec![(signing, &*certificate), (signing_key, &*nonsense)],
            "nonsense: not a usable key",
        ),
        (
            vec![(signing, &*twice), (signing_key, &*key)],
            "twice.crt: not a usable key or certificate: expected 1 certificate, found 2",
        ),
        (vec![(signing, &*certificate)], "--cluster-signing-key-file"),
        (
            vec![
                (signing, &*certificate),
                (signing_key, &*key),
                ("--cluster-signing-legacy-unknown-cert-file", &*certificate),
                ("--cluster-signing-legacy-unknown-key-file", &*key),
            ],
            "cannot be used with",
        ),
        (
            vec![("--root-ca-file", &*nonsense)],
            "nonsense: not a usable key or certificate: it has no certificate",
        ),
        (
            vec![("--service-account-private-key-file", &*nonsense)],
            "nonsense: not a usable key",
        ),
    ] {
        let said = refused(&home, &files).await;
        assert!(said.contains(expected), "{files:?}: {said}");
    }
    process.stop().await;
}
