//! Mutating policies: one after the other, each on what the one before has made of the object.

use std::collections::HashSet;
use std::sync::Arc;

use mizzen_object::decode::decode;
use mizzen_object::schema::Struct;
use mizzen_object::{Cause, Status};
use mizzen_value::{Str, Value, json};

use super::binding::Binding;
use super::configuration::Bound;
use super::patch::mutated;
use super::spec::Mutation;
use super::validate::namespace;
use super::{conditions, is_exempt};
use crate::admission::forbidden_for;
use crate::admission::webhook::Attributes;
use crate::admission::webhook::matching::Version;
use crate::decode::strict_error;

/// Lets policies change objects, and once more those that want to see what others made of them.
#[derive(Default)]
pub(crate) struct Rounds {
    /// Policies that had their say and want to know what is changed after them.
    waiting: HashSet<String>,
    /// Policies after which something was changed.
    due: HashSet<String>,
    /// What the policies left behind.
    last: Value,
}

/// A policy that has a say, with its binding and a parameter.
struct Invocation {
    bound: Arc<Bound>,
    /// Which binding.
    binding: usize,
    params: Value,
    version: Version,
}

/// Why a policy could not do its work.
struct Problem {
    policy: Arc<Bound>,
    binding: Option<Str>,
    message: String,
    /// Whether it is about the object and not about the configuration.
    invalid: bool,
}

impl Rounds {
    /// Lets the policies change `object`. Returns whether one did, so that all should have their say a second time.
    pub(crate) async fn mutate(
        &mut self,
        attributes: &Attributes<'_>,
        object: &mut Value,
        second: bool,
    ) -> Result<bool, Status> {
        let server = attributes.call.server;
        let in_force = server.policies.mutating.in_force(&server.registry)?;
        let found = in_force.about(&attributes.call.resource.kind().plural);
        if found.is_empty() || is_exempt(attributes) {
            return Ok(false);
        }
        let (invocations, mut problems) = invocations(&found, &attributes.with(object)).await;
        if second && self.last != *object {
            self.changed();
        }
        let mut any = false;
        for invocation in &invocations {
            let before = object.clone();
            any |= self
                .invoke(invocation, attributes, object, second, &mut problems)
                .await?;
            if *object != before {
                self.changed();
            }
            if invocation.bound.policy.reinvoked {
                self.waiting.insert(invocation.id());
            }
        }
        // Kubernetes: who changed something last looks at it again, too, even if nothing came of it.
        if any {
            self.changed();
        }
        self.last = object.clone();
        refuse(&attributes.with(object), problems).map(|()| any)
    }

    fn changed(&mut self) {
        self.due.extend(self.waiting.drain());
    }

    /// Lets one policy change `object`. Returns whether it could.
    async fn invoke(
        &self,
        invocation: &Invocation,
        attributes: &Attributes<'_>,
        object: &mut Value,
        second: bool,
        problems: &mut Vec<Problem>,
    ) -> Result<bool, Status> {
        let policy = &invocation.bound.policy;
        let mut scene = conditions::scene(&attributes.with(object), &invocation.version).await?;
        scene.params = invocation.params.clone();
        match conditions::hold(&policy.conditions, &policy.variables, &scene).await {
            Ok(false) => return Ok(false),
            Err(why) => {
                problems.push(invocation.problem(why));
                return Ok(false);
            }
            Ok(true) if second && !self.due.contains(&invocation.id()) => return Ok(false),
            Ok(true) => scene.namespace = namespace(attributes)?,
        }
        let schema = attributes.root(&invocation.version);
        let mut any = false;
        for mutation in &policy.mutations {
            match mutated(mutation, policy, &scene, schema).await {
                Err(why) => problems.push(invocation.problem(why)),
                Ok(mutated) => {
                    if let Mutation::Patch(_) = mutation {
                        check_fields(schema, &mutated)?;
                    }
                    *object = attributes
                        .taken_back(&mutated, &invocation.version.resource)
                        .await?;
                    scene.object = attributes
                        .shown(Some(object), &invocation.version.resource)
                        .await?;
                    any = true;
                }
            }
        }
        Ok(any)
    }
}

/// 500: a patch has set what the kind does not have.
fn check_fields(schema: &Struct, patched: &Value) -> Result<(), Status> {
    let decoded = decode(schema, json::to_string(patched).as_bytes()).map_err(Status::internal)?;
    match decoded.complaints.is_empty() || schema.rest().is_some() {
        true => Ok(()),
        false => Err(Status::internal(strict_error(&decoded.complaints))),
    }
}

impl Invocation {
    fn binding(&self) -> &Binding {
        &self.bound.bindings[self.binding]
    }

    /// By which it is known from one round to the next.
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

/// The policies that have a say in a request, before any of them has changed it.
async fn invocations(
    found: &[Arc<Bound>],
    attributes: &Attributes<'_>,
) -> (Vec<Invocation>, Vec<Problem>) {
    let (mut invocations, mut problems) = (Vec::new(), Vec::new());
    for bound in found {
        let misconfigured = |binding: Option<&Binding>, why: &str| Problem {
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
                Ok(params) => invocations.extend(params.into_iter().map(|params| Invocation {
                    bound: bound.clone(),
                    binding: at,
                    params,
                    version: version.clone(),
                })),
            }
        }
    }
    (invocations, problems)
}

/// 403: what went wrong, unless the policy does not mind. The first speaks for all.
fn refuse(attributes: &Attributes, problems: Vec<Problem>) -> Result<(), Status> {
    let mut refusal: Option<Status> = None;
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
        let status = refusal.get_or_insert_with(|| {
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
    refusal.map_or(Ok(()), Err)
}
