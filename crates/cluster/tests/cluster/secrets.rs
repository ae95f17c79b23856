//! Tokens, keys and the data of secrets are in no log, metric, page or error.

use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use serde_json::Value;

use crate::client::{Answer, Client};
use crate::process::Home;

const SECRETS: &str = "/api/v1/namespaces/default/secrets";
/// A static token.
const STATIC: &str = "swordfish-static-7Qm3";
/// An unknown token.
const FORGED: &str = "swordfish-forged-x81Z";
/// The data of a secret.
const DATA: &str = "swordfish-data-pL20wq";
/// The secret part of a bootstrap token.
const BOOTSTRAP: &str = "swordfish0boot17";

/// Sends a request with a token, optionally impersonating a user.
async fn call(
    client: &Client,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Answer {
    let mut request = Request::builder().method(method).uri(client.uri(path));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.header("content-type", "application/json");
    client
        .fetch(
            request
                .body(Full::new(Bytes::from(body.to_string())))
                .unwrap(),
        )
        .await
        .unwrap()
}

#[tokio::test]
async fn no_secret_is_in_logs_metrics_or_errors() {
    let home = Home::in_memory()
        .whole()
        .with("--nodes=1")
        .with("--enable-bootstrap-token-auth")
        .logging();
    let tokens = home.path().join("tokens.csv");
    fs::write(&tokens, format!("{STATIC},jane,7,\"system:masters\"\n")).unwrap();
    let home = home.with(format!("--token-auth-file={}", tokens.display()).leak());
    let process = home.start().await;
    let admin = process.admin().await;
    let anonymous = process.anonymous().await;
    let old = Client::connect(
        &process.address,
        &process.credentials.anonymous(),
        &["http/1.1"],
    )
    .await;

    let encode = |text: &str| BASE64_STANDARD.encode(text);
    let secret = |name: &str| {
        format!(r#"{{"metadata":{{"name":"{name}"}},"stringData":{{"password":"{DATA}"}}}}"#)
    };
    admin.post(SECRETS, secret("hidden")).await.expect(201);
    let bootstrap = format!(
        r#"{{"metadata":{{"name":"bootstrap-token-abcdef"}},"type":"bootstrap.kubernetes.io/token",
            "stringData":{{"token-id":"abcdef","token-secret":"{BOOTSTRAP}","usage-bootstrap-authentication":"true"}}}}"#
    );
    admin
        .post("/api/v1/namespaces/kube-system/secrets", bootstrap)
        .await
        .expect(201);
    let account = "/api/v1/namespaces/default/serviceaccounts/default";
    while admin.get(account).await.status != 200 {}
    let made = admin
        .post(&format!("{account}/token"), r#"{"spec":{}}"#)
        .await
        .expect(201)
        .json();
    let issued = made["status"]["token"].as_str().unwrap().to_string();

    // Errors for invalid requests.
    let mut said = Vec::new();
    let bearer = |token: &str| format!("Bearer {token}");
    let (good, forged, issued_bearer) = (bearer(STATIC), bearer(FORGED), bearer(&issued));
    let boot = bearer(&format!("abcdef.{BOOTSTRAP}"));
    let wrong_boot = bearer(&format!("abcdef.{}", BOOTSTRAP.replace('0', "1")));
    for client in [&anonymous, &old] {
        let namespaces = "/api/v1/namespaces";
        call(client, "GET", namespaces, &[("authorization", &good)], "")
            .await
            .expect(200);
        for token in [
            &forged,
            &wrong_boot,
            &format!("{issued_bearer}x"),
            &format!("Basic {}", encode(FORGED)),
        ] {
            said.push(call(client, "GET", SECRETS, &[("authorization", token)], "").await);
        }
        for token in [&issued_bearer, &boot] {
            said.push(
                call(client, "GET", SECRETS, &[("authorization", token)], "")
                    .await
                    .expect(403),
            );
        }
        let impersonating = [
            ("authorization", good.as_str()),
            ("impersonate-user", "joe"),
        ];
        said.push(
            call(client, "GET", SECRETS, &impersonating, "")
                .await
                .expect(403),
        );
        let known = [("authorization", good.as_str())];
        said.push(
            call(client, "POST", SECRETS, &known, &secret("hidden"))
                .await
                .expect(409),
        );
        let broken = secret("BAD NAME");
        said.push(
            call(client, "POST", SECRETS, &known, &broken)
                .await
                .expect(422),
        );
        let typed = format!(r#"{{"metadata":{{"name":"a"}},"data":{{"password":["{DATA}"]}}}}"#);
        said.push(call(client, "POST", SECRETS, &known, &typed).await);
        said.push(
            call(
                client,
                "POST",
                SECRETS,
                &known,
                &format!(r#"{{"stringData":{{"a":"{DATA}"#),
            )
            .await,
        );
    }
    let review = format!(
        r#"{{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{{"token":"{FORGED}"}}}}"#
    );
    let reviewed = admin
        .post("/apis/authentication.k8s.io/v1/tokenreviews", review)
        .await
        .expect(201)
        .json();
    assert_eq!(reviewed["status"]["user"], serde_json::json!({}));
    let errors: String = said.iter().map(Answer::text).collect();

    let mut pages = String::new();
    for page in [
        "/metrics",
        "/debug/api_priority_and_fairness/dump_requests",
        "/debug/pprof/",
        "/configz",
        "/statusz",
        "/flagz",
        "/healthz?verbose",
        "/readyz?verbose",
        "/livez?verbose",
        "/api/v1/events",
        "/api/v1/namespaces/kube-system/configmaps",
    ] {
        pages += &admin.get(page).await.text();
    }
    let key = String::from_utf8(process.credentials.user.clone().unwrap().1).unwrap();
    process.stop().await;
    let log = home.log();
    assert!(log.lines().count() > 3, "all is written down: {log}");

    let data = encode(DATA);
    let hidden = [
        STATIC,
        FORGED,
        DATA,
        &data,
        BOOTSTRAP,
        &issued,
        signature(&issued),
        key.lines().nth(1).unwrap(),
    ];
    for (place, text) in [("the log", &log), ("an error", &errors), ("a page", &pages)] {
        for secret in hidden {
            assert!(!text.contains(secret), "{secret} is in {place}");
        }
    }
    assert!(
        !log.contains("Bearer "),
        "an Authorization header is in the log"
    );
}

/// The secret part of a token.
fn signature(token: &str) -> &str {
    token.rsplit('.').next().unwrap()
}

/// Names of fields with secrets.
const SECRET_FIELDS: [&str; 9] = [
    "token",
    "password",
    "secret",
    "key",
    "private_key",
    "client_key",
    "bearer",
    "authorization",
    "client_secret",
];
/// Types that can hold a secret.
const TEXTS: [&str; 6] = [
    "String",
    "Str",
    "Vec<u8>",
    "Bytes",
    "HeaderValue",
    "&'a str",
];
/// Crates without credentials: there these names are map keys and parts of schemas.
const HARMLESS: [&str; 8] = [
    "linearizability",
    "value",
    "object",
    "component-helpers",
    "core-kinds",
    "kinds",
    "store",
    "scheduler",
];
/// Names that are no secrets: continue tokens, keys of records.
const NO_SECRETS: [(&str, &str); 2] = [
    ("registry/src/list.rs", "token: String"),
    ("cluster/src/transfer/numbered.rs", "key: String"),
];

/// A derived `Debug` would print secrets.
#[test]
fn no_type_that_holds_a_secret_shows_it() {
    let mut found = Vec::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    for entry in fs::read_dir(root).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        if !HARMLESS.contains(&name.as_str()) {
            sources(&entry.path().join("src"), &mut |file, text| {
                shown(file, text, &mut found)
            });
        }
    }
    found.retain(|(file, field)| {
        !NO_SECRETS
            .iter()
            .any(|(ending, harmless)| file.ends_with(ending) && field.contains(harmless))
    });
    assert!(
        found.is_empty(),
        "these types derive Debug and hold secrets: {found:#?}"
    );
}

fn sources(directory: &Path, visit: &mut impl FnMut(&Path, &str)) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path: PathBuf = entry.path();
        if path.is_dir() {
            sources(&path, visit);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            visit(&path, &fs::read_to_string(&path).unwrap());
        }
    }
}

/// Fields with the name and type of a secret in types that derive `Debug`.
fn shown(file: &Path, text: &str, found: &mut Vec<(String, String)>) {
    let mut is_shown = false;
    let mut depth = None;
    for line in text.lines() {
        let code = line.trim();
        if code.starts_with("#[derive(") {
            is_shown = code.contains("Debug");
        } else if code.contains("struct ") || code.contains("enum ") {
            depth = (is_shown && code.ends_with('{')).then_some(());
            is_shown = false;
        } else if line == "}" {
            depth = None;
        } else if depth.is_some() {
            let words = ["pub(crate) ", "pub(super) ", "pub "];
            let field = words
                .iter()
                .fold(code, |code, word| code.trim_start_matches(word));
            let Some((name, kind)) = field.split_once(": ") else {
                continue;
            };
            let kind = kind
                .trim_end_matches(',')
                .trim_start_matches("Option<")
                .trim_end_matches('>');
            let kind = if kind.starts_with("Vec<u8") {
                "Vec<u8>"
            } else {
                kind
            };
            if SECRET_FIELDS.contains(&name) && TEXTS.contains(&kind) {
                found.push((file.display().to_string(), field.to_string()));
            }
        }
    }
}

#[test]
fn a_type_with_a_derived_debug_of_a_secret_is_found() {
    let mut found = Vec::new();
    let text = "#[derive(Clone, Debug)]\npub struct A {\n    pub token: Option<String>,\n}\n#[derive(Clone)]\nstruct B {\n    key: Vec<u8>,\n}\n";
    shown(Path::new("a.rs"), text, &mut found);
    assert_eq!(
        found,
        [("a.rs".to_string(), "token: Option<String>,".to_string())]
    );
}

#[tokio::test]
async fn files_readable_by_other_users_are_made_private() {
    use std::os::unix::fs::PermissionsExt as _;
    let home = Home::on_disk();
    home.start().await.stop().await;
    let names = [
        "ca.key",
        "front-proxy-ca.key",
        "sa.key",
        "00000001.log",
        "tip",
        "lock",
    ];
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let files: Vec<PathBuf> = names
        .iter()
        .map(|name| home.data_dir().join(name))
        .collect();
    for file in &files {
        assert_eq!(mode(file), 0o600, "{}", file.display());
        fs::set_permissions(file, fs::Permissions::from_mode(0o644)).unwrap();
    }
    fs::set_permissions(home.data_dir(), fs::Permissions::from_mode(0o755)).unwrap();
    home.start().await.stop().await;
    assert_eq!(mode(&home.data_dir()), 0o700);
    for file in &files {
        assert_eq!(mode(file), 0o600, "{}", file.display());
    }
}

#[tokio::test]
async fn a_secret_is_readable_only_by_authorized_users() {
    let process = Home::in_memory().start().await;
    let admin = process.admin().await;
    let body = format!(r#"{{"metadata":{{"name":"hidden"}},"stringData":{{"a":"{DATA}"}}}}"#);
    admin.post(SECRETS, body).await.expect(201);
    let found: Value = admin
        .get(&format!("{SECRETS}/hidden"))
        .await
        .expect(200)
        .json();
    assert_eq!(found["data"]["a"], BASE64_STANDARD.encode(DATA));
    for verb in ["get", "list", "watch"] {
        let path = if verb == "get" {
            format!("{SECRETS}/hidden")
        } else {
            format!("{SECRETS}?{verb}=1")
        };
        call(&admin, "GET", &path, &[("impersonate-user", "joe")], "")
            .await
            .expect(403);
    }
}

#[tokio::test]
async fn a_data_directory_or_key_of_another_user_is_rejected() {
    if !nix::unistd::Uid::effective().is_root() {
        eprintln!("SKIPPED: only root can give a file to another user");
        return;
    }
    let give = |path: &Path, uid: u32| std::os::unix::fs::chown(path, Some(uid), None).unwrap();
    let home = Home::on_disk();
    home.start().await.stop().await;
    let data = home.data_dir();
    for path in [
        data.clone(),
        data.join("ca.key"),
        data.join("sa.key"),
        data.join("front-proxy-ca.key"),
    ] {
        give(&path, 4321);
        let output = home.fail_to_start(0).await;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let expected = format!("{}: owned by uid 4321, not by root (uid 0)", path.display());
        assert!(
            !output.status.success() && said.contains(&expected),
            "{said}"
        );
        give(&path, 0);
    }
    let key = home.path().join("named.key");
    fs::copy(data.join("sa.key"), &key).unwrap();
    give(&key, 4321);
    let name = key.to_str().unwrap();
    for arguments in [
        &["--service-account-signing-key-file", name][..],
        &["--tls-private-key-file", name, "--tls-cert-file", name],
        &["--encryption-provider-config", name],
    ] {
        let output = home
            .fail_with(&[&["--port", "0"], arguments].concat())
            .await;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            said.contains("named.key: owned by uid 4321, not by root (uid 0)"),
            "{said}"
        );
    }
    home.start().await.stop().await;
}
