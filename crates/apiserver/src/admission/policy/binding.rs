//! Policy bindings: where a policy applies, and its parameters.

use mizzen_object::GroupVersionKind;
use mizzen_object::select::LabelSelector;
use mizzen_registry::{Key, ListOptions, Registry, Resource, Selection};
use mizzen_value::{Str, Value};

use super::spec::PolicySpec;
use crate::admission::webhook::VersionedAttributes;
use crate::admission::webhook::matching::{MatchedVersion, Matching};

/// A binding of a policy.
#[derive(Debug)]
pub(super) struct PolicyBinding {
    pub name: Str,
    /// Its match resources; `None` for all of its policy.
    matching: Option<Matching>,
    reference: Option<ParamRef>,
    /// What follows from a failed validation.
    pub actions: Vec<ValidationAction>,
}

/// What follows from a failed validation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ValidationAction {
    /// The request is denied.
    Deny,
    /// The client is warned.
    Warn,
    /// It is added to the audit event.
    Audit,
}

impl ValidationAction {
    /// As in a binding.
    pub(super) fn word(self) -> &'static str {
        match self {
            ValidationAction::Deny => "Deny",
            ValidationAction::Warn => "Warn",
            ValidationAction::Audit => "Audit",
        }
    }
}

/// `spec.paramRef`.
#[derive(Debug)]
struct ParamRef {
    name: Str,
    namespace: Str,
    selector: LabelSelector,
    /// Whether missing parameters deny the request.
    required: bool,
}

impl PolicyBinding {
    pub(super) fn parse(binding: &Value) -> PolicyBinding {
        let spec = &binding["spec"];
        let action = |action: &Value| match action.str() {
            "Deny" => ValidationAction::Deny,
            "Warn" => ValidationAction::Warn,
            _ => ValidationAction::Audit,
        };
        PolicyBinding {
            name: binding["metadata"]["name"].str().into(),
            matching: spec.get("matchResources").map(Matching::parse),
            reference: spec.get("paramRef").map(|reference| ParamRef {
                name: reference["name"].str().into(),
                namespace: reference["namespace"].str().into(),
                selector: LabelSelector::from_value(&reference["selector"]).unwrap_or_default(),
                required: reference["parameterNotFoundAction"].str() == "Deny",
            }),
            actions: spec["validationActions"]
                .list()
                .iter()
                .map(action)
                .collect(),
        }
    }

    /// The parameters for a request: `None` if the binding does not match it, `null` if there are none. Fails if the
    /// configuration is invalid.
    pub(super) async fn params(
        &self,
        policy: &PolicySpec,
        attributes: &VersionedAttributes<'_>,
    ) -> Result<Vec<Value>, String> {
        if let Some(matching) = &self.matching
            && matching
                .find(attributes)
                .map_err(|status| status.message)?
                .is_none()
        {
            return Ok(Vec::new());
        }
        match (&policy.param_kind, &self.reference) {
            (Some(kind), Some(reference)) => reference.resolve(kind, attributes).await,
            _ => Ok(vec![Value::Null]),
        }
    }
}

impl ParamRef {
    async fn resolve(
        &self,
        kind: &GroupVersionKind,
        attributes: &VersionedAttributes<'_>,
    ) -> Result<Vec<Value>, String> {
        let server = attributes.call.server;
        let found = match (server.param_resource(kind), server.extensions.upstream()) {
            (Some((registry, resource)), _) => {
                let is_namespaced = resource.kind().is_namespaced();
                let namespace = self.namespace(is_namespaced, attributes)?;
                match self.name.is_empty() {
                    false => self.named(&registry, &resource, namespace).await?,
                    true => self.selected(&registry, &resource, namespace).await?,
                }
            }
            (None, Some(upstream)) => {
                let resource = upstream.find_resource(kind).await?;
                let resource = resource.ok_or_else(|| unknown(kind))?;
                let namespace = self.namespace(resource.is_namespaced, attributes)?;
                match self.name.as_str() {
                    "" => {
                        let selected = upstream.select_params(&resource, namespace, &self.selector);
                        selected.await?
                    }
                    name => {
                        let found = upstream.find_param(&resource, namespace, name).await?;
                        found.into_iter().collect()
                    }
                }
            }
            (None, None) => return Err(unknown(kind)),
        };
        match found.is_empty() && self.required {
            true => {
                Err("no params found for policy binding with `Deny` parameterNotFoundAction".into())
            }
            false => Ok(found),
        }
    }

    fn namespace<'a>(
        &'a self,
        is_namespaced: bool,
        attributes: &'a VersionedAttributes,
    ) -> Result<&'a str, String> {
        let asked = attributes.namespace();
        match (is_namespaced, self.namespace.as_str()) {
            (true, "") if asked.is_empty() => {
                Err("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
                    .into())
            }
            (true, "") => Ok(asked),
            (_, "") => Ok(""),
            (true, namespace) => Ok(namespace),
            (false, _) => {
                Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`".into())
            }
        }
    }

    async fn named(
        &self,
        registry: &Registry,
        resource: &Resource,
        namespace: &str,
    ) -> Result<Vec<Value>, String> {
        let found = registry
            .read(resource, &Key::new(namespace, &self.name), "")
            .await;
        match found {
            Ok(object) => Ok(vec![object.value()]),
            Err(status) if status.code == 404 => Ok(Vec::new()),
            Err(status) => Err(status.message),
        }
    }

    async fn selected(
        &self,
        registry: &Registry,
        resource: &Resource,
        namespace: &str,
    ) -> Result<Vec<Value>, String> {
        let labels = self.selector.clone();
        let selection = Selection {
            namespace: namespace.into(),
            labels,
            ..Selection::default()
        };
        let options = ListOptions {
            selection,
            ..ListOptions::default()
        };
        let found = registry.read_list(resource, &options).await;
        Ok(found
            .map_err(|status| status.message)?
            .items
            .iter()
            .map(|object| object.value())
            .collect())
    }
}

impl PolicySpec {
    /// The version in which the policy matches a request, if it does. Fails if the policy is invalid.
    pub(super) fn version(
        &self,
        attributes: &VersionedAttributes,
    ) -> Result<Option<MatchedVersion>, String> {
        let version = self
            .matching
            .find(attributes)
            .map_err(|status| status.message)?;
        let server = attributes.call.server;
        match &self.param_kind {
            // The resources of a main server are found when a binding needs them.
            Some(kind)
                if version.is_some()
                    && server.extensions.upstream().is_none()
                    && server.param_resource(kind).is_none() =>
            {
                Err(unknown(kind))
            }
            _ => Ok(version),
        }
    }
}

/// The error for a kind that is not served.
fn unknown(kind: &GroupVersionKind) -> String {
    let api_version = kind.api_version();
    // Kubernetes: the core group is an empty string before the slash.
    let shown = if kind.group.is_empty() {
        format!("/{api_version}")
    } else {
        api_version.to_string()
    };
    format!(
        "failed to find resource referenced by paramKind: '{shown}, Kind={}'",
        kind.kind
    )
}
