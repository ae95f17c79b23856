//! The rules of a FlowSchema: which requests match, and how flows are distinguished.

use mizzen_object::User;
use mizzen_value::{Str, Value};

use mizzen_request::{Attributes, AttributesTarget, ResourceAttributes};

/// Matches everything, as the only item.
const ALL: &str = "*";

/// The spec of a FlowSchema.
#[derive(Debug)]
pub(super) struct FlowSchemaSpec {
    /// Schemas match in the order of this number, then of their names.
    pub precedence: i64,
    /// The priority level of matching requests.
    pub level: Str,
    pub distinguisher: Distinguisher,
    rules: Vec<PolicyRules>,
}

/// The distinguisher method.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Distinguisher {
    /// All requests are one flow.
    #[default]
    None,
    /// By user.
    User,
    /// By namespace.
    Namespace,
}

impl FlowSchemaSpec {
    pub(super) fn read(schema: &Value) -> FlowSchemaSpec {
        let spec = &schema["spec"];
        FlowSchemaSpec {
            precedence: spec["matchingPrecedence"].int(),
            level: spec.at("priorityLevelConfiguration.name").str().into(),
            distinguisher: match spec.at("distinguisherMethod.type").str() {
                "ByUser" => Distinguisher::User,
                "ByNamespace" => Distinguisher::Namespace,
                _ => Distinguisher::None,
            },
            rules: spec["rules"].list().iter().map(PolicyRules::read).collect(),
        }
    }

    /// Whether a request matches.
    pub(super) fn matches(&self, attributes: &Attributes) -> bool {
        self.rules.iter().any(|rule| rule.matches(attributes))
    }
}

impl Distinguisher {
    /// The flow distinguisher of a request.
    pub(super) fn value_for<'a>(self, attributes: &Attributes<'a>) -> &'a str {
        match (self, attributes.target) {
            (Distinguisher::User, _) => &attributes.user.name,
            (Distinguisher::Namespace, AttributesTarget::Resource(resource)) => resource.namespace,
            _ => "",
        }
    }
}

#[derive(Debug)]
struct PolicyRules {
    subjects: Vec<FlowSubject>,
    resources: Vec<ResourceRule>,
    non_resources: Vec<NonResourceRule>,
}

impl PolicyRules {
    fn read(rule: &Value) -> PolicyRules {
        PolicyRules {
            subjects: rule["subjects"]
                .list()
                .iter()
                .filter_map(FlowSubject::read)
                .collect(),
            resources: rule["resourceRules"]
                .list()
                .iter()
                .map(ResourceRule::read)
                .collect(),
            non_resources: rule["nonResourceRules"]
                .list()
                .iter()
                .map(NonResourceRule::read)
                .collect(),
        }
    }

    fn matches(&self, attributes: &Attributes) -> bool {
        self.subjects
            .iter()
            .any(|subject| subject.matches(attributes.user))
            && match &attributes.target {
                AttributesTarget::Resource(resource) => self
                    .resources
                    .iter()
                    .any(|rule| rule.matches(attributes.verb, resource)),
                AttributesTarget::NonResource(path) => self
                    .non_resources
                    .iter()
                    .any(|rule| rule.matches(attributes.verb, path)),
            }
    }
}

/// A subject of a rule.
#[derive(Debug)]
enum FlowSubject {
    Anyone,
    User(Str),
    Group(Str),
    /// All service accounts of a namespace, by their prefix.
    Prefix(Str),
}

impl FlowSubject {
    fn read(subject: &Value) -> Option<FlowSubject> {
        let (user, group) = (
            subject.at("user.name").str(),
            subject.at("group.name").str(),
        );
        let account = &subject["serviceAccount"];
        let (namespace, name) = (account["namespace"].str(), account["name"].str());
        Some(match subject["kind"].str() {
            "User" if user == ALL => FlowSubject::Anyone,
            "User" => FlowSubject::User(user.into()),
            "Group" if group == ALL => FlowSubject::Anyone,
            "Group" => FlowSubject::Group(group.into()),
            "ServiceAccount" if name == ALL => {
                FlowSubject::Prefix(format!("system:serviceaccount:{namespace}:").into())
            }
            "ServiceAccount" => {
                FlowSubject::User(format!("system:serviceaccount:{namespace}:{name}").into())
            }
            _ => return None,
        })
    }

    fn matches(&self, user: &User) -> bool {
        match self {
            FlowSubject::Anyone => true,
            FlowSubject::User(name) => *name == user.name,
            FlowSubject::Group(name) => user.groups.contains(name),
            FlowSubject::Prefix(prefix) => user.name.starts_with(prefix.as_str()),
        }
    }
}

/// Names, or `*`.
#[derive(Debug)]
enum NameSet {
    All,
    Some(Vec<Str>),
}

impl NameSet {
    fn read(names: &Value) -> NameSet {
        match names.list() {
            [all] if all.str() == ALL => NameSet::All,
            names => NameSet::Some(names.iter().map(|name| name.str().into()).collect()),
        }
    }

    fn has(&self, name: &str) -> bool {
        self.any(|known| known == name)
    }

    fn any(&self, is: impl Fn(&str) -> bool) -> bool {
        match self {
            NameSet::All => true,
            NameSet::Some(names) => names.iter().any(|known| is(known)),
        }
    }
}

#[derive(Debug)]
struct ResourceRule {
    verbs: NameSet,
    groups: NameSet,
    resources: NameSet,
    namespaces: NameSet,
    /// Whether requests without a namespace match.
    cluster: bool,
}

impl ResourceRule {
    fn read(rule: &Value) -> ResourceRule {
        ResourceRule {
            verbs: NameSet::read(&rule["verbs"]),
            groups: NameSet::read(&rule["apiGroups"]),
            resources: NameSet::read(&rule["resources"]),
            namespaces: NameSet::read(&rule["namespaces"]),
            cluster: rule["clusterScope"].bool(),
        }
    }

    fn matches(&self, verb: &str, target: &ResourceAttributes) -> bool {
        let is_resource = |name: &str| match name.strip_prefix(target.resource) {
            Some("") => target.subresource.is_empty(),
            Some(rest) => rest.strip_prefix('/').is_some_and(|subresource| {
                !subresource.is_empty() && subresource == target.subresource
            }),
            None => false,
        };
        self.verbs.has(verb)
            && self.resources.any(is_resource)
            && self.groups.has(target.group)
            && match target.namespace {
                "" => self.cluster,
                namespace => self.namespaces.has(namespace),
            }
    }
}

#[derive(Debug)]
struct NonResourceRule {
    verbs: NameSet,
    paths: Vec<Str>,
}

impl NonResourceRule {
    fn read(rule: &Value) -> NonResourceRule {
        let paths = rule["nonResourceURLs"]
            .list()
            .iter()
            .map(|path| path.str().into())
            .collect();
        NonResourceRule {
            verbs: NameSet::read(&rule["verbs"]),
            paths,
        }
    }

    fn matches(&self, verb: &str, path: &str) -> bool {
        self.verbs.has(verb) && self.paths.iter().any(|known| matches_path(known, path))
    }
}

/// Kubernetes: a path matches everything below it, whether or not it ends in `*`
/// (flowcontrol/rule.go).
fn matches_path(known: &str, path: &str) -> bool {
    let prefix = known.strip_suffix('*').unwrap_or(known);
    let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
    known == ALL
        || known == path
        || path
            .strip_prefix(prefix)
            .is_some_and(|below| below.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use mizzen_value::{json, value};

    use super::*;

    fn rules(rule: &str) -> FlowSchemaSpec {
        let rule = json::parse(rule.as_bytes()).unwrap();
        FlowSchemaSpec::read(&value!({ "spec": { "rules": [(rule)] } }))
    }

    #[track_caller]
    fn check_subject(subject: &str, user: &User, expected: bool) {
        let rules = rules(&format!(
            r#"{{"subjects":[{subject}],"nonResourceRules":[{{"verbs":["*"],"nonResourceURLs":["*"]}}]}}"#
        ));
        let attributes = Attributes {
            user,
            verb: "get",
            target: AttributesTarget::NonResource("/"),
        };
        assert_eq!(
            rules.matches(&attributes),
            expected,
            "{subject} {}",
            user.name
        );
    }

    #[test]
    fn a_subject_is_a_user_a_group_or_a_service_account() {
        let (ann, robot) = (User::component("ann"), User::service_account("ci", "robot"));
        check_subject(r#"{"kind":"User","user":{"name":"ann"}}"#, &ann, true);
        check_subject(r#"{"kind":"User","user":{"name":"ann"}}"#, &robot, false);
        check_subject(r#"{"kind":"User","user":{"name":"*"}}"#, &robot, true);
        check_subject(
            r#"{"kind":"Group","group":{"name":"system:serviceaccounts:ci"}}"#,
            &robot,
            true,
        );
        check_subject(
            r#"{"kind":"Group","group":{"name":"system:serviceaccounts:ci"}}"#,
            &ann,
            false,
        );
        check_subject(r#"{"kind":"Group","group":{"name":"*"}}"#, &ann, true);
        let account = |namespace: &str, name: &str| {
            format!(
                r#"{{"kind":"ServiceAccount","serviceAccount":{{"namespace":"{namespace}","name":"{name}"}}}}"#
            )
        };
        check_subject(&account("ci", "robot"), &robot, true);
        check_subject(&account("ci", "*"), &robot, true);
        check_subject(&account("c", "*"), &robot, false);
        check_subject(&account("ci", "other"), &robot, false);
        check_subject(r#"{"kind":"Planet"}"#, &ann, false);
    }

    #[track_caller]
    fn check_resource(rule: &str, verb: &str, resource: ResourceAttributes, expected: bool) {
        let rules = rules(&format!(
            r#"{{"subjects":[{{"kind":"User","user":{{"name":"*"}}}}],"resourceRules":[{rule}]}}"#
        ));
        let (user, target) = (User::component("ann"), AttributesTarget::Resource(resource));
        assert_eq!(
            rules.matches(&Attributes {
                user: &user,
                verb,
                target
            }),
            expected,
            "{rule} {resource:?}"
        );
    }

    #[test]
    fn a_resource_rule_names_verbs_groups_resources_and_namespaces() {
        let leases = r#"{"verbs":["get","update"],"apiGroups":["coordination.k8s.io"],"resources":["leases"],
            "namespaces":["kube-system"]}"#;
        let lease = ResourceAttributes {
            group: "coordination.k8s.io",
            resource: "leases",
            namespace: "kube-system",
            ..ResourceAttributes::default()
        };
        check_resource(leases, "update", lease, true);
        check_resource(leases, "list", lease, false);
        check_resource(
            leases,
            "update",
            ResourceAttributes {
                group: "apps",
                ..lease
            },
            false,
        );
        check_resource(
            leases,
            "update",
            ResourceAttributes {
                namespace: "default",
                ..lease
            },
            false,
        );
        check_resource(
            leases,
            "update",
            ResourceAttributes {
                namespace: "",
                ..lease
            },
            false,
        );
        check_resource(
            leases,
            "update",
            ResourceAttributes {
                subresource: "status",
                ..lease
            },
            false,
        );
    }

    #[test]
    fn a_subresource_is_named_with_its_resource() {
        let rule = r#"{"verbs":["*"],"apiGroups":["*"],"resources":["nodes","nodes/status"],"clusterScope":true}"#;
        let node = ResourceAttributes {
            resource: "nodes",
            ..ResourceAttributes::default()
        };
        check_resource(rule, "get", node, true);
        check_resource(
            rule,
            "get",
            ResourceAttributes {
                subresource: "status",
                ..node
            },
            true,
        );
        check_resource(
            rule,
            "get",
            ResourceAttributes {
                subresource: "proxy",
                ..node
            },
            false,
        );
        check_resource(
            rule,
            "get",
            ResourceAttributes {
                resource: "node",
                subresource: "s/status",
                ..node
            },
            false,
        );
        check_resource(
            rule,
            "get",
            ResourceAttributes {
                namespace: "a",
                ..node
            },
            false,
        );
    }

    #[test]
    fn a_path_rule_matches_subpaths() {
        let check = |known: &str, path: &str, expected: bool| {
            assert_eq!(matches_path(known, path), expected, "{known} {path}")
        };
        check("*", "/version", true);
        check("/healthz", "/healthz", true);
        check("/healthz", "/healthz/etcd", true);
        check("/healthz/*", "/healthz/etcd", true);
        check("/healthz", "/healthzz", false);
        check("/livez", "/healthz", false);
    }
}
