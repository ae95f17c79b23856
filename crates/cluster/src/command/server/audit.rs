//! The audit policy and the audit backends.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use mizzen_audit::{
    AuditLogFormat, AuditOptions, AuditPolicy, AuditWebhookOptions, BatchOptions, Delivery,
    DeliveryMode, LogFile, Throttle, Truncation,
};

use super::{duration, invalid_file, text};
use crate::compose::ComposeError;

/// The only version of events.
const VERSION: &str = "audit.k8s.io/v1";

/// The arguments of auditing.
#[derive(Args, Clone)]
pub(crate) struct AuditArgs {
    /// Audit requests by this Policy of audit.k8s.io/v1; without it nothing is audited
    #[arg(long, value_name = "FILE")]
    audit_policy_file: Option<PathBuf>,
    /// Write audit events to this file; - is standard output
    #[arg(long, value_name = "FILE")]
    audit_log_path: Option<PathBuf>,
    /// Write audit events in this format: json is complete, legacy a short line
    #[arg(long, value_name = "FORMAT", default_value = "json")]
    audit_log_format: FormatArg,
    /// Write audit events in this API version
    #[arg(long, value_name = "VERSION", default_value = VERSION, value_parser = [VERSION])]
    audit_log_version: String,
    /// Delete rotated files after this many days; 0 keeps them
    #[arg(long, value_name = "DAYS", default_value_t = 366)]
    audit_log_maxage: u32,
    /// Keep this many rotated files; 0 keeps all
    #[arg(long, value_name = "N", default_value_t = 100)]
    audit_log_maxbackup: usize,
    /// Rotate the file at this size in megabytes; 0 never rotates
    #[arg(long, value_name = "MEGABYTES", default_value_t = 100)]
    audit_log_maxsize: u64,
    /// Compress rotated files with gzip
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        default_value_t = false, action = clap::ArgAction::Set)]
    audit_log_compress: bool,
    /// Send audit events to the webhook of this kubeconfig file
    #[arg(long, value_name = "FILE")]
    audit_webhook_config_file: Option<PathBuf>,
    /// Wait this long before the first retry of the webhook
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration,
        alias = "audit-webhook-batch-initial-backoff")]
    audit_webhook_initial_backoff: Duration,
    /// Send audit events in this API version
    #[arg(long, value_name = "VERSION", default_value = VERSION, value_parser = [VERSION])]
    audit_webhook_version: String,
    #[command(flatten)]
    log: LogDelivery,
    #[command(flatten)]
    webhook: WebhookDelivery,
}

impl AuditArgs {
    /// The policy and the backends; none without a policy.
    pub(crate) fn setup(&self) -> Result<Option<AuditOptions>, ComposeError> {
        let Some(file) = &self.audit_policy_file else {
            if self.audit_log_path.is_some() || self.audit_webhook_config_file.is_some() {
                tracing::warn!("audit backend without --audit-policy-file, nothing is audited");
            }
            return Ok(None);
        };
        let policy = AuditPolicy::read(text(file)?.as_bytes())
            .map_err(|error| invalid_file(file, error.to_string()))?;
        // The log file is created last: a server that fails to start leaves none behind.

        let webhook = self.webhook()?;
        Ok(Some(AuditOptions {
            policy,
            log: self.log_file()?,
            webhook,
        }))
    }

    fn log_file(&self) -> Result<Option<LogFile>, ComposeError> {
        let Some(path) = self.audit_log_path.clone() else {
            return Ok(None);
        };
        let file = LogFile {
            path,
            format: self.audit_log_format.into(),
            max_age: self.audit_log_maxage,
            max_backups: self.audit_log_maxbackup,
            max_size: self.audit_log_maxsize,
            compress: self.audit_log_compress,
            delivery: self.log.delivery()?,
        };
        file.create()
            .map_err(|error| invalid_file(&file.path, error.to_string()))?;
        Ok(Some(file))
    }

    fn webhook(&self) -> Result<Option<AuditWebhookOptions>, ComposeError> {
        let Some(file) = &self.audit_webhook_config_file else {
            return Ok(None);
        };
        let delivery = self.webhook.delivery()?;
        let setup = AuditWebhookOptions::load(file, self.audit_webhook_initial_backoff, delivery);
        // The error names the file, which the kubeconfig may refer to.
        let invalid = |error: &dyn ToString| ComposeError::Configuration {
            file: "--audit-webhook-config-file".into(),
            why: error.to_string(),
        };
        setup.map(Some).map_err(|error| invalid(&error))
    }
}

/// The format of the log.
#[derive(ValueEnum, Clone, Copy)]
enum FormatArg {
    Json,
    Legacy,
}

impl From<FormatArg> for AuditLogFormat {
    fn from(format: FormatArg) -> AuditLogFormat {
        match format {
            FormatArg::Json => AuditLogFormat::Json,
            FormatArg::Legacy => AuditLogFormat::Legacy,
        }
    }
}

/// When events are sent.
#[derive(ValueEnum, Clone, Copy)]
enum ModeArg {
    Batch,
    Blocking,
    BlockingStrict,
}

impl From<ModeArg> for DeliveryMode {
    fn from(mode: ModeArg) -> DeliveryMode {
        match mode {
            ModeArg::Batch => DeliveryMode::Batch,
            ModeArg::Blocking => DeliveryMode::Blocking,
            ModeArg::BlockingStrict => DeliveryMode::BlockingStrict,
        }
    }
}

/// The delivery arguments of the log and the webhook, which differ in names and defaults.
macro_rules! delivery_args {
    ($type:ident, $place:literal, $mode:literal, size: $size:literal, throttle: $throttle:literal) => {
        #[derive(Args, Clone)]
        struct $type {
            /// Send events in batches (batch), or before the response (blocking); blocking-strict fails requests that cannot be
            /// audited
            #[arg(id = concat!($place, "-mode"), long = concat!("audit-", $place, "-mode"), value_name = "MODE",
                default_value = $mode)]
            mode: ModeArg,
            /// Buffer this many events in batch mode; more are dropped
            #[arg(id = concat!($place, "-buffer"), long = concat!("audit-", $place, "-batch-buffer-size"),
                value_name = "N", default_value_t = 10_000)]
            buffer: usize,
            /// Send at most this many events per batch
            #[arg(id = concat!($place, "-size"), long = concat!("audit-", $place, "-batch-max-size"),
                value_name = "N", default_value_t = $size)]
            size: usize,
            /// Send a batch after this time even if it is not full
            #[arg(id = concat!($place, "-wait"), long = concat!("audit-", $place, "-batch-max-wait"),
                value_name = "TIME", default_value = "30s", value_parser = duration)]
            wait: Duration,
            /// Limit the rate of batches
            #[arg(id = concat!($place, "-throttle"), long = concat!("audit-", $place, "-batch-throttle-enable"),
                value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
                default_value_t = $throttle, action = clap::ArgAction::Set)]
            throttle: bool,
            /// Send at most this many batches per second
            #[arg(id = concat!($place, "-rate"), long = concat!("audit-", $place, "-batch-throttle-qps"),
                value_name = "N", default_value_t = 10.0)]
            rate: f32,
            /// Allow bursts of this many batches
            #[arg(id = concat!($place, "-burst"), long = concat!("audit-", $place, "-batch-throttle-burst"),
                value_name = "N", default_value_t = 15)]
            burst: usize,
            /// Limit the size of events and batches
            #[arg(id = concat!($place, "-truncate"), long = concat!("audit-", $place, "-truncate-enabled"),
                value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
                default_value_t = false, action = clap::ArgAction::Set)]
            truncate: bool,
            /// Split batches above this size in bytes
            #[arg(id = concat!($place, "-largest-batch"), long = concat!("audit-", $place, "-truncate-max-batch-size"),
                value_name = "BYTES", default_value_t = 10 * 1024 * 1024)]
            largest_batch: usize,
            /// Truncate events above this size in bytes: remove objects, or drop the event
            #[arg(id = concat!($place, "-largest-event"), long = concat!("audit-", $place, "-truncate-max-event-size"),
                value_name = "BYTES", default_value_t = 100 * 1024)]
            largest_event: usize,
        }

        impl $type {
            fn delivery(&self) -> Result<Delivery, ComposeError> {
                let throttle = Throttle { rate: self.rate, burst: self.burst };
                let batch = BatchOptions {
                    buffer: self.buffer,
                    size: self.size,
                    wait: self.wait,
                    throttle: self.throttle.then_some(throttle),
                };
                let sizes = Truncation { event: self.largest_event, batch: self.largest_batch };
                let mode = self.mode.into();
                check_delivery($place, mode, &batch, sizes)?;
                Ok(Delivery { mode, batch, truncation: self.truncate.then_some(sizes) })
            }
        }
    };
}

delivery_args!(LogDelivery, "log", "blocking", size: 1, throttle: false);
delivery_args!(WebhookDelivery, "webhook", "batch", size: 400, throttle: true);

/// Rejects invalid numbers with upstream's messages.
fn check_delivery(
    place: &str,
    mode: DeliveryMode,
    batch: &BatchOptions,
    sizes: Truncation,
) -> Result<(), ComposeError> {
    let (
        Truncation {
            event,
            batch: largest,
        },
        throttle,
    ) = (sizes, batch.throttle);
    let positive = |what: &str, number: String| {
        Some(format!(
            "invalid audit {what}{number}, must be a positive number"
        ))
    };
    let name = |what: &str| format!("batch {place} {what} ");
    let is_batch = mode == DeliveryMode::Batch;
    let problem = match throttle {
        _ if is_batch && batch.buffer == 0 => {
            positive(&name("buffer size"), batch.buffer.to_string())
        }
        _ if is_batch && batch.size == 0 => {
            positive(&name("max batch size"), batch.size.to_string())
        }
        Some(Throttle { rate, .. }) if is_batch && rate <= 0.0 => {
            positive(&name("throttle QPS"), rate.to_string())
        }
        Some(Throttle { burst: 0, .. }) if is_batch => {
            positive(&name("throttle burst"), "0".into())
        }
        _ if event == 0 => positive(&format!("truncate {place} max event size "), "0".into()),
        _ if largest < event => Some(format!(
            "invalid audit truncate {place} max batch size {largest}, must be greater than max event size ({event})"
        )),
        _ => None,
    };
    let file = format!("--audit-{place}");
    problem.map_or(Ok(()), |why| Err(ComposeError::Configuration { file, why }))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        audit: AuditArgs,
    }

    fn parse(arguments: &[&str]) -> AuditArgs {
        Command::try_parse_from(["x"].iter().chain(arguments))
            .map(|command| command.audit)
            .unwrap()
    }

    #[test]
    fn defaults_are_upstreams() {
        let audit = parse(&[]);
        let log = audit.log.delivery().unwrap();
        assert_eq!(
            (log.mode, log.batch.size, log.batch.throttle),
            (DeliveryMode::Blocking, 1, None)
        );
        let webhook = audit.webhook.delivery().unwrap();
        let batch = BatchOptions {
            buffer: 10_000,
            size: 400,
            wait: Duration::from_secs(30),
            throttle: Some(Throttle {
                rate: 10.0,
                burst: 15,
            }),
        };
        assert_eq!(
            webhook,
            Delivery {
                mode: DeliveryMode::Batch,
                batch,
                truncation: None
            }
        );
        assert_eq!(audit.audit_webhook_initial_backoff, Duration::from_secs(10));
        assert!(audit.setup().unwrap().is_none());
    }

    #[test]
    fn arguments_are_called_as_upstream_calls_them() {
        let audit = parse(&[
            "--audit-log-mode=blocking-strict",
            "--audit-log-truncate-enabled",
            "--audit-webhook-mode=blocking",
            "--audit-webhook-batch-throttle-enable=false",
            "--audit-webhook-batch-initial-backoff=1m30s",
        ]);
        let log = audit.log.delivery().unwrap();
        let sizes = Truncation {
            event: 100 * 1024,
            batch: 10 * 1024 * 1024,
        };
        assert_eq!(
            (log.mode, log.truncation),
            (DeliveryMode::BlockingStrict, Some(sizes))
        );
        let webhook = audit.webhook.delivery().unwrap();
        assert_eq!(
            (webhook.mode, webhook.batch.throttle),
            (DeliveryMode::Blocking, None)
        );
        assert_eq!(audit.audit_webhook_initial_backoff, Duration::from_secs(90));
    }

    #[track_caller]
    fn check_refused(arguments: &[&str], expected: &str) {
        let audit = parse(arguments);
        let outcomes = [audit.log.delivery(), audit.webhook.delivery()];
        let problem = outcomes
            .into_iter()
            .find_map(Result::err)
            .unwrap()
            .to_string();
        assert!(problem.ends_with(expected), "{problem}");
    }

    #[test]
    fn invalid_numbers_are_rejected() {
        check_refused(
            &["--audit-webhook-batch-buffer-size=0"],
            "invalid audit batch webhook buffer size 0, must be a positive number",
        );
        check_refused(
            &["--audit-webhook-batch-throttle-qps=0"],
            "invalid audit batch webhook throttle QPS 0, must be a positive number",
        );
        check_refused(
            &["--audit-log-truncate-max-batch-size=1"],
            "invalid audit truncate log max batch size 1, must be greater than max event size (102400)",
        );
    }

    fn setup(policy: &str) -> Result<Option<AuditOptions>, String> {
        let directory = tempfile::tempdir().unwrap();
        let (file, log) = (
            directory.path().join("policy.yaml"),
            directory.path().join("audit.log"),
        );
        std::fs::write(&file, policy).unwrap();
        let flag = |name: &str, path: &std::path::Path| format!("--{name}={}", path.display());
        let flags = [
            flag("audit-policy-file", &file),
            flag("audit-log-path", &log),
        ];
        parse(&[&flags[0], &flags[1]])
            .setup()
            .map_err(|error| error.to_string())
    }

    #[test]
    fn an_invalid_policy_fails_the_start() {
        let sound = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n";
        assert!(setup(sound).unwrap().unwrap().log.is_some());
        let problem = setup(&sound.replace("Metadata", "All")).unwrap_err();
        assert!(
            problem.contains("policy.yaml: rules[0].level: Unsupported value: \"All\""),
            "{problem}"
        );
    }
}
