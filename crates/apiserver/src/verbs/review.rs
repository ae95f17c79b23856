//! SelfSubjectReview, SubjectAccessReviews, SelfSubjectRulesReview and TokenReview: computed, never stored.

use mizzen_authorization::{
    Attributes, AttributesTarget, Decision, ResourceAttributes, ReviewSelectors, RuleSet,
    join_errors,
};
use mizzen_object::{
    Action, GroupVersionKind, HookContext, Kind, Status, User, Violations, schema,
};
use mizzen_registry::Object;
use mizzen_value::{Str, Value, json, value};

use super::{ResourceCall, create::wipe_system_metadata, set_namespace};
use crate::field_manager::RequestFieldManager;
use crate::response::Response;
use crate::{admission, decode, options};

/// Whether the kind is a review.
pub(crate) fn is_review(kind: &Kind) -> bool {
    matches!(
        kind.gvk.group.as_str(),
        "authentication.k8s.io" | "authorization.k8s.io"
    )
}

pub(crate) async fn create(call: &ResourceCall<'_>) -> Result<Response, Status> {
    let ResourceCall {
        request,
        path,
        resource,
        ..
    } = call;
    call.check_include()?;
    let options = options::write_options(request, "CreateOptions")?;
    let mut review = decode::decode_body(call, resource.kind(), options.strictness)?;
    set_namespace(path, review.entry("metadata"))?;
    wipe_system_metadata(review.entry("metadata"));
    RequestFieldManager::new(call).update(None, &mut review);
    let (kind, mut review) = (resource.kind(), review.into_value());
    admission::admit_other(call, &kind.gvk, &kind.root, &mut review, None).await?;
    // A review of a removed version is converted to the current one and back.
    let mut current = review.clone();
    kind.hooks.to_stored(&mut current);
    check_review(call, &current)?;
    admission::check_other(call, &kind.gvk, &kind.root, &review, None).await?;
    evaluate(call, &mut current).await;
    kind.hooks.from_stored(&mut current);
    current.set("kind", &kind.gvk.kind);
    current.set("apiVersion", kind.gvk.api_version());
    schema::canonical(&kind.root, &mut current);
    call.object(&Object::unstored(json::to_string(&current).into()), 201)
}

/// Rejects an invalid review.
fn check_review(call: &ResourceCall, review: &Value) -> Result<(), Status> {
    let spec = &review["spec"];
    match call.resource.kind().gvk.kind.as_str() {
        "SelfSubjectReview" => Ok(()),
        "SelfSubjectRulesReview" if spec["namespace"].is_empty() => {
            Err(Status::bad_request("no namespace on request"))
        }
        "TokenReview" if spec["token"].is_empty() => Err(Status::bad_request(
            "token is required for TokenReview in authentication",
        )),
        "SelfSubjectRulesReview" | "TokenReview" => Ok(()),
        _ => validate(call, review),
    }
}

/// Fills in the status. Kubernetes: SelfSubjectReview and SelfSubjectRulesReview return no spec.
async fn evaluate(call: &ResourceCall<'_>, review: &mut Value) {
    let (server, user) = (call.server, &call.request.user);
    match call.resource.kind().gvk.kind.as_str() {
        "SelfSubjectReview" => {
            *review = Value::object();
            let now = server.registry.timestamp();
            review.entry("metadata").set("creationTimestamp", now);
            review.entry("status").set("userInfo", user_info(user));
        }
        "SelfSubjectRulesReview" => {
            let namespace = review["spec"]["namespace"].str();
            let rules = server.authorization.authorizers.rules(user, namespace);
            *review = Value::object();
            review.set("status", rules_status(&rules));
        }
        "TokenReview" => evaluate_token(call, review).await,
        _ => evaluate_access(call, review).await,
    }
}

fn user_info(user: &User) -> Value {
    let mut info = value!({ "username": (&user.name), "uid": (&user.uid) });
    info.set(
        "groups",
        Value::List(user.groups.iter().map(Value::from).collect()),
    );
    info.set("extra", user.extra.clone());
    info
}

async fn evaluate_token(call: &ResourceCall<'_>, review: &mut Value) {
    let spec = &review["spec"];
    let mut audiences: Vec<Str> = spec["audiences"]
        .list()
        .iter()
        .map(|audience| audience.str().into())
        .collect();
    if audiences.is_empty() {
        audiences = call.server.options.service_accounts.audiences().to_vec();
    }
    let outcome = call
        .server
        .authenticator
        .authenticate_token(spec["token"].str(), &audiences)
        .await;
    let status = review.entry("status");
    status.set("authenticated", outcome.is_ok());
    match outcome {
        Ok(bearer) => {
            status.set("user", user_info(&bearer.user));
            status.set(
                "audiences",
                Value::List(bearer.audiences.into_iter().map(Value::from).collect()),
            );
        }
        Err(problem) => status.set("error", problem),
    }
}

async fn evaluate_access(call: &ResourceCall<'_>, review: &mut Value) {
    let spec = &review["spec"];
    let user = match call.resource.kind().gvk.kind.as_str() {
        "SelfSubjectAccessReview" => call.request.user.clone(),
        _ => User {
            name: spec["user"].str().into(),
            groups: spec["groups"]
                .list()
                .iter()
                .map(|group| group.str().into())
                .collect(),
            uid: spec["uid"].str().into(),
            extra: spec["extra"].clone(),
        },
    };
    let selectors = ReviewSelectors::read(&spec["resourceAttributes"]);
    let attributes = attributes(&user, spec, &selectors);
    let decision = call
        .server
        .authorization
        .authorizers
        .authorize(&attributes)
        .await;
    let reason = decision.reason();
    let mut status = value!({ "allowed": (decision.is_allowed()), "reason": (reason.to_string()) });
    if matches!(decision, Decision::Deny(_)) {
        status.set("denied", true);
    }
    let problems = reason
        .problem()
        .map(str::to_owned)
        .into_iter()
        .chain(selectors.problems);
    status.set("evaluationError", problems.collect::<Vec<_>>().join("; "));
    review.set("status", status);
}

/// Kubernetes: the error of an invalid review names no kind (registry/authorization).
fn validate(call: &ResourceCall, review: &Value) -> Result<(), Status> {
    let kind = call.resource.kind();
    let (user, now) = (&call.request.user, call.server.registry.timestamp());
    let context: HookContext = user.context(Action::Create, &now);
    let mut violations = Violations::default();
    kind.hooks.validate(review, None, &context, &mut violations);
    if violations.is_empty() {
        return Ok(());
    }
    let nameless = GroupVersionKind {
        kind: "".into(),
        ..kind.gvk.clone()
    };
    Err(Status::invalid(&nameless, "", &violations))
}

/// The attributes that a review is about.
fn attributes<'a>(
    user: &'a User,
    spec: &'a Value,
    selectors: &'a ReviewSelectors,
) -> Attributes<'a> {
    let page = &spec["nonResourceAttributes"];
    let requested = &spec["resourceAttributes"];
    if requested.is_null() {
        return Attributes {
            user,
            verb: page["verb"].str(),
            target: AttributesTarget::NonResource(page["path"].str()),
        };
    }
    let version = Some(requested["version"].str())
        .filter(|version| !version.is_empty())
        .unwrap_or("*");
    let target = AttributesTarget::Resource(ResourceAttributes {
        group: requested["group"].str(),
        version,
        resource: requested["resource"].str(),
        subresource: requested["subresource"].str(),
        namespace: requested["namespace"].str(),
        name: requested["name"].str(),
        fields: &selectors.fields,
        labels: &selectors.labels,
    });
    Attributes {
        user,
        verb: requested["verb"].str(),
        target,
    }
}

/// The status of a SelfSubjectRulesReview.
fn rules_status(all: &RuleSet) -> Value {
    let list = |texts: &[Str]| Value::List(texts.iter().map(Value::from).collect());
    let (mut resources, mut pages) = (Vec::new(), Vec::new());
    for rule in &all.rules {
        let mut shown = value!({});
        shown.set("verbs", list(&rule.verbs));
        if !rule.resources.is_empty() {
            let mut shown = shown.clone();
            for (field, texts) in [
                ("apiGroups", &rule.groups),
                ("resources", &rule.resources),
                ("resourceNames", &rule.names),
            ] {
                shown.set(field, list(texts));
            }
            resources.push(shown);
        }
        if !rule.urls.is_empty() {
            shown.set("nonResourceURLs", list(&rule.urls));
            pages.push(shown);
        }
    }
    let mut status =
        value!({ "resourceRules": [], "nonResourceRules": [], "incomplete": (all.incomplete) });
    status.set("resourceRules", resources);
    status.set("nonResourceRules", pages);
    if !all.problems.is_empty() {
        status.set("evaluationError", join_errors(&all.problems));
    }
    status
}
