//! OpenID Connect: a small real issuer, its keys, and its failures.

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use mizzen_apiserver::Options;
use mizzen_authentication::ServiceAccountTokens;
use mizzen_authentication::jose::{Algorithm, PublicKey};
use mizzen_authentication::{Authentication, AuthenticationConfiguration, Issuers};
use mizzen_metrics::hash;
use mizzen_registry::Store;
use mizzen_value::{Value, json, value};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, RSA_PKCS1_SHA512, RSA_PSS_SHA256,
    RsaEncoding, RsaKeyPair,
};
use tokio::time::Instant;

use crate::peer::{Peer, Reaction};
use crate::rig::{Rig, registry};

/// The time at which every test begins.
const NOW: i64 = 1_800_000_000;

/// A key of an issuer.
struct Key {
    id: &'static str,
    pair: EcdsaKeyPair,
}

impl Key {
    fn new(id: &'static str) -> Key {
        let (random, curve) = (SystemRandom::new(), &ECDSA_P256_SHA256_FIXED_SIGNING);
        let document = EcdsaKeyPair::generate_pkcs8(curve, &random).unwrap();
        Key {
            id,
            pair: EcdsaKeyPair::from_pkcs8(curve, document.as_ref(), &random).unwrap(),
        }
    }

    fn jwk(&self) -> Value {
        let (x, y) = self.pair.public_key().as_ref()[1..].split_at(32);
        let (x, y) = (URL_SAFE_NO_PAD.encode(x), URL_SAFE_NO_PAD.encode(y));
        value!({ "kty": "EC", "crv": "P-256", "use": "sig", "kid": (self.id), "x": x, "y": y })
    }

    fn sign(&self, claims: &Value) -> String {
        let header = value!({ "alg": "ES256", "kid": (self.id) });
        signed(&header, claims, |message| {
            self.pair
                .sign(&SystemRandom::new(), message)
                .unwrap()
                .as_ref()
                .to_vec()
        })
    }
}

fn signed(header: &Value, claims: &Value, sign: impl Fn(&[u8]) -> Vec<u8>) -> String {
    let encode = |value: &Value| URL_SAFE_NO_PAD.encode(json::to_string(value));
    let message = format!("{}.{}", encode(header), encode(claims));
    let signature = URL_SAFE_NO_PAD.encode(sign(message.as_bytes()));
    format!("{message}.{signature}")
}

/// An issuer, which may be in trouble.
struct Provider {
    peer: Peer,
    url: String,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    url: String,
    keys: Vec<Value>,
    trouble: Option<fn() -> Reaction>,
}

impl Provider {
    async fn start(keys: &[&Key]) -> Provider {
        let state = State {
            keys: keys.iter().map(|key| key.jwk()).collect(),
            ..State::default()
        };
        let state = Arc::new(Mutex::new(state));
        let shared = state.clone();
        let peer = Peer::start(&["127.0.0.1"], move |request| {
            let state = shared.lock();
            match (state.trouble, request.uri().path()) {
                (Some(trouble), _) => trouble(),
                (None, "/.well-known/openid-configuration") => {
                    let (issuer, keys) = (state.url.clone(), format!("{}/keys", state.url));
                    let description = value!({ "issuer": issuer, "jwks_uri": keys });
                    Reaction::Reply(200, json::to_string(&description))
                }
                (None, "/keys") => {
                    let mut set = Value::object();
                    set.set("keys", state.keys.clone());
                    Reaction::Reply(200, json::to_string(&set))
                }
                _ => Reaction::Reply(404, String::new()),
            }
        })
        .await;
        let url = format!("https://127.0.0.1:{}", peer.port);
        state.lock().url = url.clone();
        Provider { peer, url, state }
    }

    fn keys(&self, keys: &[&Key]) {
        self.state.lock().keys = keys.iter().map(|key| key.jwk()).collect();
    }

    fn trouble(&self, trouble: Option<fn() -> Reaction>) {
        self.state.lock().trouble = trouble;
    }

    /// How often its keys were asked for.
    fn n_fetches(&self) -> usize {
        self.peer
            .seen()
            .iter()
            .filter(|request| request.uri().path() == "/keys")
            .count()
    }

    fn claims(&self) -> Value {
        value!({
            "iss": (self.url.as_str()), "aud": "mizzen", "sub": "jane", "groups": ["dev"], "oid": "7",
            "exp": (NOW + 600), "iat": NOW, "jti": "j1", "acme.com/team": "blue"
        })
    }

    fn configuration(&self, more: &str) -> AuthenticationConfiguration {
        let authority: String = self
            .peer
            .authority
            .lines()
            .map(|line| format!("      {line}\n"))
            .collect();
        let text = format!(
            "apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
jwt:
- issuer:
    url: {}
    audiences: [mizzen]
    certificateAuthority: |
{authority}
  claimMappings:
    username: {{claim: sub, prefix: 'acme:'}}
    groups: {{expression: 'claims.groups.map(group, \"acme:\" + group)'}}
    uid: {{claim: oid}}
    extra: [{{key: acme.com/team, valueExpression: claims.acme__dot__com__slash__team}}]
{more}",
            self.url
        );
        AuthenticationConfiguration::read(&text, &[]).unwrap()
    }
}

/// A server that believes issuers.
struct Gate {
    rig: Rig,
    issuers: Arc<Issuers>,
}

impl Gate {
    async fn new(configuration: AuthenticationConfiguration) -> Gate {
        Gate::with(configuration, Vec::new()).await
    }

    async fn with(
        configuration: AuthenticationConfiguration,
        kinds: Vec<&'static Algorithm>,
    ) -> Gate {
        let store = Store::in_memory(Default::default());
        let own = ServiceAccountTokens::default();
        let issuers = Arc::new(Issuers::new(
            &registry(store.clone()),
            configuration,
            kinds,
            own.audiences(),
        ));
        let authentication = Authentication {
            authenticators: vec![issuers.clone()],
            ..Authentication::default()
        };
        let rig = Rig::on(
            store,
            Options {
                authentication,
                ..Options::default()
            },
        )
        .await;
        Gate { rig, issuers }
    }

    /// What a TokenReview says of a token.
    async fn review(&self, token: &str) -> Value {
        let body = json::to_string(&value!({ "spec": { "token": token } }));
        let review = self
            .rig
            .post("/apis/authentication.k8s.io/v1/tokenreviews", &body)
            .await
            .expect(201);
        review.body["status"].clone()
    }

    /// Asserts that a token shows a user, or why it does not.
    #[track_caller]
    fn check(&self, token: &str, expected: Result<&str, &str>) -> impl Future<Output = ()> {
        let place = std::panic::Location::caller();
        let expected = expected.map(String::from).map_err(String::from);
        async move {
            let status = self.review(token).await;
            let found = match status["authenticated"].bool() {
                true => Ok(status["user"]["username"].str().to_owned()),
                false => Err(status["error"]
                    .str()
                    .replace("[invalid bearer token, ", "")
                    .replace(']', "")),
            };
            assert_eq!(
                found,
                expected.map_err(|problem| problem.replace(']', "")),
                "{place}"
            );
        }
    }
}

#[tokio::test]
async fn claims_are_mapped_to_a_user() {
    let key = Key::new("k1");
    let provider = Provider::start(&[&key]).await;
    let gate = Gate::new(provider.configuration("")).await;
    let user = &gate.review(&key.sign(&provider.claims())).await["user"];
    let expected = r#"{"username":"acme:jane","uid":"7","groups":["acme:dev","system:authenticated"],"extra":{"acme.com/team":["blue"],"authentication.kubernetes.io/credential-id":["JTI=j1"]}}"#;
    assert_eq!(json::to_string(user), expected);
    gate.check(&key.sign(&provider.claims()), Ok("acme:jane"))
        .await;
    assert_eq!(provider.n_fetches(), 1);
}

#[tokio::test]
async fn rsa_signatures_are_verified_by_the_algorithm_in_the_header() {
    let der = |pem: &str| {
        let body: String = pem
            .lines()
            .filter(|line| !line.starts_with("-----"))
            .collect();
        STANDARD.decode(body).unwrap()
    };
    let pair = RsaKeyPair::from_pkcs8(&der(include_str!(
        "../../../bootstrap/tests/keys/rsa.pkcs8.pem"
    )))
    .unwrap();
    let public = PublicKey::from_der(&der(include_str!(
        "../../../bootstrap/tests/keys/rsa.pub.pem"
    )))
    .unwrap();
    let provider = Provider::start(&[]).await;
    let mut jwk = public.to_jwk();
    jwk.set("kid", "r");
    provider.state.lock().keys = vec![jwk];
    let gate = Gate::new(provider.configuration("")).await;
    let sign = |name: &str, encoding: &'static dyn RsaEncoding| {
        signed(
            &value!({ "alg": name, "kid": "r" }),
            &provider.claims(),
            |message| {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(encoding, &SystemRandom::new(), message, &mut signature)
                    .unwrap();
                signature
            },
        )
    };
    gate.check(&sign("RS512", &RSA_PKCS1_SHA512), Ok("acme:jane"))
        .await;
    gate.check(&sign("PS256", &RSA_PSS_SHA256), Ok("acme:jane"))
        .await;
    let wrong =
        "oidc: verify token: failed to verify signature: failed to verify id token signature";
    gate.check(&sign("RS256", &RSA_PKCS1_SHA512), Err(wrong))
        .await;
}

#[tokio::test]
async fn an_invalid_id_token_is_rejected() {
    let (key, stranger) = (Key::new("k1"), Key::new("k1"));
    let provider = Provider::start(&[&key]).await;
    let gate = Gate::new(provider.configuration("")).await;
    let with = |field: &str, value: Value| {
        let mut claims = provider.claims();
        claims.set(field, value);
        key.sign(&claims)
    };
    let refused = async |token: &str, problem: &str| {
        gate.check(token, Err(&format!("oidc: verify token: {problem}")))
            .await;
    };
    let forged = "failed to verify signature: failed to verify id token signature";
    refused(&stranger.sign(&provider.claims()), forged).await;
    refused(
        &with("aud", "other".into()),
        r#"oidc: expected audience "mizzen" got ["other"]"#,
    )
    .await;
    let late = "oidc: token is expired (Token Expiry: 2027-01-15 07:59:59 +0000 UTC)";
    refused(&with("exp", (NOW - 1).into()), late).await;
    let early = "oidc: current time 2027-01-15 08:00:00 +0000 UTC before the nbf (not before) time: 2027-01-15 08:05:01 +0000 UTC";
    refused(&with("nbf", (NOW + 301).into()), early).await;
    gate.check(&with("nbf", (NOW + 300).into()), Ok("acme:jane"))
        .await;
    // The issuer's clock may be ahead: when a token was made does not matter.
    gate.check(&with("iat", (NOW + 3600).into()), Ok("acme:jane"))
        .await;
    let none = signed(&value!({ "alg": "none" }), &provider.claims(), |_| {
        Vec::new()
    });
    let unexpected = r#"oidc: malformed jwt: unexpected signature algorithm "none"; expected ["RS256" "RS384" "RS512" "PS256" "PS384" "PS512" "ES256" "ES384"]"#;
    refused(&none, unexpected).await;
    gate.check(
        &with("iss", "https://other".into()),
        Err("invalid bearer token"),
    )
    .await;
    gate.check(
        &with("sub", 7.into()),
        Err(
            "oidc: parse username claims \"sub\": json: cannot unmarshal number into Go value of type string",
        ),
    )
    .await;
    let mut changed = key.sign(&provider.claims());
    changed.replace_range(60..61, "_");
    assert!(!gate.review(&changed).await["authenticated"].bool());
}

#[tokio::test]
async fn only_configured_signature_algorithms_are_accepted() {
    let key = Key::new("k1");
    let provider = Provider::start(&[&key]).await;
    let kinds = vec![Algorithm::named("RS256").unwrap()];
    let gate = Gate::with(provider.configuration(""), kinds).await;
    let problem = r#"oidc: verify token: oidc: malformed jwt: unexpected signature algorithm "ES256"; expected ["RS256"]"#;
    gate.check(&key.sign(&provider.claims()), Err(problem))
        .await;
    assert_eq!(provider.peer.seen().len(), 0);
}

#[tokio::test]
async fn claim_and_user_validation_rules_are_enforced() {
    let key = Key::new("k1");
    let provider = Provider::start(&[&key]).await;
    let rules = "  claimValidationRules:
  - {claim: hd, requiredValue: acme.com}
  - {expression: 'claims.exp - claims.iat <= 600.0', message: too long}
  userValidationRules:
  - {expression: \"!user.username.endsWith('root')\", message: reserved}
";
    let gate = Gate::new(provider.configuration(rules)).await;
    let token = |hd: Value, exp: i64, sub: &str| {
        let mut claims = provider.claims();
        claims.set("hd", hd);
        claims.set("exp", exp);
        claims.set("sub", sub);
        key.sign(&claims)
    };
    gate.check(
        &token("acme.com".into(), NOW + 600, "jane"),
        Ok("acme:jane"),
    )
    .await;
    let wrong = "oidc: required claim hd value does not match. Got = evil.com, want = acme.com";
    gate.check(&token("evil.com".into(), NOW + 600, "jane"), Err(wrong))
        .await;
    let missing = "oidc: required claim hd not present in ID token";
    gate.check(&key.sign(&provider.claims()), Err(missing))
        .await;
    let long = "oidc: error evaluating claim validation expression: validation expression 'claims.exp - claims.iat <= 600.0' failed: too long";
    gate.check(&token("acme.com".into(), NOW + 601, "jane"), Err(long))
        .await;
    let reserved = "oidc: error evaluating user info validation rule: validation expression '!user.username.endsWith('root')' failed: reserved";
    gate.check(&token("acme.com".into(), NOW + 600, "root"), Err(reserved))
        .await;
}

#[tokio::test]
async fn new_keys_are_fetched_and_removed_keys_are_rejected() {
    let (old, new) = (Key::new("old"), Key::new("new"));
    let provider = Provider::start(&[&old]).await;
    let gate = Gate::new(provider.configuration("")).await;
    gate.check(&old.sign(&provider.claims()), Ok("acme:jane"))
        .await;
    provider.keys(&[&old, &new]);
    gate.check(&new.sign(&provider.claims()), Ok("acme:jane"))
        .await;
    gate.check(&old.sign(&provider.claims()), Ok("acme:jane"))
        .await;
    assert_eq!(provider.n_fetches(), 2);
    provider.keys(&[&new]);
    // Cached keys stay valid until a token has an unknown key.
    let unknown =
        "oidc: verify token: failed to verify signature: failed to verify id token signature";
    gate.check(&Key::new("other").sign(&provider.claims()), Err(unknown))
        .await;
    gate.check(&old.sign(&provider.claims()), Err(unknown))
        .await;
    gate.check(&new.sign(&provider.claims()), Ok("acme:jane"))
        .await;
}

#[tokio::test]
async fn unknown_keys_cause_a_bounded_number_of_fetches() {
    let key = Key::new("k1");
    let provider = Provider::start(&[&key]).await;
    let gate = Gate::new(provider.configuration("")).await;
    for _ in 0..20 {
        let token = Key::new("other").sign(&provider.claims());
        assert!(!gate.review(&token).await["authenticated"].bool());
    }
    assert_eq!(provider.n_fetches(), 5);
    gate.check(&key.sign(&provider.claims()), Ok("acme:jane"))
        .await;
}

#[tokio::test]
async fn an_issuer_may_be_down_for_a_while() {
    let key = Key::new("k1");
    let provider = Provider::start(&[&key]).await;
    provider.trouble(Some(|| Reaction::Reply(503, String::new())));
    let gate = Gate::new(provider.configuration("")).await;
    let token = key.sign(&provider.claims());
    let url = &provider.url;
    let down = format!(
        "oidc: verify token: failed to verify signature: fetching keys Get \"{url}/.well-known/openid-configuration\": the server answered with the status code 503"
    );
    gate.check(&token, Err(&down)).await;
    provider.trouble(Some(|| Reaction::Reply(200, "<html>".into())));
    assert!(!gate.review(&token).await["authenticated"].bool());
    provider.trouble(None);
    gate.check(&token, Ok("acme:jane")).await;
    provider.trouble(Some(|| Reaction::Close));
    gate.check(&token, Ok("acme:jane")).await;
    assert!(!gate.review(&Key::new("new").sign(&provider.claims())).await["authenticated"].bool());
    let metrics = gate
        .rig
        .get("/metrics")
        .await
        .expect(200)
        .body
        .str()
        .to_owned();
    let (name, issuer) = (
        "apiserver_authentication_jwt_authenticator",
        hash(url.as_bytes()),
    );
    let set = format!(r#"{{"keys":[{}]}}"#, json::to_string(&key.jwk()));
    let set = hash(set.as_bytes());
    for line in [
        format!(
            "{name}_latency_seconds_count{{jwt_issuer_hash=\"{issuer}\",result=\"success\"}} 2"
        ),
        format!(
            "{name}_latency_seconds_count{{jwt_issuer_hash=\"{issuer}\",result=\"failure\"}} 3"
        ),
        format!(
            "{name}_jwks_fetch_last_key_set_info{{apiserver_id_hash=\"\",hash=\"{set}\",jwt_issuer_hash=\"{issuer}\"}} 1"
        ),
    ] {
        assert!(
            metrics.lines().any(|known| known == line),
            "{line} is not in\n{metrics}"
        );
    }
    for result in ["success", "failure"] {
        let labels =
            format!("apiserver_id_hash=\"\",jwt_issuer_hash=\"{issuer}\",result=\"{result}\"");
        // As Go writes it, with an exponent; the last digits are not known.
        let line = format!("{name}_jwks_fetch_last_timestamp_seconds{{{labels}}} 1.8");
        assert!(metrics.contains(&line), "{line} is not in\n{metrics}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_issuer_that_hangs_times_out() {
    let key = Key::new("k1");
    let provider = Provider::start(&[&key]).await;
    provider.trouble(Some(|| Reaction::Hang));
    let gate = Gate::new(provider.configuration("")).await;
    let began = Instant::now();
    let status = gate.review(&key.sign(&provider.claims())).await;
    assert!(!status["authenticated"].bool());
    assert!(
        began.elapsed() <= Duration::from_secs(11),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test]
async fn an_issuer_with_another_name_is_rejected() {
    let key = Key::new("k1");
    let provider = Provider::start(&[&key]).await;
    let gate = Gate::new(provider.configuration("")).await;
    provider.state.lock().url = "https://other".into();
    let problem = format!(
        "oidc: verify token: failed to verify signature: fetching keys oidc: issuer did not match the issuer returned by provider, expected \"{}\" got \"https://other\"",
        provider.url
    );
    gate.check(&key.sign(&provider.claims()), Err(&problem))
        .await;
}

#[tokio::test]
async fn issuers_are_replaced_while_the_server_runs() {
    let key = Key::new("k1");
    let (first, second) = (
        Provider::start(&[&key]).await,
        Provider::start(&[&key]).await,
    );
    let gate = Gate::new(first.configuration("")).await;
    gate.check(&key.sign(&first.claims()), Ok("acme:jane"))
        .await;
    gate.check(&key.sign(&second.claims()), Err("invalid bearer token"))
        .await;
    gate.issuers.replace(second.configuration(""));
    gate.check(&key.sign(&first.claims()), Err("invalid bearer token"))
        .await;
    gate.check(&key.sign(&second.claims()), Ok("acme:jane"))
        .await;
    gate.issuers.replace(
        second.configuration("  userValidationRules: [{expression: 'false', message: never}]\n"),
    );
    let refused = "oidc: error evaluating user info validation rule: validation expression 'false' failed: never";
    gate.check(&key.sign(&second.claims()), Err(refused)).await;
    assert_eq!(
        second.n_fetches(),
        1,
        "keys of an issuer that stays are kept"
    );
}
