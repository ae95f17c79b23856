//! Questions that are answered and never stored: who am I, may they do that, whose token is this?

use mizzen_object::select::{FieldSelector, LabelSelector};
use mizzen_object::{
    Action, Context, GroupVersionKind, Kind, Status, Str, Value, Violations, json, schema, value,
};
use mizzen_registry::Object;

use super::{Call, create::finish, create::wipe, set_namespace};
use crate::access::{self, Attributes, Decision, Resource, Rules, Target};
use crate::answer::Answer;
use crate::authenticate::authenticate_token;
use crate::identity::User;
use crate::ownership::Owning;
use crate::token::ISSUER;
use crate::{admission, intake, options};

/// Whether objects of this kind are questions.
pub(crate) fn is_review(kind: &Kind) -> bool {
    matches!(kind.gvk.group.as_str(), "authentication.k8s.io" | "authorization.k8s.io")
}

pub(crate) async fn create(call: &Call<'_>) -> Result<Answer, Status> {
    let Call { server, request, path, resource, .. } = call;
    call.check_include()?;
    let options = options::write_options(request, "CreateOptions")?;
    let intake = intake::object(&server.catalog, resource.kind(), request, options.strictness)?;
    let mut review = intake.value;
    set_namespace(path, review.entry("metadata"))?;
    wipe(review.entry("metadata"));
    Owning::new(call).update(None, &mut review);
    let kind = resource.kind();
    admission::admit_other(call, &kind.gvk, &kind.root, &mut review, None).await?;
    admission::check_other(call, &kind.gvk, &kind.root, &review, None).await?;
    let outcome = answer(call, &mut review).await.and_then(|()| show(call, review));
    finish(call, outcome, &intake.warnings)
}

fn show(call: &Call, mut review: Value) -> Result<Answer, Status> {
    let kind = call.resource.kind();
    review.set("kind", &kind.gvk.kind);
    review.set("apiVersion", kind.gvk.api_version());
    schema::canonical(&kind.root, &mut review);
    call.object(&Object::unstored(json::to_string(&review).into()), 201)
}

async fn answer(call: &Call<'_>, review: &mut Value) -> Result<(), Status> {
    match call.resource.kind().gvk.kind.as_str() {
        "SelfSubjectReview" => {
            answer_who(call, review);
            Ok(())
        }
        "SelfSubjectRulesReview" => answer_rules(call, review),
        "TokenReview" => answer_token(call, review),
        _ => answer_access(call, review).await,
    }
}

/// Kubernetes: only the answer goes back, nothing of the question. So it is with rules.
fn answer_who(call: &Call, review: &mut Value) {
    let now = call.server.registry.timestamp();
    *review = Value::object();
    review.entry("metadata").set("creationTimestamp", now);
    review.entry("status").set("userInfo", user_info(&call.request.user));
}

fn user_info(user: &User) -> Value {
    let mut info = value!({ "username": (&user.name), "uid": (&user.uid) });
    info.set("groups", Value::List(user.groups.iter().map(Value::from).collect()));
    info.set("extra", user.extra.clone());
    info
}

fn answer_token(call: &Call, review: &mut Value) -> Result<(), Status> {
    let spec = &review["spec"];
    if spec["token"].is_empty() {
        return Err(Status::bad_request("token is required for TokenReview in authentication"));
    }
    let mut audiences: Vec<Str> =
        spec["audiences"].list().iter().map(|audience| audience.str().into()).collect();
    if audiences.is_empty() {
        audiences.push(ISSUER.into());
    }
    let outcome = authenticate_token(call.server, spec["token"].str(), &audiences);
    let status = review.entry("status");
    status.set("authenticated", outcome.is_ok());
    match outcome {
        Ok(bearer) => {
            status.set("user", user_info(&bearer.user));
            status.set("audiences", Value::List(bearer.audiences.into_iter().map(Value::from).collect()));
        }
        Err(problem) => status.set("error", problem),
    }
    Ok(())
}

fn answer_rules(call: &Call, review: &mut Value) -> Result<(), Status> {
    let namespace = review["spec"]["namespace"].str();
    if namespace.is_empty() {
        return Err(Status::bad_request("no namespace on request"));
    }
    let rules = call.server.access.authorizers.rules(&call.request.user, namespace);
    *review = Value::object();
    review.set("status", show_rules(&rules));
    Ok(())
}

async fn answer_access(call: &Call<'_>, review: &mut Value) -> Result<(), Status> {
    validate(call, review)?;
    let spec = &review["spec"];
    let user = match call.resource.kind().gvk.kind.as_str() {
        "SelfSubjectAccessReview" => call.request.user.clone(),
        _ => subject(spec),
    };
    let attributes = attributes(&user, spec);
    let decision = call.server.access.authorizers.authorize(&attributes).await;
    let mut status =
        value!({ "allowed": (decision.is_allowed()), "reason": (decision.reason().to_string()) });
    if matches!(decision, Decision::Deny(_)) {
        status.set("denied", true);
    }
    status.set("evaluationError", selector_problems(&spec["resourceAttributes"]).join("; "));
    review.set("status", status);
    Ok(())
}

/// Kubernetes: the refusal of a question names no kind (registry/authorization).
fn validate(call: &Call, review: &Value) -> Result<(), Status> {
    let kind = call.resource.kind();
    let (who, now) = (call.request.user.who(), call.server.registry.timestamp());
    let context: Context = who.context(Action::Create, &now);
    let mut violations = Violations::default();
    kind.hooks.validate(review, None, &context, &mut violations);
    if violations.is_empty() {
        return Ok(());
    }
    let nameless = GroupVersionKind { kind: "".into(), ..kind.gvk.clone() };
    Err(Status::invalid(&nameless, "", &violations))
}

/// The user that a review is about.
fn subject(spec: &Value) -> User {
    User {
        name: spec["user"].str().into(),
        groups: spec["groups"].list().iter().map(|group| group.str().into()).collect(),
        uid: spec["uid"].str().into(),
        extra: spec["extra"].clone(),
    }
}

/// What a question is about.
fn attributes<'a>(user: &'a User, spec: &'a Value) -> Attributes<'a> {
    let page = &spec["nonResourceAttributes"];
    let wanted = &spec["resourceAttributes"];
    if wanted.is_null() {
        return Attributes { user, verb: page["verb"].str(), target: Target::Page(page["path"].str()) };
    }
    let version = Some(wanted["version"].str()).filter(|version| !version.is_empty()).unwrap_or("*");
    let target = Target::Resource(Resource {
        group: wanted["group"].str(),
        version,
        resource: wanted["resource"].str(),
        subresource: wanted["subresource"].str(),
        namespace: wanted["namespace"].str(),
        name: wanted["name"].str(),
        fields: wanted["fieldSelector"]["rawSelector"].str(),
        labels: wanted["labelSelector"]["rawSelector"].str(),
    });
    Attributes { user, verb: wanted["verb"].str(), target }
}

/// Rules as a review shows them: those about resources, and those about pages.
fn show_rules(all: &Rules) -> Value {
    let list = |texts: &[Str]| Value::List(texts.iter().map(Value::from).collect());
    let (mut resources, mut pages) = (Vec::new(), Vec::new());
    for rule in &all.rules {
        let mut shown = value!({});
        shown.set("verbs", list(&rule.verbs));
        if !rule.resources.is_empty() {
            let mut shown = shown.clone();
            for (field, texts) in
                [("apiGroups", &rule.groups), ("resources", &rule.resources), ("resourceNames", &rule.names)]
            {
                shown.set(field, list(texts));
            }
            resources.push(shown);
        }
        if !rule.urls.is_empty() {
            shown.set("nonResourceURLs", list(&rule.urls));
            pages.push(shown);
        }
    }
    let mut status = value!({ "resourceRules": [], "nonResourceRules": [], "incomplete": (all.incomplete) });
    status.set("resourceRules", resources);
    status.set("nonResourceRules", pages);
    if !all.problems.is_empty() {
        status.set("evaluationError", access::aggregate(&all.problems));
    }
    status
}

/// What could not be made of the selectors in a question.
fn selector_problems(attributes: &Value) -> Vec<String> {
    let field = |requirement: &Value| {
        matches!(requirement["operator"].str(), "In" | "NotIn") && requirement["values"].list().len() == 1
    };
    let label = |requirement: &Value| {
        matches!(requirement["operator"].str(), "In" | "NotIn" | "Exists" | "DoesNotExist")
    };
    let fields =
        selector_problem(attributes, "fieldSelector", |raw| FieldSelector::parse(raw).is_ok(), field);
    let labels =
        selector_problem(attributes, "labelSelector", |raw| LabelSelector::parse(raw).is_ok(), label);
    fields.into_iter().chain(labels).collect()
}

fn selector_problem(
    attributes: &Value,
    name: &str,
    is_text: impl Fn(&str) -> bool,
    is_requirement: impl Fn(&Value) -> bool,
) -> Option<String> {
    let selector = &attributes[name];
    let (raw, requirements) = (selector["rawSelector"].str(), selector["requirements"].list());
    let n_good = requirements.iter().filter(|requirement| is_requirement(requirement)).count();
    if (raw.is_empty() || is_text(raw)) && n_good == requirements.len() {
        return None;
    }
    let partially = if n_good > 0 { "partially " } else { "" };
    Some(format!("spec.resourceAttributes.{name} {partially}ignored due to parse error"))
}
