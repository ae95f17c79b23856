//! CronJobs.

use mizzen_object::validate::field;
use mizzen_object::{Action, HookContext, Path, Violations};
use mizzen_value::Value;

use super::{job, job_spec};
use crate::Behaviour;
use crate::apps::validate_counts;
use mizzen_apiextensions::KindStrategy;
use mizzen_component_helpers::cron;
use mizzen_core_kinds::pod::{self, Options};

pub(super) const BEHAVIOUR: Behaviour = Behaviour::of::<CronJobStrategy>();

pub(super) struct CronJobStrategy;

impl KindStrategy for CronJobStrategy {
    fn default(cron_job: &mut Value) {
        let spec = cron_job.entry("spec");
        spec.set_default("concurrencyPolicy", "Allow");
        spec.set_default("suspend", false);
        spec.set_default("successfulJobsHistoryLimit", 3);
        spec.set_default("failedJobsHistoryLimit", 1);
        job::default_spec(spec.entry("jobTemplate").entry("spec"));
    }

    fn prepare(new: &mut Value, old: Option<&Value>, context: &HookContext) {
        if context.action != Action::Status {
            let spec = new.entry("spec").entry("jobTemplate").entry("spec");
            pod::drop_disabled(spec.entry("template"), old.map(template));
        }
    }

    fn validate(
        new: &Value,
        old: Option<&Value>,
        context: &HookContext,
        violations: &mut Violations,
    ) {
        if context.action == Action::Status {
            return;
        }
        let (spec, path) = (&new["spec"], Path::new("spec"));
        validate_schedule(spec, old, &path.child("schedule"), violations);
        validate_counts(spec, &["startingDeadlineSeconds"], &path, violations);
        if old.is_none_or(|old| old["spec"]["timeZone"] != spec["timeZone"]) {
            let path = path.child("timeZone");
            if let Some(zone) = spec["timeZone"].as_str() {
                if zone.is_empty() {
                    violations.invalid(path, zone, "timeZone must be nil or non-empty string");
                } else if !zone.split('/').all(cron::is_zone_part) {
                    violations.invalid(path, zone, &format!("unknown time zone {zone}"));
                } else {
                    if zone.eq_ignore_ascii_case("Local") {
                        let detail = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
                        violations.invalid(path, zone, detail);
                    }
                    if let Err(problem) = cron::check_zone(zone) {
                        violations.invalid(path, zone, &problem);
                    }
                }
            }
        }
        match spec["concurrencyPolicy"].str() {
            "" => violations.required(path.child("concurrencyPolicy"), ""),
            policy => {
                let policies = ["Allow", "Forbid", "Replace"];
                field::one_of(
                    policy,
                    &policies,
                    &path.child("concurrencyPolicy"),
                    violations,
                );
            }
        }
        let options = Options::of(old.map(template));
        // The selector of a job is generated when the job is created.
        let template = &spec["jobTemplate"]["spec"];
        let place = path.child("jobTemplate");
        let place = place.child("spec");
        job_spec::validate_template(template, &options, &place, violations);
        if !template["selector"].is_null() {
            let detail = "`selector` will be auto-generated";
            violations.invalid(
                place.child("selector"),
                template["selector"].clone(),
                detail,
            );
        }
        if template["manualSelector"].bool() {
            violations.not_supported(place.child("manualSelector"), true, &["nil", "false"]);
        }
        validate_counts(
            spec,
            &["successfulJobsHistoryLimit", "failedJobsHistoryLimit"],
            &path,
            violations,
        );
        let name = new["metadata"]["name"].str();
        if old.is_none() && name.len() > 52 {
            violations.invalid("metadata.name", name, "must be no more than 52 characters");
        }
    }

    fn warnings(new: &Value, old: Option<&Value>, context: &HookContext) -> Vec<String> {
        if context.action == Action::Status {
            return Vec::new();
        }
        let mut warnings = match old {
            None => pod::name_warning(
                new["metadata"]["name"].str(),
                "this is used in Pod names and hostnames",
            ),
            Some(_) => Vec::new(),
        };
        if old.is_none_or(|old| old["spec"] != new["spec"]) {
            let path = Path::new("spec");
            let path = path.child("jobTemplate");
            warnings.extend(job::spec_warnings(
                &new["spec"]["jobTemplate"]["spec"],
                &path.child("spec"),
            ));
        }
        if old.is_some() && new["spec"]["schedule"].str().contains("TZ") {
            let page = "https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/";
            warnings.push(format!(
            "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see {page} for more details"
        ));
        }
        warnings
    }
}

fn template(cron_job: &Value) -> &Value {
    &cron_job["spec"]["jobTemplate"]["spec"]["template"]
}

/// A time zone inside the schedule is deprecated; an update may keep it.
fn validate_schedule(spec: &Value, old: Option<&Value>, path: &Path, violations: &mut Violations) {
    let text = spec["schedule"].str();
    if text.is_empty() {
        return violations.required(path, "");
    }
    if let Err(problem) = cron::Schedule::parse(text) {
        violations.invalid(path, text, &problem);
    }
    let had_zone = old.is_some_and(|old| old["spec"]["schedule"].str().contains("TZ"));
    let detail = match (text.contains("TZ"), had_zone) {
        (true, true) if !spec["timeZone"].is_null() => {
            "cannot use both timeZone field and TZ or CRON_TZ in schedule"
        }
        (true, false) => "cannot use TZ or CRON_TZ in schedule, use timeZone field instead",
        _ => return,
    };
    violations.invalid(path, text, detail);
}
