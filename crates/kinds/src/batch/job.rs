//! Jobs.

use mizzen_object::validate::{meta, names, selector};
use mizzen_object::{Action, HookContext, NameRule, Path, Violations};
use mizzen_value::{Str, Value};

use super::{job_spec, job_status};
use crate::Behaviour;
use crate::apps::WorkloadSelector;
use mizzen_apiextensions::KindStrategy;
use mizzen_core_kinds::pod::{self, Options, each, with};

/// The labels by which a job finds its pods. The short ones are older.
const NAME_LABELS: [&str; 2] = ["job-name", "batch.kubernetes.io/job-name"];
const UID_LABELS: [&str; 2] = ["controller-uid", "batch.kubernetes.io/controller-uid"];

pub(super) const BEHAVIOUR: Behaviour = Behaviour::of::<JobStrategy>();

pub(super) struct JobStrategy;

impl KindStrategy for JobStrategy {
    fn default(job: &mut Value) {
        let spec = job.entry("spec");
        if spec["parallelism"].is_null() {
            spec.set_default("completions", 1);
        }
        spec.set_default("parallelism", 1);
        spec.set_default(
            "backoffLimit",
            if spec["backoffLimitPerIndex"].is_null() {
                6
            } else {
                i32::MAX
            },
        );
        spec.set_default("completionMode", "NonIndexed");
        spec.set_default("suspend", false);
        let replacement = if spec["podFailurePolicy"].is_null() {
            "TerminatingOrFailed"
        } else {
            "Failed"
        };
        spec.set_default("podReplacementPolicy", replacement);
        spec.set_default("manualSelector", false);
        default_spec(spec);
    }

    fn prepare(new: &mut Value, old: Option<&Value>, context: &HookContext) {
        if context.action == Action::Status {
            // Kubernetes: labels are a default, which whatever is read from the storage has.
            if inherits_labels(new) {
                inherit_labels(new);
            }
            return;
        }
        let inherits = inherits_labels(new);
        if old.is_none() && !new["spec"]["manualSelector"].bool() {
            // A job's pods are marked with its uid, so that no other job takes them for its own.
            let [name, uid] = ["name", "uid"].map(|key| Value::from(new["metadata"][key].str()));
            let spec = new.entry("spec");
            let labels = spec.entry("template").entry("metadata").entry("labels");
            for (keys, value) in [(NAME_LABELS, &name), (UID_LABELS, &uid)] {
                for key in keys {
                    labels.set_default(key, value.clone());
                }
            }
            labels.make_map().sort();
            let selector = spec.entry("selector");
            let selected = selector.entry("matchLabels");
            selected.set_default(UID_LABELS[1], uid);
            // Go writes maps sorted and structs in the order of their fields, also where a message shows them.
            selected.make_map().sort();
            selector
                .make_map()
                .sort_by_rank(|name| name != "matchLabels");
        }
        let are_valid = new["spec"]["template"]["metadata"]["labels"]
            .entries()
            .all(|(_, value)| names::is_label_value(value.str()).is_empty());
        if inherits || are_valid && inherits_labels(new) {
            inherit_labels(new);
        }
        pod::drop_disabled(
            new.entry("spec").entry("template"),
            old.map(|old| &old["spec"]["template"]),
        );
    }

    fn object_for_managed_fields(job: &Value) -> Option<Value> {
        inherits_labels(job).then(|| {
            let mut job = job.clone();
            inherit_labels(&mut job);
            job
        })
    }

    fn validate(
        new: &Value,
        old: Option<&Value>,
        context: &HookContext,
        violations: &mut Violations,
    ) {
        if let (Action::Status, Some(old)) = (context.action, old) {
            return job_status::validate(new, old, violations);
        }
        let template = old.map(|old| &old["spec"]["template"]);
        let mut options = Options::of(template);
        let old_selector = old.map_or(&Value::Null, |old| &old["spec"]["selector"]);
        options.any_selector_values |= selector::has_invalid_value(old_selector);
        let is_marked = |template: &Value| {
            [NAME_LABELS[1], UID_LABELS[1]]
                .iter()
                .all(|key| !template["metadata"]["labels"][*key].is_null())
        };
        let metadata = &new["metadata"];
        if old.is_some() {
            meta::native_object_meta(metadata, true, NameRule::Subdomain, violations);
        }
        // With a generated selector, the template must have the generated labels.
        let with_prefix = template.is_none_or(is_marked);
        let spec = &new["spec"];
        if !spec["manualSelector"].bool() && !spec["selector"].is_null() {
            let [name, uid] = ["name", "uid"].map(|key| new["metadata"][key].str());
            let path = Path::new("spec");
            if uid.is_empty() {
                violations.required("metadata.uid", "");
            }
            let place = path.child("template");
            let place = place.child("metadata");
            let labels = &spec["template"]["metadata"]["labels"];
            let mut expected = Value::object();
            for index in 0..=usize::from(with_prefix) {
                for (key, value) in [(UID_LABELS[index], uid), (NAME_LABELS[index], name)] {
                    let (path, detail) = (place.child("labels"), format!("must be '{value}'"));
                    match labels[key].as_str() {
                        None => violations.required(path.key(key), &detail),
                        Some(found) if found != value => {
                            violations.invalid(path.key(key), labels.clone(), &detail)
                        }
                        Some(_) => {}
                    }
                    expected.set(key, value);
                }
            }
            if let selector @ WorkloadSelector::Clear(_) = WorkloadSelector::of(&spec["selector"])
                && !selector.selects(&expected)
            {
                violations.invalid(
                    path.child("selector"),
                    spec["selector"].clone(),
                    "`selector` not auto-generated",
                );
            }
        }
        let path = Path::new("spec");
        job_spec::validate(&new["spec"], &options, &path, violations);
        // The pods of an indexed job are numbered, and their names are host names.
        let (name, completions) = (
            new["metadata"]["name"].str(),
            new["spec"]["completions"].int(),
        );
        if new["spec"]["completionMode"].str() == "Indexed" && completions > 0 {
            let hostname = format!("{name}-{}", completions - 1);
            if !names::is_dns1123_label(&hostname).is_empty() {
                let detail =
                    format!("will not able to create pod with invalid DNS label: {hostname}");
                violations.invalid("metadata.name", name, &detail);
            }
        }
        if let Some(old) = old {
            meta::native_object_meta_update(metadata, &old["metadata"], violations);
            // Kubernetes: on update, violations of the spec are reported twice.
            job_spec::validate(&new["spec"], &options, &path, violations);
            job_spec::validate_update(new, old, &path, violations);
        }
    }

    fn warnings(new: &Value, old: Option<&Value>, context: &HookContext) -> Vec<String> {
        if context.action == Action::Status || old.is_some_and(|old| old["spec"] == new["spec"]) {
            return Vec::new();
        }
        let name = new["metadata"]["name"].str();
        let mut warnings = match old {
            None => pod::name_warning(name, "this is used in Pod names and hostnames"),
            Some(_) => Vec::new(),
        };
        warnings.extend(spec_warnings(&new["spec"], &Path::new("spec")));
        warnings
    }

    fn selectable(job: &Value, field: &str) -> Option<Str> {
        (field == "status.successful").then(|| job["status"]["succeeded"].int().to_string().into())
    }
}

/// What holds for a job and for the template of one.
pub(super) fn default_spec(spec: &mut Value) {
    with(spec, "podFailurePolicy", |policy| {
        each(policy, "rules", |rule| {
            each(rule, "onPodConditions", |pattern| {
                if pattern["status"].is_empty() {
                    pattern.set("status", "True");
                }
            });
        });
    });
    pod::default_template(spec.entry("template"));
}

/// Whether a job without labels has its template's.
///
/// Kubernetes: upstream gives them to it whenever it reads one, so that they are the writer's, and those that are
/// generated afterwards count, too: both share one map. Who gives the same labels twice wants no more. When there were
/// none but the generated ones, bad ones are reported of the template alone.
fn inherits_labels(job: &Value) -> bool {
    job["metadata"]["labels"].is_empty()
        && !job["spec"]["template"]["metadata"]["labels"].is_empty()
}

fn inherit_labels(job: &mut Value) {
    let labels = job["spec"]["template"]["metadata"]["labels"].clone();
    job.entry("metadata").set("labels", labels);
}

/// Warnings for a job, or for the template of one.
pub(super) fn spec_warnings(spec: &Value, path: &Path) -> Vec<String> {
    let mut warnings = Vec::new();
    let is_huge = spec["completions"].int() > 100_000 && spec["parallelism"].int() > 10_000;
    if spec["completionMode"].str() == "Indexed" && is_huge {
        warnings.push(format!(
            "{path}: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than \
             10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail"
        ));
    }
    warnings.extend(pod::template_warnings(
        &spec["template"],
        &path.child("template"),
    ));
    warnings
}
