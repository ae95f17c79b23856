//! Files and what they come to.

use super::*;
use crate::plugin::{Name, Names};

fn read(text: &str) -> Result<Configuration, ConfigurationError> {
    let head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";
    Configuration::parse(format!("{head}{text}").as_bytes())
}

#[track_caller]
fn refused(text: &str) -> String {
    read(text).err().expect("it makes no sense").to_string()
}

fn filters(profile: &Profile) -> Vec<Name> {
    profile.filters.iter().map(|filter| filter.name()).collect()
}

#[test]
fn without_a_word_there_is_one_standard_profile() {
    let configuration = Configuration::default();
    assert_eq!(configuration.delays, Delays::default());
    let [profile] = configuration.profiles.as_slice() else { panic!("one profile") };
    assert_eq!(profile.name, "default-scheduler");
    assert_eq!(profile.scores.iter().map(|(_, weight)| *weight).collect::<Vec<_>>(), [3, 2, 1, 2, 2, 1, 1]);
    assert!(profile.gates && profile.preemption.is_some() && profile.filters.len() >= 13);
}

#[test]
fn profiles_have_their_own_plugins() {
    let configuration = read(
        "profiles:\n- schedulerName: a\n- schedulerName: b\n  plugins:\n    multiPoint:\n      disabled: [{name: NodePorts}]\n    \
         score: {disabled: [{name: '*'}], enabled: [{name: ImageLocality, weight: 7}]}\n    postFilter: {disabled: [{name: '*'}]}\n",
    );
    let profiles = configuration.unwrap().profiles;
    assert!(
        filters(&profiles[0]).contains(&Name::NodePorts) && !filters(&profiles[1]).contains(&Name::NodePorts)
    );
    assert_eq!(profiles[1].scores.iter().map(|(_, weight)| *weight).collect::<Vec<_>>(), [7]);
    assert!(profiles[1].preemption.is_none() && !profiles[1].devices);
}

#[test]
fn only_what_is_wanted_can_be_on() {
    let configuration = read(
        "profiles:\n- plugins:\n    multiPoint:\n      disabled: [{name: '*'}]\n      enabled: [{name: NodeResourcesFit}, {name: DefaultBinder}, {name: PrioritySort}]\n",
    );
    assert_eq!(filters(&configuration.unwrap().profiles[0]), [Name::NodeResourcesFit]);
}

#[test]
fn plugins_are_told_what_the_file_says() {
    let configuration = read(
        "percentageOfNodesToScore: 40\npodInitialBackoffSeconds: 2\nprofiles:\n- pluginConfig:\n  - name: DefaultPreemption\n    \
         args: {minCandidateNodesPercentage: 20, minCandidateNodesAbsolute: 5}\n",
    );
    let configuration = configuration.unwrap();
    assert_eq!(configuration.profiles[0].share, Some(40));
    assert_eq!(configuration.delays.first, Duration::from_secs(2));
    let breadth = configuration.profiles[0].preemption.unwrap();
    assert_eq!((breadth.share, breadth.least), (20, 5));
}

#[test]
fn extenders_are_read() {
    let configuration = read(
        "extenders:\n- urlPrefix: http://127.0.0.1:1234/x\n  filterVerb: f\n  prioritizeVerb: p\n  weight: 3\n  httpTimeout: 2s\n  \
         nodeCacheCapable: true\n  ignorable: true\n  managedResources: [{name: example.com/gpu, ignoredByScheduler: true}]\n",
    );
    let extender = configuration.unwrap().extenders.remove(0);
    assert_eq!((extender.weight, extender.timeout), (3, Duration::from_secs(2)));
    assert!(extender.knows_nodes && extender.ignorable && extender.bind.is_empty());
    assert_eq!(extender.ignored_by_scheduler, ["example.com/gpu"]);
}

#[test]
fn nonsense_is_refused() {
    assert_eq!(
        refused("percentageOfNodesToScore: 101"),
        "percentageOfNodesToScore: Invalid value: 101: not in valid range [0-100]"
    );
    assert_eq!(
        refused("profiles: [{schedulerName: a}, {schedulerName: a}]"),
        "profiles[1].schedulerName: Duplicate value: \"a\""
    );
    assert_eq!(
        refused("profiles: [{plugins: {filter: {enabled: [{name: Nonsense}]}}}]"),
        "plugin \"Nonsense\" does not exist"
    );
    assert!(
        refused("profiles: [{plugins: {filter: {enabled: [{name: ImageLocality}]}}}]")
            .contains("does not extend")
    );
    assert!(refused("extenders: [{urlPrefix: http://x, prioritizeVerb: p}]").contains("positive weight"));
    check_volumes(
        "bindTimeoutSeconds: -1",
        "bindTimeoutSeconds: Invalid value: -1: invalid BindTimeoutSeconds, should not be a negative value",
    );
    check_volumes(
        "bindTimeoutSeconds: soon",
        "bindTimeoutSeconds: Invalid value: \"soon\": must be an integer",
    );
    check_volumes(
        "shape: []",
        "shape: Invalid value: []: unexpected field `shape`, remove it or turn on the feature gate StorageCapacityScoring",
    );
    assert!(Configuration::parse(b"kind: Nonsense").is_err());
    let all: Names = filters(&Configuration::default().profiles[0]).into_iter().collect();
    assert!(!all.is_empty());
}

#[track_caller]
fn check_volumes(args: &str, complaint: &str) {
    let text = format!("profiles: [{{pluginConfig: [{{name: VolumeBinding, args: {{{args}}}}}]}}]");
    assert_eq!(refused(&text), complaint);
}
