//! Which keys sign service accounts' tokens, whose tokens are good, and for whom.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{ArgAction, Args};
use mizzen_apiserver::ServiceAccounts;
use mizzen_apiserver::jose::PublicKey;
use mizzen_cel::library::parse_reference;
use mizzen_value::json::quote;

use super::authentication::duration;
use super::{refused, text};
use crate::compose::ComposeError;
use crate::token_key::{TokenKey, public_keys};

/// The arguments of service accounts.
#[derive(Args, Clone)]
pub(crate) struct ServiceAccountArgs {
    /// Sign tokens with the key in this file, RSA or elliptic curve [default: a key of its own in the data directory]
    #[arg(long, value_name = "FILE")]
    service_account_signing_key_file: Option<PathBuf>,
    /// Believe tokens that were signed with keys of this file, public or private, as well; may be repeated
    #[arg(long, value_name = "FILE")]
    service_account_key_file: Vec<PathBuf>,
    /// Who says that tokens are good; of several, which are all believed, the first is written into new tokens
    #[arg(long, value_name = "URL")]
    service_account_issuer: Vec<String>,
    /// Where others are told to find the keys [default: at this server]
    #[arg(long, value_name = "URL")]
    service_account_jwks_uri: Option<String>,
    /// Whom tokens must be for, one of these [default: the issuers]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    api_audiences: Vec<String>,
    /// Let no new token hold longer than this [default: as long as is wanted]
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "0", hide_default_value = true)]
    service_account_max_token_expiration: Duration,
    /// Let a token hold for a year that a kubelet wants for a pod that may never read it again
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = true, action = ArgAction::Set)]
    service_account_extend_token_expiration: bool,
    /// Let a token that is kept in a secret hold only as long as the secret and its account are there
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = true, action = ArgAction::Set)]
    service_account_lookup: bool,
}

impl ServiceAccountArgs {
    /// The key that signs. One is made in a directory that has no data yet.
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

    /// Whose tokens are good, and for whom.
    pub(crate) fn service_accounts(&self) -> Result<ServiceAccounts, ComposeError> {
        let default = ServiceAccounts::default();
        let texts = |list: &[String]| list.iter().map(Into::into).collect();
        let issuers = match self.service_account_issuer.as_slice() {
            [] => default.issuers,
            named => {
                check_issuers(named)?;
                texts(named)
            }
        };
        let (keys_url, audiences) = (self.keys_url()?, texts(&self.api_audiences));
        Ok(ServiceAccounts {
            keys: self.keys()?,
            issuers,
            audiences,
            keys_url,
            longest: self.longest()?,
            extends: self.service_account_extend_token_expiration,
            looks_up: self.service_account_lookup,
        })
    }

    /// How many seconds a token may hold. Kubernetes: what is extended may hold longer
    /// (controlplane/apiserver/options/options.go).
    fn longest(&self) -> Result<Option<i64>, ComposeError> {
        let seconds = self.service_account_max_token_expiration.as_secs();
        if self.service_account_max_token_expiration.is_zero() {
            return Ok(None);
        }
        if !(3600..=1 << 32).contains(&seconds) {
            let flag = Path::new("--service-account-max-token-expiration");
            let why =
                "the service-account-max-token-expiration must be between 1 hour and 2^32 seconds";
            return Err(refused(flag, why.into()));
        }
        Ok(i64::try_from(seconds).ok())
    }

    fn keys(&self) -> Result<Vec<PublicKey>, ComposeError> {
        let mut keys = Vec::new();
        for file in &self.service_account_key_file {
            keys.extend(public_keys(&text(file)?).map_err(|why| refused(file, why))?);
        }
        Ok(keys)
    }

    fn keys_url(&self) -> Result<Option<String>, ComposeError> {
        match &self.service_account_jwks_uri {
            Some(url) if !url.starts_with("https://") => {
                let why =
                    format!("service-account-jwks-uri requires https scheme, parsed as: {url}");
                Err(refused(Path::new("--service-account-jwks-uri"), why))
            }
            url => Ok(url.clone()),
        }
    }
}

fn check_issuers(issuers: &[String]) -> Result<(), ComposeError> {
    let refuse = |why: String| Err(refused(Path::new("--service-account-issuer"), why));
    for (at, issuer) in issuers.iter().enumerate() {
        if let Some(why) = parse_reference(issuer)
            .err()
            .filter(|_| issuer.contains(':'))
        {
            let shown = quote(issuer);
            return refuse(format!(
                "service-account-issuer {shown} contained a ':' but was not a valid URL: {why}"
            ));
        }
        if issuer.is_empty() {
            return refuse("service-account-issuer should not be an empty string".into());
        }
        if issuers[..at].contains(issuer) {
            return refuse(format!(
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
        let said = check_issuers(&issuers)
            .map_err(|error| error.to_string())
            .err()
            .unwrap_or_default();
        assert!(
            said.ends_with(expected) && said.is_empty() == expected.is_empty(),
            "{said}"
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
