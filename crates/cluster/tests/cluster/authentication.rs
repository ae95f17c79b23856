//! Authentication by flags and files, and reloads of files.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use http::Request;
use http_body_util::Full;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use serde_json::json;

use crate::client::{Client, Credentials};
use crate::process::{Home, Process, STEP_TIMEOUT};

const RSA: &str = include_str!("../../../bootstrap/tests/keys/rsa.pkcs1.pem");
const P256: &str = include_str!("../../../bootstrap/tests/keys/p256.sec1.pem");
const P384_PUBLIC: &str = include_str!("../../../bootstrap/tests/keys/p384.pub.pem");
const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";

/// The status code of a request with a token for a forbidden resource.
async fn code(process: &Process, token: &str) -> u16 {
    let anonymous = process.anonymous().await;
    let request = Request::get(anonymous.uri("/api/v1/secrets"))
        .header("authorization", format!("Bearer {token}"));
    anonymous
        .fetch(request.body(Full::default()).unwrap())
        .await
        .unwrap()
        .status
}

async fn token(admin: &Client) -> String {
    let answer = admin
        .post(&format!("{ACCOUNTS}/robot/token"), "{}")
        .await
        .expect(201)
        .json();
    answer["status"]["token"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn the_signing_key_can_be_replaced_without_breaking_tokens() {
    let home = Home::on_disk()
        .with("--service-account-signing-key-file=signing.pem")
        .with("--service-account-key-file=others.pem");
    let keys = |signing: &str, others: &[&str]| {
        std::fs::write(home.path().join("signing.pem"), signing).unwrap();
        std::fs::write(home.path().join("others.pem"), others.concat()).unwrap();
    };
    keys(RSA, &[P384_PUBLIC]);
    let process = home.start().await;
    let admin = process.admin().await;
    admin
        .post(ACCOUNTS, r#"{"metadata":{"name":"robot"}}"#)
        .await
        .expect(201);
    let old = token(&admin).await;
    assert_eq!(code(&process, &old).await, 403);
    process.stop().await;

    keys(P256, &[RSA, P384_PUBLIC]);
    let process = home.start().await;
    let admin = process.admin().await;
    let new = token(&admin).await;
    assert_eq!(
        (code(&process, &old).await, code(&process, &new).await),
        (403, 403)
    );
    let described = admin
        .get("/.well-known/openid-configuration")
        .await
        .expect(200)
        .json();
    let algorithms = &described["id_token_signing_alg_values_supported"];
    assert_eq!(algorithms.to_string(), r#"["ES256","ES384","RS256"]"#);
    let keys_shown = admin.get("/openid/v1/jwks").await.expect(200).json();
    assert_eq!(keys_shown["keys"].as_array().unwrap().len(), 3);
    process.stop().await;

    keys(P256, &[P384_PUBLIC]);
    let process = home.start().await;
    assert_eq!(
        (code(&process, &old).await, code(&process, &new).await),
        (401, 403)
    );
    process.stop().await;
}

#[tokio::test]
async fn a_token_has_an_issuer_and_an_audience() {
    let home = Home::in_memory()
        .with("--service-account-issuer=https://id.example.com")
        .with("--service-account-issuer=https://old.example.com")
        .with("--api-audiences=one,two");
    let process = home.start().await;
    let admin = process.admin().await;
    admin
        .post(ACCOUNTS, r#"{"metadata":{"name":"robot"}}"#)
        .await
        .expect(201);
    assert_eq!(code(&process, &token(&admin).await).await, 403);
    let path = format!("{ACCOUNTS}/robot/token");
    let other = admin
        .post(
            &path,
            r#"{"spec":{"audiences":["https://id.example.com"]}}"#,
        )
        .await
        .expect(201);
    let other = other.json()["status"]["token"].as_str().unwrap().to_owned();
    assert_eq!(code(&process, &other).await, 401);
    let described = admin
        .get("/.well-known/openid-configuration")
        .await
        .expect(200)
        .json();
    assert_eq!(described["issuer"], "https://id.example.com");
}

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new(name: &str) -> Authority {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Authority {
            issuer: Issuer::new(params, key),
            pem,
        }
    }

    /// A client with a certificate of this authority.
    async fn client(&self, process: &Process, name: &str) -> Client {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let user = Some((
            certificate.pem().into_bytes(),
            key.serialize_pem().into_bytes(),
        ));
        let credentials = Credentials {
            user,
            ..process.credentials.clone()
        };
        Client::connect(&process.address, &credentials, &["http/1.1"]).await
    }

    /// The status code of a new client.
    async fn code(&self, process: &Process) -> u16 {
        ask(&self.client(process, "jane").await, "").await
    }
}

/// The status code of a front proxy with a header for `other`; 0 without a response.
async fn ask(client: &Client, other: &str) -> u16 {
    let mut request = Request::get(client.uri("/api/v1/secrets"));
    if !other.is_empty() {
        request = request
            .header("x-remote-user", other)
            .header("x-remote-group", "system:masters");
    }
    client
        .fetch(request.body(Full::default()).unwrap())
        .await
        .map_or(0, |answer| answer.status)
}

/// Asks until the answer is the expected one.
async fn expect(expected: u16, mut ask: impl AsyncFnMut() -> u16) {
    let waited = tokio::time::timeout(STEP_TIMEOUT, async { while ask().await != expected {} });
    waited.await.unwrap_or_else(|_| panic!("never {expected}"));
}

#[tokio::test]
async fn client_authorities_are_reloaded_on_open_connections() {
    let home = Home::in_memory().with("--client-ca-file=clients.pem");
    let write = |authorities: &[&Authority]| {
        let text: String = authorities
            .iter()
            .map(|authority| authority.pem.as_str())
            .collect();
        std::fs::write(home.path().join("clients.pem"), text).unwrap();
    };
    // A name is no proof: one is called as our own front proxies' authority is.
    let (old, new) = (Authority::new("mizzen-front-proxy"), Authority::new("new"));
    write(&[&old]);
    let process = home.start().await;
    let admin = process.admin().await;
    let early = old.client(&process, "front-proxy-client").await;
    assert_eq!(
        (ask(&early, "").await, ask(&early, "root").await),
        (403, 403)
    );
    assert_eq!(new.code(&process).await, 401);

    write(&[&old, &new]);
    expect(403, async || new.code(&process).await).await;
    assert_eq!(ask(&early, "").await, 403);

    std::fs::write(home.path().join("clients.pem"), "nonsense").unwrap();
    write(&[&new]);
    expect(401, async || ask(&early, "").await).await;
    assert_eq!(
        (old.code(&process).await, new.code(&process).await),
        (401, 403)
    );
    admin.get("/api/v1/secrets").await.expect(200);
}

#[tokio::test]
async fn front_proxies_of_configured_authorities_may_set_user_headers() {
    let home = Home::in_memory()
        .with("--requestheader-client-ca-file=proxies.pem")
        .with("--requestheader-allowed-names=mesh");
    let (proxies, others) = (Authority::new("proxies"), Authority::new("others"));
    std::fs::write(home.path().join("proxies.pem"), &proxies.pem).unwrap();
    let process = home.start().await;
    let mesh = proxies.client(&process, "mesh").await;
    assert_eq!(ask(&mesh, "root").await, 200);
    assert_eq!(ask(&mesh, "").await, 401);
    assert_eq!(
        ask(&proxies.client(&process, "jane").await, "root").await,
        401
    );
    std::fs::write(home.path().join("proxies.pem"), &others.pem).unwrap();
    expect(401, async || ask(&mesh, "root").await).await;
}

#[tokio::test]
async fn front_proxies_use_the_configured_headers() {
    let home = Home::in_memory()
        .with("--requestheader-client-ca-file=proxies.pem")
        .with("--requestheader-username-headers=X-Mesh-User,X-Remote-User")
        .with("--requestheader-group-headers=X-Mesh-Group")
        .with("--requestheader-extra-headers-prefix=X-Mesh-Extra-,X-Remote-Extra-");
    let proxies = Authority::new("proxies");
    std::fs::write(home.path().join("proxies.pem"), &proxies.pem).unwrap();
    let process = home.start().await;
    let mesh = proxies.client(&process, "mesh").await;
    let request = Request::post(mesh.uri("/apis/authentication.k8s.io/v1/selfsubjectreviews"))
        .header("x-mesh-user", "jane")
        .header("x-remote-user", "joe")
        .header("x-mesh-group", "dev")
        .header("x-remote-group", "system:masters")
        .header("x-mesh-extra-team", "blue");
    let answer = mesh
        .fetch(request.body(Full::new("{}".into())).unwrap())
        .await
        .unwrap()
        .expect(201)
        .json();
    let user = &answer["status"]["userInfo"];
    assert_eq!(
        (&user["username"], &user["extra"]),
        (&json!("jane"), &json!({ "team": ["blue"] }))
    );
    assert_eq!(user["groups"], json!(["dev", "system:authenticated"]));
    let path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
    let told = process.admin().await.get(path).await.expect(200).json()["data"].clone();
    assert_eq!(
        told["requestheader-username-headers"],
        r#"["X-Mesh-User","X-Remote-User"]"#
    );
    assert_eq!(told["requestheader-uid-headers"], r#"["X-Remote-Uid"]"#);
    assert_eq!(told["requestheader-group-headers"], r#"["X-Mesh-Group"]"#);
    assert_eq!(
        told["requestheader-extra-headers-prefix"],
        r#"["X-Mesh-Extra-","X-Remote-Extra-"]"#
    );
}

#[tokio::test]
async fn anonymous_requests_are_allowed_at_configured_paths() {
    let home = Home::in_memory().with("--authentication-config=authentication.yaml");
    let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n";
    let write = |text: &str| {
        std::fs::write(
            home.path().join("authentication.yaml"),
            format!("{head}{text}\n"),
        )
        .unwrap();
    };
    write("anonymous: {enabled: true, conditions: [{path: /livez}]}");
    let process = home.start().await;
    let anonymous = process.anonymous().await;
    anonymous.get("/livez").await.expect(200);
    for path in ["/readyz", "/livez/ping", "/api/v1/secrets", "/version"] {
        anonymous.get(path).await.expect(401);
    }
    process.admin().await.get("/readyz").await.expect(200);

    let refused = home
        .fail_with(&["--anonymous-auth=true", "--port", "0"])
        .await;
    let problem = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        problem.contains("--anonymous-auth flag cannot be set when anonymous field is configured"),
        "{problem}"
    );
    write(
        "jwt: [{issuer: {url: 'http://a', audiences: [b]}, claimMappings: {username: {claim: c, prefix: d}}}]",
    );
    let refused = home.fail_with(&["--port", "0"]).await;
    let problem = String::from_utf8_lossy(&refused.stderr).into_owned();
    let expected = r#"authentication.yaml: invalid authentication configuration: jwt[0].issuer.url: Invalid value: "http://a": URL scheme must be https"#;
    assert!(problem.contains(expected), "{problem}");
}

/// A token that says of itself that an issuer has made it, and has no signature.
fn unsigned(issuer: &str) -> String {
    let encode = |text: &str| BASE64_URL_SAFE_NO_PAD.encode(text);
    let claims = encode(&format!(r#"{{"iss":"{issuer}"}}"#));
    format!("{}.{claims}.", encode(r#"{"alg":"none"}"#))
}

/// What an administrator is told of a token.
async fn problem(admin: &Client, token: &str) -> String {
    let body = format!(r#"{{"spec":{{"token":"{token}"}}}}"#);
    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    let review = admin.post(path, body).await.expect(201).json();
    review["status"]["error"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

#[tokio::test]
async fn jwt_issuers_are_reloaded_from_the_file() {
    let home = Home::in_memory().with("--authentication-config=authentication.yaml");
    let write = |issuer: &str| {
        let text = format!(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt: [{{issuer: {{url: '{issuer}', audiences: [b]}}, claimMappings: {{username: {{claim: c, prefix: d}}}}}}]"
        );
        std::fs::write(home.path().join("authentication.yaml"), text).unwrap();
    };
    write("https://a.invalid");
    let process = home.start().await;
    let admin = process.admin().await;
    let knows = async |issuer: &str| {
        problem(&admin, &unsigned(issuer))
            .await
            .contains("oidc: verify token")
    };
    assert!(knows("https://a.invalid").await && !knows("https://b.invalid").await);
    write("https://b.invalid");
    expect(200, async || {
        if knows("https://b.invalid").await {
            200
        } else {
            0
        }
    })
    .await;
    assert!(!knows("https://a.invalid").await);
}

#[tokio::test]
async fn an_oidc_issuer_can_be_set_by_flags() {
    let home = Home::in_memory()
        .with("--oidc-issuer-url=https://a.invalid")
        .with("--oidc-client-id=b")
        .with("--oidc-username-prefix=-")
        .with("--oidc-groups-claim=groups")
        .with("--oidc-required-claim=hd=acme.com");
    let process = home.start().await;
    let expected = r#"[invalid bearer token, oidc: verify token: oidc: malformed jwt: unexpected signature algorithm "none"; expected ["RS256"]]"#;
    assert_eq!(
        problem(&process.admin().await, &unsigned("https://a.invalid")).await,
        expected
    );
}

#[tokio::test]
async fn anonymous_requests_can_be_disabled() {
    let process = Home::in_memory()
        .with("--anonymous-auth=false")
        .start()
        .await;
    let anonymous = process.anonymous().await;
    for path in ["/livez", "/api/v1/secrets"] {
        anonymous.get(path).await.expect(401);
    }
    process.admin().await.get("/livez").await.expect(200);
}

#[tokio::test]
async fn anonymous_requests_are_off_when_everything_is_allowed() {
    for argument in ["--anonymous-auth=true", "--anonymous-auth"] {
        let home = Home::in_memory()
            .with("--authorization-mode=AlwaysAllow")
            .with(argument)
            .logging();
        let process = home.start().await;
        for path in ["/livez", "/api/v1/secrets"] {
            process.anonymous().await.get(path).await.expect(401);
        }
        process.admin().await.get("/livez").await.expect(200);
        let warning = "AnonymousAuth is not allowed with the AlwaysAllow authorizer.";
        assert!(home.log().contains(warning), "{argument}");
    }
    let several = Home::in_memory()
        .with("--authorization-mode=RBAC,AlwaysAllow")
        .start()
        .await;
    several.anonymous().await.get("/livez").await.expect(401);
    // Kubernetes: what the file of authentication says stays.
    let home = Home::in_memory()
        .with("--authorization-mode=AlwaysAllow")
        .with("--authentication-config=a.yaml");
    let text = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\nanonymous: {enabled: true}\n";
    std::fs::write(home.path().join("a.yaml"), text).unwrap();
    home.start()
        .await
        .anonymous()
        .await
        .get("/livez")
        .await
        .expect(200);
}

#[tokio::test]
async fn a_control_plane_serves_only_health_to_anonymous_requests() {
    let check = async |home: Home, expected: [u16; 3]| {
        let process = home.start().await;
        let anonymous = process.anonymous().await;
        for (path, status) in ["/livez", "/version", "/api/v1/secrets"]
            .into_iter()
            .zip(expected)
        {
            anonymous.get(path).await.expect(status);
        }
    };
    check(Home::in_memory(), [200, 200, 403]).await;
    check(Home::in_memory().whole(), [200, 401, 401]).await;
    check(
        Home::in_memory().whole().with("--anonymous-auth"),
        [200, 200, 403],
    )
    .await;
}

#[tokio::test]
async fn invalid_arguments_are_rejected() {
    let home = Home::in_memory();
    std::fs::write(home.path().join("empty.pem"), "nothing").unwrap();
    let check = async |arguments: &[&str], expected: &str| {
        let refused = home
            .fail_with(&[arguments, &["--port", "0"]].concat())
            .await;
        let problem = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(
            !refused.status.success() && problem.contains(expected),
            "{arguments:?}: {problem}"
        );
    };
    let together = "oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set";
    check(&["--oidc-client-id=a"], together).await;
    let issuer = ["--oidc-issuer-url=https://a", "--oidc-client-id=b"];
    let algorithm = [&issuer[..], &["--oidc-signing-algs=ES512"]].concat();
    check(&algorithm, "unsupported signing alg: \"ES512\"").await;
    let own = [
        "--oidc-issuer-url=https://kubernetes.default.svc.cluster.local",
        "--oidc-client-id=b",
    ];
    check(&own, "URL must not overlap with disallowed issuers").await;
    check(
        &["--client-ca-file=empty.pem"],
        "empty.pem: data does not contain any valid RSA or ECDSA certificates",
    )
    .await;
    let no_key = "empty.pem: data does not contain any valid RSA or ECDSA public keys";
    check(&["--service-account-key-file=empty.pem"], no_key).await;
    check(
        &["--authentication-token-webhook-config-file=lost"],
        "lost: No such file",
    )
    .await;
    check(&["--authentication-token-webhook-version=v2"], "v1beta1").await;
}
