//! How are tokens shown, and how long do they hold?

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use mizzen_apiserver::{Options, Response};
use mizzen_authentication::{Authentication, StaticTokens};
use mizzen_authentication::{ServiceAccountTokens, TokenSigner, issue_token};
use mizzen_value::{Value, json, value};

use crate::access::Echo;
use crate::rig::{CONFIG_MAPS, Rig};

/// The response to a client without a certificate; jane's token is `swordfish`.
async fn send(headers: &[(&str, &str)]) -> Response {
    let tokens = StaticTokens::parse("swordfish,jane,1").unwrap();
    let authentication = Authentication {
        tokens,
        ..Authentication::default()
    };
    let rig = Rig::with(Options {
        authentication,
        ..Options::default()
    })
    .await;
    let headers = headers
        .iter()
        .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
    let (method, uri) = ("GET".parse().unwrap(), CONFIG_MAPS.parse().unwrap());
    rig.server
        .call(None, method, uri, headers.collect(), Default::default())
        .await
}

async fn message(answer: Response) -> String {
    use http_body_util::BodyExt as _;
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    json::parse(&body).unwrap()["message"].str().to_owned()
}

#[tokio::test]
async fn a_websocket_token_is_read_from_the_protocol_header() {
    let check = async |protocols: &str, expected: &str| {
        let websocket = [("upgrade", "websocket"), ("connection", "Upgrade")];
        let headers = [
            websocket[0],
            websocket[1],
            ("sec-websocket-protocol", protocols),
        ];
        let message = message(send(&headers).await).await;
        assert!(message.contains(expected), "{protocols}: {message}");
    };
    const TOKEN: &str = "base64url.bearer.authorization.k8s.io.";
    let token = |text: &str| format!("{TOKEN}{}", URL_SAFE_NO_PAD.encode(text));
    check(
        &format!("{}, a", token("swordfish")),
        "User \"jane\" cannot list",
    )
    .await;
    check(&format!("{}, a", token("cod")), "Unauthorized").await;
    check(&token("swordfish"), "Unauthorized").await;
    check(
        &format!("{}, a, {}", token("swordfish"), token("swordfish")),
        "Unauthorized",
    )
    .await;
    check(&format!("{TOKEN}%, a"), "Unauthorized").await;
    check("a", "User \"system:anonymous\" cannot list").await;
}

#[tokio::test]
async fn a_token_behind_an_extra_space_is_ignored_with_a_warning() {
    let warning = "299 - \"the provided Authorization header contains extra space before the bearer token, and is ignored\"";
    for (header, expected, warned) in [
        ("Bearer swordfish", "User \"jane\" cannot list", false),
        (
            "Bearer  swordfish",
            "User \"system:anonymous\" cannot list",
            true,
        ),
        ("Bearer cod", "Unauthorized", false),
    ] {
        let answer = send(&[("authorization", header)]).await;
        let said = answer
            .headers()
            .get("warning")
            .map(|said| said.to_str().unwrap().to_owned());
        assert_eq!(said, warned.then(|| warning.to_owned()), "{header}");
        let message = message(answer).await;
        assert!(message.contains(expected), "{header}: {message}");
    }
}

#[tokio::test]
async fn a_token_is_bound_to_an_object_that_has_a_name() {
    let rig = Rig::with(Options {
        signer: Some(Arc::new(Echo)),
        ..Options::default()
    })
    .await;
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    rig.post(accounts, r#"{"metadata":{"name":"robot"}}"#)
        .await
        .expect(201);
    for kind in ["Pod", "Secret", "Node"] {
        let body = format!(r#"{{"spec":{{"boundObjectRef":{{"kind":"{kind}"}}}}}}"#);
        let refused = rig
            .post(&format!("{accounts}/robot/token"), &body)
            .await
            .expect(400);
        assert_eq!(refused.message(), "Name parameter required.");
    }
}

#[tokio::test]
async fn no_token_is_valid_longer_than_the_maximum() {
    let service_accounts = ServiceAccountTokens {
        max_expiration: Some(7200),
        extend_expiration: false,
        ..Default::default()
    };
    let signer: Option<Arc<dyn TokenSigner>> = Some(Arc::new(Echo));
    let rig = Rig::with(Options {
        signer,
        service_accounts,
        ..Options::default()
    })
    .await;
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    rig.post(accounts, r#"{"metadata":{"name":"robot"}}"#)
        .await
        .expect(201);
    let check = async |wanted: i64, expected: i64, warnings: &[&str]| {
        let body = format!(r#"{{"spec":{{"expirationSeconds":{wanted}}}}}"#);
        let answer = rig
            .post(&format!("{accounts}/robot/token"), &body)
            .await
            .expect(201);
        assert_eq!(answer.body["spec"]["expirationSeconds"].int(), expected);
        assert_eq!(answer.warnings, warnings);
    };
    check(3600, 3600, &[]).await;
    check(7200, 7200, &[]).await;
    let shortened = r#"299 - "requested expiration of 7201 seconds shortened to 7200 seconds""#;
    check(7201, 7200, &[shortened]).await;
}

#[tokio::test]
async fn a_pod_token_is_extended_to_a_year_if_that_is_enabled() {
    for (extends, expected) in [(true, 365 * 24 * 60 * 60), (false, 3607)] {
        let service_accounts = ServiceAccountTokens {
            extend_expiration: extends,
            ..Default::default()
        };
        let signer: Option<Arc<dyn TokenSigner>> = Some(Arc::new(Echo));
        let rig = Rig::with(Options {
            signer,
            service_accounts,
            ..Options::default()
        })
        .await;
        let accounts = "/api/v1/namespaces/default/serviceaccounts";
        rig.post(accounts, r#"{"metadata":{"name":"robot"}}"#)
            .await
            .expect(201);
        let pod = r#"{"metadata":{"name":"p"},"spec":{"serviceAccountName":"robot","automountServiceAccountToken":false,"containers":[{"name":"c","image":"i"}]}}"#;
        rig.post("/api/v1/namespaces/default/pods", pod)
            .await
            .expect(201);
        let body = r#"{"spec":{"expirationSeconds":3607,"boundObjectRef":{"kind":"Pod","apiVersion":"v1","name":"p"}}}"#;
        let answer = rig
            .post(&format!("{accounts}/robot/token"), body)
            .await
            .expect(201);
        let token = answer.body["status"]["token"].str().to_owned();
        let claims = URL_SAFE_NO_PAD
            .decode(token.split('.').nth(1).unwrap())
            .unwrap();
        let claims = json::parse(&claims).unwrap();
        assert_eq!(claims["exp"].int() - claims["iat"].int(), expected);
    }
}

#[tokio::test]
async fn a_secret_based_token_survives_its_secret_without_lookup() {
    for (looks_up, expected) in [(false, "system:serviceaccount:default:robot"), (true, "")] {
        let service_accounts = ServiceAccountTokens {
            lookup: looks_up,
            ..Default::default()
        };
        let signer: Option<Arc<dyn TokenSigner>> = Some(Arc::new(Echo));
        let rig = Rig::with(Options {
            signer,
            service_accounts,
            ..Options::default()
        })
        .await;
        let claims = value!({
            "iss": "kubernetes/serviceaccount",
            "kubernetes.io/serviceaccount/namespace": "default",
            "kubernetes.io/serviceaccount/secret.name": "t",
            "kubernetes.io/serviceaccount/service-account.name": "robot",
            "kubernetes.io/serviceaccount/service-account.uid": "u",
            "sub": "system:serviceaccount:default:robot",
        });
        let body = format!(
            r#"{{"spec":{{"token":"{}"}}}}"#,
            issue_token(&Echo, &claims).unwrap()
        );
        let review = rig
            .post("/apis/authentication.k8s.io/v1/tokenreviews", &body)
            .await
            .expect(201);
        assert_eq!(review.body["status"]["user"]["username"].str(), expected);
    }
}

/// A token of the account `robot` as Echo signs it, with another header or other claims.
fn forged(header: &str, claims: &Value) -> String {
    let parts = [header, &json::to_string(claims)].map(|part| URL_SAFE_NO_PAD.encode(part));
    let message = parts.join(".");
    format!("{message}.{}", URL_SAFE_NO_PAD.encode(&message))
}

#[tokio::test]
async fn the_header_of_a_token_names_the_algorithm_and_the_id_of_its_key() {
    let rig = Rig::with(Options {
        signer: Some(Arc::new(Echo)),
        ..Options::default()
    })
    .await;
    let (claims, _) = robot(&rig).await;
    let check = async |header: &str, expected: &str| {
        assert_eq!(
            review(&rig, &forged(header, &claims)).await,
            expected,
            "{header}"
        );
    };
    const ROBOT: &str = "system:serviceaccount:default:robot";
    const BAD: &str = "[invalid bearer token, go-jose/go-jose: error in cryptographic primitive]";
    check(r#"{"alg":"echo","kid":"echo"}"#, ROBOT).await;
    check(r#"{"alg":"echo"}"#, ROBOT).await;
    for other in ["none", "HS256", "ES256", "RS256", "Echo", ""] {
        check(&format!(r#"{{"alg":"{other}","kid":"echo"}}"#), BAD).await;
    }
    check(r#"{"kid":"echo"}"#, BAD).await;
    let unknown = "[invalid bearer token, invalid signature, no keys found]";
    check(r#"{"alg":"echo","kid":"other"}"#, unknown).await;
}

#[tokio::test]
async fn the_user_of_a_token_is_its_service_account() {
    let rig = Rig::with(Options {
        signer: Some(Arc::new(Echo)),
        ..Options::default()
    })
    .await;
    let (claims, uid) = robot(&rig).await;
    const HEADER: &str = r#"{"alg":"echo","kid":"echo"}"#;
    let check = async |change: &dyn Fn(&mut Value), expected: &str| {
        let mut claims = claims.clone();
        change(&mut claims);
        assert_eq!(review(&rig, &forged(HEADER, &claims)).await, expected);
    };
    check(&|_| {}, "system:serviceaccount:default:robot").await;
    let invalid = "[invalid bearer token, sub claim is invalid]";
    for sub in [
        "system:admin",
        "system:serviceaccount:kube-system:robot",
        "system:serviceaccount:default:x",
        "",
    ] {
        check(&|claims| claims.set("sub", sub), invalid).await;
    }
    check(&|claims| drop(claims.remove("sub")), invalid).await;
    let other = |name: &str| {
        let (bound, sub) = (
            value!({ "name": name, "uid": (uid.as_str()) }),
            format!("system:serviceaccount:default:{name}"),
        );
        move |claims: &mut Value| {
            claims
                .entry("kubernetes.io")
                .set("serviceaccount", bound.clone());
            claims.set("sub", sub.as_str());
        }
    };
    check(
        &other("x"),
        "[invalid bearer token, serviceaccounts \"x\" not found]",
    )
    .await;
}

/// The claims of a good token of a new account `robot`, and the uid of that.
async fn robot(rig: &Rig) -> (Value, String) {
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    rig.post(accounts, r#"{"metadata":{"name":"robot"}}"#)
        .await
        .expect(201);
    let answer = rig
        .post(&format!("{accounts}/robot/token"), r#"{"spec":{}}"#)
        .await
        .expect(201);
    let claims = answer.body["status"]["token"]
        .str()
        .split('.')
        .nth(1)
        .unwrap()
        .to_owned();
    let claims = json::parse(&URL_SAFE_NO_PAD.decode(claims).unwrap()).unwrap();
    let uid = claims["kubernetes.io"]["serviceaccount"]["uid"]
        .str()
        .to_owned();
    (claims, uid)
}

/// The user of a token, or why it has none.
async fn review(rig: &Rig, token: &str) -> String {
    let body = format!(r#"{{"spec":{{"token":"{token}"}}}}"#);
    let review = rig
        .post("/apis/authentication.k8s.io/v1/tokenreviews", &body)
        .await
        .expect(201);
    let status = &review.body["status"];
    format!(
        "{}{}",
        status["user"]["username"].str(),
        status["error"].str()
    )
}
