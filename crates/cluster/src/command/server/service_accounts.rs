//! The keys, issuers and audiences of service account tokens.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{ArgAction, Args};
use mizzen_authentication::ServiceAccountTokens;
use mizzen_authentication::jose::PublicKey;
use mizzen_bootstrap::token_key::{TokenKey, public_keys};
use mizzen_cel::library::parse_reference;
use mizzen_value::json::quote;

use super::{duration, invalid_file, text};
use crate::compose::ComposeError;

/// The arguments of service accounts.
#[derive(Args, Clone)]
pub(crate) struct ServiceAccountArgs {
    /// Sign tokens with this key (PEM; RSA or elliptic curve) [default: a generated key in the data directory]
    #[arg(long, value_name = "FILE")]
    service_account_signing_key_file: Option<PathBuf>,
    /// Accept also tokens signed with keys of this file (public or private, PEM); may be repeated
    #[arg(long, value_name = "FILE")]
    service_account_key_file: Vec<PathBuf>,
    /// Issue tokens with this issuer; may be repeated: tokens of all are accepted, new tokens have the first
    #[arg(long, value_name = "URL")]
    service_account_issuer: Vec<String>,
    /// Publish this URL of the public keys in OpenID discovery [default: of this server]
    #[arg(long, value_name = "URL")]
    service_account_jwks_uri: Option<String>,
    /// Require one of these audiences in tokens [default: the issuers]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    api_audiences: Vec<String>,
    /// Limit the life of new tokens to this [default: no limit]
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "0", hide_default_value = true)]
    service_account_max_token_expiration: Duration,
    /// Extend tokens of pods to a year, for pods that never reload them
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = true, action = ArgAction::Set)]
    service_account_extend_token_expiration: bool,
    /// Reject tokens in secrets whose secret or service account is deleted
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = true, action = ArgAction::Set)]
    service_account_lookup: bool,
}

impl ServiceAccountArgs {
    /// Whether keys are named: one that signs, or such that verify.
    pub(crate) fn names_keys(&self) -> bool {
        self.service_account_signing_key_file.is_some() || !self.service_account_key_file.is_empty()
    }

    /// The signing key, generated if the data directory is new.
    pub(crate) fn signer(
        &self,
        directory: Option<&Path>,
        has_data: bool,
    ) -> Result<TokenKey, ComposeError> {
        Ok(match (&self.service_account_signing_key_file, directory) {
            (Some(file), _) => TokenKey::read(file)?,
            (None, Some(directory)) if has_data => TokenKey::open_existing(directory)?,
            (None, Some(directory)) => TokenKey::open(directory)?,
            (None, None) => TokenKey::in_memory()?,
        })
    }

    /// The issuers, audiences and keys.
    pub(crate) fn service_accounts(&self) -> Result<ServiceAccountTokens, ComposeError> {
        let default = ServiceAccountTokens::default();
        let texts = |list: &[String]| list.iter().map(Into::into).collect();
        let issuers = match self.service_account_issuer.as_slice() {
            [] => default.issuers,
            named => {
                check_issuers(named)?;
                texts(named)
            }
        };
        let (keys_url, audiences) = (self.keys_url()?, texts(&self.api_audiences));
        Ok(ServiceAccountTokens {
            keys: self.keys()?,
            issuers,
            audiences,
            keys_url,
            max_expiration: self.max_expiration()?,
            extend_expiration: self.service_account_extend_token_expiration,
            lookup: self.service_account_lookup,
        })
    }

    /// The maximum life of a token in seconds. Kubernetes: extended tokens may live longer
    /// (controlplane/apiserver/options/options.go).
    fn max_expiration(&self) -> Result<Option<i64>, ComposeError> {
        let seconds = self.service_account_max_token_expiration.as_secs();
        if self.service_account_max_token_expiration.is_zero() {
            return Ok(None);
        }
        if !(3600..=1 << 32).contains(&seconds) {
            let flag = Path::new("--service-account-max-token-expiration");
            let why =
                "the service-account-max-token-expiration must be between 1 hour and 2^32 seconds";
            return Err(invalid_file(flag, why.into()));
        }
        Ok(i64::try_from(seconds).ok())
    }

    /// The keys that only verify tokens.
    pub(crate) fn keys(&self) -> Result<Vec<PublicKey>, ComposeError> {
        let mut keys = Vec::new();
        for file in &self.service_account_key_file {
            keys.extend(public_keys(&text(file)?).map_err(|why| invalid_file(file, why))?);
        }
        Ok(keys)
    }

    fn keys_url(&self) -> Result<Option<String>, ComposeError> {
        match &self.service_account_jwks_uri {
            Some(url) if !url.starts_with("https://") => {
                let why =
                    format!("service-account-jwks-uri requires https scheme, parsed as: {url}");
                Err(invalid_file(Path::new("--service-account-jwks-uri"), why))
            }
            url => Ok(url.clone()),
        }
    }
}

/// Rejects invalid issuers with upstream's messages.
fn check_issuers(issuers: &[String]) -> Result<(), ComposeError> {
    let invalid = |why: String| Err(invalid_file(Path::new("--service-account-issuer"), why));
    for (at, issuer) in issuers.iter().enumerate() {
        if let Some(why) = parse_reference(issuer)
            .err()
            .filter(|_| issuer.contains(':'))
        {
            let shown = quote(issuer);
            return invalid(format!(
                "service-account-issuer {shown} contained a ':' but was not a valid URL: {why}"
            ));
        }
        if issuer.is_empty() {
            return invalid("service-account-issuer should not be an empty string".into());
        }
        if issuers[..at].contains(issuer) {
            return invalid(format!(
                "service-account-issuer {issuer:?} is already specified"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(issuers: &[&str], expected: &str) {
        let issuers: Vec<String> = issuers.iter().map(|issuer| issuer.to_string()).collect();
        let error = check_issuers(&issuers)
            .map_err(|error| error.to_string())
            .err()
            .unwrap_or_default();
        assert!(
            error.ends_with(expected) && error.is_empty() == expected.is_empty(),
            "{error}"
        );
    }

    #[test]
    fn an_issuer_with_a_colon_is_a_url() {
        check(&["https://id.example.com", "id", "a:b%zz", "x/y:z"], "");
        check(
            &["https://a/%zz"],
            "not a valid URL: parse \"https://a/%zz\": invalid URL escape \"%zz\"",
        );
        check(
            &[":a"],
            "not a valid URL: parse \":a\": missing protocol scheme",
        );
        check(
            &["1a:b"],
            "parse \"1a:b\": first path segment in URL cannot contain colon",
        );
        check(
            &["https://[::1"],
            "parse \"https://[::1\": missing ']' in host",
        );
        check(
            &["a", "a"],
            "service-account-issuer \"a\" is already specified",
        );
        check(
            &[""],
            "service-account-issuer should not be an empty string",
        );
    }
}
