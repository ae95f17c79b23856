//! Who is let in, besides those with certificates and service accounts' tokens.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{ArgAction, Args, ValueEnum};
use mizzen_apiserver::ServiceAccounts;
use mizzen_apiserver::authenticate::{
    Anonymous, Authentication, AuthenticationConfiguration, Authenticator, Issuers, Oddity,
    ProxyHeaders, ReviewVersion, StaticTokens, TokenWebhook, WebhookOptions,
};
use mizzen_apiserver::file_watcher::{FileError, FileWatcher};
use mizzen_registry::Registry;
use mizzen_value::Str;
use mizzen_value::time::duration_nanos;

use super::oidc::OidcArgs;
use super::proxy_headers::ProxyHeaderArgs;
use super::{refused, text};
use crate::compose::ComposeError;

/// The arguments of authentication.
#[derive(Args, Clone)]
pub(crate) struct AuthenticationArgs {
    /// Let in whoever shows a token of this file; a line is: token,user,uid,"group1,group2"
    #[arg(long, value_name = "FILE")]
    token_auth_file: Option<PathBuf>,
    /// Let in whoever shows a token that is kept as a secret of the type bootstrap.kubernetes.io/token
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = ArgAction::Set)]
    enable_bootstrap_token_auth: bool,
    /// Whose tokens count and where those are let in who show nothing: an AuthenticationConfiguration in YAML or
    /// JSON, which is read again when it changes
    #[arg(long, value_name = "FILE")]
    authentication_config: Option<PathBuf>,
    /// Let in those who show nothing, as system:anonymous, where roles allow it [default: true for `apiserver`; for
    /// `up` to /healthz, /livez and /readyz only]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    anonymous_auth: Option<bool>,
    /// Where they are let in when nobody says so.
    #[arg(skip)]
    anonymous_usually: Anonymous,
    /// Let in those whose tokens a webhook knows: a kubeconfig that says where it is
    #[arg(long, value_name = "FILE")]
    authentication_token_webhook_config_file: Option<PathBuf>,
    /// Which version of TokenReview the webhook speaks
    #[arg(long, value_name = "VERSION", value_enum, default_value = "v1beta1")]
    authentication_token_webhook_version: Version,
    /// How long an answer of the webhook is good
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "2m")]
    authentication_token_webhook_cache_ttl: Duration,
    #[command(flatten)]
    proxy_headers: ProxyHeaderArgs,
    #[command(flatten)]
    oidc: OidcArgs,
}

/// A version of TokenReview.
#[derive(Clone, Copy, ValueEnum)]
enum Version {
    V1,
    V1beta1,
}

/// A span of time as Go writes it, which is not negative.
pub(in crate::command) fn duration(text: &str) -> Result<Duration, String> {
    let nanos = duration_nanos(text).map_err(|error| error.to_string())?;
    u64::try_from(nanos)
        .map(Duration::from_nanos)
        .map_err(|_| "it is negative".into())
}

impl AuthenticationArgs {
    /// Unless somebody says otherwise, those who show nothing see whether the server lives, and nothing else.
    pub(crate) fn show_strangers_health_only(&mut self) {
        self.anonymous_usually =
            Anonymous::At(["/healthz", "/livez", "/readyz"].map(String::from).into());
    }

    /// All ways in. `allows_everything` says that the mode AlwaysAllow decides what users may do.
    pub(crate) fn authentication(
        &self,
        registry: &Registry,
        accounts: &ServiceAccounts,
        allows_everything: bool,
    ) -> Result<Authentication, ComposeError> {
        let (issuers, said) = self.issuers(registry, accounts)?;
        let webhook = self.webhook(registry, accounts)?;
        let others: [Option<Arc<dyn Authenticator>>; 2] = [
            issuers.map(|it| it as Arc<dyn Authenticator>),
            webhook.map(|it| it as Arc<dyn Authenticator>),
        ];
        Ok(Authentication {
            tokens: self.tokens()?,
            bootstrap_tokens: self.enable_bootstrap_token_auth,
            others: others.into_iter().flatten().collect(),
            anonymous: self.anonymous(said, allows_everything)?,
            proxy_headers: self.proxy_headers()?,
        })
    }

    /// In which headers front proxies say for whom they ask.
    pub(crate) fn proxy_headers(&self) -> Result<ProxyHeaders, ComposeError> {
        self.proxy_headers.headers()
    }

    fn tokens(&self) -> Result<StaticTokens, ComposeError> {
        let Some(file) = &self.token_auth_file else {
            return Ok(StaticTokens::default());
        };
        let warn = |Oddity { what, record }: Oddity| {
            let file = file.display();
            tracing::warn!(
                "{what} token has been found in token file '{file}', record number '{record}'"
            );
        };
        let tokens = StaticTokens::parse_warning(&text(file)?, warn);
        tokens.map_err(|error| refused(file, error.to_string()))
    }

    /// Issuers of tokens, and what is said of those who show nothing.
    fn issuers(
        &self,
        registry: &Registry,
        accounts: &ServiceAccounts,
    ) -> Result<(Option<Arc<Issuers>>, Option<Anonymous>), ComposeError> {
        let own = accounts.audiences();
        match (&self.authentication_config, self.oidc.is_given()) {
            (None, false) => Ok((None, None)),
            (None, true) => {
                let read = AuthenticationConfiguration::read(
                    &self.oidc.configuration()?,
                    &accounts.issuers,
                )
                .map_err(|why| refused(Path::new("--oidc-issuer-url"), why))?;
                let issuers = Issuers::new(registry, read, self.oidc.algorithms()?, own);
                Ok((Some(Arc::new(issuers)), None))
            }
            (Some(file), true) => {
                let why = "authentication-config file and oidc-* flags are mutually exclusive";
                Err(refused(file, why.into()))
            }
            (Some(file), false) => {
                let content = text(file)?;
                let mut read = AuthenticationConfiguration::read(&content, &accounts.issuers)
                    .map_err(|why| refused(file, why))?;
                let anonymous = read.anonymous.take();
                let issuers = Arc::new(Issuers::new(registry, read, Vec::new(), own));
                issuers.are_of(&content);
                let changed = reload(issuers.clone(), accounts.issuers.clone(), anonymous.clone());
                let watcher = FileWatcher::new([file.clone()], [content.into_bytes()]);
                tokio::spawn(watcher.run(changed));
                Ok((Some(issuers), anonymous))
            }
        }
    }

    fn webhook(
        &self,
        registry: &Registry,
        accounts: &ServiceAccounts,
    ) -> Result<Option<Arc<TokenWebhook>>, ComposeError> {
        let Some(file) = &self.authentication_token_webhook_config_file else {
            return Ok(None);
        };
        let options = WebhookOptions {
            version: match self.authentication_token_webhook_version {
                Version::V1 => ReviewVersion::V1,
                Version::V1beta1 => ReviewVersion::V1Beta1,
            },
            lasts: self.authentication_token_webhook_cache_ttl,
            audiences: accounts.audiences().to_vec(),
        };
        let webhook = TokenWebhook::load(file, registry, options);
        // The error names the file, which may be one beside this.
        let argument = Path::new("--authentication-token-webhook-config-file");
        webhook
            .map(|webhook| Some(Arc::new(webhook)))
            .map_err(|error| refused(argument, error.to_string()))
    }

    /// Either the file says it or the argument, not both. Kubernetes: AlwaysAllow turns the argument off, and not the file
    /// (kubeapiserver/options/authentication.go, ApplyAuthorization).
    fn anonymous(
        &self,
        said: Option<Anonymous>,
        allows_everything: bool,
    ) -> Result<Anonymous, ComposeError> {
        match (said, self.anonymous_auth) {
            (Some(_), Some(_)) => {
                let why = "anonymous: Forbidden: --anonymous-auth flag cannot be set when anonymous field is configured in authentication configuration file";
                Err(refused(Path::new("--anonymous-auth"), why.into()))
            }
            (Some(said), None) => Ok(said),
            (None, Some(false)) => Ok(Anonymous::Nowhere),
            (None, _) if allows_everything => {
                tracing::warn!(
                    "AnonymousAuth is not allowed with the AlwaysAllow authorizer. Resetting AnonymousAuth to false. You \
                     should use a different authorizer"
                );
                Ok(Anonymous::Nowhere)
            }
            (None, Some(true)) => Ok(Anonymous::Everywhere),
            (None, None) => Ok(self.anonymous_usually.clone()),
        }
    }
}

/// Takes over what a file says anew, or goes on as before if that makes no sense.
fn reload(
    issuers: Arc<Issuers>,
    disallowed: Vec<Str>,
    said: Option<Anonymous>,
) -> impl FnMut(Result<&[u8], FileError>) -> bool {
    move |content| {
        let read = content
            .map_err(|error| error.to_string())
            .and_then(|content| {
                let text = std::str::from_utf8(content).map_err(|error| error.to_string())?;
                Ok((reread(text, &disallowed, &said)?, text))
            });
        let is_good = read.is_ok();
        issuers.reloaded(is_good);
        match read {
            Ok((read, text)) => {
                issuers.replace(read);
                issuers.are_of(text);
                tracing::info!("reloaded authentication config");
            }
            Err(problem) => tracing::error!(problem, "failed to validate authentication config"),
        }
        is_good
    }
}

/// Reads a file that has changed. Kubernetes: where those are let in who show nothing cannot change.
fn reread(
    text: &str,
    disallowed: &[Str],
    said: &Option<Anonymous>,
) -> Result<AuthenticationConfiguration, String> {
    let read = AuthenticationConfiguration::read(text, disallowed)?;
    match read.anonymous == *said {
        true => Ok(read),
        false => Err("anonymous: Forbidden: changed from initial configuration file".into()),
    }
}

#[cfg(test)]
mod tests {
    use mizzen_apiserver::seams::{SystemRandom, WallClock};
    use mizzen_store::Store;

    use super::*;

    fn file(issuer: &str, more: &str) -> String {
        format!(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n{more}\njwt: [{{issuer: {{url: '{issuer}', audiences: [b]}}, claimMappings: {{username: {{claim: c, prefix: d}}}}}}]"
        )
    }

    #[tokio::test]
    async fn a_file_that_makes_no_sense_changes_nothing() {
        let store = Store::in_memory(Default::default());
        let registry = Registry::new(store, Arc::new(WallClock), Arc::new(SystemRandom));
        let own = ["https://own".into()];
        let read = AuthenticationConfiguration::read(&file("https://a", ""), &own).unwrap();
        let issuers = Arc::new(Issuers::new(&registry, read, Vec::new(), &own));
        let mut changed = reload(issuers.clone(), own.to_vec(), None);
        let mut check = |text: &str, expected: &str| {
            changed(Ok(text.as_bytes()));
            assert_eq!(
                format!("{issuers:?}"),
                format!("[\"{expected}\"]"),
                "{text}"
            );
        };
        check(&file("https://b", ""), "https://b");
        check("", "https://b");
        check("kind: Pod", "https://b");
        check(&file("http://c", ""), "https://b");
        check(&file("https://own", ""), "https://b");
        check(
            &file("https://c", "anonymous: {enabled: false}"),
            "https://b",
        );
        check(&file("https://c", ""), "https://c");
        let mut families = mizzen_metrics::Families::default();
        issuers.collect(&mut families);
        let out = families.to_string();
        let reloads = "apiserver_authentication_config_controller_automatic_reloads_total";
        for counted in ["success\"} 2\n", "failure\"} 5\n"] {
            let line = format!("{reloads}{{apiserver_id_hash=\"\",status=\"{counted}");
            assert!(out.contains(&line), "{line} is not in\n{out}");
        }
    }

    #[test]
    fn spans_are_written_as_go_writes_them() {
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(duration("0"), Ok(Duration::ZERO));
        assert!(duration("-1s").is_err() && duration("2").is_err());
    }
}
