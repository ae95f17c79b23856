//! LimitRanger: default requests and limits of containers, and bounds for pods and claims.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use mizzen_object::Status;
use mizzen_object::schema::CanonicalObject;
use mizzen_outgoing::LruCache;
use mizzen_registry::{BoxFuture, Revision};
use mizzen_value::Value;
use mizzen_value::quantity::Quantity;

use super::Attributes;
use crate::ControlPlane;
use mizzen_component_helpers::amounts::{Amounts, amounts};
use mizzen_component_helpers::pod_resources::{PodResourcesOptions, pod_limits, pod_requests};

const ANNOTATION: &str = "kubernetes.io/limit-ranger";

/// Kubernetes: how many namespaces have a live lookup that counts, and for how long (limitranger/admission.go).
const MAX_LOOKUPS: usize = 10_000;
const LOOKUP_TTL: Duration = Duration::from_secs(30);

/// The limit ranges of namespaces that have none in the cache, as the store had them.
pub(crate) struct LimitRangeLookups(LruCache<LimitRangeLookup>);

#[derive(Clone)]
struct LimitRangeLookup {
    ranges: Vec<Value>,
    at: Revision,
}

impl Default for LimitRangeLookups {
    fn default() -> LimitRangeLookups {
        LimitRangeLookups(LruCache::new(MAX_LOOKUPS))
    }
}

/// Whether limit ranges are for this object.
pub(super) fn concerns(attributes: &Attributes) -> bool {
    match attributes.subresource() {
        "" => attributes.is("", "pods") || attributes.is("", "persistentvolumeclaims"),
        "resize" => attributes.is("", "pods"),
        _ => false,
    }
}

/// Sets the default requests and limits of a new pod.
pub(super) fn admit<'a>(
    attributes: &'a Attributes<'a>,
    object: &'a mut CanonicalObject,
) -> BoxFuture<'a, Result<(), Status>> {
    Box::pin(async move {
        look_up(attributes).await?;
        if attributes.is_main("", "pods") && attributes.is_create() {
            for range in ranges(attributes)? {
                apply_defaults(&range, object);
            }
        }
        Ok(())
    })
}

/// Checks a pod or claim against the limit ranges.
pub(super) fn check(attributes: &Attributes, object: &Value) -> Result<(), Status> {
    let is_staying = |old: &Value| old["metadata"]["deletionTimestamp"].is_null();
    let is_pod = attributes.is("", "pods");
    let applies = match (attributes.subresource(), attributes.old) {
        ("", None) if is_pod => true,
        ("resize", Some(old)) if is_pod => is_staying(old),
        _ => {
            attributes.is_main("", "persistentvolumeclaims")
                && attributes.old.is_none_or(is_staying)
        }
    };
    if !applies {
        return Ok(());
    }
    for range in ranges(attributes)? {
        let mut problems = Problems::default();
        for limit in range["spec"]["limits"].list() {
            check_limit(limit, object, is_pod, &mut problems);
        }
        if let Some(why) = problems.into_sentence() {
            return Err(attributes.forbidden(object, &why));
        }
    }
    Ok(())
}

/// Reads the limit ranges of a namespace that has none in the cache: another server may have just created one.
async fn look_up(attributes: &Attributes<'_>) -> Result<(), Status> {
    let server = attributes.call.server;
    let lookups = &ControlPlane::of(server).limit_range_lookups.0;
    let namespace = attributes.namespace();
    if !server.registry.store().is_shared()
        || !cached(attributes)?.is_empty()
        || lookups.get(namespace).is_some()
    {
        return Ok(());
    }
    let (ranges, at) = attributes.look_up_all("", "limitranges", namespace).await?;
    let found = LimitRangeLookup { ranges, at };
    lookups.put(namespace.into(), found, LOOKUP_TTL);
    Ok(())
}

/// Those of the cache, or of a live lookup that the cache has not caught up with.
fn ranges(attributes: &Attributes) -> Result<Vec<Value>, Status> {
    let server = attributes.call.server;
    let reached = server
        .catalog
        .get("", "v1", "limitranges")
        .map(|resource| resource.space().revision());
    let cached = cached(attributes)?;
    if !cached.is_empty() {
        return Ok(cached);
    }
    let lookups = &ControlPlane::of(server).limit_range_lookups.0;
    let found = lookups.get(attributes.namespace());
    let found = found.filter(|found| reached.is_none_or(|reached| reached < found.at));
    Ok(found.map(|found| found.ranges).unwrap_or_default())
}

fn cached(attributes: &Attributes) -> Result<Vec<Value>, Status> {
    attributes.all("", "limitranges", attributes.namespace())
}

fn apply_defaults(range: &Value, pod: &mut Value) {
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
        // Of several defaults the last one counts.
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

/// Checks a limit of a range for a pod or a claim.
fn check_limit(limit: &Value, object: &Value, is_pod: bool, problems: &mut Problems) {
    let spec = &object["spec"];
    match limit["type"].str() {
        "Container" if is_pod => {
            for container in spec["containers"]
                .list()
                .iter()
                .chain(spec["initContainers"].list())
            {
                let resources = &container["resources"];
                let amounts_of = ResourceAmounts {
                    requests: amounts(&resources["requests"]),
                    limits: amounts(&resources["limits"]),
                };
                amounts_of.check(limit, problems);
            }
        }
        "Pod" if is_pod => {
            let options = PodResourcesOptions {
                exclude_overhead: true,
                ..PodResourcesOptions::default()
            };
            let amounts_of = ResourceAmounts {
                requests: pod_requests(object, &options),
                limits: pod_limits(object, &options),
            };
            amounts_of.check(limit, problems);
        }
        "PersistentVolumeClaim" if !is_pod => {
            let amounts_of = ResourceAmounts {
                requests: amounts(&spec["resources"]["requests"]),
                limits: Amounts::new(),
            };
            amounts_of.each(limit, "min", |bound| bound.below_minimum(), problems);
            amounts_of.each(
                limit,
                "max",
                |bound| bound.request_above_maximum(),
                problems,
            );
        }
        _ => {}
    }
}

/// Requests and limits.
struct ResourceAmounts {
    requests: Amounts,
    limits: Amounts,
}

impl ResourceAmounts {
    fn check(&self, limit: &Value, problems: &mut Problems) {
        self.each(limit, "min", |bound| bound.below_minimum(), problems);
        self.each(limit, "max", |bound| bound.above_maximum(), problems);
        self.each(
            limit,
            "maxLimitRequestRatio",
            |bound| bound.above_ratio(),
            problems,
        );
    }

    fn each(
        &self,
        limit: &Value,
        bound: &str,
        check: fn(&RangeBound) -> Option<String>,
        problems: &mut Problems,
    ) {
        for (resource, bound) in limit[bound].entries() {
            problems.0.extend(check(&RangeBound {
                what: limit["type"].str(),
                resource,
                bound: Quantity::parse_or_zero(bound.str()),
                request: self.requests.get(resource).copied(),
                limit: self.limits.get(resource).copied(),
            }));
        }
    }
}

/// One resource with its request, limit and bound.
struct RangeBound<'a> {
    /// What the bound applies to: a container, a pod, a claim.
    what: &'a str,
    resource: &'a str,
    bound: Quantity,
    request: Option<Quantity>,
    limit: Option<Quantity>,
}

impl RangeBound<'_> {
    fn below_minimum(&self) -> Option<String> {
        let RangeBound {
            what,
            resource,
            bound,
            request,
            limit,
        } = *self;
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

    fn above_maximum(&self) -> Option<String> {
        let RangeBound {
            what,
            resource,
            bound,
            request,
            limit,
        } = *self;
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

    /// The maximum of a claim, which has no limits.
    fn request_above_maximum(&self) -> Option<String> {
        let RangeBound {
            what,
            resource,
            bound,
            request,
            ..
        } = *self;
        let most = format!("maximum {resource} usage per {what} is {bound}");
        let Some(request) = request else {
            return Some(format!("{most}.  No request is specified"));
        };
        (request > bound).then(|| format!("{most}, but request is {request}"))
    }

    fn above_ratio(&self) -> Option<String> {
        let RangeBound {
            what,
            resource,
            bound,
            request,
            limit,
        } = *self;
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
}

/// The violations of a limit range.
#[derive(Default)]
struct Problems(Vec<String>);

impl Problems {
    /// All of them in one message, without duplicates.
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
        check_limit(&read(limit), &pod, true, &mut problems);
        assert_eq!(problems.into_sentence().as_deref(), expected);
    }

    #[test]
    fn only_regular_containers_add_up() {
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
    fn defaults_are_listed_in_an_annotation() {
        let range = read(
            r#"{"spec":{"limits":[{"type":"Container","default":{"cpu":"1"},"defaultRequest":{"cpu":"1","memory":"1Mi"}}]}}"#,
        );
        let mut pod =
            read(r#"{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"2"}}}]}}"#);
        apply_defaults(&range, &mut pod);
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
