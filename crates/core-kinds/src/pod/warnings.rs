//! Warnings for pods.

use std::collections::{HashMap, HashSet};

use mizzen_object::validate::{ip, names};
use mizzen_object::{Action, HookContext, Path};
use mizzen_value::Value;
use mizzen_value::quantity::Quantity;

use super::annotations::{APP_ARMOR, SECCOMP_CONTAINER, SECCOMP_POD};
use super::prepare::app_armor_profile;
use super::{claim_spec_warnings, overlaps, visit_containers};

/// Warnings on create and on status updates; spec updates get none.
pub(super) fn warnings(pod: &Value, _: Option<&Value>, context: &HookContext) -> Vec<String> {
    match context.action {
        Action::Create => {
            let mut warnings = name_warning(
                pod["metadata"]["name"].str(),
                "this is used in the Pod's hostname",
            );
            warnings.extend(
                Warner {
                    list: Vec::new(),
                    is_template: false,
                }
                .all(pod, &Path::new("")),
            );
            warnings
        }
        Action::Update => Vec::new(),
        Action::Status => {
            let path = Path::new("status");
            let lists = ["podIPs", "hostIPs"].into_iter();
            let addresses = lists.flat_map(|list| {
                pod["status"][list]
                    .items()
                    .enumerate()
                    .map(move |address| (list, address))
            });
            addresses
                .filter_map(|(list, (index, address))| {
                    ip::ip_warning(
                        path.child(list).index(index).child("ip"),
                        address["ip"].str(),
                    )
                })
                .collect()
        }
    }
}

/// Warnings for a pod template.
pub fn template_warnings(template: &Value, path: &Path) -> Vec<String> {
    Warner {
        list: Vec::new(),
        is_template: true,
    }
    .all(template, path)
}

/// A name that is used for something that takes less than names may be.
pub fn name_warning(name: &str, use_of_it: &str) -> Vec<String> {
    let wrong = names::is_dns1123_label(name);
    if wrong.is_empty() {
        return Vec::new();
    }
    let advice = "which can result in surprising behavior; a DNS label is recommended";
    vec![format!(
        "metadata.name: {use_of_it}, {advice}: [{}]",
        wrong.join(" ")
    )]
}

struct Warner {
    list: Vec<String>,
    is_template: bool,
}

impl Warner {
    fn all(mut self, holder: &Value, path: &Path) -> Vec<String> {
        let (spec, metadata) = (&holder["spec"], &holder["metadata"]["annotations"]);
        let (spec_path, metadata_path) = (path.child("spec"), path.child("metadata"));
        let annotations_path = metadata_path.child("annotations");
        self.node_labels(spec, &spec_path);
        self.annotations(metadata, &annotations_path);
        self.volumes(spec, &spec_path.child("volumes"));
        self.list.extend(overlaps::warnings(&spec["volumes"]));
        self.repetitions(spec, &spec_path);
        self.fractions(&spec["overhead"], &spec_path.child("overhead"));
        self.containers(spec, metadata, &spec_path, &annotations_path);
        self.ports(spec, &spec_path);
        if spec["terminationGracePeriodSeconds"].int() < 0 {
            let place = spec_path.child("terminationGracePeriodSeconds");
            self.add(
                place,
                "must be >= 0; negative values are invalid and will be treated as 1",
            );
        }
        self.affinity(spec, &spec_path.child("affinity"));
        self.addresses(spec, &spec_path);
        self.list
    }

    fn add(&mut self, path: Path, text: &str) {
        self.list.push(format!("{path}: {text}"));
    }

    fn node_labels(&mut self, spec: &Value, path: &Path) {
        for (key, _) in spec["nodeSelector"].entries() {
            if let Some(text) = old_node_label(key) {
                self.add(path.child("nodeSelector").key(key), text);
            }
        }
        let place = path.child("affinity");
        let place = place.child("nodeAffinity");
        let affinity = &spec["affinity"]["nodeAffinity"];
        let required = place.child("requiredDuringSchedulingIgnoredDuringExecution");
        let terms =
            &affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
        for (index, term) in terms.items().enumerate() {
            self.node_term(
                term,
                false,
                &required.child("nodeSelectorTerms").index(index),
            );
        }
        let preferred = place.child("preferredDuringSchedulingIgnoredDuringExecution");
        let terms = &affinity["preferredDuringSchedulingIgnoredDuringExecution"];
        for (index, term) in terms.items().enumerate() {
            self.node_term(
                &term["preference"],
                true,
                &preferred.index(index).child("preference"),
            );
        }
        self.spread(
            &spec["topologySpreadConstraints"],
            &path.child("topologySpreadConstraints"),
        );
    }

    fn node_term(&mut self, term: &Value, check_values: bool, path: &Path) {
        let path = path.child("matchExpressions");
        for (index, expression) in term["matchExpressions"].items().enumerate() {
            let path = path.index(index);
            let key = expression["key"].str();
            if let Some(text) = old_node_label(key) {
                self.add(path.child("key"), &format!("{key} is {text}"));
            }
            let path = path.child("values");
            let values = expression["values"]
                .items()
                .enumerate()
                .filter(|_| check_values);
            for (index, value) in values {
                for message in names::is_label_value(value.str()) {
                    self.add(
                        path.index(index),
                        &format!("{} is invalid, {message}", value.str()),
                    );
                }
            }
        }
    }

    fn spread(&mut self, constraints: &Value, path: &Path) {
        for (index, constraint) in constraints.items().enumerate() {
            let path = path.index(index);
            let key = constraint["topologyKey"].str();
            if let Some(text) = old_node_label(key) {
                self.add(path.child("topologyKey"), &format!("{key} is {text}"));
            }
            self.selector(constraint, &path);
        }
    }

    fn selector(&mut self, term: &Value, path: &Path) {
        if term["labelSelector"].is_null() {
            self.add(
                path.child("labelSelector"),
                "a null labelSelector results in matching no pod",
            );
        }
    }

    fn affinity(&mut self, spec: &Value, path: &Path) {
        for key in ["podAffinity", "podAntiAffinity"] {
            let (affinity, path) = (&spec["affinity"][key], path.child(key));
            let required = path.child("requiredDuringSchedulingIgnoredDuringExecution");
            let terms = &affinity["requiredDuringSchedulingIgnoredDuringExecution"];
            for (index, term) in terms.items().enumerate() {
                self.selector(term, &required.index(index));
            }
            let preferred = path.child("preferredDuringSchedulingIgnoredDuringExecution");
            let terms = &affinity["preferredDuringSchedulingIgnoredDuringExecution"];
            for (index, term) in terms.items().enumerate() {
                self.selector(
                    &term["podAffinityTerm"],
                    &preferred.index(index).child("podAffinityTerm"),
                );
            }
        }
    }

    fn annotations(&mut self, annotations: &Value, path: &Path) {
        const OLD: [(&str, &str); 3] = [
            (
                "scheduler.alpha.kubernetes.io/critical-pod",
                "non-functional in v1.16+; use the \"priorityClassName\" field instead",
            ),
            (
                "security.alpha.kubernetes.io/sysctls",
                "non-functional in v1.11+; use the \"sysctls\" field instead",
            ),
            (
                "security.alpha.kubernetes.io/unsafe-sysctls",
                "non-functional in v1.11+; use the \"sysctls\" field instead",
            ),
        ];
        for (key, text) in OLD.iter().filter(|(key, _)| !annotations[*key].is_null()) {
            self.add(path.key(key), text);
        }
    }

    /// Volume types that are no longer supported.
    fn volumes(&mut self, spec: &Value, path: &Path) {
        const EARLY: &str = "deprecated in v1.22, non-functional in v1.25+";
        const LATE: &str = "deprecated in v1.28, non-functional in v1.31+";
        const OLD: [(&str, &str, &str); 9] = [
            (
                "photonPersistentDisk",
                "photonPersistentDisk",
                "deprecated in v1.11, non-functional in v1.16+",
            ),
            (
                "gitRepo",
                "gitRepo",
                "deprecated in v1.11, and disabled by default in v1.33+",
            ),
            (
                "scaleIO",
                "scaleIO",
                "deprecated in v1.16, non-functional in v1.22+",
            ),
            ("flocker", "flocker", EARLY),
            ("storageos", "storageOS", EARLY),
            ("quobyte", "quobyte", EARLY),
            (
                "glusterfs",
                "glusterfs",
                "deprecated in v1.25, non-functional in v1.26+",
            ),
            ("cephfs", "cephfs", LATE),
            ("rbd", "rbd", LATE),
        ];
        for (index, volume) in spec["volumes"].items().enumerate() {
            let path = path.index(index);
            for (_, shown, text) in OLD.iter().filter(|(key, _, _)| !volume[*key].is_null()) {
                self.add(path.child(shown), text);
            }
            let template = &volume["ephemeral"]["volumeClaimTemplate"];
            let path = path.child("ephemeral");
            let path = path.child("volumeClaimTemplate");
            self.list
                .extend(claim_spec_warnings(&template["spec"], &path.child("spec")));
        }
    }

    fn repetitions(&mut self, spec: &Value, path: &Path) {
        for (list, key) in [("hostAliases", "ip"), ("imagePullSecrets", "name")] {
            let mut seen = HashSet::new();
            let path = path.child(list);
            for (index, item) in spec[list].items().enumerate() {
                if !seen.insert(item[key].str()) {
                    self.add(
                        path.index(index).child(key),
                        &format!("duplicate {key} \"{}\"", item[key].str()),
                    );
                }
            }
        }
        let path = path.child("imagePullSecrets");
        for (index, secret) in spec["imagePullSecrets"].items().enumerate() {
            if secret["name"].str().is_empty() {
                self.add(path.index(index).child("name"), "invalid empty name \"\"");
            }
        }
    }

    fn fractions(&mut self, amounts: &Value, path: &Path) {
        for name in ["memory", "ephemeral-storage"] {
            self.fraction(amounts, name, path);
        }
    }

    fn fraction(&mut self, amounts: &Value, name: &str, path: &Path) {
        let amount = amounts[name].str();
        if !amount.is_empty() && Quantity::parse_or_zero(amount).milli_value() % 1000 != 0 {
            let text = format!("fractional byte value \"{amount}\" is invalid, must be an integer");
            self.add(path.key(name), &text);
        }
    }

    fn containers(
        &mut self,
        spec: &Value,
        annotations: &Value,
        path: &Path,
        annotations_path: &Path,
    ) {
        const OLD_SECCOMP: &str =
            "non-functional in v1.27+; use the \"seccompProfile\" field instead";
        let context = &spec["securityContext"];
        if context["seccompProfile"].is_null() && !annotations[SECCOMP_POD].is_null() {
            self.add(annotations_path.key(SECCOMP_POD), OLD_SECCOMP);
        }
        visit_containers(spec, path, |container, path| {
            let key = format!("{SECCOMP_CONTAINER}{}", container["name"].str());
            if container["securityContext"]["seccompProfile"].is_null()
                && !annotations[key.as_str()].is_null()
            {
                self.add(annotations_path.key(&key), OLD_SECCOMP);
            }
            self.app_armor(container, context, annotations, annotations_path);
            let path_of_resources = path.child("resources");
            for name in ["memory", "ephemeral-storage"] {
                for list in ["limits", "requests"] {
                    self.fraction(
                        &container["resources"][list],
                        name,
                        &path_of_resources.child(list),
                    );
                }
            }
            self.env(&container["env"], &path.child("env"));
        });
    }

    /// A profile that is only an annotation. When a pod is made it has become a field by now.
    fn app_armor(&mut self, container: &Value, context: &Value, annotations: &Value, path: &Path) {
        let key = format!("{APP_ARMOR}{}", container["name"].str());
        let Some(annotation) = annotations[key.as_str()].as_str() else {
            return;
        };
        let profile = app_armor_profile(annotation).unwrap_or_default();
        let own = &container["securityContext"]["appArmorProfile"];
        let is_of_pod = !profile.is_null() && context["appArmorProfile"] == profile;
        let is_only_annotation = own.is_null() || !self.is_template && *own == profile;
        if is_only_annotation && !is_of_pod {
            self.add(
                path.key(&key),
                "deprecated since v1.30; use the \"appArmorProfile\" field instead",
            );
        }
    }

    /// A variable that hides another without building on it.
    fn env(&mut self, variables: &Value, path: &Path) {
        let mut names = HashSet::new();
        for (index, variable) in variables.items().enumerate() {
            let (name, value) = (variable["name"].str(), variable["value"].str());
            let reference = format!("$({name})");
            let builds_on =
                variable["valueFrom"].is_null() && value != reference && value.contains(&reference);
            if !names.insert(name) && !builds_on {
                let text = format!(
                    "hides previous definition of \"{name}\", which may be dropped when using apply"
                );
                self.add(path.index(index), &text);
            }
        }
    }

    fn ports(&mut self, spec: &Value, path: &Path) {
        let mut ports: Vec<(String, &Value)> = Vec::new();
        visit_containers(spec, path, |container, path| {
            let path = path.child("ports");
            for (index, port) in container["ports"].items().enumerate() {
                ports.push((path.index(index).to_string(), port));
            }
        });
        let mut by_port: HashMap<(i64, &str), Vec<&(String, &Value)>> = HashMap::new();
        for entry @ (place, port) in &ports {
            if !port["hostIP"].str().is_empty() && port["hostPort"].int() == 0 {
                // A port as Go prints a struct.
                let go_port = format!(
                    "{{Name:{} HostPort:{} ContainerPort:{} Protocol:{} HostIP:{}}}",
                    port["name"].str(),
                    port["hostPort"].int(),
                    port["containerPort"].int(),
                    port["protocol"].str(),
                    port["hostIP"].str(),
                );
                self.list
                    .push(format!("{place}: hostIP set without hostPort: {}", go_port));
            }
            let others = by_port
                .entry((port["containerPort"].int(), port["protocol"].str()))
                .or_default();
            for (other_place, other) in others.iter() {
                // How two definitions of one port get in each other's way.

                let (ip, other_ip) = (port["hostIP"].str(), other["hostIP"].str());
                let (number, other_number) = (port["hostPort"].int(), other["hostPort"].int());
                let clash = if ip == other_ip && number == other_number {
                    Some("duplicate")
                } else if number == 0 || other_number == 0 {
                    Some("overlapping")
                } else if number == other_number && ip.is_empty() != other_ip.is_empty() {
                    Some("dangerously ambiguous")
                } else {
                    None
                };
                self.list.extend(
                    clash.map(|clash| {
                        format!("{place}: {clash} port definition with {other_place}")
                    }),
                );
            }
            others.push(entry);
        }
        let mut firsts: HashMap<&str, &str> = HashMap::new();
        for (place, port) in &ports {
            let name = port["name"].str();
            let first = *firsts.entry(name).or_insert(place);
            if first != place && !name.is_empty() {
                self.list.push(format!(
                    "{place}: duplicate port name \"{name}\" with {first}, services and probes that select ports by \
                     name will use {first}"
                ));
            }
        }
    }

    fn addresses(&mut self, spec: &Value, path: &Path) {
        let place = path.child("dnsConfig");
        let place = place.child("nameservers");
        for (index, server) in spec["dnsConfig"]["nameservers"].items().enumerate() {
            self.list
                .extend(ip::ip_warning(place.index(index), server.str()));
        }
        let place = path.child("hostAliases");
        for (index, alias) in spec["hostAliases"].items().enumerate() {
            self.list.extend(ip::ip_warning(
                place.index(index).child("ip"),
                alias["ip"].str(),
            ));
        }
    }
}

/// What to say of a label that nodes once had.
pub fn old_node_label(key: &str) -> Option<&'static str> {
    Some(match key {
        "beta.kubernetes.io/arch" => "deprecated since v1.14; use \"kubernetes.io/arch\" instead",
        "beta.kubernetes.io/os" => "deprecated since v1.14; use \"kubernetes.io/os\" instead",
        "failure-domain.beta.kubernetes.io/region" => {
            "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead"
        }
        "failure-domain.beta.kubernetes.io/zone" => {
            "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead"
        }
        "beta.kubernetes.io/instance-type" => {
            "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead"
        }
        "app.kubernetes.io/created-by" => "deprecated since v1.9",
        "scheduler.alpha.kubernetes.io/preferAvoidPods" => {
            "deprecated since v1.22; use Taints and Tolerations instead"
        }
        "node-role.kubernetes.io/master" => "use \"node-role.kubernetes.io/control-plane\" instead",
        _ => return None,
    })
}
