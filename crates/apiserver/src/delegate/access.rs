//! May they? A SubjectAccessReview tells.

use mizzen_object::{Value, json, value};
use mizzen_registry::Future;

use super::Upstream;
use crate::access::{Attributes, Authorizer, Decision, Reason, Resource, Target};
use crate::identity::User;

const PATH: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
/// Kubernetes: who looks whether the server lives need not be known (apiserver/pkg/server/options/authorization.go).
const OPEN: [&str; 3] = ["/healthz", "/livez", "/readyz"];

impl Authorizer for Upstream {
    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> Future<'a, Decision> {
        Box::pin(self.decide(attributes))
    }
}

impl Upstream {
    async fn decide(&self, attributes: &Attributes<'_>) -> Decision {
        if matches!(attributes.target, Target::Page(path) if OPEN.contains(&path)) {
            return Decision::Allow(Reason::default());
        }
        let spec = spec(attributes);
        let question = json::to_string(&spec);
        if let Some((allowed, reason)) = self.0.decisions.get(&question) {
            return decision(allowed, reason);
        }
        let review = value!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": spec,
        });
        match self.ask("POST", PATH, Some(&review)).await {
            Ok((201, review)) => {
                let status = &review["status"];
                let (allowed, reason) = (status["allowed"].bool(), status["reason"].str().to_owned());
                self.0.decisions.put(question, (allowed, reason.clone()));
                decision(allowed, reason)
            }
            Ok((_, status)) => decision(false, status["message"].str().into()),
            Err(problem) => decision(false, problem.to_string()),
        }
    }
}

fn decision(allowed: bool, reason: String) -> Decision {
    let reason = if reason.is_empty() { Reason::default() } else { Reason::new(reason) };
    if allowed { Decision::Allow(reason) } else { Decision::NoOpinion(reason) }
}

fn spec(attributes: &Attributes) -> Value {
    let Attributes { user, verb, target } = attributes;
    let User { name, uid, groups, extra } = user;
    let mut spec = value!({ "user": name, "uid": uid });
    spec.set("groups", Value::List(groups.iter().map(Value::from).collect()));
    spec.set("extra", extra.clone());
    match target {
        Target::Page(path) => spec.set("nonResourceAttributes", value!({ "path": (*path), "verb": (*verb) })),
        Target::Resource(resource) => spec.set("resourceAttributes", resource_attributes(verb, resource)),
    };
    spec
}

fn resource_attributes(verb: &str, asked: &Resource) -> Value {
    let Resource { group, version, resource, subresource, namespace, name, fields, labels } = *asked;
    let mut attributes = value!({ "verb": verb, "group": group, "version": version, "resource": resource });
    let more = [("subresource", subresource), ("namespace", namespace), ("name", name)];
    for (key, text) in more.into_iter().filter(|(_, text)| !text.is_empty()) {
        attributes.set(key, text);
    }
    let selectors = [("fieldSelector", fields), ("labelSelector", labels)];
    for (key, text) in selectors.into_iter().filter(|(_, text)| !text.is_empty()) {
        attributes.set(key, value!({ "rawSelector": text }));
    }
    attributes
}
