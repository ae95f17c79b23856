//! StatefulSets.

use mizzen_object::validate::field;
use mizzen_object::{Action, HookContext, Path, Violations};
use mizzen_value::{Value, value};

use super::workload::{
    WorkloadSelector, changed_template_warnings, drop_disabled, share_number, validate_at_most_all,
    validate_collisions, validate_counts, validate_lasting, validate_parts, validate_selected,
    validate_selector, validate_share,
};
use crate::Behaviour;
use mizzen_apiextensions::KindStrategy;
use mizzen_core_kinds::fields::dns_label;
use mizzen_core_kinds::pod::{self, Options, each};

/// The mutable fields.
const CHANGEABLE: [&str; 7] = [
    "replicas",
    "template",
    "updateStrategy",
    "minReadySeconds",
    "ordinals",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
];

pub(super) const BEHAVIOUR: Behaviour = Behaviour::of::<StatefulSetStrategy>();

pub(super) struct StatefulSetStrategy;

impl KindStrategy for StatefulSetStrategy {
    fn default(set: &mut Value) {
        let spec = set.entry("spec");
        spec.set_default("podManagementPolicy", "OrderedReady");
        // Without a type, `rollingUpdate` is defaulted too; with one, it stays as it is.
        let strategy = spec.entry("updateStrategy");
        if strategy["type"].is_empty() {
            strategy.set("type", "RollingUpdate");
            strategy.entry("rollingUpdate").make_map();
        }
        if strategy["type"].str() == "RollingUpdate" && !strategy["rollingUpdate"].is_null() {
            strategy.entry("rollingUpdate").set_default("partition", 0);
        }
        let retention = spec.entry("persistentVolumeClaimRetentionPolicy");
        retention.set_default("whenDeleted", "Retain");
        retention.set_default("whenScaled", "Retain");
        spec.set_default("replicas", 1);
        spec.set_default("revisionHistoryLimit", 10);
        each(spec, "volumeClaimTemplates", |claim| {
            claim.set("apiVersion", "v1");
            claim.set("kind", "PersistentVolumeClaim");
            claim.entry("spec").set_default("volumeMode", "Filesystem");
            claim.entry("status").set_default("phase", "Pending");
            for list in [
                "spec.resources.limits",
                "spec.resources.requests",
                "status.capacity",
                "status.allocatedResources",
            ] {
                pod::round(claim.at_mut(list));
            }
        });
        pod::default_template(spec.entry("template"));
    }

    fn prepare(new: &mut Value, old: Option<&Value>, context: &HookContext) {
        if context.action == Action::Status {
            return;
        }
        let in_use = |set: &Value| {
            !set["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"].is_null()
        };
        if !old.is_some_and(in_use) {
            pod::with(new, "spec.updateStrategy.rollingUpdate", |update| {
                drop(update.remove("maxUnavailable"))
            });
        }
        drop_disabled(new, old);
    }

    fn validate(
        new: &Value,
        old: Option<&Value>,
        context: &HookContext,
        violations: &mut Violations,
    ) {
        if let (Action::Status, Some(old)) = (context.action, old) {
            const COUNTS: [&str; 7] = [
                "replicas",
                "readyReplicas",
                "currentReplicas",
                "updatedReplicas",
                "availableReplicas",
                "observedGeneration",
                "collisionCount",
            ];
            let (status, path) = (&new["status"], Path::new("status"));
            validate_counts(status, &COUNTS, &path, violations);
            validate_parts(
                status,
                &COUNTS[1..5],
                ("replicas", "status.replicas"),
                &path,
                violations,
            );
            let whole = ("readyReplicas", "status.readyReplicas");
            validate_parts(status, &["availableReplicas"], whole, &path, violations);
            validate_collisions(new, old, &path, violations);
            return;
        }
        let options = Options::of(old.map(|old| &old["spec"]["template"]));
        let mut check = StatefulSetValidator {
            options: &options,
            old,
            skip_template: false,
        };
        if let Some(old) = old {
            let mut violations = Violations::default();
            check.validate(&old["spec"], &Path::new(""), &mut violations);
            check.skip_template = !violations.is_empty();
        }
        let path = Path::new("spec");
        check.validate(&new["spec"], &path, violations);
        if old.is_some_and(|old| lasting(&old["spec"]) != lasting(&new["spec"])) {
            let detail = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
                      'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and \
                      'minReadySeconds' are forbidden";
            violations.forbidden(path, detail);
        }
    }

    fn warnings(new: &Value, old: Option<&Value>, context: &HookContext) -> Vec<String> {
        if context.action == Action::Status {
            return Vec::new();
        }
        let mut warnings = changed_template_warnings(new, old);
        let path = Path::new("spec");
        let place = path.child("volumeClaimTemplates");
        for (index, claim) in new["spec"]["volumeClaimTemplates"].items().enumerate() {
            // Kubernetes: the place has `Spec` in it after a change, and not before.
            let place = place.index(index);
            let place = if old.is_some() {
                place.child("Spec")
            } else {
                place
            };
            warnings.extend(pod::claim_spec_warnings(&claim["spec"], &place));
        }
        if new["spec"]["revisionHistoryLimit"].int() < 0 {
            let advice =
                "a negative value retains all historical revisions; a value >= 0 is recommended";
            warnings.push(format!("spec.revisionHistoryLimit: {advice}"));
        }
        warnings
    }
}

fn lasting(spec: &Value) -> Value {
    let mut spec = spec.clone();
    for key in CHANGEABLE {
        spec.remove(key);
    }
    spec
}

/// How strictly a spec is validated: unchanged immutable fields and invalid old templates are accepted.
struct StatefulSetValidator<'a> {
    options: &'a Options,
    old: Option<&'a Value>,
    skip_template: bool,
}

impl StatefulSetValidator<'_> {
    fn validate(&self, spec: &Value, path: &Path, violations: &mut Violations) {
        validate_policies(spec, path, violations);
        let claims = spec["volumeClaimTemplates"]
            .items()
            .filter(|_| self.old.is_none());
        let place = path.child("volumeClaimTemplates");
        for (index, claim) in claims.enumerate() {
            pod::validate_claim_spec(
                &claim["spec"],
                &place.index(index).child("spec"),
                violations,
            );
        }
        validate_counts(spec, &["replicas", "minReadySeconds"], path, violations);
        let place = path.child("ordinals");
        field::non_negative(
            spec["ordinals"]["start"].int(),
            &place.child("start"),
            violations,
        );
        let service = spec["serviceName"].str();
        if self.old.is_none() && !service.is_empty() {
            dns_label(service, &path.child("serviceName"), violations);
        }
        validate_selector(
            &spec["selector"],
            "statefulset",
            &path.child("selector"),
            violations,
        );
        match WorkloadSelector::of(&spec["selector"]) {
            WorkloadSelector::Unclear => {
                violations.invalid(path.child("selector"), spec["selector"].clone(), "")
            }
            selector => self.validate_template(spec, selector, &path.child("template"), violations),
        }
        validate_lasting(
            &spec["template"],
            "StatefulSet",
            &path.child("template"),
            violations,
        );
    }

    fn validate_template(
        &self,
        spec: &Value,
        selector: WorkloadSelector,
        path: &Path,
        violations: &mut Violations,
    ) {
        let template = completed(spec);
        validate_selected(selector, &template, path, violations);
        if !self.skip_template {
            pod::validate_template_with(&template, self.options, path, violations);
        }
        pod::validate_template_annotations(&template, self.options, path, violations);
    }
}

/// The template with the volumes that each pod gets, and without what each pod gets instead.
fn completed(spec: &Value) -> Value {
    let mut template = spec["template"].clone();
    let pod = template.entry("spec");
    pod.remove("subdomain");
    pod.remove("hostname");
    let claims = spec["volumeClaimTemplates"].list();
    if claims.is_empty() {
        return template;
    }
    let mut volumes: Vec<Value> = Vec::new();
    for claim in claims {
        let name = claim["metadata"]["name"].str();
        if !volumes.iter().any(|volume| volume["name"].str() == name) {
            volumes.push(value!({"name": name, "persistentVolumeClaim": {"claimName": name}}));
        }
    }
    let is_own = |volume: &&Value| {
        !claims
            .iter()
            .any(|claim| claim["metadata"]["name"] == volume["name"])
    };
    volumes.extend(pod["volumes"].items().filter(is_own).cloned());
    pod.set("volumes", volumes);
    template
}

fn validate_policies(spec: &Value, path: &Path, violations: &mut Violations) {
    match spec["podManagementPolicy"].str() {
        "" => violations.required(path.child("podManagementPolicy"), ""),
        "OrderedReady" | "Parallel" => {}
        other => {
            violations.invalid(
                path.child("podManagementPolicy"),
                other,
                "must be 'OrderedReady' or 'Parallel'",
            );
        }
    }
    let strategy = &spec["updateStrategy"];
    let update_strategy_path = path.child("updateStrategy");
    let (update, place) = (
        &strategy["rollingUpdate"],
        update_strategy_path.child("rollingUpdate"),
    );
    match strategy["type"].str() {
        "" => violations.required(update_strategy_path, ""),
        "OnDelete" if !update.is_null() => {
            let shown = pod::form("RollingUpdateStatefulSetStrategy", update);
            violations.invalid(
                place,
                shown,
                "only allowed for updateStrategy 'RollingUpdate'",
            );
        }
        "OnDelete" => {}
        "RollingUpdate" => {
            validate_counts(update, &["partition"], &place, violations);
            let (share, path) = (&update["maxUnavailable"], place.child("maxUnavailable"));
            if !share.is_null() {
                validate_share(share, &path, violations);
                if share_number(share) == 0 {
                    violations.invalid(path, share.clone(), "cannot be 0");
                }
                validate_at_most_all(share, &path, violations);
            }
        }
        _ => {
            let shown = pod::form("StatefulSetUpdateStrategy", strategy);
            violations.invalid(
                update_strategy_path,
                shown,
                "must be 'RollingUpdate' or 'OnDelete'",
            );
        }
    }
    let (retention, path) = (&spec["persistentVolumeClaimRetentionPolicy"], path);
    let path = path.child("persistentVolumeClaimRetentionPolicy");
    for key in ["whenDeleted", "whenScaled"]
        .into_iter()
        .filter(|_| !retention.is_null())
    {
        field::one_of(
            retention[key].str(),
            &["Retain", "Delete"],
            &path.child(key),
            violations,
        );
    }
}
