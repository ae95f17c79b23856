//! Who decides what people may do: modes by name, or a file.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use mizzen_apiserver::access::webhook::Settings;
use mizzen_apiserver::access::{Authorization, ConfigurationError, Entry, Mode};
use mizzen_value::{json, time};

use super::refused;
use crate::compose::ComposeError;

/// The arguments of authorization.
#[derive(Args, Clone)]
pub(crate) struct AuthorizationArgs {
    /// Who decides what people may do, in the order in which they are asked: Node, RBAC, Webhook, AlwaysAllow,
    /// AlwaysDeny [default: Node,RBAC]
    #[arg(long, value_name = "MODE,…", value_delimiter = ',')]
    authorization_mode: Vec<String>,
    /// The same as an AuthorizationConfiguration in YAML or JSON; it is read again when it changes
    #[arg(long, value_name = "FILE")]
    authorization_config: Option<PathBuf>,
    /// Where the mode Webhook asks: a kubeconfig file
    #[arg(long, value_name = "FILE")]
    authorization_webhook_config_file: Option<PathBuf>,
    /// The version of the SubjectAccessReviews that are sent there: v1 or v1beta1 [default: v1beta1]
    #[arg(long, value_name = "VERSION")]
    authorization_webhook_version: Option<String>,
    /// How long a yes from there is kept [default: 5m]
    #[arg(long, value_name = "TIME", value_parser = span)]
    authorization_webhook_cache_authorized_ttl: Option<Duration>,
    /// How long any other answer from there is kept [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = span)]
    authorization_webhook_cache_unauthorized_ttl: Option<Duration>,
    /// Not supported, as the mode ABAC is not
    #[arg(long, value_name = "FILE", hide = true)]
    authorization_policy_file: Option<PathBuf>,
}

/// Who decides, and the file that says so, with what it says.
pub(crate) struct Authorized {
    pub authorization: Authorization,
    pub file: Option<(PathBuf, Vec<u8>)>,
}

/// How long something lasts, as Go writes it: `5m`, `1h30m`.
fn span(text: &str) -> Result<Duration, String> {
    let nanos = time::duration_nanos(text).map_err(|error| error.to_string())?;
    u64::try_from(nanos)
        .map(Duration::from_nanos)
        .map_err(|_| "must not be negative".into())
}

impl AuthorizationArgs {
    /// Whether the mode AlwaysAllow is among those of --authorization-mode.
    pub(crate) fn allows_everything(&self) -> bool {
        self.authorization_mode
            .iter()
            .any(|mode| mode == "AlwaysAllow")
    }

    /// Who decides.
    pub(crate) fn authorization(&self) -> Result<Authorized, ComposeError> {
        let Some(file) = &self.authorization_config else {
            let authorization = self
                .by_flags()
                .map_err(|error| refused("authorization".as_ref(), error.to_string()))?;
            return Ok(Authorized {
                authorization,
                file: None,
            });
        };
        let refused = |why: String| refused(file, why);
        if self.has_flags() {
            return Err(refused(
                "--authorization-config can not be specified when --authorization-mode or --authorization-webhook-* flags \
                 are defined"
                    .into(),
            ));
        }
        let text = std::fs::read(file).map_err(|error| refused(error.to_string()))?;
        let authorization =
            Authorization::parse(&text).map_err(|error| refused(error.to_string()))?;
        Ok(Authorized {
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

    fn by_flags(&self) -> Result<Authorization, ConfigurationError> {
        if let Some(error) = ConfigurationError::of(self.problems()) {
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
        match Mode::named(mode) {
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

    fn entry(&self, word: &str) -> Result<Entry, ConfigurationError> {
        if let Some(mode) = Mode::named(word)? {
            return Ok(Entry::plain(mode));
        }
        let file = self
            .authorization_webhook_config_file
            .clone()
            .unwrap_or_default();
        let version = self
            .authorization_webhook_version
            .as_deref()
            .unwrap_or("v1beta1");
        let kept =
            |said: Option<Duration>, unsaid: u64| said.unwrap_or(Duration::from_secs(unsaid));
        let settings = Settings::load(
            &file,
            version,
            kept(self.authorization_webhook_cache_authorized_ttl, 300),
            kept(self.authorization_webhook_cache_unauthorized_ttl, 30),
        )?;
        Ok(Entry {
            name: "default".into(),
            mode: Mode::Webhook(Arc::new(settings)),
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
        let said = match outcome {
            Ok(Authorized {
                authorization: Authorization(entries),
                ..
            }) => {
                let shown = entries
                    .iter()
                    .map(|entry| format!("{}={}", entry.name, entry.mode.word()));
                shown.collect::<Vec<_>>().join(",")
            }
            Err(error) => error.to_string(),
        };
        assert_eq!(said, expected);
    }

    #[test]
    fn modes_are_asked_in_the_order_in_which_they_are_given() {
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
    fn flags_that_do_not_fit_are_refused() {
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

    #[test]
    fn time_is_written_as_go_writes_it() {
        assert_eq!(span("1m30s"), Ok(Duration::from_secs(90)));
        assert!(span("-1s").is_err() && span("soon").is_err());
    }
}
