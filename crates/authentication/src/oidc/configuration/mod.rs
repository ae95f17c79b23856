//! Decodes and validates an AuthenticationConfiguration.

mod mapping;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::sync::OnceLock;

use mizzen_object::config_file::ConfigScheme;
use mizzen_object::schema::{Schemas, parse};
use mizzen_object::{Path, Violations};
use mizzen_outgoing::Trust;
use mizzen_value::{Str, Value, json};
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;

use super::claim_mappings::ClaimMappings;
use super::keys::IssuerEndpoint;
use crate::Anonymous;
use mapping::{read_claim_rules, read_mappings, read_user_rules};

/// All versions have the same fields.
const KINDS: [(&str, &str); 3] = [
    ("apiserver.config.k8s.io/v1", "AuthenticationConfiguration"),
    (
        "apiserver.config.k8s.io/v1beta1",
        "AuthenticationConfiguration",
    ),
    (
        "apiserver.config.k8s.io/v1alpha1",
        "AuthenticationConfiguration",
    ),
];
/// The maximum number of issuers.
const MAX_ISSUERS: usize = 64;

/// The issuers, and where anonymous requests are allowed.
#[derive(Debug)]
pub struct AuthenticationConfiguration {
    pub(super) issuers: Vec<IssuerConfiguration>,
    /// Where anonymous requests are allowed, if configured.
    pub anonymous: Option<Anonymous>,
}

/// An issuer and its claim mappings.
#[derive(Debug)]
pub(super) struct IssuerConfiguration {
    pub endpoint: IssuerEndpoint,
    pub audiences: Vec<Str>,
    pub mappings: ClaimMappings,
}

impl AuthenticationConfiguration {
    /// Reads YAML or JSON. No issuer may have a URL of `disallowed`, which are this server's own.
    pub fn read(text: &str, disallowed: &[Str]) -> Result<AuthenticationConfiguration, String> {
        let document = Self::decode(text)?;
        let mut violations = Violations::default();
        let configuration = Self::validate(&document, disallowed, &mut violations);
        match violations.aggregate() {
            Some(problem) => Err(format!("invalid authentication configuration: {problem}")),
            None => Ok(configuration),
        }
    }

    /// Decodes a file strictly.
    fn decode(text: &str) -> Result<Value, String> {
        if text.is_empty() {
            return Err("empty config data".into());
        }
        static SCHEMAS: OnceLock<Schemas> = OnceLock::new();
        let file = ("authentication.kinds", include_str!("authentication.kinds"));
        let scheme = ConfigScheme {
            name: "pkg/kubeapiserver/options/authentication.go:879",
            kinds: &KINDS,
            types: SCHEMAS.get_or_init(|| parse([file]).expect("authentication.kinds is valid")),
        };
        scheme
            .decode(text.as_bytes())
            .map_err(|error| error.to_string())
    }

    fn validate(
        document: &Value,
        disallowed: &[Str],
        violations: &mut Violations,
    ) -> AuthenticationConfiguration {
        let (root, issuers) = (Path::new("jwt"), document["jwt"].list());
        let mut configuration = AuthenticationConfiguration {
            issuers: Vec::new(),
            anonymous: None,
        };
        if issuers.len() > MAX_ISSUERS {
            violations.too_many(root, issuers.len(), MAX_ISSUERS);
            return configuration;
        }
        let (mut urls, mut discoveries) = (HashSet::new(), HashSet::new());
        for (at, authenticator) in issuers.iter().enumerate() {
            let path = root.index(at);
            configuration.issuers.push(IssuerConfiguration::from_config(
                authenticator,
                disallowed,
                &path,
                violations,
            ));
            let (path, issuer) = (path.child("issuer"), &authenticator["issuer"]);
            let (url, discovery) = (issuer["url"].str(), issuer["discoveryURL"].str());
            if !urls.insert(url) {
                violations.duplicate(path.child("url"), url);
            }
            if !discovery.is_empty() && !discoveries.insert(discovery) {
                violations.duplicate(path.child("discoveryURL"), discovery);
            }
        }
        configuration.anonymous = document
            .get("anonymous")
            .map(|said| Anonymous::from_config(said, violations));
        configuration
    }
}

impl Anonymous {
    fn from_config(said: &Value, violations: &mut Violations) -> Anonymous {
        let paths: Vec<&str> = said["conditions"]
            .list()
            .iter()
            .map(|one| one["path"].str())
            .collect();
        match (said["enabled"].bool(), paths.is_empty()) {
            (true, true) => Anonymous::Enabled,
            (true, false) => Anonymous::AtPaths(paths.into_iter().map(String::from).collect()),
            (false, true) => Anonymous::Disabled,
            (false, false) => {
                let shown: Vec<String> = paths
                    .iter()
                    .map(|path| format!("{{\"Path\":{}}}", json::quote(path)))
                    .collect();
                let shown = format!("[{}]", shown.join(","));
                let detail = "enabled should be set to true when conditions are defined";
                violations.invalid_shown("anonymous.conditions", &shown, detail);
                Anonymous::Disabled
            }
        }
    }
}

impl IssuerConfiguration {
    fn from_config(
        said: &Value,
        disallowed: &[Str],
        path: &Path,
        violations: &mut Violations,
    ) -> IssuerConfiguration {
        let issuer = &said["issuer"];
        check_issuer(issuer, disallowed, &path.child("issuer"), violations);
        let mut mappings = ClaimMappings::default();
        let rules_path = path.child("claimValidationRules");
        read_claim_rules(
            said["claimValidationRules"].list(),
            &mut mappings,
            &rules_path,
            violations,
        );
        read_mappings(
            &said["claimMappings"],
            &mut mappings,
            &path.child("claimMappings"),
            violations,
        );
        let rules_path = path.child("userValidationRules");
        mappings.user_rules =
            read_user_rules(said["userValidationRules"].list(), &rules_path, violations);
        let endpoint = IssuerEndpoint {
            issuer: issuer["url"].str().into(),
            discovery: issuer["discoveryURL"].str().into(),
            trust: Trust::bundle(issuer["certificateAuthority"].str().into()),
        };
        let audiences = issuer["audiences"]
            .list()
            .iter()
            .map(|audience| audience.str().into())
            .collect();
        IssuerConfiguration {
            endpoint,
            audiences,
            mappings,
        }
    }
}

fn check_issuer(issuer: &Value, disallowed: &[Str], path: &Path, violations: &mut Violations) {
    let (url, discovery) = (issuer["url"].str(), issuer["discoveryURL"].str());
    let place = path.child("url");
    match url.is_empty() {
        true => violations.required(place, ""),
        false => check_url(url, disallowed, &place, violations),
    }
    let place = path.child("discoveryURL");
    if !url.is_empty()
        && !discovery.is_empty()
        && url.trim_end_matches('/') == discovery.trim_end_matches('/')
    {
        violations.invalid(place, discovery, "discoveryURL must be different from URL");
    }
    if !discovery.is_empty() {
        check_url(discovery, &[], &place, violations);
    }
    check_audiences(issuer, path, violations);
    let authority = issuer["certificateAuthority"].str();
    let mut certificates = CertificateDer::pem_slice_iter(authority.as_bytes());
    if !authority.is_empty() && !certificates.any(|certificate| certificate.is_ok()) {
        let detail = "data does not contain any valid RSA or ECDSA certificates";
        violations.invalid(path.child("certificateAuthority"), "<omitted>", detail);
    }
    // Egress proxies are not supported, so no selector is valid.
    let (selector, place) = (
        issuer["egressSelectorType"].str(),
        path.child("egressSelectorType"),
    );
    match selector {
        "" => {}
        "controlplane" | "cluster" => {
            let detail = format!(
                "egress lookup required with egress selector type {}",
                json::quote(selector)
            );
            violations.invalid(place, selector, &detail);
        }
        _ => violations.invalid(
            place,
            selector,
            "egress selector must be either controlplane or cluster",
        ),
    }
}

fn check_url(url: &str, disallowed: &[Str], path: &Path, violations: &mut Violations) {
    if disallowed.iter().any(|one| one == url) {
        let mut names: Vec<&str> = disallowed.iter().map(Str::as_str).collect();
        names.sort_unstable();
        let detail = format!(
            "URL must not overlap with disallowed issuers: [{}]",
            names.join(" ")
        );
        violations.invalid(path, url, &detail);
    }
    let (rest, fragment) = url.split_once('#').unwrap_or((url, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (scheme, rest) = rest.split_once("://").unwrap_or(("", rest));
    let authority = rest.split('/').next().unwrap_or_default();
    let mut refuse = |wrong: bool, detail: &str| {
        if wrong {
            violations.invalid(path, url, detail);
        }
    };
    // Why Go would not parse the URL.
    let odd = authority.chars().find(|c| " \\^`{|}".contains(*c));
    let problem = if url.contains(|c: char| c.is_ascii_control()) {
        Some("net/url: invalid control character in URL".into())
    } else {
        odd.map(|odd| {
            let odd = json::quote(&odd.to_string());
            format!("invalid character {odd} in host name")
        })
    };
    if let Some(problem) = problem {
        return refuse(true, &format!("parse {}: {problem}", json::quote(url)));
    }
    refuse(
        !scheme.eq_ignore_ascii_case("https"),
        "URL scheme must be https",
    );
    refuse(
        authority.contains('@'),
        "URL must not contain a username or password",
    );
    refuse(!query.is_empty(), "URL must not contain a query");
    refuse(!fragment.is_empty(), "URL must not contain a fragment");
}
fn check_audiences(issuer: &Value, path: &Path, violations: &mut Violations) {
    let (audiences, policy) = (
        issuer["audiences"].list(),
        issuer["audienceMatchPolicy"].str(),
    );
    let place = path.child("audiences");
    if audiences.is_empty() {
        let detail = format!("at least one {place} is required");
        return violations.required(place, &detail);
    }
    let mut seen = HashSet::new();
    for (at, audience) in audiences.iter().map(Value::str).enumerate() {
        if audience.is_empty() {
            violations.required(place.index(at), "");
        }
        if !seen.insert(audience) {
            violations.duplicate(place.index(at), audience);
        }
    }
    let place = path.child("audienceMatchPolicy");
    match (audiences.len(), policy) {
        (_, "MatchAny") | (1, "") => {}
        (1, _) => violations.invalid(
            place,
            policy,
            "audienceMatchPolicy must be empty or MatchAny for single audience",
        ),
        _ => violations.invalid(
            place,
            policy,
            "audienceMatchPolicy must be MatchAny for multiple audiences",
        ),
    }
}
