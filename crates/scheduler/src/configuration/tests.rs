//! Configuration files, and the profiles or errors that they result in.

use super::*;
use crate::plugin::Name;
use crate::preemption::CandidateLimits;
use crate::profile::PostFilterPlugin;

fn read(text: &str) -> Result<Configuration, ConfigurationError> {
    let head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";
    Configuration::parse(format!("{head}{text}").as_bytes())
}

fn preemption(profile: &Profile) -> Option<CandidateLimits> {
    let limits = |plugin: &PostFilterPlugin| match plugin {
        PostFilterPlugin::Preemption(limits) => Some(*limits),
        _ => None,
    };
    profile.post_filters.iter().find_map(limits)
}

fn deallocates_claims(profile: &Profile) -> bool {
    let mut plugins = profile.post_filters.iter();
    plugins.any(|plugin| matches!(plugin, PostFilterPlugin::DeallocateClaims))
}

#[track_caller]
fn refused(text: &str) -> String {
    read(text).err().expect("an invalid file").to_string()
}

fn filters(profile: &Profile) -> Vec<Name> {
    profile.filters.iter().map(|filter| filter.name()).collect()
}

#[test]
fn the_default_configuration_has_one_default_profile() {
    let configuration = Configuration::default();
    assert_eq!(configuration.backoff_durations, BackoffDurations::default());
    let [profile] = configuration.profiles.as_slice() else {
        panic!("one profile")
    };
    assert_eq!(profile.name, "default-scheduler");
    assert_eq!(
        profile
            .scores
            .iter()
            .map(|(_, _, weight)| *weight)
            .collect::<Vec<_>>(),
        [3, 2, 1, 2, 2, 2, 1, 1]
    );
    assert!(
        profile.scheduling_gates && preemption(profile).is_some() && profile.filters.len() >= 13
    );
}

#[test]
fn profiles_have_their_own_plugins() {
    let configuration = read(
        "profiles:\n- schedulerName: a\n- schedulerName: b\n  plugins:\n    multiPoint:\n      disabled: [{name: NodePorts}]\n    \
         score: {disabled: [{name: '*'}], enabled: [{name: ImageLocality, weight: 7}]}\n    postFilter: {disabled: [{name: '*'}]}\n",
    );
    let profiles = configuration.unwrap().profiles;
    assert!(
        filters(&profiles[0]).contains(&Name::NodePorts)
            && !filters(&profiles[1]).contains(&Name::NodePorts)
    );
    assert_eq!(
        profiles[1]
            .scores
            .iter()
            .map(|(_, _, weight)| *weight)
            .collect::<Vec<_>>(),
        [7]
    );
    assert!(preemption(&profiles[1]).is_none() && !deallocates_claims(&profiles[1]));
}

#[test]
fn disabling_all_leaves_only_the_enabled_plugins() {
    let configuration = read(
        "profiles:\n- plugins:\n    multiPoint:\n      disabled: [{name: '*'}]\n      enabled: [{name: NodeResourcesFit}, {name: DefaultBinder}, {name: PrioritySort}]\n",
    );
    assert_eq!(
        filters(&configuration.unwrap().profiles[0]),
        [Name::NodeResourcesFit]
    );
}

#[test]
fn plugin_args_reach_their_plugins() {
    let configuration = read(
        "percentageOfNodesToScore: 40\npodInitialBackoffSeconds: 2\nprofiles:\n- pluginConfig:\n  - name: DefaultPreemption\n    \
         args: {minCandidateNodesPercentage: 20, minCandidateNodesAbsolute: 5}\n",
    );
    let configuration = configuration.unwrap();
    assert_eq!(
        configuration.profiles[0].percentage_of_nodes_to_score,
        Some(40)
    );
    assert_eq!(
        configuration.backoff_durations.initial,
        Duration::from_secs(2)
    );
    let candidate_limits = preemption(&configuration.profiles[0]).unwrap();
    assert_eq!(
        (
            candidate_limits.min_percentage,
            candidate_limits.min_absolute
        ),
        (20, 5)
    );
}

#[test]
fn extenders_are_decoded() {
    let configuration = read(
        "extenders:\n- urlPrefix: http://127.0.0.1:1234/x\n  filterVerb: f\n  prioritizeVerb: p\n  weight: 3\n  httpTimeout: 2s\n  \
         nodeCacheCapable: true\n  ignorable: true\n  managedResources: [{name: example.com/gpu, ignoredByScheduler: true}]\n",
    );
    let extender = configuration.unwrap().extenders.remove(0);
    assert_eq!(
        (extender.weight, extender.timeout),
        (3, Duration::from_secs(2))
    );
    assert!(extender.node_cache_capable && extender.ignorable && extender.bind.is_empty());
    assert_eq!(extender.ignored_by_scheduler, ["example.com/gpu"]);
}

#[test]
fn invalid_values_get_upstreams_messages() {
    let refused_as = |text: &str, expected: &str| assert_eq!(refused(text), expected, "{text}");
    refused_as(
        "percentageOfNodesToScore: 101",
        "percentageOfNodesToScore: Invalid value: 101: not in valid range [0-100]",
    );
    refused_as(
        "parallelism: 0",
        "parallelism: Invalid value: 0: should be an integer value greater than zero",
    );
    refused_as(
        "podInitialBackoffSeconds: 0",
        "podInitialBackoffSeconds: Invalid value: 0: must be greater than 0",
    );
    refused_as(
        "podMaxBackoffSeconds: 1\npodInitialBackoffSeconds: 2",
        "podMaxBackoffSeconds: Invalid value: 1: must be greater than or equal to PodInitialBackoffSeconds",
    );
    refused_as(
        "profiles: [{schedulerName: a}, {schedulerName: a, percentageOfNodesToScore: -1}]",
        "[profiles[1].percentageOfNodesToScore: Invalid value: -1: not in valid range [0-100], profiles[1].schedulerName: \
         Duplicate value: {}]",
    );
    refused_as(
        "profiles: [{schedulerName: a}, {}]",
        "profiles[1].schedulerName: Required value",
    );
    refused_as(
        "profiles: [{pluginConfig: [{name: NodeAffinity}, {name: NodeAffinity}]}]",
        "profiles[0].pluginConfig[1]: Duplicate value: \"NodeAffinity\"",
    );
    refused_as(
        "profiles: [{pluginConfig: [{name: Mine}, {name: InterPodAffinity, args: {hardPodAffinityWeight: 101}}]}]",
        "profiles[0].pluginConfig[1].args.hardPodAffinityWeight: Invalid value: 101: not in valid range [0, 100]",
    );
}

#[test]
fn unknown_fields_are_rejected_at_every_level() {
    let refused_as = |text: &str, expected: &str| {
        assert_eq!(
            refused(text),
            format!("strict decoding error: {expected}"),
            "{text}"
        );
    };
    refused_as("fooBar: 1", "unknown field \"fooBar\"");
    refused_as("Parallelism: 3", "unknown field \"Parallelism\"");
    refused_as(
        "leaderElection: {leaderElect: true, foo: 1}",
        "unknown field \"leaderElection.foo\"",
    );
    refused_as(
        "extenders: [{urlPrefix: 'http://x', filterVerbb: f}]\nfooBar: 1",
        "unknown field \"extenders[0].filterVerbb\", unknown field \"fooBar\"",
    );
    refused_as(
        "fooBar: 1\nprofiles: [{pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategi: {}, x: 1}}, \
         {name: NodeAffinity, args: {addedAffinity: {foo: 1}}}, {name: Mine, args: {x: 1}}]}]",
        "unknown field \"fooBar\", decoding .profiles[0].pluginConfig[0]: strict decoding error: decoding args for plugin \
         NodeResourcesFit: strict decoding error: unknown field \"scoringStrategi\", unknown field \"x\", decoding \
         .profiles[0].pluginConfig[1]: strict decoding error: decoding args for plugin NodeAffinity: strict decoding error: \
         unknown field \"addedAffinity.foo\"",
    );
}

#[test]
fn duplicate_fields_are_rejected() {
    let twice = "strict decoding error: yaml: unmarshal errors:\n  line 4: key \"parallelism\" already set in map";
    assert_eq!(refused("parallelism: 1\nparallelism: 2"), twice);
    let json = |rest: &str| {
        let text = format!(
            r#"{{"kind": "KubeSchedulerConfiguration", "apiVersion": "kubescheduler.config.k8s.io/v1", {rest}}}"#
        );
        Configuration::parse(text.as_bytes())
            .err()
            .expect("an invalid file")
            .to_string()
    };
    assert_eq!(
        json(r#""parallelism": 1, "parallelism": 2"#),
        "strict decoding error: duplicate field \"parallelism\""
    );
    let args = r#"{"hardPodAffinityWeight": 1, "hardPodAffinityWeight": 2}"#;
    let args = format!(
        r#""profiles": [{{"pluginConfig": [{{"name": "InterPodAffinity", "args": {args}}}]}}]"#
    );
    assert!(json(&args).contains("key \"hardPodAffinityWeight\" already set in map"));
}

#[test]
fn a_wrong_type_or_kind_is_rejected() {
    let refused_as = |text: &str, expected: &str| assert_eq!(refused(text), expected, "{text}");
    refused_as(
        "parallelism: x",
        "json: cannot unmarshal string into Go struct field KubeSchedulerConfiguration.parallelism of type int32",
    );
    refused_as(
        "extenders: [{urlPrefix: 'http://x', httpTimeout: 5}]",
        "json: cannot unmarshal number into Go struct field Extender.extenders.httpTimeout of type string",
    );
    refused_as(
        "extenders: [{urlPrefix: 'http://x', tlsConfig: {caData: '%%'}}]",
        "illegal base64 data at input byte 0",
    );
    refused_as(
        "leaderElection: {leaseDuration: soon}",
        "time: invalid duration \"soon\"",
    );
    refused_as(
        "extenders: [{urlPrefix: 'http://x', httpTimeout: soon}]",
        "time: invalid duration \"soon\"",
    );
    let args_refused_as = |plugin: &str, args: &str, expected: &str| {
        let text = format!("profiles: [{{pluginConfig: [{{name: {plugin}, args: {args}}}]}}]");
        assert_eq!(
            refused(&text),
            format!("decoding .profiles[0].pluginConfig[0]: {expected}"),
            "{args}"
        );
    };
    args_refused_as(
        "NodeResourcesFit",
        "{scoringStrategy: {type: 5}}",
        "decoding args for plugin NodeResourcesFit: json: cannot unmarshal number into Go struct field \
         ScoringStrategy.scoringStrategy.type of type v1.ScoringStrategyType",
    );
    args_refused_as(
        "DynamicResources",
        "{filterTimeout: soon}",
        "decoding args for plugin DynamicResources: time: invalid duration \"soon\"",
    );
    args_refused_as(
        "VolumeBinding",
        "{bindTimeoutSeconds: soon}",
        "decoding args for plugin VolumeBinding: json: cannot unmarshal string into Go struct field \
         VolumeBindingArgs.bindTimeoutSeconds of type int64",
    );
    args_refused_as(
        "NodeResourcesFit",
        "{kind: NodeAffinityArgs, apiVersion: kubescheduler.config.k8s.io/v1}",
        "args for plugin NodeResourcesFit were not of type NodeResourcesFitArgs.kubescheduler.config.k8s.io, got \
         NodeAffinityArgs.kubescheduler.config.k8s.io",
    );
    args_refused_as(
        "NodeResourcesFit",
        "{kind: NodeResourcesFitArgs, apiVersion: v7}",
        "decoding args for plugin NodeResourcesFit: no kind \"NodeResourcesFitArgs\" is registered for version \"v7\" in \
         scheme \"pkg/scheduler/apis/config/scheme/scheme.go:29\"",
    );
}

#[test]
fn a_file_needs_its_kind_and_version() {
    let refused_as = |text: &str, expected: &str| {
        let error = Configuration::parse(text.as_bytes())
            .err()
            .expect("an invalid file");
        assert_eq!(error.to_string(), expected, "{text}");
    };
    refused_as("", "Object 'Kind' is missing in ''");
    refused_as(
        "kind: KubeSchedulerConfiguration\n",
        "Object 'apiVersion' is missing in 'kind: KubeSchedulerConfiguration\n'",
    );
    refused_as(
        "kind: Nonsense\napiVersion: v1",
        "no kind \"Nonsense\" is registered for version \"v1\" in scheme \"pkg/scheduler/apis/config/scheme/scheme.go:29\"",
    );
    refused_as(
        "kind: NodeAffinityArgs\napiVersion: kubescheduler.config.k8s.io/v1",
        "couldn't decode as KubeSchedulerConfiguration, got kubescheduler.config.k8s.io/v1, Kind=NodeAffinityArgs: ",
    );
}

#[test]
fn a_plugin_can_be_enabled_only_where_it_is_implemented() {
    let refused_as = |plugins: &str, expected: &str| {
        assert_eq!(
            refused(&format!("profiles: [{{plugins: {{{plugins}}}}}]")),
            expected,
            "{plugins}"
        );
    };
    refused_as(
        "filter: {enabled: [{name: Nonsense}]}",
        "FilterPlugin \"Nonsense\" does not exist",
    );
    refused_as(
        "multiPoint: {enabled: [{name: Nonsense}]}",
        "PreFilterPlugin \"Nonsense\" does not exist",
    );
    refused_as(
        "permit: {enabled: [{name: VolumeBinding}]}",
        "plugin \"VolumeBinding\" does not extend PermitPlugin plugin",
    );
    refused_as(
        "filter: {enabled: [{name: ImageLocality}]}",
        "plugin \"ImageLocality\" does not extend FilterPlugin plugin",
    );
    refused_as(
        "score: {enabled: [{name: ImageLocality}, {name: ImageLocality}]}",
        "plugin \"ImageLocality\" already registered as \"ScorePlugin\"",
    );
    refused_as(
        "multiPoint: {enabled: [{name: ImageLocality}, {name: ImageLocality}]}",
        "plugin \"ImageLocality\" already registered as \"ScorePlugin\"",
    );
    refused_as(
        "bind: {disabled: [{name: '*'}]}",
        "at least one bind plugin is needed for profile with scheduler name \"default-scheduler\"",
    );
    refused_as(
        "queueSort: {disabled: [{name: PrioritySort}]}",
        "only one queue sort plugin required for profile with scheduler name \"default-scheduler\", but got 0",
    );
    refused_as(
        "queueSort: {enabled: [{name: PrioritySort}, {name: Mine}]}",
        "profiles[0].plugins.queueSort.Enabled: Invalid value: 2: only one queue sort plugin can be enabled",
    );
    refused_as(
        "filter: {enabled: [{name: EBSLimits}]}",
        "profiles[0].plugins.filter.enabled[0]: Invalid value: \"EBSLimits\": was invalid in version \
         \"kubescheduler.config.k8s.io/v1\" (KubeSchedulerConfiguration is version \"kubescheduler.config.k8s.io/v1\")",
    );
    refused_as(
        "score: {enabled: [{name: ImageLocality, weight: 9223372036854775807}]}",
        "json: cannot unmarshal number 9223372036854775807 into Go struct field Plugin.profiles.plugins.score.enabled.weight of \
         type int32",
    );
}

#[test]
fn all_profiles_share_one_queue_sort() {
    assert_eq!(
        refused(
            "profiles: [{schedulerName: a}, {schedulerName: b, plugins: {queueSort: {enabled: [{name: PrioritySort}]}}}]"
        ),
        "profiles[1].plugins.queueSort: Invalid value: {\"Enabled\":[{\"Name\":\"PrioritySort\",\"Weight\":0}],\"Disabled\":null}: \
         must be the same for all profiles"
    );
}

#[test]
fn a_plugin_can_be_disabled_at_one_extension_point() {
    let profile = |plugins: &str| {
        let configuration = read(&format!("profiles: [{{plugins: {{{plugins}}}}}]")).unwrap();
        configuration.profiles[0].clone()
    };
    let standard = profile("filter: {disabled: [{name: Unheard}]}");
    assert!(standard.awaits_claims && deallocates_claims(&standard) && standard.scheduling_gates);
    let off = profile("preEnqueue: {disabled: [{name: '*'}]}");
    assert!(!off.awaits_claims && deallocates_claims(&off) && !off.scheduling_gates);
    let off = profile("postFilter: {disabled: [{name: DynamicResources}]}");
    assert!(off.awaits_claims && !deallocates_claims(&off) && preemption(&off).is_some());
    // A plugin that is disabled at Filter still runs PreFilter, unless that is disabled as well.
    let looks = profile("filter: {disabled: [{name: NodePorts}]}");
    assert_eq!(filters(&looks).last(), Some(&Name::NodePorts));
    let gone = profile(
        "filter: {disabled: [{name: NodePorts}]}, preFilter: {disabled: [{name: NodePorts}]}",
    );
    assert!(!filters(&gone).contains(&Name::NodePorts));
    let first = profile("filter: {enabled: [{name: VolumeZone}]}");
    assert_eq!(filters(&first)[0], Name::VolumeZone);
}

#[test]
fn invalid_extenders_are_rejected() {
    let refused_as = |extenders: &str, expected: &str| {
        assert_eq!(
            refused(&format!("extenders: [{extenders}]")),
            expected,
            "{extenders}"
        );
    };
    refused_as(
        "{urlPrefix: 'http://x', prioritizeVerb: p}",
        "extenders[0].weight: Invalid value: 0: must have a positive weight applied to it",
    );
    refused_as(
        "{bindVerb: b}, {bindVerb: b}",
        "extenders: Invalid value: \"found 2 extenders implementing bind\": only one extender can implement bind",
    );
    refused_as(
        "{managedResources: [{name: a.io/x}]}, {managedResources: [{name: a.io/x}, {name: cpu}]}",
        "[extenders[1].managedResources[0].name: Invalid value: \"a.io/x\": duplicate extender managed resource name, \
         extenders[1].managedResources[1].name: Invalid value: \"cpu\": is an invalid extended resource name]",
    );
}

#[test]
fn volume_binding_args_are_validated() {
    check_volumes(
        "bindTimeoutSeconds: -1",
        "bindTimeoutSeconds: Invalid value: -1: invalid BindTimeoutSeconds, should not be a negative value",
    );
    check_volumes(
        "shape: []",
        "shape: Invalid value: []: unexpected field `shape`, remove it or turn on the feature gate StorageCapacityScoring",
    );
}

#[track_caller]
fn check_volumes(args: &str, complaint: &str) {
    let text = format!("profiles: [{{pluginConfig: [{{name: VolumeBinding, args: {{{args}}}}}]}}]");
    assert_eq!(
        refused(&text),
        format!("profiles[0].pluginConfig[0].args.{complaint}")
    );
}
