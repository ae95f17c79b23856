//! Parameters of admission policies: the server reads them for the policy, so its author must be
//! able to read them.
//!
//! A policy needs `get` on all objects of its paramKind, a binding `get` on the object that its
//! paramRef names, or `list` where it selects. What cannot be resolved to a resource is authorized
//! as `*`. Kubernetes:
//! admissionregistration/{validating,mutating}admissionpolicy{,binding}/authz.go.

use mizzen_authorization::{ResourceAttributes, go_value};
use mizzen_object::{Path, Violations};
use mizzen_registry::Key;
use mizzen_value::{Str, Value};

use super::AuthorizedWrite;
use crate::aggregation;
use crate::server::ServerParts;

/// Adds a violation if the paramKind of a policy is new and its author may not read all objects of
/// it.
pub(super) async fn authorize_policy(write: AuthorizedWrite<'_>, violations: &mut Violations) {
    let kind = &write.new["spec"]["paramKind"];
    let is_same = |old: &Value| {
        ["apiVersion", "kind"]
            .iter()
            .all(|field| old[*field] == kind[*field])
    };
    let known = write
        .old
        .map(|old| &old["spec"]["paramKind"])
        .filter(|old| !old.is_null());
    if write.is_exempt(violations) || kind.is_null() || known.is_some_and(is_same) {
        return;
    }
    let params = Params::resolve(write.call.server, kind);
    let resource = ResourceAttributes {
        name: "*",
        namespace: "*",
        ..params.resource()
    };
    let decision = write.authorize("get", resource).await;
    let why = match (decision.reason().problem(), decision.is_allowed()) {
        (Some(problem), _) => problem.to_owned(),
        (None, true) => return,
        (None, false) => format!(
            "user {} must have \"get\" permission on all objects of the referenced paramKind (kind={}, apiVersion={})",
            go_value(&write.call.request.user),
            kind["kind"].str(),
            kind["apiVersion"].str()
        ),
    };
    violations.forbidden(Path::new("spec").child("paramKind"), &why);
}

/// Adds a violation if the author of a binding may not read its parameters. Kubernetes: a paramRef
/// is compared by pointer, so an unchanged one is authorized again.
pub(super) async fn authorize_binding(write: AuthorizedWrite<'_>, violations: &mut Violations) {
    let reference = &write.new["spec"]["paramRef"];
    if write.is_exempt(violations) || reference.is_null() {
        return;
    }
    let kind = write.param_kind().await;
    let params = match &kind {
        Some(kind) if !kind.is_null() => Params::resolve(write.call.server, kind),
        _ => Params::default(),
    };
    let (name, namespace) = (reference["name"].str(), reference["namespace"].str());
    let verb = if name.is_empty() { "list" } else { "get" };
    let decision = write
        .authorize(
            verb,
            ResourceAttributes {
                name,
                namespace,
                ..params.resource()
            },
        )
        .await;
    let mutates = write.call.resource.kind().plural == "mutatingadmissionpolicybindings";
    let user = go_value(&write.call.request.user);
    let unknown = |what: String| {
        format!(
            "unable to {what} to determine minimum required permissions and user {user} does not have \"{verb}\" \
             permission for all groups, versions and resources"
        )
    };
    let shown = |kind: &Value| {
        format!(
            "paramKind &{{{} {}}}",
            kind["apiVersion"].str(),
            kind["kind"].str()
        )
    };
    let why = match (decision.reason().problem(), decision.is_allowed(), &kind) {
        (Some(problem), ..) if mutates => problem.to_owned(),
        (Some(problem), ..) => format!("failed to authorize request: {problem}"),
        (None, true, _) => return,
        (None, false, None) => unknown(format!(
            "get policy {}",
            write.new["spec"]["policyName"].str()
        )),
        (None, false, Some(kind)) if params.is_misspelt => {
            unknown(format!("parse {}", shown(kind)))
        }
        (None, false, Some(kind)) if params.is_unknown => {
            unknown(format!("resolve {}", shown(kind)))
        }
        // Kubernetes: verb and user are swapped.
        (None, false, Some(_)) if mutates => {
            format!(
                "user {verb} does not have \"{user}\" permission on the object referenced by paramRef"
            )
        }
        (None, false, Some(_)) => {
            format!(
                "user {user} does not have \"{verb}\" permission on the object referenced by paramRef"
            )
        }
    };
    violations.forbidden(Path::new("spec").child("paramRef"), &why);
}

impl AuthorizedWrite<'_> {
    /// Whether parameters are not authorized: the object is invalid anyway, or its author a
    /// superuser.
    fn is_exempt(&self, violations: &Violations) -> bool {
        !violations.is_empty() || self.call.request.user.is_master()
    }

    /// The paramKind of the policy of a binding, null if it has none. None if the policy does not
    /// exist.
    async fn param_kind(&self) -> Option<Value> {
        let (server, kind) = (&self.call.server, self.call.resource.kind());
        let policies = match kind.plural.as_str() {
            "mutatingadmissionpolicybindings" => "mutatingadmissionpolicies",
            _ => "validatingadmissionpolicies",
        };
        let policies = server.catalog.get(&kind.gvk.group, "v1", policies)?;
        let key = Key::new("", self.new["spec"]["policyName"].str());
        let policy = server.registry.read(&policies, &key, "").await.ok()?;
        Some(policy.value()["spec"]["paramKind"].clone())
    }
}

/// The resource of a paramKind; `*` for what could not be resolved.
struct Params {
    group: Str,
    version: Str,
    resource: Str,
    is_misspelt: bool,
    /// Whether no such kind is served.
    is_unknown: bool,
}

impl Default for Params {
    fn default() -> Params {
        let any = || Str::from("*");
        Params {
            group: any(),
            version: any(),
            resource: any(),
            is_misspelt: false,
            is_unknown: false,
        }
    }
}

impl Params {
    fn resolve(server: &ServerParts, kind: &Value) -> Params {
        let api_version = kind["apiVersion"].str();
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        if version.contains('/') {
            return Params {
                is_misspelt: true,
                ..Params::default()
            };
        }
        let resource = plural(server, group, version, kind["kind"].str());
        let is_unknown = resource.is_none();
        let resource = resource.unwrap_or_else(|| "*".into());
        Params {
            group: group.into(),
            version: version.into(),
            resource,
            is_misspelt: false,
            is_unknown,
        }
    }

    fn resource(&self) -> ResourceAttributes<'_> {
        ResourceAttributes {
            group: &self.group,
            version: &self.version,
            resource: &self.resource,
            ..ResourceAttributes::default()
        }
    }
}

/// The resource of a kind by discovery, aggregated servers included. Kubernetes:
/// admissionregistration/resolver/resolver.go.
fn plural(server: &ServerParts, group: &str, version: &str, kind: &str) -> Option<Str> {
    let served = aggregation::group(server, group)?;
    let fits = |resource: &&Value| {
        let says = |field: &str, expected: &str| {
            resource[field].is_empty() || resource[field].str() == expected
        };
        resource["kind"].str() == kind
            && !resource["name"].str().contains('/')
            && says("group", group)
            && says("version", version)
    };
    Some(
        served.version(version)?.resources.iter().find(fits)?["name"]
            .str()
            .into(),
    )
}
