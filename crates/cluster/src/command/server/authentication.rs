//! Authenticators besides client certificates and service account tokens.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{ArgAction, Args, ValueEnum};
use mizzen_apiserver::file_watcher::{FileError, FileWatcher};
use mizzen_authentication::ServiceAccountTokens;
use mizzen_authentication::{
    Anonymous, Authentication, AuthenticationConfiguration, Authenticator, Issuers, ProxyHeaders,
    ReviewVersion, StaticTokens, TokenFileWarning, TokenWebhook, WebhookOptions,
};
use mizzen_registry::Registry;
use mizzen_value::Str;

use super::oidc::OidcArgs;
use super::proxy_headers::ProxyHeaderArgs;
use super::{duration, invalid_file, text};
use crate::compose::ComposeError;

/// The arguments of authentication.
#[derive(Args, Clone)]
pub(crate) struct AuthenticationArgs {
    /// Authenticate the static tokens of this file; a line is token,user,uid,"group1,group2"
    #[arg(long, value_name = "FILE")]
    token_auth_file: Option<PathBuf>,
    /// Authenticate bootstrap tokens, which are secrets of type bootstrap.kubernetes.io/token
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = ArgAction::Set)]
    enable_bootstrap_token_auth: bool,
    /// Configure JWT issuers and anonymous requests by this AuthenticationConfiguration in YAML or JSON; it is reloaded when
    /// it changes
    #[arg(long, value_name = "FILE")]
    authentication_config: Option<PathBuf>,
    /// Allow anonymous requests as system:anonymous where RBAC permits them [default: true for `apiserver`; for `up` only
    /// /healthz, /livez and /readyz]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    anonymous_auth: Option<bool>,
    /// The default of anonymous requests.
    #[arg(skip)]
    default_anonymous: Anonymous,
    /// Authenticate tokens by TokenReviews of the webhook in this kubeconfig file
    #[arg(long, value_name = "FILE")]
    authentication_token_webhook_config_file: Option<PathBuf>,
    /// Send TokenReviews in this version
    #[arg(long, value_name = "VERSION", value_enum, default_value = "v1beta1")]
    authentication_token_webhook_version: TokenReviewVersion,
    /// Cache responses of the webhook for this long
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "2m")]
    authentication_token_webhook_cache_ttl: Duration,
    #[command(flatten)]
    proxy_headers: ProxyHeaderArgs,
    #[command(flatten)]
    oidc: OidcArgs,
}

/// A version of TokenReview.
#[derive(Clone, Copy, ValueEnum)]
enum TokenReviewVersion {
    V1,
    V1beta1,
}

impl AuthenticationArgs {
    /// Changes the default: anonymous requests are allowed for health endpoints only.
    pub(crate) fn limit_anonymous_to_health(&mut self) {
        self.default_anonymous =
            Anonymous::AtPaths(["/healthz", "/livez", "/readyz"].map(String::from).into());
    }

    /// All authenticators. `allows_everything` is whether the authorizer is AlwaysAllow.
    pub(crate) fn authentication(
        &self,
        registry: &Registry,
        accounts: &ServiceAccountTokens,
        allows_everything: bool,
    ) -> Result<Authentication, ComposeError> {
        let (issuers, configured) = self.issuers(registry, accounts)?;
        let webhook = self.webhook(registry, accounts)?;
        let others: [Option<Arc<dyn Authenticator>>; 2] = [
            issuers.map(|it| it as Arc<dyn Authenticator>),
            webhook.map(|it| it as Arc<dyn Authenticator>),
        ];
        Ok(Authentication {
            tokens: self.tokens()?,
            bootstrap_tokens: self.enable_bootstrap_token_auth,
            authenticators: others.into_iter().flatten().collect(),
            anonymous: self.anonymous(configured, allows_everything)?,
            proxy_headers: self.proxy_headers()?.into(),
        })
    }

    /// The headers in which front proxies name the user.
    pub(crate) fn proxy_headers(&self) -> Result<ProxyHeaders, ComposeError> {
        self.proxy_headers.headers()
    }

    fn tokens(&self) -> Result<StaticTokens, ComposeError> {
        let Some(file) = &self.token_auth_file else {
            return Ok(StaticTokens::default());
        };
        let warn = |TokenFileWarning { what, record }: TokenFileWarning| {
            let file = file.display();
            tracing::warn!(
                "{what} token has been found in token file '{file}', record number '{record}'"
            );
        };
        let tokens = StaticTokens::parse_with_warnings(&text(file)?, warn);
        tokens.map_err(|error| invalid_file(file, error.to_string()))
    }

    /// The JWT issuers, and the configuration of anonymous requests.
    fn issuers(
        &self,
        registry: &Registry,
        accounts: &ServiceAccountTokens,
    ) -> Result<(Option<Arc<Issuers>>, Option<Anonymous>), ComposeError> {
        let own = accounts.audiences();
        match (&self.authentication_config, self.oidc.is_given()) {
            (None, false) => Ok((None, None)),
            (None, true) => {
                let read = AuthenticationConfiguration::read(
                    &self.oidc.configuration()?,
                    &accounts.issuers,
                )
                .map_err(|why| invalid_file(Path::new("--oidc-issuer-url"), why))?;
                let issuers = Issuers::new(registry, read, self.oidc.algorithms()?, own);
                Ok((Some(Arc::new(issuers)), None))
            }
            (Some(file), true) => {
                let why = "authentication-config file and oidc-* flags are mutually exclusive";
                Err(invalid_file(file, why.into()))
            }
            (Some(file), false) => {
                let content = text(file)?;
                let mut read = AuthenticationConfiguration::read(&content, &accounts.issuers)
                    .map_err(|why| invalid_file(file, why))?;
                let anonymous = read.anonymous.take();
                let issuers = Arc::new(Issuers::new(registry, read, Vec::new(), own));
                issuers.set_file_content(&content);
                let changed =
                    reload_issuers(issuers.clone(), accounts.issuers.clone(), anonymous.clone());
                let watcher = FileWatcher::new([file.clone()], [content.into_bytes()]);
                tokio::spawn(watcher.run(changed));
                Ok((Some(issuers), anonymous))
            }
        }
    }

    fn webhook(
        &self,
        registry: &Registry,
        accounts: &ServiceAccountTokens,
    ) -> Result<Option<Arc<TokenWebhook>>, ComposeError> {
        let Some(file) = &self.authentication_token_webhook_config_file else {
            return Ok(None);
        };
        let options = WebhookOptions {
            version: match self.authentication_token_webhook_version {
                TokenReviewVersion::V1 => ReviewVersion::V1,
                TokenReviewVersion::V1beta1 => ReviewVersion::V1Beta1,
            },
            cache_ttl: self.authentication_token_webhook_cache_ttl,
            audiences: accounts.audiences().to_vec(),
        };
        let webhook = TokenWebhook::load(file, registry, options);
        // The error names the file, which the kubeconfig may refer to.
        let argument = Path::new("--authentication-token-webhook-config-file");
        webhook
            .map(|webhook| Some(Arc::new(webhook)))
            .map_err(|error| invalid_file(argument, error.to_string()))
    }

    /// Anonymous requests, by the file or the argument. Kubernetes: AlwaysAllow disables the argument, but not the file
    /// (kubeapiserver/options/authentication.go, ApplyAuthorization).
    fn anonymous(
        &self,
        configured: Option<Anonymous>,
        allows_everything: bool,
    ) -> Result<Anonymous, ComposeError> {
        match (configured, self.anonymous_auth) {
            (Some(_), Some(_)) => {
                let why = "anonymous: Forbidden: --anonymous-auth flag cannot be set when anonymous field is configured in authentication configuration file";
                Err(invalid_file(Path::new("--anonymous-auth"), why.into()))
            }
            (Some(configured), None) => Ok(configured),
            (None, Some(false)) => Ok(Anonymous::Disabled),
            (None, _) if allows_everything => {
                tracing::warn!(
                    "AnonymousAuth is not allowed with the AlwaysAllow authorizer. Resetting AnonymousAuth to false. You \
                     should use a different authorizer"
                );
                Ok(Anonymous::Disabled)
            }
            (None, Some(true)) => Ok(Anonymous::Enabled),
            (None, None) => Ok(self.default_anonymous.clone()),
        }
    }
}

/// Replaces the issuers when the file changes, and keeps them if it is invalid. Kubernetes: the configuration of anonymous
/// requests must not change.
fn reload_issuers(
    issuers: Arc<Issuers>,
    disallowed: Vec<Str>,
    anonymous: Option<Anonymous>,
) -> impl FnMut(Result<&[u8], FileError>) -> bool {
    move |content| {
        let read = content
            .map_err(|error| error.to_string())
            .and_then(|content| {
                let text = std::str::from_utf8(content).map_err(|error| error.to_string())?;
                let read = AuthenticationConfiguration::read(text, &disallowed)?;
                match read.anonymous == anonymous {
                    true => Ok((read, text)),
                    false => {
                        Err("anonymous: Forbidden: changed from initial configuration file".into())
                    }
                }
            });
        let is_valid = read.is_ok();
        issuers.record_reload(is_valid);
        match read {
            Ok((read, text)) => {
                issuers.replace(read);
                issuers.set_file_content(text);
                tracing::info!("reloaded authentication config");
            }
            Err(error) => tracing::error!(
                error,
                "failed to validate authentication config, keeping the previous one"
            ),
        }
        is_valid
    }
}

#[cfg(test)]
mod tests {
    use mizzen_apiserver::clock::{SystemRandom, WallClock};
    use mizzen_store::Store;

    use super::*;

    fn file(issuer: &str, more: &str) -> String {
        format!(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n{more}\njwt: [{{issuer: {{url: '{issuer}', audiences: [b]}}, claimMappings: {{username: {{claim: c, prefix: d}}}}}}]"
        )
    }

    #[tokio::test]
    async fn an_invalid_file_changes_nothing() {
        let store = Store::in_memory(Default::default());
        let registry = Registry::new(store, Arc::new(WallClock), Arc::new(SystemRandom));
        let own = ["https://own".into()];
        let read = AuthenticationConfiguration::read(&file("https://a", ""), &own).unwrap();
        let issuers = Arc::new(Issuers::new(&registry, read, Vec::new(), &own));
        let mut changed = reload_issuers(issuers.clone(), own.to_vec(), None);
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
    fn durations_are_written_as_in_go() {
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(duration("0"), Ok(Duration::ZERO));
        assert!(duration("-1s").is_err() && duration("2").is_err());
    }
}
