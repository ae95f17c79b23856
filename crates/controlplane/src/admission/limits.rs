//! What a namespace's LimitRanges say about pods and claims: how much they get unasked, and how much they may ask.

use std::collections::{BTreeMap, HashSet};

use mizzen_object::Status;
use mizzen_value::Value;
use mizzen_value::quantity::Quantity;

use super::Attributes;
use mizzen_kinds::amounts::{Amounts, amounts};
use mizzen_kinds::pod_resources::{PodResourcesOptions, pod_limits, pod_requests};

const ANNOTATION: &str = "kubernetes.io/limit-ranger";

/// Fills in what the containers of a new pod do not ask for.
pub(super) fn admit(attributes: &Attributes, pod: &mut Value) -> Result<(), Status> {
    if !attributes.is_main("", "pods") || !attributes.is_create() {
        return Ok(());
    }
    for range in ranges(attributes)? {
        fill(&range, pod);
    }
    Ok(())
}

/// Whether a pod or claim asks for as much as it may.
pub(super) fn check(attributes: &Attributes, object: &Value) -> Result<(), Status> {
    let Some(limits) = limits_of(attributes) else {
        return Ok(());
    };
    for range in ranges(attributes)? {
        let mut problems = Problems::default();
        for limit in range["spec"]["limits"].list() {
            limits(limit, object, &mut problems);
        }
        if let Some(why) = problems.into_sentence() {
            return Err(attributes.forbidden(object, &why));
        }
    }
    Ok(())
}

/// How one limit is applied to what is written; none if ranges have no say in it.
fn limits_of(attributes: &Attributes) -> Option<fn(&Value, &Value, &mut Problems)> {
    if attributes.is("", "pods") {
        let asked = match (attributes.subresource(), attributes.old) {
            ("", None) => true,
            ("resize", Some(old)) => old["metadata"]["deletionTimestamp"].is_null(),
            _ => false,
        };
        return asked.then_some(check_pod);
    }
    let is_staying = |old: &Value| old["metadata"]["deletionTimestamp"].is_null();
    let asked =
        attributes.is_main("", "persistentvolumeclaims") && attributes.old.is_none_or(is_staying);
    asked.then_some(check_claim)
}

fn ranges(attributes: &Attributes) -> Result<Vec<Value>, Status> {
    attributes.all("", "limitranges", attributes.namespace())
}

fn fill(range: &Value, pod: &mut Value) {
    let mut filled = Vec::new();
    for (list, title) in [
        ("containers", "container"),
        ("initContainers", "init container"),
    ] {
        for container in pod
            .entry("spec")
            .get_mut(list)
            .into_iter()
            .flat_map(Value::list_mut)
        {
            fill_container(range, container, title, &mut filled);
        }
    }
    if !filled.is_empty() {
        let text = format!("LimitRanger plugin set: {}", filled.join("; "));
        pod.entry("metadata")
            .entry("annotations")
            .set(ANNOTATION, text);
    }
}

fn fill_container(range: &Value, container: &mut Value, title: &str, filled: &mut Vec<String>) {
    for (field, source, word) in [
        ("requests", "defaultRequest", "request"),
        ("limits", "default", "limit"),
    ] {
        let limits = range["spec"]["limits"]
            .list()
            .iter()
            .filter(|limit| limit["type"].str() == "Container");
        // The last of several limits counts.
        let defaults: BTreeMap<&str, &Value> =
            limits.flat_map(|limit| limit[source].entries()).collect();
        let missing: Vec<&str> = defaults
            .keys()
            .copied()
            .filter(|name| container["resources"][field][*name].is_null())
            .collect();
        for name in &missing {
            container
                .entry("resources")
                .entry(field)
                .set(name, defaults[name].clone());
        }
        if !missing.is_empty() {
            let name = container["name"].str();
            filled.push(format!("{} {word} for {title} {name}", missing.join(", ")));
        }
    }
}

fn check_pod(limit: &Value, pod: &Value, problems: &mut Problems) {
    let spec = &pod["spec"];
    match limit["type"].str() {
        "Container" => {
            for container in spec["containers"]
                .list()
                .iter()
                .chain(spec["initContainers"].list())
            {
                let resources = &container["resources"];
                let asked = Asked {
                    requests: amounts(&resources["requests"]),
                    limits: amounts(&resources["limits"]),
                };
                asked.check(limit, problems);
            }
        }
        "Pod" => {
            let options = PodResourcesOptions {
                exclude_overhead: true,
                ..PodResourcesOptions::default()
            };
            let asked = Asked {
                requests: pod_requests(pod, &options),
                limits: pod_limits(pod, &options),
            };
            asked.check(limit, problems);
        }
        _ => {}
    }
}

fn check_claim(limit: &Value, claim: &Value, problems: &mut Problems) {
    if limit["type"].str() != "PersistentVolumeClaim" {
        return;
    }
    let asked = Asked {
        requests: amounts(&claim["spec"]["resources"]["requests"]),
        limits: Amounts::new(),
    };
    asked.each(limit, "min", below_minimum, problems);
    asked.each(limit, "max", request_above_maximum, problems);
}

/// What somebody asks for.
struct Asked {
    requests: Amounts,
    limits: Amounts,
}

impl Asked {
    fn check(&self, limit: &Value, problems: &mut Problems) {
        self.each(limit, "min", below_minimum, problems);
        self.each(limit, "max", above_maximum, problems);
        self.each(limit, "maxLimitRequestRatio", above_ratio, problems);
    }

    fn each(
        &self,
        limit: &Value,
        bound: &str,
        check: fn(&Bound) -> Option<String>,
        problems: &mut Problems,
    ) {
        for (resource, bound) in limit[bound].entries() {
            problems.0.extend(check(&Bound {
                what: limit["type"].str(),
                resource,
                bound: Quantity::of(bound.str()),
                request: self.requests.get(resource).copied(),
                limit: self.limits.get(resource).copied(),
            }));
        }
    }
}

/// One thing that is asked for, beside what a range says about it.
struct Bound<'a> {
    /// What the bound is for: a container, a pod, a claim.
    what: &'a str,
    resource: &'a str,
    bound: Quantity,
    request: Option<Quantity>,
    limit: Option<Quantity>,
}

fn below_minimum(bound: &Bound) -> Option<String> {
    let Bound {
        what,
        resource,
        bound,
        request,
        limit,
    } = *bound;
    let least = format!("minimum {resource} usage per {what} is {bound}");
    let Some(request) = request else {
        return Some(format!("{least}.  No request is specified"));
    };
    if request < bound {
        return Some(format!("{least}, but request is {request}"));
    }
    limit
        .filter(|limit| *limit < bound)
        .map(|limit| format!("{least}, but limit is {limit}"))
}

fn above_maximum(bound: &Bound) -> Option<String> {
    let Bound {
        what,
        resource,
        bound,
        request,
        limit,
    } = *bound;
    let most = format!("maximum {resource} usage per {what} is {bound}");
    let Some(limit) = limit else {
        return Some(format!("{most}.  No limit is specified"));
    };
    if limit > bound {
        return Some(format!("{most}, but limit is {limit}"));
    }
    request
        .filter(|request| *request > bound)
        .map(|request| format!("{most}, but request is {request}"))
}

/// For what has no limits of its own.
fn request_above_maximum(bound: &Bound) -> Option<String> {
    let Bound {
        what,
        resource,
        bound,
        request,
        ..
    } = *bound;
    let most = format!("maximum {resource} usage per {what} is {bound}");
    let Some(request) = request else {
        return Some(format!("{most}.  No request is specified"));
    };
    (request > bound).then(|| format!("{most}, but request is {request}"))
}

fn above_ratio(bound: &Bound) -> Option<String> {
    let Bound {
        what,
        resource,
        bound,
        request,
        limit,
    } = *bound;
    let most = format!("{resource} max limit to request ratio per {what} is {bound}");
    let Some(request) = request.filter(|request| !request.is_zero()) else {
        return Some(format!(
            "{most}, but no request is specified or request is 0"
        ));
    };
    let Some(limit) = limit.filter(|limit| !limit.is_zero()) else {
        return Some(format!("{most}, but no limit is specified or limit is 0"));
    };
    let ratio = limit.as_f64() / request.as_f64();
    (ratio > bound.as_f64()).then(|| format!("{most}, but provided ratio is {ratio:.6}"))
}

/// What a range refuses.
#[derive(Default)]
struct Problems(Vec<String>);

impl Problems {
    /// All of it; the same is said only once.
    fn into_sentence(self) -> Option<String> {
        let mut seen = HashSet::new();
        let distinct: Vec<&String> = self
            .0
            .iter()
            .filter(|problem| seen.insert(*problem))
            .collect();
        match distinct.as_slice() {
            [] => None,
            [one] => Some((*one).clone()),
            many => Some(format!(
                "[{}]",
                many.iter()
                    .map(|one| one.as_str())
                    .collect::<Vec<_>>()
                    .join(", ")
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_value::json;

    fn read(text: &str) -> Value {
        json::parse(text.as_bytes()).unwrap()
    }

    #[track_caller]
    fn check(limit: &str, spec: &str, expected: Option<&str>) {
        let mut problems = Problems::default();
        let mut pod = Value::object();
        pod.set("spec", read(spec));
        check_pod(&read(limit), &pod, &mut problems);
        assert_eq!(problems.into_sentence().as_deref(), expected);
    }

    #[test]
    fn containers_side_by_side_add_up_and_others_do_not() {
        let limit = r#"{"type":"Pod","max":{"cpu":"2"}}"#;
        let one = |cpu: &str| format!(r#"{{"resources":{{"limits":{{"cpu":"{cpu}"}}}}}}"#);
        let pod = |init: &str| {
            format!(
                r#"{{"containers":[{},{}],"initContainers":[{}]}}"#,
                one("1"),
                one("1"),
                one(init)
            )
        };
        check(limit, &pod("2"), None);
        check(
            limit,
            &pod("2500m"),
            Some("maximum cpu usage per Pod is 2, but limit is 2500m"),
        );
    }

    #[test]
    fn a_ratio_needs_both() {
        let limit = r#"{"type":"Container","maxLimitRequestRatio":{"cpu":"2"}}"#;
        let pod = |resources: &str| format!(r#"{{"containers":[{{"resources":{resources}}}]}}"#);
        let none = "cpu max limit to request ratio per Container is 2, but no request is specified or request is 0";
        check(limit, &pod("{}"), Some(none));
        check(
            limit,
            &pod(r#"{"requests":{"cpu":"1"},"limits":{"cpu":"2"}}"#),
            None,
        );
        let over =
            "cpu max limit to request ratio per Container is 2, but provided ratio is 2.500000";
        check(
            limit,
            &pod(r#"{"requests":{"cpu":"1"},"limits":{"cpu":"2500m"}}"#),
            Some(over),
        );
    }

    #[test]
    fn defaults_are_noted() {
        let range = read(
            r#"{"spec":{"limits":[{"type":"Container","default":{"cpu":"1"},"defaultRequest":{"cpu":"1","memory":"1Mi"}}]}}"#,
        );
        let mut pod =
            read(r#"{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"2"}}}]}}"#);
        fill(&range, &mut pod);
        assert_eq!(
            pod["metadata"]["annotations"][ANNOTATION].str(),
            "LimitRanger plugin set: memory request for container c; cpu limit for container c"
        );
        assert_eq!(
            json::to_string(
                pod.at("spec.containers").list()[0]
                    .get("resources")
                    .unwrap()
            ),
            r#"{"requests":{"cpu":"2","memory":"1Mi"},"limits":{"cpu":"1"}}"#
        );
    }
}
