//! Mutating policies: in order, each on the result of the previous one.

use std::collections::HashSet;
use std::sync::Arc;

use mizzen_object::decode::decode;
use mizzen_object::schema::CanonicalObject;
use mizzen_object::{Cause, Status};
use mizzen_value::{Str, Value, json};

use super::binding::PolicyBinding;
use super::configuration::BoundPolicy;
use super::patch::mutated;
use super::spec::Mutation;
use super::validate::namespace;
use super::{conditions, is_exempt};
use crate::admission::forbidden_for;
use crate::admission::webhook::VersionedAttributes;
use crate::admission::webhook::matching::MatchedVersion;
use crate::decode::strict_error;

/// The rounds of mutating policies: all once, then those with `reinvocationPolicy: IfNeeded` again.
#[derive(Default)]
pub(crate) struct PolicyRounds {
    /// Policies that want to be invoked again if the object changes after them.
    waiting: HashSet<String>,
    /// Policies after which the object changed.
    due: HashSet<String>,
    /// The object after the policies.
    last: Value,
}

/// A policy with a binding and a parameter.
struct PolicyInvocation {
    bound: Arc<BoundPolicy>,
    /// The index of the binding.
    binding: usize,
    params: Value,
    version: MatchedVersion,
}

/// Why a policy failed.
struct Problem {
    policy: Arc<BoundPolicy>,
    binding: Option<Str>,
    message: String,
    /// Whether the object is invalid, and not the configuration.
    invalid: bool,
}

impl PolicyRounds {
    /// Runs the policies. Returns whether one changed `object`, so that all plug-ins run again.
    pub(crate) async fn mutate(
        &mut self,
        attributes: &VersionedAttributes<'_>,
        object: &mut CanonicalObject,
        second: bool,
    ) -> Result<bool, Status> {
        if is_exempt(attributes) {
            return Ok(false);
        }
        let server = attributes.call.server;
        let in_force = server
            .policies
            .mutating
            .in_force(server.cluster_registry())?;
        let found = in_force.about(&attributes.call.resource.kind().plural);
        if found.is_empty() {
            return Ok(false);
        }
        let (invocations, mut problems) = invocations(&found, &attributes.with(object)).await;
        if second && self.last != **object {
            self.changed();
        }
        let mut any = false;
        for invocation in &invocations {
            let before = Value::clone(object);
            let (applied, failures) = self.invoke(invocation, attributes, object, second).await?;
            any |= applied;
            problems.extend(failures);
            if **object != before {
                self.changed();
            }
            if invocation.bound.policy.reinvoked {
                self.waiting.insert(invocation.id());
            }
        }
        // Kubernetes: the last policy that ran is invoked again, too, even if it changed nothing.
        if any {
            self.changed();
        }
        self.last = Value::clone(object);
        deny(&attributes.with(object), problems).map(|()| any)
    }

    fn changed(&mut self) {
        self.due.extend(self.waiting.drain());
    }

    /// Runs one policy. Returns whether it was applied, and its failures.
    async fn invoke(
        &self,
        invocation: &PolicyInvocation,
        attributes: &VersionedAttributes<'_>,
        object: &mut CanonicalObject,
        second: bool,
    ) -> Result<(bool, Vec<Problem>), Status> {
        let (policy, mut problems) = (&invocation.bound.policy, Vec::new());
        let mut activation =
            conditions::activation(&attributes.with(object), &invocation.version).await?;
        activation.params = invocation.params.clone();
        match conditions::hold(&policy.conditions, &policy.variables, &activation).await {
            Ok(false) => return Ok((false, problems)),
            Err(why) => return Ok((false, vec![invocation.problem(why)])),
            Ok(true) if second && !self.due.contains(&invocation.id()) => {
                return Ok((false, problems));
            }
            Ok(true) => activation.namespace = namespace(attributes)?,
        }
        let schema = attributes.root(&invocation.version);
        let mut any = false;
        for mutation in &policy.mutations {
            match mutated(mutation, policy, &activation, schema).await {
                Err(why) => problems.push(invocation.problem(why)),
                Ok(mutated) => {
                    // A JSON patch may not set unknown fields.
                    if let Mutation::Patch(_) = mutation {
                        let decoded = decode(schema, json::to_string(&mutated).as_bytes())
                            .map_err(Status::internal)?;
                        if !decoded.complaints.is_empty() && schema.rest().is_none() {
                            return Err(Status::internal(strict_error(&decoded.complaints)));
                        }
                    }
                    **object = attributes
                        .taken_back(&mutated, &invocation.version.resource)
                        .await?;
                    activation.object = attributes
                        .shown(Some(object), &invocation.version.resource)
                        .await?;
                    any = true;
                }
            }
        }
        Ok((any, problems))
    }
}

impl PolicyInvocation {
    fn binding(&self) -> &PolicyBinding {
        &self.bound.bindings[self.binding]
    }

    /// Identifies it between rounds.
    fn id(&self) -> String {
        let metadata = &self.params["metadata"];
        let params = format!("{}/{}", metadata["namespace"].str(), metadata["name"].str());
        format!(
            "{}/{}/{params}",
            self.bound.policy.name,
            self.binding().name
        )
    }

    fn problem(&self, message: String) -> Problem {
        let binding = Some(self.binding().name.clone());
        Problem {
            policy: self.bound.clone(),
            binding,
            message,
            invalid: true,
        }
    }
}

/// The policies that match a request, before any of them has changed it.
async fn invocations(
    found: &[Arc<BoundPolicy>],
    attributes: &VersionedAttributes<'_>,
) -> (Vec<PolicyInvocation>, Vec<Problem>) {
    let (mut invocations, mut problems) = (Vec::new(), Vec::new());
    for bound in found {
        let misconfigured = |binding: Option<&PolicyBinding>, why: &str| Problem {
            policy: bound.clone(),
            binding: binding.map(|binding| binding.name.clone()),
            message: format!(
                "failed to configure {}: {why}",
                if binding.is_some() {
                    "binding"
                } else {
                    "policy"
                }
            ),
            invalid: false,
        };
        let version = match bound.policy.version(attributes) {
            Ok(Some(version)) => version,
            Ok(None) => continue,
            Err(why) => {
                problems.push(misconfigured(None, &why));
                continue;
            }
        };
        for (at, binding) in bound.bindings.iter().enumerate() {
            match binding.params(&bound.policy, attributes).await {
                Err(why) => problems.push(misconfigured(Some(binding), &why)),
                Ok(params) => {
                    invocations.extend(params.into_iter().map(|params| PolicyInvocation {
                        bound: bound.clone(),
                        binding: at,
                        params,
                        version: version.clone(),
                    }))
                }
            }
        }
    }
    (invocations, problems)
}

/// 403 for the first failure of a policy with `failurePolicy: Fail`.
fn deny(attributes: &VersionedAttributes, problems: Vec<Problem>) -> Result<(), Status> {
    let mut denial: Option<Status> = None;
    for problem in problems
        .iter()
        .filter(|problem| !problem.policy.policy.ignores_failure)
    {
        let (name, message) = (&problem.policy.policy.name, &problem.message);
        let message = match &problem.binding {
            Some(binding) => {
                format!("policy '{name}' with binding '{binding}' denied request: {message}")
            }
            None => format!("policy {} denied request: {message}", json::quote(name)),
        };
        let status = denial.get_or_insert_with(|| {
            let status = forbidden_for(attributes, "");
            let reason = if problem.invalid {
                "Invalid".into()
            } else {
                status.reason.clone()
            };
            Status {
                message: message.clone(),
                reason,
                ..status
            }
        });
        let cause = Cause {
            reason: Str::default(),
            message,
            field: String::new(),
        };
        status.details.get_or_insert_default().causes.push(cause);
    }
    denial.map_or(Ok(()), Err)
}
