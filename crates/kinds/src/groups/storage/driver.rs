//! CSIDrivers.

use mizzen_object::validate::{field, repeats};
use mizzen_object::{Action, HookContext, Path, Violations};
use mizzen_value::{Value, value};

use crate::Behaviour;
use mizzen_apiextensions::KindStrategy;
use mizzen_apiextensions::rules;

pub(super) const DRIVER: Behaviour = Behaviour::of::<CsiDriverStrategy>();

pub(super) struct CsiDriverStrategy;

impl KindStrategy for CsiDriverStrategy {
    fn default(driver: &mut Value) {
        let spec = driver.entry("spec");
        spec.set_default("attachRequired", true);
        for name in [
            "podInfoOnMount",
            "storageCapacity",
            "requiresRepublish",
            "seLinuxMount",
        ] {
            spec.set_default(name, false);
        }
        spec.set_default("fsGroupPolicy", "ReadWriteOnceWithFSType");
        if spec["volumeLifecycleModes"].is_empty() {
            spec.set("volumeLifecycleModes", value!(["Persistent"]));
        }
    }

    /// Kubernetes: the field's gate, VolumeLimitScaling, is off by default.
    fn prepare(driver: &mut Value, old: Option<&Value>, _: &HookContext) {
        let name = "preventPodSchedulingIfMissing";
        if old.is_none_or(|old| old["spec"][name].is_null()) {
            driver.entry("spec").remove(name);
        }
    }

    fn validate(driver: &Value, old: Option<&Value>, _: &HookContext, violations: &mut Violations) {
        let (spec, path) = (&driver["spec"], Path::new("spec"));
        let policies = ["File", "None", "ReadWriteOnceWithFSType"];
        rules::optional_word(
            &spec["fsGroupPolicy"],
            &policies,
            &path.child("fsGroupPolicy"),
            violations,
        );
        let tokens = spec["tokenRequests"].list();
        let place = path.child("tokenRequests");
        let repeated = repeats(tokens, |token| token["audience"].str());
        for (index, token) in tokens.iter().enumerate() {
            let path = place.index(index);
            let audience = &token["audience"];
            if repeated[index] {
                violations.duplicate(path.child("audience"), audience.str());
                continue;
            }
            let lifetime = path.child("expirationSeconds");
            match token["expirationSeconds"].as_int() {
                Some(seconds @ ..600) => {
                    violations.invalid(
                        lifetime,
                        seconds,
                        "may not specify a duration less than 10 minutes",
                    );
                }
                Some(seconds @ 0x1_0000_0001..) => {
                    violations.invalid(
                        lifetime,
                        seconds,
                        "may not specify a duration larger than 2^32 seconds",
                    );
                }
                _ => {}
            }
        }

        let modes = path.child("volumeLifecycleModes");
        for mode in spec["volumeLifecycleModes"].list() {
            field::one_of(mode.str(), &["Persistent", "Ephemeral"], &modes, violations);
        }
        let name = "nodeAllocatableUpdatePeriodSeconds";
        if let Some(seconds) = spec[name].as_int().filter(|seconds| *seconds < 10) {
            violations.invalid(
                path.child(name),
                seconds,
                "must be greater than or equal to 10 seconds",
            );
        }
        let name = "serviceAccountTokenInSecrets";
        if !spec[name].is_null() && spec["tokenRequests"].is_empty() {
            let detail = "serviceAccountTokenInSecrets is set but no tokenRequests are specified";
            violations.invalid(path.child(name), spec[name].clone(), detail);
        }
        if let Some(old) = old {
            let old = &old["spec"];
            // Kubernetes: the path is misspelled in validation.go.
            field::immutable(
                &spec["attachRequired"],
                &old["attachRequired"],
                &path.child("attachedRequired"),
                violations,
            );
            field::immutable(
                &spec["volumeLifecycleModes"],
                &old["volumeLifecycleModes"],
                &modes,
                violations,
            );
        }
    }

    fn warnings(driver: &Value, old: Option<&Value>, context: &HookContext) -> Vec<String> {
        let spec = &driver["spec"];
        let tokens = &spec["tokenRequests"];
        let news = context.action == Action::Create
            || old.is_none_or(|old| old["spec"]["tokenRequests"] != *tokens);
        if !news || tokens.is_empty() || !spec["serviceAccountTokenInSecrets"].is_null() {
            return Vec::new();
        }
        let warning = "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent \
                   possible logging of tokens in volume attributes";
        vec![warning.to_string()]
    }
}
