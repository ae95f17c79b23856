//! Validation of a Job's status.
//!
//! A job may have a custom controller (`managedBy`), so its status is validated: a finished job stays finished, and
//! the fields agree with each other. Only changed fields are validated.

use mizzen_object::validate::field;
use mizzen_object::{Path, ViolationReason, Violations, condition};
use mizzen_value::Value;

use super::indexes;
use crate::apps::validate_counts;
use mizzen_core_kinds::pod;

/// A report about a job.
pub(super) fn validate(new: &Value, old: &Value, violations: &mut Violations) {
    let mut check = JobStatusValidator {
        new,
        old,
        path: Path::new("status"),
        violations,
    };
    check.counts();
    check.completion();
    check.finish();
    check.indexes();
    check.pods();
    check.success();
    check.transitions();
}

/// Whether a condition of a status is true.
pub(super) fn is_true(status: &Value, kind: &str) -> bool {
    condition::is_true(&status["conditions"], kind)
}

fn is_finished(status: &Value) -> bool {
    is_true(status, "Complete") || is_true(status, "Failed")
}

struct JobStatusValidator<'a> {
    new: &'a Value,
    old: &'a Value,
    path: Path<'a>,
    violations: &'a mut Violations,
}

impl<'a> JobStatusValidator<'a> {
    fn status(&self) -> &'a Value {
        &self.new["status"]
    }

    fn is(&self, condition: &str) -> bool {
        is_true(self.status(), condition)
    }

    fn was(&self, condition: &str) -> bool {
        is_true(&self.old["status"], condition)
    }

    /// Whether one of some fields or conditions has changed. A condition's name starts with a capital letter.
    fn changed(&self, names: &[&str]) -> bool {
        let (new, old) = (self.status(), &self.old["status"]);
        names.iter().any(|name| match *name {
            "Finished" => is_finished(new) != is_finished(old),
            name if name.starts_with(|first: char| first.is_uppercase()) => {
                self.is(name) != self.was(name)
            }
            name => new[name] != old[name],
        })
    }

    /// Refuses conditions that do not go together.
    fn refuse(&mut self, when: bool, detail: &str) {
        if when {
            let path = self.path.child("conditions");
            self.violations.push(
                ViolationReason::Invalid,
                path,
                format!("Invalid value: {detail}"),
            );
        }
    }

    /// Refuses a field's value.
    fn invalid(&mut self, when: bool, key: &str, detail: &str) {
        if when {
            let value = self.status()[key].clone();
            self.violations.invalid(self.path.child(key), value, detail);
        }
    }

    fn required(&mut self, when: bool, key: &str, detail: &str) {
        if when {
            self.violations.required(self.path.child(key), detail);
        }
    }

    fn counts(&mut self) {
        let keys = ["active", "succeeded", "failed", "ready", "terminating"];
        validate_counts(self.status(), &keys, &self.path, self.violations);
        let path = self.path.child("uncountedTerminatedPods");
        let mut seen: Vec<&str> = Vec::new();
        for list in ["succeeded", "failed"] {
            let path = path.child(list);
            for (index, uid) in self.status()["uncountedTerminatedPods"][list]
                .items()
                .enumerate()
            {
                let (uid, path) = (uid.str(), path.index(index));
                if uid.is_empty() {
                    self.violations.invalid(path, uid, "must not be empty");
                } else if seen.contains(&uid) {
                    self.violations.duplicate(path, uid);
                } else {
                    seen.push(uid);
                }
            }
        }
    }

    fn completion(&mut self) {
        let (status, is_complete) = (self.status(), self.is("Complete"));
        let [start, end] = ["startTime", "completionTime"].map(|key| status[key].as_str());
        let when = self.changed(&["Complete", "Failed"]) && is_complete && self.is("Failed");
        self.refuse(when, "cannot set Complete=True and Failed=true conditions");
        let when =
            self.changed(&["Complete", "FailureTarget"]) && is_complete && self.is("FailureTarget");
        self.refuse(
            when,
            "cannot set Complete=True and FailureTarget=true conditions",
        );
        let is_new = self.changed(&["Complete", "completionTime"]);
        let detail = "cannot set completionTime when there is no Complete=True condition";
        self.invalid(
            is_new && end.is_some() && !is_complete,
            "completionTime",
            detail,
        );
        let detail = "completionTime is required for Complete jobs";
        self.required(
            is_new && end.is_none() && is_complete,
            "completionTime",
            detail,
        );
        // Times are written so that they sort as texts.
        let is_before = start.is_some_and(|start| end.is_some_and(|end| end < start));
        let when = self.changed(&["startTime", "completionTime"]) && is_before;
        self.invalid(
            when,
            "completionTime",
            "must be equal to or after `startTime`",
        );
    }

    fn finish(&mut self) {
        let status = self.status();
        let when = self.changed(&["Failed", "failedIndexes"])
            && self.is("Failed")
            && !self.is("FailureTarget");
        self.refuse(
            when,
            "cannot set Failed=True condition without the FailureTarget=true condition",
        );
        let is_new = self.changed(&["Complete", "SuccessCriteriaMet"]);
        let when = is_new && self.is("Complete") && !self.is("SuccessCriteriaMet");
        self.refuse(
            when,
            "cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
        );
        if !is_finished(status) {
            return;
        }
        let when = self.changed(&["Finished", "active"]) && status["active"].int() > 0;
        self.invalid(when, "active", "active>0 is invalid for finished job");
        let spec = &self.new["spec"];
        let never_ran = spec["suspend"].bool() && spec["completions"].as_int() == Some(0);
        let when =
            self.changed(&["Finished", "startTime"]) && !never_ran && status["startTime"].is_null();
        self.required(when, "startTime", "startTime is required for finished job");
        let uncounted = &status["uncountedTerminatedPods"];
        let some_are = ["succeeded", "failed"]
            .iter()
            .any(|list| !uncounted[*list].is_empty());
        if self.changed(&["Finished", "uncountedTerminatedPods"]) && some_are {
            let shown = pod::form("UncountedTerminatedPods", uncounted);
            let path = self.path.child("uncountedTerminatedPods");
            self.violations
                .invalid(path, shown, "must be empty for finished job");
        }
    }

    fn indexes(&mut self) {
        let (status, spec) = (self.status(), &self.new["spec"]);
        let (completed, failed) = (
            status["completedIndexes"].str(),
            status["failedIndexes"].as_str(),
        );
        let completions = spec["completions"].as_int();
        let [completed_changed, failed_changed] =
            ["completedIndexes", "failedIndexes"].map(|key| self.changed(&[key]));
        let limited = !spec["backoffLimitPerIndex"].is_null();
        let read = [
            ("completedIndexes", Some(completed), completed_changed),
            ("failedIndexes", failed.filter(|_| limited), failed_changed),
        ];
        for (key, text, _) in read.into_iter().filter(|(_, _, changed)| *changed) {
            if let (Some(text), Some(completions)) = (text, completions)
                && let Err(problem) = indexes::count(text, completions)
            {
                self.invalid(true, key, &format!("error parsing {key}: {problem}"));
            }
        }
        let when =
            completed_changed && !completed.is_empty() && spec["completionMode"].str() != "Indexed";
        let detail = "cannot set non-empty completedIndexes when non-indexed completion mode";
        self.invalid(when, "completedIndexes", detail);
        let detail = "cannot set non-null failedIndexes when backoffLimitPerIndex is null";
        self.invalid(
            failed_changed && !limited && failed.is_some(),
            "failedIndexes",
            detail,
        );
        if let (Some(failed), Some(completions)) = (failed, completions)
            && (completed_changed || failed_changed)
            && let Some(index) = indexes::overlap(completed, failed, completions)
        {
            let detail = format!("failedIndexes and completedIndexes overlap at index: {index}");
            self.invalid(true, "failedIndexes", &detail);
        }
    }

    fn pods(&mut self) {
        let status = self.status();
        let is_finished = is_finished(status);
        let when = self.changed(&["Finished", "terminating"])
            && is_finished
            && status["terminating"].int() > 0;
        self.invalid(
            when,
            "terminating",
            "terminating>0 is invalid for finished job",
        );
        let when =
            self.changed(&["ready", "active"]) && status["ready"].int() > status["active"].int();
        self.invalid(when, "ready", "cannot set more ready pods than active");
    }

    fn success(&mut self) {
        let is_met = self.is("SuccessCriteriaMet");
        let when = is_met && self.is("Failed");
        self.refuse(
            when,
            "cannot set SuccessCriteriaMet=True and Failed=true conditions",
        );
        let when = is_met && self.is("FailureTarget");
        self.refuse(
            when,
            "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions",
        );
        let when = !self.new["spec"]["successPolicy"].is_null() && !is_met && self.is("Complete");
        self.refuse(
            when,
            "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True",
        );
    }

    fn transitions(&mut self) {
        for condition in ["Failed", "Complete", "FailureTarget"] {
            let when = self.was(condition) && !self.is(condition);
            self.refuse(
                when,
                &format!("cannot disable the terminal {condition}=True condition"),
            );
        }
        let (status, old, spec) = (self.status(), &self.old["status"], &self.new["spec"]);
        let when = status["failed"].int() < old["failed"].int();
        self.count("failed", when);
        // A job that can shrink may have succeeded less often afterwards.
        let can_shrink =
            spec["completionMode"].str() == "Indexed" && spec["completions"] == spec["parallelism"];
        let when = !can_shrink && status["succeeded"].int() < old["succeeded"].int();
        self.count("succeeded", when);
        let was_set = |key: &str| !old[key].is_null() && old[key] != status[key];
        let when = was_set("completionTime") && !status["completionTime"].is_null();
        self.invalid(when, "completionTime", field::IMMUTABLE);
        let resumes = self.was("Suspended")
            && condition::find(&status["conditions"], "Suspended")
                .is_some_and(|known| known["status"].str() == "False");
        let when = was_set("startTime") && !resumes && !spec["suspend"].bool();
        self.invalid(
            when,
            "startTime",
            "field is immutable for unsuspended job once set",
        );
        let (is_met, was_met) = (
            self.is("SuccessCriteriaMet"),
            self.was("SuccessCriteriaMet"),
        );
        self.refuse(
            was_met && !is_met,
            "cannot disable the SuccessCriteriaMet=True condition",
        );
        let when = self.was("Complete") && !was_met && is_met;
        self.refuse(
            when,
            "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions",
        );
    }

    /// Refuses a counter that goes down.
    fn count(&mut self, key: &str, when: bool) {
        if when {
            let (path, number) = (self.path.child(key), self.status()[key].int());
            self.violations
                .invalid(path, number, &format!("cannot decrease the {key} counter"));
        }
    }
}
