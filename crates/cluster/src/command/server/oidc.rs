//! The OpenID Connect issuer of the `--oidc-*` flags, which are translated to an AuthenticationConfiguration.

use std::path::{Path, PathBuf};

use clap::Args;
use mizzen_authentication::jose::{ALGORITHMS, Algorithm};
use mizzen_value::{Value, json, value};

use super::{invalid_file, text};
use crate::compose::ComposeError;

/// The arguments of OpenID Connect.
#[derive(Args, Clone)]
pub(super) struct OidcArgs {
    /// Authenticate ID tokens of the issuer with this HTTPS URL
    #[arg(long, value_name = "URL")]
    oidc_issuer_url: Option<String>,
    /// Require this client ID as an audience of tokens
    #[arg(long, value_name = "ID")]
    oidc_client_id: Option<String>,
    /// Use this claim as the user name [default: sub]
    #[arg(long, value_name = "CLAIM")]
    oidc_username_claim: Option<String>,
    /// Prepend this prefix to user names; - for none [default: the issuer URL and #; none for the claim email]
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    oidc_username_prefix: Option<String>,
    /// Use this claim as the groups of the user
    #[arg(long, value_name = "CLAIM")]
    oidc_groups_claim: Option<String>,
    /// Prepend this prefix to groups
    #[arg(long, value_name = "TEXT")]
    oidc_groups_prefix: Option<String>,
    /// Require this claim with this value; may be repeated
    #[arg(long, value_name = "CLAIM=VALUE")]
    oidc_required_claim: Vec<String>,
    /// Verify the certificate of the issuer by these authorities (PEM) [default: the authorities of this host]
    #[arg(long, value_name = "FILE")]
    oidc_ca_file: Option<PathBuf>,
    /// Accept these signature algorithms [default: RS256]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    oidc_signing_algs: Vec<String>,
}

impl OidcArgs {
    /// Whether any flag is set.
    pub(super) fn is_given(&self) -> bool {
        let texts = [
            &self.oidc_issuer_url,
            &self.oidc_client_id,
            &self.oidc_username_claim,
            &self.oidc_username_prefix,
            &self.oidc_groups_claim,
            &self.oidc_groups_prefix,
        ];
        let lists = [&self.oidc_required_claim, &self.oidc_signing_algs];
        texts.iter().any(|text| text.is_some())
            || lists.iter().any(|list| !list.is_empty())
            || self.oidc_ca_file.is_some()
    }

    /// The accepted signature algorithms.
    pub(super) fn algorithms(&self) -> Result<Vec<&'static Algorithm>, ComposeError> {
        let named = match self.oidc_signing_algs.is_empty() {
            true => vec!["RS256".to_string()],
            false => self.oidc_signing_algs.clone(),
        };
        let known = |name: &String| {
            Algorithm::named(name).ok_or_else(|| {
                let all: Vec<&str> = ALGORITHMS.iter().map(|known| known.name).collect();
                let why = format!(
                    "unsupported signing alg: {name:?}; there are {}",
                    all.join(", ")
                );
                invalid_file(Path::new("--oidc-signing-algs"), why)
            })
        };
        named.iter().map(known).collect()
    }

    /// The equivalent AuthenticationConfiguration.
    pub(super) fn configuration(&self) -> Result<String, ComposeError> {
        let (Some(url), Some(client)) = (&self.oidc_issuer_url, &self.oidc_client_id) else {
            let why = "oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set";
            return Err(invalid_file(Path::new("--oidc-issuer-url"), why.into()));
        };
        let authority = self
            .oidc_ca_file
            .as_deref()
            .map(text)
            .transpose()?
            .unwrap_or_default();
        let mut authenticator = value!({
            "issuer": { "url": url, "audiences": [(client.as_str())], "certificateAuthority": authority },
            "claimMappings": { "username": (self.username(url)) }
        });
        if let Some(claim) = &self.oidc_groups_claim {
            let prefix = self.oidc_groups_prefix.as_deref().unwrap_or_default();
            authenticator
                .entry("claimMappings")
                .set("groups", value!({ "claim": claim, "prefix": prefix }));
        }
        authenticator.set("claimValidationRules", self.required_claims()?);
        let mut document = value!({
            "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration"
        });
        document.set("jwt", vec![authenticator]);
        Ok(json::to_string(&document))
    }

    /// Kubernetes: the default prefix distinguishes user names of different issuers.
    fn username(&self, url: &str) -> Value {
        let claim = self.oidc_username_claim.as_deref().unwrap_or("sub");
        let prefix = match self.oidc_username_prefix.as_deref().unwrap_or_default() {
            "-" => String::new(),
            "" if claim != "email" => format!("{url}#"),
            prefix => prefix.to_owned(),
        };
        value!({ "claim": claim, "prefix": prefix })
    }

    fn required_claims(&self) -> Result<Vec<Value>, ComposeError> {
        let read = |pair: &String| match pair.split_once('=') {
            Some((claim, value)) => {
                Ok(value!({ "claim": (claim.trim()), "requiredValue": (value.trim()) }))
            }
            None => {
                let why = format!("malformed pair, expect string=string: {pair:?}");
                Err(invalid_file(Path::new("--oidc-required-claim"), why))
            }
        };
        self.oidc_required_claim.iter().map(read).collect()
    }
}
