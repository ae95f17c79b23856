//! One issuer of tokens, named by arguments. They say what a file for --authentication-config can say, and go the same way.

use std::path::{Path, PathBuf};

use clap::Args;
use mizzen_apiserver::jose::{ALGORITHMS, Algorithm};
use mizzen_value::{Value, json, value};

use super::{refused, text};
use crate::compose::ComposeError;

/// The arguments of OpenID Connect.
#[derive(Args, Clone)]
pub(super) struct OidcArgs {
    /// Let in whoever shows a token of this issuer: its HTTPS URL
    #[arg(long, value_name = "URL")]
    oidc_issuer_url: Option<String>,
    /// Whom its tokens must be for
    #[arg(long, value_name = "ID")]
    oidc_client_id: Option<String>,
    /// The claim that is the user's name [default: sub]
    #[arg(long, value_name = "CLAIM")]
    oidc_username_claim: Option<String>,
    /// What is put before names; - for nothing [default: the issuer's URL and #, but nothing for the claim email]
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    oidc_username_prefix: Option<String>,
    /// The claim that has the user's groups
    #[arg(long, value_name = "CLAIM")]
    oidc_groups_claim: Option<String>,
    /// What is put before groups
    #[arg(long, value_name = "TEXT")]
    oidc_groups_prefix: Option<String>,
    /// A claim that must have a value; may be repeated
    #[arg(long, value_name = "CLAIM=VALUE")]
    oidc_required_claim: Vec<String>,
    /// Who may have signed the issuer's certificate [default: those whom this machine trusts]
    #[arg(long, value_name = "FILE")]
    oidc_ca_file: Option<PathBuf>,
    /// The kinds of signatures that count [default: RS256]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    oidc_signing_algs: Vec<String>,
}

impl OidcArgs {
    /// Whether any of them is given.
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

    /// The kinds of signatures that count.
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
                refused(Path::new("--oidc-signing-algs"), why)
            })
        };
        named.iter().map(known).collect()
    }

    /// What they say, as a file would say it.
    pub(super) fn configuration(&self) -> Result<String, ComposeError> {
        let (Some(url), Some(client)) = (&self.oidc_issuer_url, &self.oidc_client_id) else {
            let why = "oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set";
            return Err(refused(Path::new("--oidc-issuer-url"), why.into()));
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
        authenticator.set("claimValidationRules", self.required()?);
        let mut document = value!({
            "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration"
        });
        document.set("jwt", vec![authenticator]);
        Ok(json::to_string(&document))
    }

    /// Kubernetes: names of different issuers are told apart unless somebody wants it otherwise.
    fn username(&self, url: &str) -> Value {
        let claim = self.oidc_username_claim.as_deref().unwrap_or("sub");
        let prefix = match self.oidc_username_prefix.as_deref().unwrap_or_default() {
            "-" => String::new(),
            "" if claim != "email" => format!("{url}#"),
            prefix => prefix.to_owned(),
        };
        value!({ "claim": claim, "prefix": prefix })
    }

    fn required(&self) -> Result<Vec<Value>, ComposeError> {
        let read = |pair: &String| match pair.split_once('=') {
            Some((claim, value)) => {
                Ok(value!({ "claim": (claim.trim()), "requiredValue": (value.trim()) }))
            }
            None => {
                let why = format!("malformed pair, expect string=string: {pair:?}");
                Err(refused(Path::new("--oidc-required-claim"), why))
            }
        };
        self.oidc_required_claim.iter().map(read).collect()
    }
}
