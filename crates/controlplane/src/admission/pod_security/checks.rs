//! The checks of the Pod Security Standards, by level and version.
//!
//! A check belongs to a level and may have changed between versions. The restricted level has the checks of the baseline as
//! well, except those that its own replace.

use mizzen_value::Value;

use super::containers as rules;
use super::host;
use super::policy::{Standard, StandardLevel, StandardVersion};

/// The last version in which a check changed.
const NEWEST: u64 = 35;

/// A pod or a pod template.
pub(super) struct CheckedPod<'a> {
    pub metadata: &'a Value,
    pub spec: &'a Value,
}

/// A violation of a check.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub reason: &'static str,
    pub detail: String,
}

/// A check as of a version.
pub(super) type Rule = fn(&CheckedPod) -> Option<Finding>;

struct StandardCheck {
    name: &'static str,
    level: StandardLevel,
    /// The check from a minor version on.
    versions: &'static [(u64, Rule)],
    /// The check of the baseline that this one replaces.
    replaces: &'static str,
}

const fn baseline(name: &'static str, versions: &'static [(u64, Rule)]) -> StandardCheck {
    StandardCheck {
        name,
        level: StandardLevel::Baseline,
        versions,
        replaces: "",
    }
}

const fn restricted(
    name: &'static str,
    versions: &'static [(u64, Rule)],
    replaces: &'static str,
) -> StandardCheck {
    StandardCheck {
        name,
        level: StandardLevel::Restricted,
        versions,
        replaces,
    }
}

/// All checks in the order of messages: the baseline first, each level by name.
const CHECKS: &[StandardCheck] = &[
    baseline("appArmorProfile", &[(0, rules::app_armor)]),
    baseline("capabilities_baseline", &[(0, rules::capabilities)]),
    baseline("hostNamespaces", &[(0, host::host_namespaces)]),
    baseline("hostPathVolumes", &[(0, host::host_path)]),
    baseline("hostPorts", &[(0, host::host_ports)]),
    baseline("hostProbesAndHostLifecycle", &[(34, host::host_probes)]),
    baseline("privileged", &[(0, rules::privileged)]),
    baseline(
        "procMount",
        &[
            (0, rules::proc_mount),
            (35, |pod| pod.on_host(rules::proc_mount)),
        ],
    ),
    baseline(
        "seLinuxOptions",
        &[(0, rules::se_linux), (31, rules::se_linux_31)],
    ),
    baseline(
        "seccompProfile_baseline",
        &[(0, rules::seccomp_annotations), (19, rules::seccomp)],
    ),
    baseline(
        "sysctls",
        &[
            (0, host::sysctls),
            (27, host::sysctls_27),
            (29, host::sysctls_29),
            (32, host::sysctls_32),
        ],
    ),
    baseline("windowsHostProcess", &[(0, rules::host_process)]),
    restricted(
        "allowPrivilegeEscalation",
        &[
            (8, rules::escalation),
            (25, |pod| pod.on_linux(rules::escalation)),
        ],
        "",
    ),
    restricted(
        "capabilities_restricted",
        &[
            (22, rules::dropped_capabilities),
            (25, |pod| pod.on_linux(rules::dropped_capabilities)),
        ],
        "capabilities_baseline",
    ),
    restricted(
        "procMount_restricted",
        &[(35, rules::proc_mount)],
        "procMount",
    ),
    restricted(
        "restrictedVolumes",
        &[(0, host::volumes)],
        "hostPathVolumes",
    ),
    restricted(
        "runAsNonRoot",
        &[
            (0, rules::non_root),
            (35, |pod| pod.on_host(rules::non_root)),
        ],
        "",
    ),
    restricted(
        "runAsUser",
        &[
            (23, rules::root_user),
            (35, |pod| pod.on_host(rules::root_user)),
        ],
        "",
    ),
    restricted(
        "seccompProfile_restricted",
        &[
            (19, rules::seccomp_restricted),
            (25, |pod| pod.on_linux(rules::seccomp_restricted)),
        ],
        "seccompProfile_baseline",
    ),
];

impl StandardCheck {
    fn rule(&self, minor: u64) -> Option<Rule> {
        self.versions
            .iter()
            .rev()
            .find(|(from, _)| *from <= minor)
            .map(|(_, rule)| *rule)
    }
}

impl<'a> CheckedPod<'a> {
    /// The pod, or that of a template.
    pub(super) fn of(object: &'a Value) -> CheckedPod<'a> {
        CheckedPod {
            metadata: &object["metadata"],
            spec: &object["spec"],
        }
    }

    /// Init, regular and ephemeral containers.
    pub(super) fn containers(&self) -> impl Iterator<Item = &'a Value> {
        let spec = self.spec;
        ["initContainers", "containers", "ephemeralContainers"]
            .into_iter()
            .flat_map(|list| spec[list].list())
    }

    /// The violations of a standard.
    pub(super) fn findings(&self, standard: Standard) -> Vec<Finding> {
        let minor = match standard.version {
            StandardVersion::Latest => NEWEST,
            StandardVersion::Minor(minor) => minor.min(NEWEST),
        };
        let counts = |check: &&StandardCheck| check.level <= standard.level;
        let mut checks: Vec<&StandardCheck> = CHECKS.iter().filter(counts).collect();
        let replaced: Vec<&str> = checks
            .iter()
            .filter(|check| check.rule(minor).is_some())
            .map(|check| check.replaces)
            .collect();
        checks.retain(|check| !replaced.contains(&check.name));
        checks
            .iter()
            .filter_map(|check| check.rule(minor)?(self))
            .collect()
    }

    /// A check that does not apply to pods in a user namespace.
    fn on_host(&self, rule: Rule) -> Option<Finding> {
        if self.spec["hostUsers"].as_bool() == Some(false) {
            None
        } else {
            rule(self)
        }
    }

    /// A check that does not apply to Windows.
    fn on_linux(&self, rule: Rule) -> Option<Finding> {
        if self.spec["os"]["name"].str() == "windows" {
            None
        } else {
            rule(self)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_value::json;

    #[track_caller]
    fn check(level: StandardLevel, minor: u64, pod: &str, expected: &[&str]) {
        let pod = json::parse(pod.as_bytes()).unwrap();
        let found = CheckedPod::of(&pod).findings(Standard {
            level,
            version: StandardVersion::Minor(minor),
        });
        let found: Vec<String> = found
            .iter()
            .map(|finding| format!("{} ({})", finding.reason, finding.detail))
            .collect();
        assert_eq!(found, expected);
    }

    fn one(context: &str) -> String {
        format!(r#"{{"spec":{{"containers":[{{"name":"c","securityContext":{context}}}]}}}}"#)
    }

    #[test]
    fn rules_change_over_time() {
        let sysctl = r#"{"spec":{"securityContext":{"sysctls":[{"name":"net.ipv4.tcp_rmem"}]}}}"#;
        check(
            StandardLevel::Baseline,
            31,
            sysctl,
            &["forbidden sysctls (net.ipv4.tcp_rmem)"],
        );
        check(StandardLevel::Baseline, 32, sysctl, &[]);
        let engine = one(r#"{"seLinuxOptions":{"type":"container_engine_t"}}"#);
        let expected = r#"seLinuxOptions (container "c" set forbidden securityContext.seLinuxOptions: type "container_engine_t")"#;
        check(StandardLevel::Baseline, 30, &engine, &[expected]);
        check(StandardLevel::Baseline, 31, &engine, &[]);
        check(StandardLevel::Baseline, 99, &engine, &[]);
    }

    #[test]
    fn a_restricted_rule_takes_the_place_of_a_baseline_one() {
        let volume = r#"{"spec":{"volumes":[{"name":"h","hostPath":{"path":"/"}}]}}"#;
        check(
            StandardLevel::Baseline,
            35,
            volume,
            &[r#"hostPath volumes (volume "h")"#],
        );
        let expected =
            r#"restricted volume types (volume "h" uses restricted volume type "hostPath")"#;
        check(StandardLevel::Restricted, 35, volume, &[expected]);
    }

    #[test]
    fn checks_without_meaning_on_windows_are_skipped_there() {
        let pod = r#"{"spec":{"os":{"name":"windows"},"securityContext":{"runAsNonRoot":true},"containers":[{"name":"c"}]}}"#;
        check(StandardLevel::Restricted, 25, pod, &[]);
        let escalation = r#"allowPrivilegeEscalation != false (container "c" must set securityContext.allowPrivilegeEscalation=false)"#;
        let capabilities = r#"unrestricted capabilities (container "c" must set securityContext.capabilities.drop=["ALL"])"#;
        let seccomp = r#"seccompProfile (pod or container "c" must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")"#;
        check(
            StandardLevel::Restricted,
            24,
            pod,
            &[escalation, capabilities, seccomp],
        );
    }

    #[test]
    fn a_pod_with_users_of_its_own_may_be_root() {
        let pod = r#"{"spec":{"hostUsers":false,"securityContext":{"runAsUser":0}}}"#;
        check(StandardLevel::Restricted, 35, pod, &[]);
        check(
            StandardLevel::Restricted,
            34,
            pod,
            &["runAsUser=0 (pod must not set runAsUser=0)"],
        );
    }

    #[test]
    fn several_containers_are_reported_together() {
        let pod = r#"{"spec":{"containers":[
            {"name":"a","ports":[{"hostPort":80}],"livenessProbe":{"httpGet":{"host":"h"}}},
            {"name":"b","ports":[{"hostPort":443}],"securityContext":{"privileged":true,"windowsOptions":{"hostProcess":true}}}]}}"#;
        check(
            StandardLevel::Baseline,
            35,
            pod,
            &[
                r#"hostPort (containers "a", "b" use hostPorts 443, 80)"#,
                r#"probe or lifecycle host (container "a" uses probe or lifecycle host "h")"#,
                r#"privileged (container "b" must not set securityContext.privileged=true)"#,
                r#"hostProcess (container "b" must not set securityContext.windowsOptions.hostProcess=true)"#,
            ],
        );
    }

    #[test]
    fn old_versions_look_at_annotations() {
        let pod = r#"{"metadata":{"annotations":{"seccomp.security.alpha.kubernetes.io/pod":"unconfined"}},"spec":{}}"#;
        let expected = r#"seccompProfile (forbidden annotation seccomp.security.alpha.kubernetes.io/pod="unconfined")"#;
        check(StandardLevel::Baseline, 18, pod, &[expected]);
        check(StandardLevel::Baseline, 19, pod, &[]);
    }
}
