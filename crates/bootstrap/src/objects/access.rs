//! The bootstrap roles and bindings, from `data/access.roles`; those of simulated nodes, from `data/nodes.roles`; of the
//! provisioner of directories, from `data/volumes.roles`; of the metrics API, from `data/metrics.roles`; and of the storage
//! version migrator, from `data/migration.roles`.

use mizzen_value::{Value, value};

use super::BootstrapObject;

const ROLES: &str = include_str!("../../data/access.roles");
const NODE_ROLES: &str = include_str!("../../data/nodes.roles");
const VOLUMES_ROLES: &str = include_str!("../../data/volumes.roles");
const METRICS_ROLES: &str = include_str!("../../data/metrics.roles");
const MIGRATION_ROLES: &str = include_str!("../../data/migration.roles");
const GROUP: &str = "rbac.authorization.k8s.io";
/// The prefix of labels by which a role is aggregated to another.
const AGGREGATE_TO: &str = "rbac.authorization.k8s.io/aggregate-to-";

/// The roles and bindings of every cluster.
pub(super) fn roles() -> Vec<BootstrapObject> {
    parse(ROLES)
}

/// Those of simulated nodes.
pub(super) fn node_roles() -> Vec<BootstrapObject> {
    parse(NODE_ROLES)
}

/// Those of the provisioner of directories.
pub(super) fn volumes_roles() -> Vec<BootstrapObject> {
    parse(VOLUMES_ROLES)
}

/// Those of the metrics API.
pub(super) fn metrics_roles() -> Vec<BootstrapObject> {
    parse(METRICS_ROLES)
}

/// Those of the storage version migrator.
pub(super) fn migration_roles() -> Vec<BootstrapObject> {
    parse(MIGRATION_ROLES)
}

fn parse(data: &'static str) -> Vec<BootstrapObject> {
    let mut blocks: Vec<RoleBlock> = Vec::new();
    for line in data
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        match (line.strip_prefix("  "), blocks.last_mut()) {
            (Some(line), Some(block)) => block.lines.push(words(line)),
            _ => blocks.push(RoleBlock {
                head: words(line),
                lines: Vec::new(),
            }),
        }
    }
    blocks.iter().map(|block| block.object(&blocks)).collect()
}

fn words(line: &'static str) -> Vec<&'static str> {
    line.split(' ').collect()
}

/// A role or binding: its first line and the lines below it.
struct RoleBlock {
    head: Vec<&'static str>,
    lines: Vec<Vec<&'static str>>,
}

impl RoleBlock {
    fn object(&self, all: &[RoleBlock]) -> BootstrapObject {
        let (namespace, name) = self.head[1].split_once('/').unwrap_or(("", self.head[1]));
        let scope = if namespace.is_empty() { "Cluster" } else { "" };
        let (kind, mut object) = match self.head[0] {
            "role" => (format!("{scope}Role"), self.role(all)),
            _ => (format!("{scope}RoleBinding"), self.binding()),
        };
        let plural = format!("{}s", kind.to_lowercase());
        let api_version = format!("{GROUP}/v1");
        object.set("apiVersion", &*api_version);
        object.set("kind", &*kind);
        object.set("metadata", self.metadata(namespace, name));
        let scope = if namespace.is_empty() {
            String::new()
        } else {
            format!("namespaces/{namespace}/")
        };
        BootstrapObject {
            path: format!("/apis/{api_version}/{scope}{plural}"),
            object,
        }
    }

    fn metadata(&self, namespace: &str, name: &str) -> Value {
        let mut metadata = value!({
            "name": name,
            "labels": { "kubernetes.io/bootstrapping": "rbac-defaults" },
            "annotations": { "rbac.authorization.kubernetes.io/autoupdate": "true" }
        });
        if !namespace.is_empty() {
            metadata.set("namespace", namespace);
        }
        for part in self.options("joins=") {
            metadata
                .entry("labels")
                .set(&format!("{AGGREGATE_TO}{part}"), "true");
        }
        metadata
    }

    fn option(&self, name: &str) -> Option<&'static str> {
        self.options(name).next()
    }

    fn options(&self, name: &str) -> impl Iterator<Item = &'static str> {
        self.head
            .iter()
            .filter_map(move |word| word.strip_prefix(name))
    }

    fn role(&self, all: &[RoleBlock]) -> Value {
        let mut role = Value::object();
        if let Some(part) = self.option("gathers=") {
            let mut labels = Value::object();
            labels.set(&format!("{AGGREGATE_TO}{part}"), "true");
            let selectors = vec![value!({ "matchLabels": labels })];
            role.entry("aggregationRule")
                .set("clusterRoleSelectors", selectors);
        }
        role.set("rules", self.rules(all));
        role
    }

    /// Its own rules, or those of the roles that it aggregates.
    fn rules(&self, all: &[RoleBlock]) -> Vec<Value> {
        let Some(part) = self.option("gathers=") else {
            return self.lines.iter().map(|line| rule(line)).collect();
        };
        let mut gathered: Vec<Value> = Vec::new();
        for block in all
            .iter()
            .filter(|block| block.options("joins=").any(|joined| joined == part))
        {
            for rule in block.rules(all) {
                if !gathered.contains(&rule) {
                    gathered.push(rule);
                }
            }
        }
        gathered
    }

    /// `binding NAME of cluster ROLE`
    fn binding(&self) -> Value {
        let kind = if self.head[3] == "cluster" {
            "ClusterRole"
        } else {
            "Role"
        };
        let mut binding =
            value!({ "roleRef": { "apiGroup": GROUP, "kind": kind, "name": (self.head[4]) } });
        let subjects = self.lines.iter().map(|line| match &line[..] {
            ["account", account] => {
                let (namespace, name) = account.split_once('/').unwrap_or(("", account));
                value!({ "kind": "ServiceAccount", "name": name, "namespace": namespace })
            }
            [kind, name] => {
                let kind = if *kind == "user" { "User" } else { "Group" };
                value!({ "apiGroup": GROUP, "kind": kind, "name": (*name) })
            }
            other => panic!("the data has a subject of {} words", other.len()),
        });
        binding.set("subjects", subjects.collect::<Vec<_>>());
        binding
    }
}

/// `VERBS on RESOURCES in GROUPS named NAMES` or `VERBS at PAGES`
fn rule(line: &[&str]) -> Value {
    let mut rule = Value::object();
    let mut field = "verbs";
    for word in line {
        field = match *word {
            "on" => "resources",
            "in" => "apiGroups",
            "named" => "resourceNames",
            "at" => "nonResourceURLs",
            text => {
                let text = if text == "core" && field == "apiGroups" {
                    ""
                } else {
                    text
                };
                rule.entry(field).make_list().push(text.into());
                field
            }
        };
    }
    rule
}

#[cfg(test)]
mod tests {
    use mizzen_value::json;

    use super::*;

    fn find(path: &str, name: &str) -> Value {
        let found = roles().into_iter().find(|wanted| {
            wanted.path.ends_with(path) && wanted.object.at("metadata.name").str() == name
        });
        found.expect("it is there").object
    }

    #[test]
    fn every_line_of_the_data_is_valid() {
        let objects = roles();
        assert_eq!(objects.len(), 69 + 7 + 50 + 7);
        for BootstrapObject { path, object } in &objects {
            let rules = object["rules"].list();
            let sound = |rule: &Value| {
                !rule["verbs"].list().is_empty()
                    && rule["resources"].list().is_empty() == rule["apiGroups"].list().is_empty()
                    && rule["resources"].list().is_empty()
                        != rule["nonResourceURLs"].list().is_empty()
            };
            assert!(
                rules.iter().all(sound),
                "{path} {}",
                object.at("metadata.name").str()
            );
            assert!(path.ends_with("bindings") != object["roleRef"].is_null());
        }
    }

    #[test]
    fn nodes_see_pods_together_and_change_nothing_but_their_lease() {
        let objects = node_roles();
        let rules: Vec<String> = objects
            .iter()
            .flat_map(|wanted| wanted.object["rules"].list())
            .map(json::to_string)
            .collect();
        assert_eq!(
            rules,
            [
                r#"{"verbs":["list","watch"],"resources":["nodes","pods","services"],"apiGroups":[""]}"#,
                r#"{"verbs":["create"],"resources":["leases"],"apiGroups":["coordination.k8s.io"]}"#,
                r#"{"verbs":["get","update"],"resources":["leases"],"apiGroups":["coordination.k8s.io"],"resourceNames":["cri-nodes.mizzen.dev","node-nodes.mizzen.dev"]}"#,
                r#"{"verbs":["create","patch"],"resources":["events"],"apiGroups":[""]}"#,
            ]
        );
        let bindings: Vec<&Value> = objects
            .iter()
            .map(|wanted| &wanted.object)
            .filter(|object| !object["roleRef"].is_null())
            .collect();
        assert_eq!(bindings.len(), 2);
        let is_agents =
            |binding: &&Value| binding.at("subjects")[0]["name"].str() == "system:node-agent";
        assert!(bindings.iter().all(is_agents));
    }

    #[test]
    fn the_provisioner_of_directories_changes_volumes_and_the_status_of_claims() {
        let role = &volumes_roles()[0].object;
        let writes = role["rules"].list().iter().filter(|rule| {
            let mut verbs = rule["verbs"].list().iter();
            verbs.any(|verb| !matches!(verb.str(), "get" | "list" | "watch"))
        });
        let resources: Vec<&str> = writes.map(|rule| rule["resources"][0].str()).collect();
        let expected = [
            "persistentvolumes",
            "persistentvolumeclaims/status",
            "events",
        ];
        assert_eq!(resources, expected);
    }

    #[test]
    fn a_role_aggregates_the_rules_of_labelled_roles() {
        let count = |name: &str| find("clusterroles", name)["rules"].list().len();
        assert_eq!([count("view"), count("edit"), count("admin")], [12, 27, 29]);
        let names: Vec<_> = find("/clusterroles", "edit")["metadata"]["labels"]
            .entries()
            .map(|entry| entry.0.to_owned())
            .collect();
        assert_eq!(
            names,
            [
                "kubernetes.io/bootstrapping",
                "rbac.authorization.k8s.io/aggregate-to-admin"
            ]
        );
    }

    #[test]
    fn a_binding_names_its_role_and_its_subjects() {
        let binding = find(
            "namespaces/kube-system/rolebindings",
            "system::leader-locking-kube-scheduler",
        );
        assert_eq!(binding["roleRef"]["kind"].str(), "Role");
        let kinds: Vec<_> = binding["subjects"]
            .list()
            .iter()
            .map(|subject| subject["kind"].str())
            .collect();
        assert_eq!(kinds, ["User", "ServiceAccount"]);
    }
}
