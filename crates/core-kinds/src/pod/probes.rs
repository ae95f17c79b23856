//! Validation of probes and lifecycle handlers.

use mizzen_object::validate::{field, names};
use mizzen_object::{Path, Violations};
use mizzen_value::Value;

/// What is done at the turns of a container's life, and how one knows that it is well.
pub(super) fn validate(container: &Value, spec: &Value, path: &Path, violations: &mut Violations) {
    let lifecycle = &container["lifecycle"];
    for moment in ["postStart", "preStop"] {
        if !lifecycle[moment].is_null() {
            validate_handler(
                &lifecycle[moment],
                spec,
                &path.child("lifecycle").child(moment),
                violations,
            );
        }
    }
    if let Some(signal) = lifecycle["stopSignal"].as_str() {
        let os = &spec["os"];
        let path = path.child("lifecycle");
        let path = path.child("stopSignal");
        match os["name"].str() {
            _ if os.is_null() => violations.forbidden(
                path,
                "may not be set for containers with empty `spec.os.name`",
            ),
            "windows" => field::one_of(signal, &["SIGKILL", "SIGTERM"], &path, violations),
            "linux" => {
                let mut known: Vec<String> = SIGNALS.iter().map(ToString::to_string).collect();
                known.extend(["SIGRTMIN".into(), "SIGRTMAX".into()]);
                known.extend((1..=15).map(|number| format!("SIGRTMIN+{number}")));
                known.extend((1..=14).map(|number| format!("SIGRTMAX-{number}")));
                known.sort_unstable();
                let known: Vec<&str> = known.iter().map(String::as_str).collect();
                field::one_of(signal, &known, &path, violations);
            }
            _ => {}
        }
    }
    for key in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let (probe, path) = (&container[key], path.child(key));
        if probe.is_null() {
            continue;
        }
        const NUMBERS: [&str; 5] = [
            "initialDelaySeconds",
            "timeoutSeconds",
            "periodSeconds",
            "successThreshold",
            "failureThreshold",
        ];
        validate_handler(probe, spec, &path, violations);
        for key in NUMBERS {
            field::non_negative(probe[key].int(), &path.child(key), violations);
        }
        if let Some(grace) = probe["terminationGracePeriodSeconds"]
            .as_int()
            .filter(|grace| *grace <= 0)
        {
            violations.invalid(
                path.child("terminationGracePeriodSeconds"),
                grace,
                "must be greater than 0",
            );
        }
        let grace = &probe["terminationGracePeriodSeconds"];
        if key != "readinessProbe" && probe["successThreshold"].int() != 1 {
            let threshold = probe["successThreshold"].int();
            violations.invalid(path.child("successThreshold"), threshold, "must be 1");
        }
        if key == "readinessProbe" && !grace.is_null() {
            let detail = "must not be set for readinessProbes";
            violations.invalid(
                path.child("terminationGracePeriodSeconds"),
                grace.clone(),
                detail,
            );
        }
    }
}

type Check = fn(&Value, &Value, &Path, &mut Violations);

const HANDLERS: [(&str, Check); 5] = [
    ("exec", |action, _, path, violations| {
        if action["command"].is_empty() {
            violations.required(path.child("command"), "");
        }
    }),
    ("httpGet", |action, _, path, violations| {
        if action["path"].str().is_empty() {
            violations.required(path.child("path"), "");
        }
        validate_port(&action["port"], &path.child("port"), violations);
        field::one_of(
            action["scheme"].str(),
            &["HTTP", "HTTPS"],
            &path.child("scheme"),
            violations,
        );
        for header in action["httpHeaders"].list() {
            let name = header["name"].str();
            field::all(
                names::is_http_header_name(name),
                name,
                &path.child("httpHeaders"),
                violations,
            );
        }
    }),
    ("tcpSocket", validate_socket),
    ("grpc", validate_socket),
    ("sleep", |action, spec, path, violations| {
        let Some(grace) = spec["terminationGracePeriodSeconds"].as_int() else {
            return;
        };
        let seconds = action["seconds"].int();
        if seconds < 0 || seconds > grace {
            let detail = format!(
                "must be non-negative and less than terminationGracePeriodSeconds ({grace})"
            );
            violations.invalid(path, seconds, &detail);
        }
    }),
];

/// One thing to do.
fn validate_handler(handler: &Value, spec: &Value, path: &Path, violations: &mut Violations) {
    let mut found = HANDLERS.iter().filter(|(key, _)| !handler[*key].is_null());
    let Some((key, check)) = found.next() else {
        return violations.required(path, "must specify a handler type");
    };
    check(&handler[*key], spec, &path.child(key), violations);
    for (key, _) in found {
        violations.forbidden(path.child(key), "may not specify more than 1 handler type");
    }
}

fn validate_socket(action: &Value, _: &Value, path: &Path, violations: &mut Violations) {
    validate_port(&action["port"], &path.child("port"), violations);
}

fn validate_port(port: &Value, path: &Path, violations: &mut Violations) {
    match port.as_str() {
        Some(name) => field::all(names::is_port_name(name), name, path, violations),
        None => field::all(
            names::is_port_number(port.int()),
            port.int(),
            path,
            violations,
        ),
    }
}

/// Signals other than the numbered ones.
const SIGNALS: [&str; 34] = [
    "SIGABRT",
    "SIGALRM",
    "SIGBUS",
    "SIGCHLD",
    "SIGCLD",
    "SIGCONT",
    "SIGFPE",
    "SIGHUP",
    "SIGILL",
    "SIGINT",
    "SIGIO",
    "SIGIOT",
    "SIGKILL",
    "SIGPIPE",
    "SIGPOLL",
    "SIGPROF",
    "SIGPWR",
    "SIGQUIT",
    "SIGSEGV",
    "SIGSTKFLT",
    "SIGSTOP",
    "SIGSYS",
    "SIGTERM",
    "SIGTRAP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGUSR1",
    "SIGUSR2",
    "SIGVTALRM",
    "SIGWINCH",
    "SIGXCPU",
    "SIGXFSZ",
];
