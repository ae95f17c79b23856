//! Eviction: `POST` to `pods/NAME/eviction` deletes a pod if its PodDisruptionBudget allows it.

use http::Method;
use mizzen_component_helpers::pod_state::{is_ready, is_terminal};
use mizzen_object::condition;
use mizzen_object::schema::CanonicalObject;
use mizzen_object::select::LabelSelector;
use mizzen_object::{
    Action, Cause, Details, GroupResource, GroupVersionKind, Path, Status, Violations,
};
use mizzen_registry::{
    BoxFuture, DeleteOptions, ListOptions, NoAdmission, Resource, Selection, Update, UpdateFn,
};
use mizzen_value::{Value, value};

use super::binding::created;
use mizzen_apiserver::admission;
use mizzen_apiserver::field_manager::RequestFieldManager;
use mizzen_apiserver::request::{Request, ResourcePath};
use mizzen_apiserver::response::{Response, ResponseForm, not_acceptable};
use mizzen_apiserver::verbs::{ResourceCall, set_namespace};
use mizzen_apiserver::{decode, delete_options, options};

const VIOLATION: &str = "Cannot evict pod as it would violate the pod's disruption budget.";
/// How many evictions of one budget may be unconfirmed by the disruption controller.
const MAX_DISRUPTED: usize = 2000;
/// How often an eviction is tried after conflicts.
const TRIES: usize = 20;

pub(super) async fn create(call: &ResourceCall<'_>) -> Result<Response, Status> {
    if matches!(call.accept.form, ResponseForm::Table(_)) {
        return Err(not_acceptable());
    }
    let options = options::write_options(call.request, "CreateOptions")?;
    let (gvk, root) = (eviction_kind("v1"), &call.server.types.eviction);
    // Kubernetes: an eviction may still be v1beta1, which budgets are no longer.
    let old = eviction_kind("v1beta1");
    let mut eviction = decode::decode_body_as(call, &gvk, Some(&old), root, options.strictness)?;
    set_namespace(call.path, eviction.entry("metadata"))?;
    admission::admit_below(call, &mut eviction).await?;
    admission::admit_other(call, &gvk, root, &mut eviction, None).await?;
    check_eviction(call, &eviction)?;
    admission::check_other(call, &gvk, root, &eviction, None).await?;
    let delete_dry_run = eviction["deleteOptions"]["dryRun"].list();
    if options.dry_run && !delete_dry_run.is_empty() && delete_dry_run != [Value::from("All")] {
        let found: Vec<&str> = delete_dry_run.iter().map(Value::str).collect();
        let message = "Non-matching dry-run options in request and content: [All] and";
        return Err(Status::unknown(format!("{message} [{}]", found.join(" "))));
    }
    let pod = pod(call).await?;
    let mut delete = delete_options::from_value(&eviction["deleteOptions"])?;
    delete.dry_run |= options.dry_run;
    match ignores_budgets(&pod) {
        true => evict_without_budget(call, pod, &delete).await?,
        false => evict_with_budget(call, &pod, delete).await?,
    }
    Ok(created(call))
}

fn eviction_kind(version: &str) -> GroupVersionKind {
    GroupVersionKind {
        group: "policy".into(),
        version: version.into(),
        kind: "Eviction".into(),
    }
}

fn check_eviction(call: &ResourceCall, eviction: &Value) -> Result<(), Status> {
    if eviction["metadata"]["name"].str() != call.path.name {
        return Err(Status::bad_request(
            "name in URL does not match name in Eviction object",
        ));
    }
    const IGNORE: &str = "ignoreStoreReadErrorWithClusterBreakingPotential";
    if eviction["deleteOptions"][IGNORE].bool() {
        let path = Path::new("deleteOptions");
        let mut violations = Violations::default();
        let detail = "can not be set for pod eviction, try after removing the option";
        violations.invalid(path.child(IGNORE), true, detail);
        return Err(Status::invalid(
            &eviction_kind("v1"),
            &call.path.name,
            &violations,
        ));
    }
    Ok(())
}

async fn pod(call: &ResourceCall<'_>) -> Result<Value, Status> {
    Ok(call
        .server
        .registry
        .read(call.resource, &call.key(), "")
        .await?
        .value())
}

/// Budgets do not count pods that are terminal, terminating or pending. Upstream: `canIgnorePDB`.
fn ignores_budgets(pod: &Value) -> bool {
    is_terminating(pod) || pod["status"]["phase"].str() == "Pending"
}

fn is_terminating(pod: &Value) -> bool {
    is_terminal(pod) || !pod["metadata"]["deletionTimestamp"].is_null()
}

/// Deletes a pod without a budget. A pending pod must not have changed since it was read, because it may have become ready.
async fn evict_without_budget(
    call: &ResourceCall<'_>,
    mut pod: Value,
    requested: &DeleteOptions,
) -> Result<(), Status> {
    for _ in 1..TRIES {
        if !ignores_budgets(&pod) {
            return evict_with_budget(call, &pod, requested.clone()).await;
        }
        let mut options = requested.clone();
        if !is_terminating(&pod) && requested.version.is_none() {
            options.version = Some(pod["metadata"]["resourceVersion"].str().into());
        }
        let raced = |status: &Status| {
            status.reason == "Conflict" && requested.version.is_none() && requested.uid.is_none()
        };
        match mark_and_delete(call, options).await {
            Err(status) if raced(&status) => pod = self::pod(call).await?,
            outcome => return outcome,
        }
    }
    mark_and_delete(call, requested.clone()).await
}

async fn evict_with_budget(
    call: &ResourceCall<'_>,
    pod: &Value,
    options: DeleteOptions,
) -> Result<(), Status> {
    let budgets = call
        .server
        .catalog
        .get("policy", "v1", "poddisruptionbudgets")
        .ok_or_else(Status::no_such_resource)?;
    let matching = matching_budgets(call, &budgets, pod).await?;
    let budget = match matching.as_slice() {
        [] => return mark_and_delete(call, options).await,
        [budget] => budget,
        _ => {
            return Err(Status::unknown(
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
            ));
        }
    };
    let (name, status) = (budget["metadata"]["name"].str(), &budget["status"]);
    let desired = status["desiredHealthy"].int();
    let allows_unready = budget["spec"]["unhealthyPodEvictionPolicy"].str() == "AlwaysAllow"
        || desired > 0 && status["currentHealthy"].int() >= desired;
    if is_ready(pod) || !allows_unready {
        take_disruption(call, &budgets, name, options.dry_run).await?;
        return mark_and_delete(call, options).await;
    }
    // A pod that is not ready is not counted, unless it has changed since it was read.
    let has_version = options.version.is_some();
    let version = Some(pod["metadata"]["resourceVersion"].str().into());
    match mark_and_delete(call, DeleteOptions { version, ..options }).await {
        Err(status) if !has_version && status.reason == "Conflict" => Err(still_processed(name)),
        outcome => outcome,
    }
}

/// Takes one disruption from a budget, as the server itself.
async fn take_disruption(
    call: &ResourceCall<'_>,
    budgets: &Resource,
    name: &str,
    dry_run: bool,
) -> Result<(), Status> {
    let path = ResourcePath {
        group: "policy".into(),
        version: "v1".into(),
        resource: budgets.kind().plural.clone(),
        namespace: call.path.namespace.clone(),
        name: name.into(),
        subresource: "status".into(),
        ..ResourcePath::default()
    };
    let request = Request::of_server(Method::PUT, path.clone());
    let own = ResourceCall {
        request: &request,
        path: &path,
        resource: budgets,
        ..*call
    };
    let key = own.key();
    let registry = &call.server.registry;
    let now = registry.timestamp();
    let mut change = TakeDisruption {
        pod: call.path.name.as_str(),
        now: &now,
        fields: RequestFieldManager::new(&own),
    };
    for _ in 1..TRIES {
        let update = Update {
            action: Action::Status,
            user: request.user.clone(),
            dry_run,
            ..Update::new(budgets, &key, &mut change)
        };
        match registry.update(update).await {
            Err(status) if status.reason == "Conflict" => continue,
            outcome => return outcome.map(drop),
        }
    }
    let message = format!("couldn't update PodDisruptionBudget \"{name}\" due to conflicts");
    Err(Status {
        retry_after: Some(10),
        ..Status::failure(504, "Timeout", format!("Timeout: {message}"))
    })
}

/// The budgets of a pod.
async fn matching_budgets(
    call: &ResourceCall<'_>,
    budgets: &Resource,
    pod: &Value,
) -> Result<Vec<Value>, Status> {
    let selection = Selection {
        namespace: call.path.namespace.clone(),
        ..Selection::default()
    };
    let options = ListOptions {
        selection,
        ..ListOptions::default()
    };
    let all = call.server.registry.read_list(budgets, &options).await?;
    let labels = &pod["metadata"]["labels"];
    let matching = all
        .items
        .iter()
        .map(|budget| budget.value())
        .filter(|budget| {
            LabelSelector::from_value(&budget["spec"]["selector"])
                .is_some_and(|selector| selector.matches(|key| labels[key].as_str()))
        });
    Ok(matching.collect())
}

/// Sets the DisruptionTarget condition of a pod, then deletes it.
async fn mark_and_delete(
    call: &ResourceCall<'_>,
    mut options: DeleteOptions,
) -> Result<(), Status> {
    let registry = &call.server.registry;
    if !options.dry_run {
        let key = call.key();
        let now = registry.timestamp();
        let mut change = SetDisruptionTarget {
            pods: call.resource,
            options: &options,
            now: &now,
        };
        let update = Update {
            action: Action::Status,
            user: call.request.user.clone(),
            ..Update::new(call.resource, &key, &mut change)
        };
        let updated = registry.update(update).await?;
        if options.version.is_some() {
            options.version = Some(
                updated.object.value()["metadata"]["resourceVersion"]
                    .str()
                    .into(),
            );
        }
    }
    registry
        .delete(call.resource, &call.key(), &options, &NoAdmission)
        .await
        .map(drop)
}

/// Sets the DisruptionTarget condition.
struct SetDisruptionTarget<'a> {
    pods: &'a Resource,
    options: &'a DeleteOptions,
    now: &'a str,
}

impl UpdateFn for SetDisruptionTarget<'_> {
    fn apply<'a>(
        &'a mut self,
        current: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<CanonicalObject, Status>> {
        let outcome = self.marked(current.expect("the update does not create"));
        Box::pin(async { outcome.map(Into::into) })
    }
}

impl SetDisruptionTarget<'_> {
    fn marked(&self, current: &Value) -> Result<Value, Status> {
        self.options.check_preconditions(self.pods, current)?;
        let mut pod = current.clone();
        // Without a version the registry retries after a conflict.
        pod.entry("metadata").set("resourceVersion", "");
        let new = value!({
            "type": "DisruptionTarget",
            "status": "True",
            "lastProbeTime": null,
            "lastTransitionTime": (self.now),
            "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting"
        });
        condition::set(pod.entry("status").entry("conditions").make_list(), new);
        Ok(pod)
    }
}

/// Takes one disruption from a budget, for a pod.
struct TakeDisruption<'a> {
    pod: &'a str,
    now: &'a str,
    fields: RequestFieldManager<'a>,
}

impl UpdateFn for TakeDisruption<'_> {
    fn apply<'a>(
        &'a mut self,
        current: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<CanonicalObject, Status>> {
        let outcome = self.taken(current.expect("the update does not create"));
        Box::pin(async { outcome.map(Into::into) })
    }
}

impl TakeDisruption<'_> {
    fn taken(&self, current: &Value) -> Result<Value, Status> {
        check_budget(current)?;
        let mut budget = current.clone();
        let status = budget.entry("status");
        let left = status["disruptionsAllowed"].int() - 1;
        status.set("disruptionsAllowed", left);
        if left == 0 {
            self.close(status);
        }
        status.entry("disruptedPods").set(self.pod, self.now);
        self.fields.update(Some(current), &mut budget);
        Ok(budget)
    }

    /// Sets DisruptionAllowed to false.
    fn close(&self, status: &mut Value) {
        let observed = status["observedGeneration"].clone();
        let mut new = value!({
            "type": "DisruptionAllowed",
            "status": "False",
            "lastTransitionTime": (self.now),
            "reason": "InsufficientPods",
            "message": ""
        });
        new.set("observedGeneration", observed);
        condition::set(status.entry("conditions").make_list(), new);
    }
}

fn check_budget(budget: &Value) -> Result<(), Status> {
    let (status, name) = (&budget["status"], budget["metadata"]["name"].str());
    let forbidden = |why: &str| {
        let resource = GroupResource {
            group: "policy".into(),
            resource: "poddisruptionbudget".into(),
        };
        Err(Status::forbidden(&resource, name, why))
    };
    if status["observedGeneration"].int() < budget["metadata"]["generation"].int() {
        return Err(still_processed(name));
    }
    if status["disruptedPods"].entries().count() > MAX_DISRUPTED {
        return forbidden(
            "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
        );
    }
    match status["disruptionsAllowed"].int() {
        0 => Err(too_many(denial_message(name, status), None)),
        ..0 => forbidden("pdb disruptions allowed is negative"),
        _ => Ok(()),
    }
}

fn denial_message(name: &str, status: &Value) -> String {
    let condition = condition::find(&status["conditions"], "DisruptionAllowed");
    let denial = condition.filter(|condition| {
        condition["status"].str() == "False" && !condition["message"].is_empty()
    });
    let (healthy, wanted) = (
        status["currentHealthy"].int(),
        status["desiredHealthy"].int(),
    );
    let closed = format!("The disruption budget {name} does not allow evicting pods currently");
    match denial.map(|condition| (condition["reason"].str(), condition["message"].str())) {
        Some(("SyncFailed", message)) => format!("{closed} because it failed sync: {message}"),
        _ if healthy <= wanted => {
            format!(
                "The disruption budget {name} needs {wanted} healthy pods and has {healthy} currently"
            )
        }
        Some((reason, message)) => format!("{closed} ({reason}): {message}"),
        None => closed,
    }
}

fn still_processed(budget: &str) -> Status {
    too_many(
        format!("The disruption budget {budget} is still being processed by the server."),
        Some(10),
    )
}

/// 429: the budget does not allow the eviction.
fn too_many(message: String, retry_after: Option<u32>) -> Status {
    let cause = Cause {
        reason: "DisruptionBudget".into(),
        message,
        field: String::new(),
    };
    let details = Details {
        causes: vec![cause],
        ..Details::default()
    };
    Status {
        details: Some(Box::new(details)),
        retry_after,
        ..Status::failure(429, "TooManyRequests", VIOLATION)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_value::json;

    #[track_caller]
    fn check(status: &str, expected: Result<(), (u16, &str)>) {
        let mut budget = value!({ "metadata": { "name": "b", "generation": 2 } });
        budget.set("status", json::parse(status.as_bytes()).unwrap());
        let found = check_budget(&budget).map_err(|status| {
            let cause = status
                .details
                .and_then(|details| details.causes.first().map(|cause| cause.message.clone()));
            (status.code, cause.unwrap_or(status.message))
        });
        assert_eq!(
            found,
            expected.map_err(|(code, message)| (code, message.to_string()))
        );
    }

    #[test]
    fn the_error_names_why_a_budget_denies_an_eviction() {
        check(r#"{"observedGeneration":2,"disruptionsAllowed":1}"#, Ok(()));
        let old = "The disruption budget b is still being processed by the server.";
        check(
            r#"{"observedGeneration":1,"disruptionsAllowed":1}"#,
            Err((429, old)),
        );
        let few = "The disruption budget b needs 3 healthy pods and has 2 currently";
        check(
            r#"{"observedGeneration":2,"currentHealthy":2,"desiredHealthy":3}"#,
            Err((429, few)),
        );
        let closed = "The disruption budget b does not allow evicting pods currently";
        check(
            r#"{"observedGeneration":2,"currentHealthy":2}"#,
            Err((429, closed)),
        );
        let negative =
            "poddisruptionbudget.policy \"b\" is forbidden: pdb disruptions allowed is negative";
        check(
            r#"{"observedGeneration":2,"disruptionsAllowed":-1}"#,
            Err((403, negative)),
        );
    }

    #[test]
    fn no_selector_selects_nothing_and_an_empty_one_everything() {
        let selects = |text: &str| {
            let found = LabelSelector::from_value(&json::parse(text.as_bytes()).unwrap());
            found.is_some_and(|found| found.matches(|key| (key == "app").then_some("a")))
        };
        assert!(!selects("null"));
        assert!(selects("{}"));
        assert!(selects(
            r#"{"matchLabels":{"app":"a"},"matchExpressions":[{"key":"x","operator":"DoesNotExist"}]}"#
        ));
        assert!(!selects(
            r#"{"matchExpressions":[{"key":"app","operator":"NotIn","values":["a"]}]}"#
        ));
    }
}
