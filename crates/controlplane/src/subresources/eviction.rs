//! `POST` to `pods/NAME/eviction`: deletes a pod if the disruption budgets that guard it allow.

use http::Method;
use mizzen_kinds::pod_state::{is_ready, is_terminal};
use mizzen_object::condition;
use mizzen_object::select::LabelSelector;
use mizzen_object::{
    Action, Cause, Details, GroupResource, GroupVersionKind, Path, Status, Violations,
};
use mizzen_registry::{
    Change, DeleteOptions, Future, ListOptions, NoGate, Resource, Selection, Update,
};
use mizzen_value::{Value, value};

use super::binding::created;
use mizzen_apiserver::admission;
use mizzen_apiserver::answer::{Answer, Form, not_acceptable};
use mizzen_apiserver::field_manager::RequestFieldManager;
use mizzen_apiserver::request::{Request, ResourcePath};
use mizzen_apiserver::verbs::{Call, set_namespace};
use mizzen_apiserver::{decode, delete_options, options};

const VIOLATION: &str = "Cannot evict pod as it would violate the pod's disruption budget.";
/// How many evictions of one budget may wait for the controller.
const MAX_DISRUPTED: usize = 2000;
/// How often an eviction that others get in the way of is tried again.
const TRIES: usize = 20;

pub(super) async fn create(call: &Call<'_>) -> Result<Answer, Status> {
    if matches!(call.accept.form, Form::Table(_)) {
        return Err(not_acceptable());
    }
    let options = options::write_options(call.request, "CreateOptions")?;
    let (gvk, root) = (eviction_kind("v1"), &call.server.types.eviction);
    // Kubernetes: an eviction may still be of the version that budgets have lost.
    let old = eviction_kind("v1beta1");
    let mut eviction = decode::decode_body_as(call, &gvk, Some(&old), root, options.strictness)?;
    set_namespace(call.path, eviction.entry("metadata"))?;
    admission::admit_below(call, &mut eviction).await?;
    admission::admit_other(call, &gvk, root, &mut eviction, None).await?;
    check(call, &eviction)?;
    admission::check_other(call, &gvk, root, &eviction, None).await?;
    evict(call, &eviction, options.dry_run).await?;
    Ok(created(call))
}

fn eviction_kind(version: &str) -> GroupVersionKind {
    GroupVersionKind {
        group: "policy".into(),
        version: version.into(),
        kind: "Eviction".into(),
    }
}

fn check(call: &Call, eviction: &Value) -> Result<(), Status> {
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

async fn evict(call: &Call<'_>, eviction: &Value, dry_run: bool) -> Result<(), Status> {
    let asked = eviction["deleteOptions"]["dryRun"].list();
    if dry_run && !asked.is_empty() && asked != [Value::from("All")] {
        let asked: Vec<&str> = asked.iter().map(Value::str).collect();
        let message = "Non-matching dry-run options in request and content: [All] and";
        return Err(Status::unknown(format!("{message} [{}]", asked.join(" "))));
    }
    let pod = pod(call)?;
    let mut options = delete_options::from_value(&eviction["deleteOptions"])?;
    options.dry_run |= dry_run;
    if needs_no_budget(&pod) {
        evict_unguarded(call, pod, &options).await
    } else {
        evict_guarded(call, &pod, options).await
    }
}

fn pod(call: &Call) -> Result<Value, Status> {
    Ok(call
        .server
        .registry
        .get(call.resource, &call.key(), "")?
        .value())
}

/// A pod that does no work is no loss.
fn needs_no_budget(pod: &Value) -> bool {
    is_over(pod) || pod["status"]["phase"].str() == "Pending"
}

fn is_over(pod: &Value) -> bool {
    is_terminal(pod) || !pod["metadata"]["deletionTimestamp"].is_null()
}

/// Deletes a pod of which no budget is asked. One that waits to be started must still be as it was looked at,
/// because it may have become ready.
async fn evict_unguarded(
    call: &Call<'_>,
    mut pod: Value,
    asked: &DeleteOptions,
) -> Result<(), Status> {
    for _ in 1..TRIES {
        if !needs_no_budget(&pod) {
            return evict_guarded(call, &pod, asked.clone()).await;
        }
        let mut options = asked.clone();
        if !is_over(&pod) && asked.version.is_none() {
            options.version = Some(pod["metadata"]["resourceVersion"].str().into());
        }
        let raced = |status: &Status| {
            status.reason == "Conflict" && asked.version.is_none() && asked.uid.is_none()
        };
        match mark_and_delete(call, options).await {
            Err(status) if raced(&status) => pod = self::pod(call)?,
            outcome => return outcome,
        }
    }
    mark_and_delete(call, asked.clone()).await
}

async fn evict_guarded(call: &Call<'_>, pod: &Value, asked: DeleteOptions) -> Result<(), Status> {
    let budgets = call
        .server
        .catalog
        .get("policy", "v1", "poddisruptionbudgets")
        .ok_or_else(Status::no_such_resource)?;
    let guards = guards(call, &budgets, pod)?;
    let guard = match guards.as_slice() {
        [] => return mark_and_delete(call, asked).await,
        [guard] => guard,
        _ => {
            return Err(Status::unknown(
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
            ));
        }
    };
    if !is_ready(pod) && spares_unready(guard) {
        return evict_unready(call, pod, guard["metadata"]["name"].str(), asked).await;
    }
    spend(
        call,
        &budgets,
        guard["metadata"]["name"].str(),
        asked.dry_run,
    )
    .await?;
    mark_and_delete(call, asked).await
}

/// Takes one disruption from a budget. It is the server that asks here, not the user.
async fn spend(
    call: &Call<'_>,
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
    let own = Call {
        request: &request,
        path: &path,
        resource: budgets,
        ..*call
    };
    let key = own.key();
    let registry = &call.server.registry;
    let now = registry.timestamp();
    let mut change = Spend {
        pod: call.path.name.as_str(),
        now: &now,
        owning: RequestFieldManager::new(&own),
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

/// The budgets that guard a pod.
fn guards(call: &Call, budgets: &Resource, pod: &Value) -> Result<Vec<Value>, Status> {
    let selection = Selection {
        namespace: call.path.namespace.clone(),
        ..Selection::default()
    };
    let all = call.server.registry.list(
        budgets,
        &ListOptions {
            selection,
            ..ListOptions::default()
        },
    )?;
    let labels = &pod["metadata"]["labels"];
    let guards = all
        .items
        .iter()
        .map(|budget| budget.value())
        .filter(|budget| {
            LabelSelector::of(&budget["spec"]["selector"])
                .is_some_and(|selector| selector.matches(|key| labels[key].as_str()))
        });
    Ok(guards.collect())
}

/// Whether a budget lets go of pods that are not ready without counting them.
fn spares_unready(budget: &Value) -> bool {
    let status = &budget["status"];
    let wanted = status["desiredHealthy"].int();
    budget["spec"]["unhealthyPodEvictionPolicy"].str() == "AlwaysAllow"
        || wanted > 0 && status["currentHealthy"].int() >= wanted
}

/// Deletes a pod that is not ready, unless it has changed since it was looked at.
async fn evict_unready(
    call: &Call<'_>,
    pod: &Value,
    budget: &str,
    asked: DeleteOptions,
) -> Result<(), Status> {
    let version = Some(pod["metadata"]["resourceVersion"].str().into());
    let free = asked.version.is_none();
    match mark_and_delete(call, DeleteOptions { version, ..asked }).await {
        Err(status) if free && status.reason == "Conflict" => Err(still_processed(budget)),
        outcome => outcome,
    }
}

/// Writes into the pod why it goes, then deletes it.
async fn mark_and_delete(call: &Call<'_>, mut options: DeleteOptions) -> Result<(), Status> {
    let registry = &call.server.registry;
    if !options.dry_run {
        let key = call.key();
        let now = registry.timestamp();
        let mut change = Mark {
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
        .delete(call.resource, &call.key(), &options, &NoGate)
        .await
        .map(drop)
}

/// Says in a pod's status that it is being evicted.
struct Mark<'a> {
    pods: &'a Resource,
    options: &'a DeleteOptions,
    now: &'a str,
}

impl Change for Mark<'_> {
    fn apply<'a>(&'a mut self, current: Option<&'a Value>) -> Future<'a, Result<Value, Status>> {
        let outcome = self.marked(current.expect("an eviction is of what is there"));
        Box::pin(async { outcome })
    }
}

impl Mark<'_> {
    fn marked(&self, current: &Value) -> Result<Value, Status> {
        self.options.check_preconditions(self.pods, current)?;
        let mut pod = current.clone();
        // Without a version the registry tries again when somebody else was faster.
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

/// Takes one disruption from a budget, in a pod's name.
struct Spend<'a> {
    pod: &'a str,
    now: &'a str,
    owning: RequestFieldManager<'a>,
}

impl Change for Spend<'_> {
    fn apply<'a>(&'a mut self, current: Option<&'a Value>) -> Future<'a, Result<Value, Status>> {
        let outcome = self.spent(current.expect("a budget is spent only if it is there"));
        Box::pin(async { outcome })
    }
}

impl Spend<'_> {
    fn spent(&self, current: &Value) -> Result<Value, Status> {
        check_budget(current)?;
        let mut budget = current.clone();
        let status = budget.entry("status");
        let left = status["disruptionsAllowed"].int() - 1;
        status.set("disruptionsAllowed", left);
        if left == 0 {
            self.close(status);
        }
        status.entry("disruptedPods").set(self.pod, self.now);
        self.owning.update(Some(current), &mut budget);
        Ok(budget)
    }

    /// Says that the budget is used up.
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
    let refuse = |why: &str| {
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
        return refuse(
            "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
        );
    }
    match status["disruptionsAllowed"].int() {
        0 => Err(too_many(why_closed(name, status), None)),
        ..0 => refuse("pdb disruptions allowed is negative"),
        _ => Ok(()),
    }
}

fn why_closed(name: &str, status: &Value) -> String {
    let condition = condition::find(&status["conditions"], "DisruptionAllowed");
    let telling = condition.filter(|condition| {
        condition["status"].str() == "False" && !condition["message"].is_empty()
    });
    let (healthy, wanted) = (
        status["currentHealthy"].int(),
        status["desiredHealthy"].int(),
    );
    let closed = format!("The disruption budget {name} does not allow evicting pods currently");
    match telling.map(|condition| (condition["reason"].str(), condition["message"].str())) {
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

/// 429: not now.
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
    fn a_budget_says_why_it_is_closed() {
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
            let found = LabelSelector::of(&json::parse(text.as_bytes()).unwrap());
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
