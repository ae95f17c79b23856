//! apiregistration.k8s.io: APIServices.

use mizzen_object::validate::{field, names};
use mizzen_object::{Action, HookContext, Path, Violations};
use mizzen_value::{Value, value};

use crate::Behaviour;
use mizzen_apiextensions::KindStrategy;
use mizzen_apiextensions::{bytes, rules};

pub(super) fn behaviour(kind: &str) -> Behaviour {
    match kind {
        "APIService" => Behaviour::of::<ApiServiceStrategy>(),
        _ => Behaviour::NONE,
    }
}

pub(super) struct ApiServiceStrategy;

impl KindStrategy for ApiServiceStrategy {
    fn default(service: &mut Value) {
        if let Some(reference) = service.at_mut("spec.service") {
            reference.set_default("port", 443);
        }
    }

    /// What this server serves itself is always available.
    fn prepare(service: &mut Value, _: Option<&Value>, context: &HookContext) {
        if context.action == Action::Create && service["spec"]["service"].is_null() {
            let condition = value!({
                "type": "Available",
                "status": "True",
                "lastTransitionTime": (context.now),
                "reason": "Local",
                "message": "Local APIServices are always available",
            });
            service.set("status", value!({"conditions": [condition]}));
        }
    }

    fn validate(
        service: &Value,
        _: Option<&Value>,
        context: &HookContext,
        violations: &mut Violations,
    ) {
        if context.action == Action::Status {
            let path = Path::new("status");
            let path = path.child("conditions");
            for (index, condition) in service["status"]["conditions"].items().enumerate() {
                let place = path.index(index);
                field::one_of(
                    condition["status"].str(),
                    &["True", "False", "Unknown"],
                    &place.child("status"),
                    violations,
                );
            }
            return;
        }
        let (spec, path) = (&service["spec"], Path::new("spec"));
        let name = service["metadata"]["name"].str();
        let required = format!("{}.{}", spec["version"].str(), spec["group"].str());
        let is_name = !name.is_empty() && names::is_path_segment_name(name).is_empty();
        if is_name && name != required {
            let metadata = Path::new("metadata");
            let detail = format!("must be `spec.version+\".\"+spec.group`: \"{required}\"");
            violations.invalid(metadata.child("name"), name, &detail);
        }
        validate_version(spec, &path, violations);
        for (name, highest) in [("groupPriorityMinimum", 20_000), ("versionPriority", 1_000)] {
            let priority = spec[name].int();
            if priority <= 0 || priority > highest {
                let detail = format!("must be positive and less than {highest}");
                violations.invalid(path.child(name), priority, &detail);
            }
        }
        match spec.get("service") {
            Some(reference) => {
                let place = path.child("service");
                for name in ["namespace", "name"] {
                    if reference[name].is_empty() {
                        violations.required(place.child(name), "");
                    }
                }
                let wrong = names::is_port_number(reference["port"].int());
                if !wrong.is_empty() {
                    let detail = format!("port is not valid: {}", wrong.join(", "));
                    violations.invalid(place.child("port"), reference["port"].int(), &detail);
                }
                if spec["insecureSkipTLSVerify"].bool() && !spec["caBundle"].is_empty() {
                    violations.invalid(
                        path.child("insecureSkipTLSVerify"),
                        true,
                        "may not be true if caBundle is present",
                    );
                }
            }
            None => {
                let n_bytes = bytes::len(spec["caBundle"].str());
                if n_bytes != 0 {
                    let detail = "local APIServices may not have a caBundle";
                    violations.invalid(path.child("caBundle"), format!("{n_bytes} bytes"), detail);
                }
                if spec["insecureSkipTLSVerify"].bool() {
                    let detail = "local APIServices may not have insecureSkipTLSVerify";
                    violations.invalid(path.child("insecureSkipTLSVerify"), true, detail);
                }
            }
        }
    }
}

fn validate_version(spec: &Value, path: &Path, violations: &mut Violations) {
    let (group, version) = (spec["group"].str(), spec["version"].str());
    if group.is_empty() && version != "v1" {
        let detail = "only v1 may have an empty group and it better be legacy kube";
        violations.required(path.child("group"), detail);
    }
    if !group.is_empty() {
        rules::text(
            group,
            names::is_dns1123_subdomain,
            &path.child("group"),
            violations,
        );
    }
    rules::text(
        version,
        names::is_dns1035_label,
        &path.child("version"),
        violations,
    );
}
