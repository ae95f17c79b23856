//! The roles and bindings that every cluster has, read from `data/access.roles`, those of one with nodes of its own, from
//! `data/nodes.roles`, those of the metrics API, from `data/metrics.roles`, and those of the loop that migrates, from
//! `data/migration.roles`.

use mizzen_value::{Value, value};

use super::Wanted;

const DATA: &str = include_str!("../../data/access.roles");
const OF_NODES: &str = include_str!("../../data/nodes.roles");
const OF_METRICS: &str = include_str!("../../data/metrics.roles");
const OF_MIGRATION: &str = include_str!("../../data/migration.roles");
const GROUP: &str = "rbac.authorization.k8s.io";
/// What labels begin with by which a role joins what others gather.
const JOINS: &str = "rbac.authorization.k8s.io/aggregate-to-";

/// All roles and bindings that every cluster has.
pub(super) fn objects() -> Vec<Wanted> {
    read(DATA)
}

/// Those that nodes need that run beside the server.
pub(super) fn objects_of_nodes() -> Vec<Wanted> {
    read(OF_NODES)
}

/// Those of the metrics API.
pub(super) fn objects_of_metrics() -> Vec<Wanted> {
    read(OF_METRICS)
}

/// Those of the loop that stores objects again.
pub(super) fn objects_of_migration() -> Vec<Wanted> {
    read(OF_MIGRATION)
}

fn read(data: &'static str) -> Vec<Wanted> {
    let mut blocks: Vec<Block> = Vec::new();
    for line in data
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        match (line.strip_prefix("  "), blocks.last_mut()) {
            (Some(line), Some(block)) => block.lines.push(words(line)),
            _ => blocks.push(Block {
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

/// A head, and the lines that belong to it.
struct Block {
    head: Vec<&'static str>,
    lines: Vec<Vec<&'static str>>,
}

impl Block {
    fn object(&self, all: &[Block]) -> Wanted {
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
        let place = if namespace.is_empty() {
            String::new()
        } else {
            format!("namespaces/{namespace}/")
        };
        Wanted {
            path: format!("/apis/{api_version}/{place}{plural}"),
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
                .set(&format!("{JOINS}{part}"), "true");
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

    fn role(&self, all: &[Block]) -> Value {
        let mut role = Value::object();
        if let Some(part) = self.option("gathers=") {
            let mut labels = Value::object();
            labels.set(&format!("{JOINS}{part}"), "true");
            let selectors = vec![value!({ "matchLabels": labels })];
            role.entry("aggregationRule")
                .set("clusterRoleSelectors", selectors);
        }
        role.set("rules", self.rules(all));
        role
    }

    /// Its own rules, or those that it gathers.
    fn rules(&self, all: &[Block]) -> Vec<Value> {
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
        binding.set(
            "subjects",
            self.lines
                .iter()
                .map(|line| subject(line))
                .collect::<Vec<_>>(),
        );
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

fn subject(line: &[&str]) -> Value {
    match line {
        ["account", place] => {
            let (namespace, name) = place.split_once('/').unwrap_or(("", place));
            value!({ "kind": "ServiceAccount", "name": name, "namespace": namespace })
        }
        [kind, name] => {
            let kind = if *kind == "user" { "User" } else { "Group" };
            value!({ "apiGroup": GROUP, "kind": kind, "name": (*name) })
        }
        other => panic!("the data has a subject of {} words", other.len()),
    }
}

#[cfg(test)]
mod tests {
    use mizzen_value::json;

    use super::*;

    fn find(path: &str, name: &str) -> Value {
        let found = objects().into_iter().find(|wanted| {
            wanted.path.ends_with(path) && wanted.object.at("metadata.name").str() == name
        });
        found.expect("it is there").object
    }

    #[test]
    fn every_line_makes_sense() {
        let objects = objects();
        assert_eq!(objects.len(), 69 + 7 + 50 + 7);
        for Wanted { path, object } in &objects {
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
        let objects = objects_of_nodes();
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
                r#"{"verbs":["get","update"],"resources":["leases"],"apiGroups":["coordination.k8s.io"],"resourceNames":["node-nodes.mizzen.dev"]}"#,
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
    fn a_role_gathers_what_others_join() {
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
