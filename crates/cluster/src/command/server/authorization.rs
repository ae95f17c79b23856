//! The authorizers: modes by name, or a file.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use mizzen_authorization::webhook::WebhookSettings;
use mizzen_authorization::{
    Authorization, AuthorizationConfigurationError, AuthorizerConfiguration, AuthorizerType,
};
use mizzen_value::json;

use super::{duration, invalid_file};
use crate::compose::ComposeError;

/// The arguments of authorization.
#[derive(Args, Clone)]
pub(crate) struct AuthorizationArgs {
    /// Authorize requests by these modes, in this order: Node, RBAC, Webhook, AlwaysAllow, AlwaysDeny [default: Node,RBAC]
    #[arg(long, value_name = "MODE,…", value_delimiter = ',')]
    authorization_mode: Vec<String>,
    /// Configure authorizers by this AuthorizationConfiguration in YAML or JSON; it is reloaded when it changes
    #[arg(long, value_name = "FILE")]
    authorization_config: Option<PathBuf>,
    /// Send SubjectAccessReviews of the mode Webhook to the server of this kubeconfig file
    #[arg(long, value_name = "FILE")]
    authorization_webhook_config_file: Option<PathBuf>,
    /// Send SubjectAccessReviews in this version: v1 or v1beta1 [default: v1beta1]
    #[arg(long, value_name = "VERSION")]
    authorization_webhook_version: Option<String>,
    /// Cache allowed responses of the webhook for this long [default: 5m]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    authorization_webhook_cache_authorized_ttl: Option<Duration>,
    /// Cache other responses of the webhook for this long [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    authorization_webhook_cache_unauthorized_ttl: Option<Duration>,
    /// Not supported, because the mode ABAC is not
    #[arg(long, value_name = "FILE", hide = true)]
    authorization_policy_file: Option<PathBuf>,
}

/// The authorizers, and the file that configures them with its text.
pub(crate) struct ConfiguredAuthorizer {
    pub authorization: Authorization,
    pub file: Option<(PathBuf, Vec<u8>)>,
}

impl AuthorizationArgs {
    /// Whether the mode AlwaysAllow is among those of --authorization-mode.
    pub(crate) fn allows_everything(&self) -> bool {
        self.authorization_mode
            .iter()
            .any(|mode| mode == "AlwaysAllow")
    }

    /// Adds the mode Node to modes that lack it: simulated nodes are authorized by it.
    pub(crate) fn authorize_nodes(&mut self) {
        let modes = &mut self.authorization_mode;
        if !modes.is_empty() && !modes.iter().any(|mode| mode == "Node") {
            modes.insert(0, "Node".into());
        }
    }

    /// The authorizers of the file or of flags.
    pub(crate) fn authorization(&self) -> Result<ConfiguredAuthorizer, ComposeError> {
        let Some(file) = &self.authorization_config else {
            let authorization = self
                .by_flags()
                .map_err(|error| invalid_file("authorization".as_ref(), error.to_string()))?;
            return Ok(ConfiguredAuthorizer {
                authorization,
                file: None,
            });
        };
        let invalid = |why: String| invalid_file(file, why);
        if self.has_flags() {
            return Err(invalid(
                "--authorization-config can not be specified when --authorization-mode or --authorization-webhook-* flags \
                 are defined"
                    .into(),
            ));
        }
        let text = std::fs::read(file).map_err(|error| invalid(error.to_string()))?;
        let authorization =
            Authorization::parse(&text).map_err(|error| invalid(error.to_string()))?;
        Ok(ConfiguredAuthorizer {
            authorization,
            file: Some((file.clone(), text)),
        })
    }

    fn has_flags(&self) -> bool {
        !self.authorization_mode.is_empty()
            || self.authorization_webhook_config_file.is_some()
            || self.authorization_webhook_version.is_some()
            || self.authorization_webhook_cache_authorized_ttl.is_some()
            || self.authorization_webhook_cache_unauthorized_ttl.is_some()
    }

    fn by_flags(&self) -> Result<Authorization, AuthorizationConfigurationError> {
        if let Some(error) = AuthorizationConfigurationError::from_problems(self.problems()) {
            return Err(error);
        }
        if self.authorization_mode.is_empty() {
            return Ok(Authorization::default());
        }
        self.authorization_mode
            .iter()
            .map(|word| self.entry(word))
            .collect::<Result<_, _>>()
            .map(Authorization)
    }

    fn problems(&self) -> Vec<String> {
        let modes = &self.authorization_mode;
        let has = |mode: &str| modes.iter().any(|known| known == mode);
        let mut problems: Vec<String> =
            modes.iter().filter_map(|mode| self.problem(mode)).collect();
        if self.authorization_policy_file.is_some() && !has("ABAC") {
            problems.push("cannot specify --authorization-policy-file without mode ABAC".into());
        }
        if self.authorization_webhook_config_file.is_some() && !has("Webhook") {
            problems.push(
                "cannot specify --authorization-webhook-config-file without mode Webhook".into(),
            );
        }
        if modes
            .iter()
            .enumerate()
            .any(|(at, mode)| modes[..at].contains(mode))
        {
            let modes: Vec<String> = modes.iter().map(|mode| json::quote(mode)).collect();
            let modes = modes.join(" ");
            problems.push(format!(
                "authorization-mode [{modes}] has mode specified more than once"
            ));
        }
        problems
    }

    fn problem(&self, mode: &str) -> Option<String> {
        match AuthorizerType::named(mode) {
            Ok(Some(_)) => None,
            Err(error) => Some(error.to_string()),
            Ok(None) if mode != "Webhook" => Some(format!(
                "authorization-mode {} is not a valid mode",
                json::quote(mode)
            )),
            Ok(None) => {
                let missing = "authorization-mode Webhook's authorization config file not passed";
                self.authorization_webhook_config_file
                    .is_none()
                    .then(|| missing.into())
            }
        }
    }

    fn entry(
        &self,
        word: &str,
    ) -> Result<AuthorizerConfiguration, AuthorizationConfigurationError> {
        if let Some(mode) = AuthorizerType::named(word)? {
            return Ok(AuthorizerConfiguration::with_default_name(mode));
        }
        let file = self
            .authorization_webhook_config_file
            .clone()
            .unwrap_or_default();
        let version = self
            .authorization_webhook_version
            .as_deref()
            .unwrap_or("v1beta1");
        let ttl =
            |given: Option<Duration>, default: u64| given.unwrap_or(Duration::from_secs(default));
        let settings = WebhookSettings::load(
            &file,
            version,
            ttl(self.authorization_webhook_cache_authorized_ttl, 300),
            ttl(self.authorization_webhook_cache_unauthorized_ttl, 30),
        )?;
        Ok(AuthorizerConfiguration {
            name: "default".into(),
            kind: AuthorizerType::Webhook(Arc::new(settings)),
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        authorization: AuthorizationArgs,
    }

    #[track_caller]
    fn check(arguments: &str, expected: &str) {
        let arguments = ["mizzen"].into_iter().chain(arguments.split_whitespace());
        let outcome = Program::try_parse_from(arguments)
            .unwrap()
            .authorization
            .authorization();
        let shown = match outcome {
            Ok(ConfiguredAuthorizer {
                authorization: Authorization(entries),
                ..
            }) => {
                let modes = entries
                    .iter()
                    .map(|entry| format!("{}={}", entry.name, entry.kind.name()));
                modes.collect::<Vec<_>>().join(",")
            }
            Err(error) => error.to_string(),
        };
        assert_eq!(shown, expected);
    }

    #[test]
    fn modes_keep_their_order() {
        check("", "node=Node,rbac=RBAC");
        check(
            "--authorization-mode RBAC,AlwaysDeny,Node",
            "rbac=RBAC,alwaysdeny=AlwaysDeny,node=Node",
        );
        check(
            "--authorization-mode=AlwaysAllow",
            "alwaysallow=AlwaysAllow",
        );
    }

    #[test]
    fn conflicting_flags_are_rejected() {
        check(
            "--authorization-mode Nobody",
            "authorization: authorization-mode \"Nobody\" is not a valid mode",
        );
        check(
            "--authorization-mode RBAC,RBAC",
            "authorization: authorization-mode [\"RBAC\" \"RBAC\"] has mode specified more than once",
        );
        check(
            "--authorization-mode Webhook",
            "authorization: authorization-mode Webhook's authorization config file not passed",
        );
        check(
            "--authorization-webhook-config-file f",
            "authorization: cannot specify --authorization-webhook-config-file without mode Webhook",
        );
        check(
            "--authorization-mode ABAC --authorization-policy-file f",
            "authorization: the mode ABAC is not supported: roles say the same (RBAC)",
        );
        check(
            "--authorization-config f --authorization-mode RBAC",
            "f: --authorization-config can not be specified when --authorization-mode or --authorization-webhook-* flags \
             are defined",
        );
        check(
            "--authorization-config /nowhere/f",
            "/nowhere/f: No such file or directory (os error 2)",
        );
        check(
            "--authorization-mode Webhook --authorization-webhook-config-file /nowhere/f",
            "authorization: /nowhere/f: No such file or directory (os error 2)",
        );
    }
}
