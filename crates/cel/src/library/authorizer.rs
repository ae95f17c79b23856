//! `authorizer.group('').resource('x').check('get').allowed()`: may somebody do something?
//!
//! The expression only puts the question together; the caller answers it through [`Authorize`].

use std::fmt;
use std::sync::Arc;

use super::{opaque, text};
use crate::{
    CallEstimate, EvalError, LIST, Library, Node, Opaque, Outcome, Range, STRUCT, Site, Sizing,
    TRAVERSAL, Type, Value,
};
use mizzen_value::validation::names;

/// Answers questions of expressions.
pub trait Authorize: Send + Sync + fmt::Debug {
    /// May it be done?
    fn authorize(&self, question: &Question) -> Decision;
}

/// May somebody do something?
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// Who.
    pub subject: Subject,
    /// Does what.
    pub verb: String,
    /// With what.
    pub target: Target,
}

/// Who is asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// Who sent the request.
    Requester,
    /// A service account.
    ServiceAccount {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
}

/// What something is done with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A path that belongs to no resource.
    Path(String),
    /// A resource, in any version.
    Resource(Resource),
}

/// A resource, and which objects of it. What is empty is not restricted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Resource {
    /// Its group.
    pub group: String,
    /// Its name in paths.
    pub resource: String,
    /// The subresource.
    pub subresource: String,
    /// The namespace.
    pub namespace: String,
    /// The object.
    pub name: String,
    /// Only objects with these fields, as it was written.
    pub field_selector: String,
    /// Only objects with these labels, as it was written.
    pub label_selector: String,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Decision {
    /// Whether it may.
    pub allowed: bool,
    /// Why.
    pub reason: String,
    /// What went wrong, if something did.
    pub error: Option<String>,
}

/// The value of a variable `authorizer`.
pub fn authorizer<'a>(authorize: Arc<dyn Authorize>) -> Value<'a> {
    Value::opaque(Authorizer {
        authorize,
        subject: Subject::Requester,
    })
}

/// The value of a variable that is a question about a resource already, such as `authorizer.requestResource`.
pub fn resource_check<'a>(authorize: Arc<dyn Authorize>, resource: Resource) -> Value<'a> {
    let authorizer = Authorizer {
        authorize,
        subject: Subject::Requester,
    };
    Value::opaque(ResourceCheck {
        authorizer,
        resource,
    })
}

#[derive(Debug, Clone)]
struct Authorizer {
    authorize: Arc<dyn Authorize>,
    subject: Subject,
}

#[derive(Debug)]
struct PathCheck {
    authorizer: Authorizer,
    path: String,
}

#[derive(Debug)]
struct GroupCheck {
    authorizer: Authorizer,
    group: String,
}

#[derive(Debug, Clone)]
struct ResourceCheck {
    authorizer: Authorizer,
    resource: Resource,
}

macro_rules! opaques {
    ($($type:ident $name:literal;)*) => {$(
        /// Kubernetes: they cannot be compared (library/authz.go).
        impl Opaque for $type {
            fn type_name(&self) -> &str {
                concat!("kubernetes.authorization.", $name)
            }

            fn equals(&self, _: &dyn Opaque) -> bool {
                false
            }
        }
    )*};
}

opaques! {
    Authorizer "Authorizer";
    PathCheck "PathCheck";
    GroupCheck "GroupCheck";
    ResourceCheck "ResourceCheck";
    Decision "Decision";
}

fn kind(name: &str) -> Type {
    Type::object(&format!("kubernetes.authorization.{name}"))
}

/// Putting questions together.
pub(super) fn library() -> Library {
    use Type::{Bool, String};
    let (authorizer, path_check, group_check) = (
        || kind("Authorizer"),
        || kind("PathCheck"),
        || kind("GroupCheck"),
    );
    let (check, decision) = (|| kind("ResourceCheck"), || kind("Decision"));
    let functions = functions! {
        "path" { member "authorizer_path" (authorizer(), String) -> path_check() => path; }
        "group" { member "authorizer_group" (authorizer(), String) -> group_check() => group; }
        "serviceAccount" {
            member "authorizer_serviceaccount" (authorizer(), String, String) -> authorizer() =>
                service_account;
        }
        "resource" { member "groupcheck_resource" (group_check(), String) -> check() => resource; }
        "subresource" {
            member "resourcecheck_subresource" (check(), String) -> check() =>
                |_, it| with(it, |resource| &mut resource.subresource);
        }
        "namespace" {
            member "resourcecheck_namespace" (check(), String) -> check() =>
                |_, it| with(it, |resource| &mut resource.namespace);
        }
        "name" {
            member "resourcecheck_name" (check(), String) -> check() =>
                |_, it| with(it, |resource| &mut resource.name);
        }
        "check" {
            member "pathcheck_check" (path_check(), String) -> decision() => check_path,
                costs |_, _| CHECK, estimate_check;
            member "resourcecheck_check" (check(), String) -> decision() => check_resource,
                costs |_, _| CHECK, estimate_check;
        }
        "allowed" {
            member "decision_allowed" (decision()) -> Bool => |_, it| Ok(answer(it)?.allowed.into());
        }
        "reason" {
            member "decision_reason" (decision()) -> String => |_, it| Ok(answer(it)?.reason.clone().into());
        }
        "errored" {
            member "decision_errored" (decision()) -> Bool => |_, it| Ok(answer(it)?.error.is_some().into());
        }
        "error" {
            member "decision_error" (decision()) -> String =>
                |_, it| Ok(answer(it)?.error.clone().unwrap_or_default().into());
        }
    };
    Library::new("kubernetes.authz", (1, 27), functions)
}

/// Restricting questions by selectors.
pub(super) fn selectors() -> Library {
    let check = || kind("ResourceCheck");
    let functions = functions! {
        "fieldSelector" {
            member "authorizer_fieldselector" (check(), Type::String) -> check() =>
                |_, it| with(it, |resource| &mut resource.field_selector),
                costs selector_cost, estimate_selector;
        }
        "labelSelector" {
            member "authorizer_labelselector" (check(), Type::String) -> check() =>
                |_, it| with(it, |resource| &mut resource.label_selector),
                costs selector_cost, estimate_selector;
        }
    };
    Library::new("kubernetes.authzSelectors", (1, 31), functions)
}

fn group<'a>(_: &Site, arguments: &[Value<'a>]) -> Outcome<'a> {
    let (authorizer, group) = (
        opaque::<Authorizer>(arguments, 0)?.clone(),
        text(arguments, 1)?.to_owned(),
    );
    Ok(Value::opaque(GroupCheck { authorizer, group }))
}

fn path<'a>(_: &Site, arguments: &[Value<'a>]) -> Outcome<'a> {
    let (authorizer, path) = (
        opaque::<Authorizer>(arguments, 0)?.clone(),
        text(arguments, 1)?.to_owned(),
    );
    match path.trim().is_empty() {
        true => Err(EvalError::new("path must not be empty")),
        false => Ok(Value::opaque(PathCheck { authorizer, path })),
    }
}

fn service_account<'a>(_: &Site, arguments: &[Value<'a>]) -> Outcome<'a> {
    let authorizer = opaque::<Authorizer>(arguments, 0)?.clone();
    let (namespace, name) = (
        text(arguments, 1)?.to_owned(),
        text(arguments, 2)?.to_owned(),
    );
    if !names::name_is_dns_subdomain(&name, false).is_empty() {
        return Err(EvalError::new("Invalid service account name"));
    }
    if !names::name_is_dns_label(&namespace, false).is_empty() {
        return Err(EvalError::new("Invalid service account namespace"));
    }
    Ok(Value::opaque(Authorizer {
        subject: Subject::ServiceAccount { namespace, name },
        ..authorizer
    }))
}

fn resource<'a>(_: &Site, arguments: &[Value<'a>]) -> Outcome<'a> {
    let (check, resource) = (
        opaque::<GroupCheck>(arguments, 0)?,
        text(arguments, 1)?.to_owned(),
    );
    if resource.trim().is_empty() {
        return Err(EvalError::new("resource must not be empty"));
    }
    let resource = Resource {
        group: check.group.clone(),
        resource,
        ..Resource::default()
    };
    Ok(Value::opaque(ResourceCheck {
        authorizer: check.authorizer.clone(),
        resource,
    }))
}

/// The question with one more field set.
fn with<'a>(arguments: &[Value<'a>], field: fn(&mut Resource) -> &mut String) -> Outcome<'a> {
    let mut check = opaque::<ResourceCheck>(arguments, 0)?.clone();
    *field(&mut check.resource) = text(arguments, 1)?.into();
    Ok(Value::opaque(check))
}

fn check_path<'a>(_: &Site, arguments: &[Value<'a>]) -> Outcome<'a> {
    let check = opaque::<PathCheck>(arguments, 0)?;
    check
        .authorizer
        .ask(text(arguments, 1)?, Target::Path(check.path.clone()))
}

fn check_resource<'a>(_: &Site, arguments: &[Value<'a>]) -> Outcome<'a> {
    let check = opaque::<ResourceCheck>(arguments, 0)?;
    check.authorizer.ask(
        text(arguments, 1)?,
        Target::Resource(check.resource.clone()),
    )
}

impl Authorizer {
    fn ask<'a>(&self, verb: &str, target: Target) -> Outcome<'a> {
        let question = Question {
            subject: self.subject.clone(),
            verb: verb.into(),
            target,
        };
        Ok(Value::opaque(self.authorize.authorize(&question)))
    }
}

fn answer<'v>(arguments: &'v [Value]) -> Result<&'v Decision, EvalError> {
    opaque(arguments, 0)
}

/// An expression can afford two questions.
const CHECK: u64 = 350_000;

fn estimate_check(_: &Sizing, _: Option<&Node>, _: &[Node]) -> Option<CallEstimate> {
    Some(CallEstimate::cost(Range::fixed(CHECK)))
}

/// The shortest requirement has two characters, and costs a list and an object.
fn selector_range(size: Range) -> Range {
    let requirements = size.scale(0.5).scale((LIST + STRUCT) as f64);
    Range::fixed(LIST)
        .add(size.scale(TRAVERSAL))
        .add(requirements)
}

fn selector_cost(arguments: &[Value], _: &Value) -> u64 {
    selector_range(Range::fixed(arguments[1].size())).max
}

fn estimate_selector(
    sizing: &Sizing,
    _: Option<&Node>,
    arguments: &[Node],
) -> Option<CallEstimate> {
    Some(CallEstimate::cost(selector_range(
        sizing.of(arguments.first()?),
    )))
}
