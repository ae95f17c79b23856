//! The authorizer library: `authorizer.group('').resource('x').check('get').allowed()`.
//!
//! The expression builds an [`AuthorizerCheck`]; the caller decides it through [`Authorize`].

use std::fmt;
use std::sync::Arc;

use super::{opaque, text};
use crate::{
    AstNode, CallEstimate, CallSite, CostRange, EvalError, LIST, Library, Opaque, Outcome, STRUCT,
    Sizing, TRAVERSAL, Type, Value,
};
use mizzen_value::validation::names;

/// Decides the checks of expressions.
pub trait Authorize: Send + Sync + fmt::Debug {
    /// Decides a check.
    fn authorize(&self, question: &AuthorizerCheck) -> AuthorizerDecision;
}

/// An authorization check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthorizerCheck {
    /// The user to check.
    pub subject: CheckSubject,
    /// The verb.
    pub verb: String,
    /// The path or resource.
    pub target: CheckTarget,
}

/// The user of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckSubject {
    /// The user of the request.
    Requester,
    /// A service account.
    ServiceAccount {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
}

/// The target of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckTarget {
    /// A non-resource path.
    Path(String),
    /// A resource, in any version.
    Resource(CheckedResource),
}

/// A resource. Empty fields do not restrict it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CheckedResource {
    /// The API group.
    pub group: String,
    /// The plural name of the resource.
    pub resource: String,
    /// The subresource.
    pub subresource: String,
    /// The namespace.
    pub namespace: String,
    /// The name of the object.
    pub name: String,
    /// The field selector, unparsed.
    pub field_selector: String,
    /// The label selector, unparsed.
    pub label_selector: String,
}

/// The decision of an authorizer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AuthorizerDecision {
    /// Whether it is allowed.
    pub allowed: bool,
    /// The authorizer's reason.
    pub reason: String,
    /// The authorizer's error, if it failed.
    pub error: Option<String>,
}

/// The value of the variable `authorizer`.
pub fn authorizer<'a>(authorize: Arc<dyn Authorize>) -> Value<'a> {
    Value::opaque(AuthorizerVal {
        authorize,
        subject: CheckSubject::Requester,
    })
}

/// The value of a variable that is a resource check already, such as `authorizer.requestResource`.
pub fn resource_check<'a>(authorize: Arc<dyn Authorize>, resource: CheckedResource) -> Value<'a> {
    let authorizer = AuthorizerVal {
        authorize,
        subject: CheckSubject::Requester,
    };
    Value::opaque(ResourceCheckVal {
        authorizer,
        resource,
    })
}

#[derive(Debug, Clone)]
struct AuthorizerVal {
    authorize: Arc<dyn Authorize>,
    subject: CheckSubject,
}

#[derive(Debug)]
struct PathCheckVal {
    authorizer: AuthorizerVal,
    path: String,
}

#[derive(Debug)]
struct GroupCheckVal {
    authorizer: AuthorizerVal,
    group: String,
}

#[derive(Debug, Clone)]
struct ResourceCheckVal {
    authorizer: AuthorizerVal,
    resource: CheckedResource,
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
    AuthorizerVal "Authorizer";
    PathCheckVal "PathCheck";
    GroupCheckVal "GroupCheck";
    ResourceCheckVal "ResourceCheck";
    AuthorizerDecision "Decision";
}

fn kind(name: &str) -> Type {
    Type::object(&format!("kubernetes.authorization.{name}"))
}

/// Functions that build checks.
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
            member "pathcheck_check" (path_check(), String) -> decision() => |_, it| {
                    let check = opaque::<PathCheckVal>(it, 0)?;
                    check.authorizer.check(text(it, 1)?, CheckTarget::Path(check.path.clone()))
                },
                costs |_, _| CHECK, estimate_check;
            member "resourcecheck_check" (check(), String) -> decision() => |_, it| {
                    let check = opaque::<ResourceCheckVal>(it, 0)?;
                    check.authorizer.check(text(it, 1)?, CheckTarget::Resource(check.resource.clone()))
                },
                costs |_, _| CHECK, estimate_check;
        }
        "allowed" {
            member "decision_allowed" (decision()) -> Bool => |_, it| Ok(decision_argument(it)?.allowed.into());
        }
        "reason" {
            member "decision_reason" (decision()) -> String => |_, it| Ok(decision_argument(it)?.reason.clone().into());
        }
        "errored" {
            member "decision_errored" (decision()) -> Bool => |_, it| Ok(decision_argument(it)?.error.is_some().into());
        }
        "error" {
            member "decision_error" (decision()) -> String =>
                |_, it| Ok(decision_argument(it)?.error.clone().unwrap_or_default().into());
        }
    };
    Library::new("kubernetes.authz", (1, 27), functions)
}

/// Functions that add selectors to checks.
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

fn group<'a>(_: &CallSite, arguments: &[Value<'a>]) -> Outcome<'a> {
    let (authorizer, group) = (
        opaque::<AuthorizerVal>(arguments, 0)?.clone(),
        text(arguments, 1)?.to_owned(),
    );
    Ok(Value::opaque(GroupCheckVal { authorizer, group }))
}

fn path<'a>(_: &CallSite, arguments: &[Value<'a>]) -> Outcome<'a> {
    let (authorizer, path) = (
        opaque::<AuthorizerVal>(arguments, 0)?.clone(),
        text(arguments, 1)?.to_owned(),
    );
    match path.trim().is_empty() {
        true => Err(EvalError::new("path must not be empty")),
        false => Ok(Value::opaque(PathCheckVal { authorizer, path })),
    }
}

fn service_account<'a>(_: &CallSite, arguments: &[Value<'a>]) -> Outcome<'a> {
    let authorizer = opaque::<AuthorizerVal>(arguments, 0)?.clone();
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
    Ok(Value::opaque(AuthorizerVal {
        subject: CheckSubject::ServiceAccount { namespace, name },
        ..authorizer
    }))
}

fn resource<'a>(_: &CallSite, arguments: &[Value<'a>]) -> Outcome<'a> {
    let (check, resource) = (
        opaque::<GroupCheckVal>(arguments, 0)?,
        text(arguments, 1)?.to_owned(),
    );
    if resource.trim().is_empty() {
        return Err(EvalError::new("resource must not be empty"));
    }
    let resource = CheckedResource {
        group: check.group.clone(),
        resource,
        ..CheckedResource::default()
    };
    Ok(Value::opaque(ResourceCheckVal {
        authorizer: check.authorizer.clone(),
        resource,
    }))
}

/// The check with one more field set.
fn with<'a>(
    arguments: &[Value<'a>],
    field: fn(&mut CheckedResource) -> &mut String,
) -> Outcome<'a> {
    let mut check = opaque::<ResourceCheckVal>(arguments, 0)?.clone();
    *field(&mut check.resource) = text(arguments, 1)?.into();
    Ok(Value::opaque(check))
}

impl AuthorizerVal {
    fn check<'a>(&self, verb: &str, target: CheckTarget) -> Outcome<'a> {
        let question = AuthorizerCheck {
            subject: self.subject.clone(),
            verb: verb.into(),
            target,
        };
        Ok(Value::opaque(self.authorize.authorize(&question)))
    }
}

fn decision_argument<'v>(arguments: &'v [Value]) -> Result<&'v AuthorizerDecision, EvalError> {
    opaque(arguments, 0)
}

/// The cost of a check, such that an expression can afford two.
const CHECK: u64 = 350_000;

fn estimate_check(_: &Sizing, _: Option<&AstNode>, _: &[AstNode]) -> Option<CallEstimate> {
    Some(CallEstimate::cost(CostRange::fixed(CHECK)))
}

/// The shortest requirement has two characters, and costs a list and an object.
fn selector_range(size: CostRange) -> CostRange {
    let requirements = size.scale(0.5).scale((LIST + STRUCT) as f64);
    CostRange::fixed(LIST)
        .add(size.scale(TRAVERSAL))
        .add(requirements)
}

fn selector_cost(arguments: &[Value], _: &Value) -> u64 {
    selector_range(CostRange::fixed(arguments[1].size())).max
}

fn estimate_selector(
    sizing: &Sizing,
    _: Option<&AstNode>,
    arguments: &[AstNode],
) -> Option<CallEstimate> {
    Some(CallEstimate::cost(selector_range(
        sizing.size(arguments.first()?),
    )))
}
