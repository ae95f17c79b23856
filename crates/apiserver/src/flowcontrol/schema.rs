//! Which requests does a flow schema mean?

use mizzen_object::User;
use mizzen_value::{Str, Value};

use crate::authorization::{Attributes, Resource, Target};

/// Matches everything, where it stands alone.
const ALL: &str = "*";

/// A flow schema, as far as it says which requests it means and of which flow they are.
#[derive(Debug)]
pub(super) struct Rules {
    /// Schemas are asked in the order of this number, and then of their names.
    pub precedence: i64,
    /// The priority level that its requests are of.
    pub level: Str,
    pub distinguisher: Distinguisher,
    rules: Vec<Rule>,
}

/// What tells the flows of a schema apart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Distinguisher {
    /// Nothing: they are one.
    #[default]
    None,
    /// Who asks.
    User,
    /// In which namespace.
    Namespace,
}

impl Rules {
    /// Reads a FlowSchema.
    pub(super) fn read(schema: &Value) -> Rules {
        let spec = &schema["spec"];
        Rules {
            precedence: spec["matchingPrecedence"].int(),
            level: spec.at("priorityLevelConfiguration.name").str().into(),
            distinguisher: match spec.at("distinguisherMethod.type").str() {
                "ByUser" => Distinguisher::User,
                "ByNamespace" => Distinguisher::Namespace,
                _ => Distinguisher::None,
            },
            rules: spec["rules"].list().iter().map(Rule::read).collect(),
        }
    }

    /// Whether a request is one of those that are meant.
    pub(super) fn match_request(&self, asked: &Attributes) -> bool {
        self.rules.iter().any(|rule| rule.matches(asked))
    }
}

impl Distinguisher {
    /// What tells the flow of a request from others.
    pub(super) fn of<'a>(self, asked: &Attributes<'a>) -> &'a str {
        match (self, asked.target) {
            (Distinguisher::User, _) => &asked.user.name,
            (Distinguisher::Namespace, Target::Resource(resource)) => resource.namespace,
            _ => "",
        }
    }
}

#[derive(Debug)]
struct Rule {
    subjects: Vec<Subject>,
    resources: Vec<ResourceRule>,
    pages: Vec<PageRule>,
}

impl Rule {
    fn read(rule: &Value) -> Rule {
        Rule {
            subjects: rule["subjects"]
                .list()
                .iter()
                .filter_map(Subject::read)
                .collect(),
            resources: rule["resourceRules"]
                .list()
                .iter()
                .map(ResourceRule::read)
                .collect(),
            pages: rule["nonResourceRules"]
                .list()
                .iter()
                .map(PageRule::read)
                .collect(),
        }
    }

    fn matches(&self, asked: &Attributes) -> bool {
        self.subjects.iter().any(|subject| subject.is(asked.user))
            && match &asked.target {
                Target::Resource(resource) => self
                    .resources
                    .iter()
                    .any(|rule| rule.matches(asked.verb, resource)),
                Target::Page(path) => self.pages.iter().any(|rule| rule.matches(asked.verb, path)),
            }
    }
}

/// Somebody whose requests are meant.
#[derive(Debug)]
enum Subject {
    Anyone,
    User(Str),
    Group(Str),
    /// Everybody whose name begins so: the service accounts of a namespace.
    Prefix(Str),
}

impl Subject {
    fn read(subject: &Value) -> Option<Subject> {
        let (user, group) = (
            subject.at("user.name").str(),
            subject.at("group.name").str(),
        );
        let account = &subject["serviceAccount"];
        let (namespace, name) = (account["namespace"].str(), account["name"].str());
        Some(match subject["kind"].str() {
            "User" if user == ALL => Subject::Anyone,
            "User" => Subject::User(user.into()),
            "Group" if group == ALL => Subject::Anyone,
            "Group" => Subject::Group(group.into()),
            "ServiceAccount" if name == ALL => {
                Subject::Prefix(format!("system:serviceaccount:{namespace}:").into())
            }
            "ServiceAccount" => {
                Subject::User(format!("system:serviceaccount:{namespace}:{name}").into())
            }
            _ => return None,
        })
    }

    fn is(&self, user: &User) -> bool {
        match self {
            Subject::Anyone => true,
            Subject::User(name) => *name == user.name,
            Subject::Group(name) => user.groups.contains(name),
            Subject::Prefix(prefix) => user.name.starts_with(prefix.as_str()),
        }
    }
}

/// Names, or all there are.
#[derive(Debug)]
enum Names {
    All,
    Some(Vec<Str>),
}

impl Names {
    fn read(names: &Value) -> Names {
        match names.list() {
            [all] if all.str() == ALL => Names::All,
            names => Names::Some(names.iter().map(|name| name.str().into()).collect()),
        }
    }

    fn has(&self, name: &str) -> bool {
        self.any(|known| known == name)
    }

    fn any(&self, is: impl Fn(&str) -> bool) -> bool {
        match self {
            Names::All => true,
            Names::Some(names) => names.iter().any(|known| is(known)),
        }
    }
}

#[derive(Debug)]
struct ResourceRule {
    verbs: Names,
    groups: Names,
    resources: Names,
    namespaces: Names,
    /// Whether requests are meant that are about no namespace.
    cluster: bool,
}

impl ResourceRule {
    fn read(rule: &Value) -> ResourceRule {
        ResourceRule {
            verbs: Names::read(&rule["verbs"]),
            groups: Names::read(&rule["apiGroups"]),
            resources: Names::read(&rule["resources"]),
            namespaces: Names::read(&rule["namespaces"]),
            cluster: rule["clusterScope"].bool(),
        }
    }

    fn matches(&self, verb: &str, asked: &Resource) -> bool {
        self.verbs.has(verb)
            && self
                .resources
                .any(|known| is_resource(known, asked.resource, asked.subresource))
            && self.groups.has(asked.group)
            && match asked.namespace {
                "" => self.cluster,
                namespace => self.namespaces.has(namespace),
            }
    }
}

/// Whether a name is `resource/subresource`.
fn is_resource(name: &str, resource: &str, subresource: &str) -> bool {
    match name.strip_prefix(resource) {
        Some("") => subresource.is_empty(),
        Some(rest) => !subresource.is_empty() && rest.strip_prefix('/') == Some(subresource),
        None => false,
    }
}

#[derive(Debug)]
struct PageRule {
    verbs: Names,
    paths: Vec<Str>,
}

impl PageRule {
    fn read(rule: &Value) -> PageRule {
        let paths = rule["nonResourceURLs"]
            .list()
            .iter()
            .map(|path| path.str().into())
            .collect();
        PageRule {
            verbs: Names::read(&rule["verbs"]),
            paths,
        }
    }

    fn matches(&self, verb: &str, path: &str) -> bool {
        self.verbs.has(verb) && self.paths.iter().any(|known| is_path(known, path))
    }
}

/// Kubernetes: a path means everything below it as well, whether or not it ends in a star (flowcontrol/rule.go).
fn is_path(known: &str, path: &str) -> bool {
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

    fn rules(rule: &str) -> Rules {
        let rule = json::parse(rule.as_bytes()).unwrap();
        Rules::read(&value!({ "spec": { "rules": [(rule)] } }))
    }

    #[track_caller]
    fn check_subject(subject: &str, user: &User, expected: bool) {
        let rules = rules(&format!(
            r#"{{"subjects":[{subject}],"nonResourceRules":[{{"verbs":["*"],"nonResourceURLs":["*"]}}]}}"#
        ));
        let asked = Attributes {
            user,
            verb: "get",
            target: Target::Page("/"),
        };
        assert_eq!(
            rules.match_request(&asked),
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
    fn check_resource(rule: &str, verb: &str, resource: Resource, expected: bool) {
        let rules = rules(&format!(
            r#"{{"subjects":[{{"kind":"User","user":{{"name":"*"}}}}],"resourceRules":[{rule}]}}"#
        ));
        let (user, target) = (User::component("ann"), Target::Resource(resource));
        assert_eq!(
            rules.match_request(&Attributes {
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
        let lease = Resource {
            group: "coordination.k8s.io",
            resource: "leases",
            namespace: "kube-system",
            ..Resource::default()
        };
        check_resource(leases, "update", lease, true);
        check_resource(leases, "list", lease, false);
        check_resource(
            leases,
            "update",
            Resource {
                group: "apps",
                ..lease
            },
            false,
        );
        check_resource(
            leases,
            "update",
            Resource {
                namespace: "default",
                ..lease
            },
            false,
        );
        check_resource(
            leases,
            "update",
            Resource {
                namespace: "",
                ..lease
            },
            false,
        );
        check_resource(
            leases,
            "update",
            Resource {
                subresource: "status",
                ..lease
            },
            false,
        );
    }

    #[test]
    fn a_subresource_is_named_with_its_resource() {
        let rule = r#"{"verbs":["*"],"apiGroups":["*"],"resources":["nodes","nodes/status"],"clusterScope":true}"#;
        let node = Resource {
            resource: "nodes",
            ..Resource::default()
        };
        check_resource(rule, "get", node, true);
        check_resource(
            rule,
            "get",
            Resource {
                subresource: "status",
                ..node
            },
            true,
        );
        check_resource(
            rule,
            "get",
            Resource {
                subresource: "proxy",
                ..node
            },
            false,
        );
        check_resource(
            rule,
            "get",
            Resource {
                resource: "node",
                subresource: "s/status",
                ..node
            },
            false,
        );
        check_resource(
            rule,
            "get",
            Resource {
                namespace: "a",
                ..node
            },
            false,
        );
    }

    #[test]
    fn a_path_means_what_is_below_it() {
        let check = |known: &str, path: &str, expected: bool| {
            assert_eq!(is_path(known, path), expected, "{known} {path}")
        };
        check("*", "/version", true);
        check("/healthz", "/healthz", true);
        check("/healthz", "/healthz/etcd", true);
        check("/healthz/*", "/healthz/etcd", true);
        check("/healthz", "/healthzz", false);
        check("/livez", "/healthz", false);
    }
}
