//! Volumes of real pods: what containers see in them, and what is left of them.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use mizzen_node::PROVISIONER;
use mizzen_sdk::resource::{
    CONFIG_MAPS, EVENTS, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, SECRETS,
    STORAGE_CLASSES,
};
use mizzen_testing::Cluster;
use mizzen_value::Value;

use super::{RealNode, container};
use crate::fixtures::{create, delete_pod, events_of, get_pod};

impl RealNode {
    /// The output of a command in the container `c` of a pod.
    pub(super) async fn sh(&self, pod: &str, command: &str) -> String {
        let (out, err, code) = self.exec(pod, command, "").await;
        assert_eq!(code, 0, "{command}: {out}{err}");
        out
    }

    /// Waits until an event about a pod has a text.
    async fn until_event(&self, pod: &str, text: &str) {
        self.until(&format!("an event of {pod} says {text}"), async |node| {
            let events = events_of(&node.cluster, pod).await;
            events.iter().any(|event| event.contains(text))
        })
        .await;
    }

    async fn until_output(&self, pod: &str, command: &str, wanted: &str) {
        self.until(&format!("{command} prints {wanted}"), async |node| {
            node.exec(pod, command, "").await.0 == wanted
        })
        .await;
    }

    /// Changes an annotation of a pod, which syncs its volumes.
    pub(super) async fn annotate(&self, pod: &str, value: &str) {
        let key = format!("default/{pod}");
        let change = format!("{{metadata: {{annotations: {{note: {value}}}}}}}");
        self.cluster.patch(&PODS, &key, "", &change).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_follow_their_objects_together() {
    let Some(mut node) = RealNode::start("real-files", 41).await else {
        return;
    };
    let cluster = &node.cluster;
    for (name, more) in [("config", ""), ("fixed", "immutable: true, ")] {
        let text = format!("{{metadata: {{name: {name}}}, {more}data: {{a: '1', b: '1'}}}}");
        create(cluster, &CONFIG_MAPS, &text).await;
    }
    let spec = container(
        "command: [sleep, '1000'], volumeMounts: [{name: config, mountPath: /config}, \
         {name: config, mountPath: /part, subPath: a}, {name: fixed, mountPath: /fixed}, \
         {name: later, mountPath: /later}, {name: info, mountPath: /info}, {name: token, mountPath: /token}]",
    );
    let volumes = "volumes: [{name: config, configMap: {name: config}}, {name: fixed, configMap: {name: fixed}}, \
         {name: later, secret: {secretName: later, optional: true, defaultMode: 0400}}, \
         {name: info, downwardAPI: {items: [{path: notes, fieldRef: {fieldPath: metadata.annotations}}]}}, \
         {name: token, projected: {sources: [{serviceAccountToken: {path: token, expirationSeconds: 600}}]}}], \
         securityContext: {runAsUser: 1000, fsGroup: 2000}, serviceAccountName: default";
    create(
        cluster,
        &mizzen_sdk::resource::SERVICE_ACCOUNTS,
        "{metadata: {name: default}}",
    )
    .await;
    node.run("web", &format!("{spec}, {volumes}")).await;
    node.until_pod("web", "ready=True c=running").await;
    assert_eq!(node.sh("web", "cat /config/a /part; ls /later").await, "11");
    // Only the user and the group of the pod read the token, which reaches no disk.
    let seen = "stat -L -c '%a %u %g' /token/token; mount | grep -c '/token type tmpfs'";
    assert_eq!(node.sh("web", seen).await, "640 1000 2000\n1\n");
    let token = node.sh("web", "cat /token/token").await;
    assert_eq!(token.split('.').count(), 3, "{token}");

    let changed = "{data: {a: '2', b: null, c: '2'}}";
    node.cluster
        .patch(&CONFIG_MAPS, "default/config", "", changed)
        .await;
    // An immutable object was read for good, even if another one takes its name.
    node.cluster.delete(&CONFIG_MAPS, "default/fixed").await;
    let another = "{metadata: {name: fixed}, data: {a: '2'}}";
    create(&node.cluster, &CONFIG_MAPS, another).await;
    let secret = "{metadata: {name: later}, data: {key: bmV3}}";
    create(&node.cluster, &SECRETS, secret).await;
    node.annotate("web", "changed").await;
    let seen = "cd /config; echo $(ls) $(cat a c /part /fixed/a /later/key /info/notes)";
    node.until_output("web", seen, "a c 2211newnote=\"changed\"\n")
        .await;
    let versions = "ls -A /config | grep -cE '^[.][.][0-9a-f]+$'";
    node.until_output("web", versions, "1\n").await;

    // Without the object its files stay, and an event says why they do not follow.
    node.cluster.delete(&CONFIG_MAPS, "default/config").await;
    node.annotate("web", "again").await;
    let failed = "Warning FailedMount  MountVolume.SetUp failed for volume \"config\" : configmap \"config\" not found";
    node.until_event("web", failed).await;
    assert_eq!(node.sh("web", "cat /config/a").await, "2");
    let replacement = "{metadata: {name: config}, data: {a: '3'}}";
    create(&node.cluster, &CONFIG_MAPS, replacement).await;
    node.until_output("web", "cat /config/a", "3").await;

    // An agent without the token requests another one, and the container reads that.
    node.run_agent().await;
    node.until("the token is replaced", async |node| {
        let now = node.exec("web", "cat /token/token", "").await.0;
        now != token && now.split('.').count() == 3
    })
    .await;
    assert_eq!(node.sh("web", "cat /part").await, "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_has_ended_keeps_its_logs_and_not_its_volumes() {
    let Some(mut node) = RealNode::start("real-ended", 46).await else {
        return;
    };
    let secret = "{metadata: {name: secret}, data: {key: bmV3}}";
    create(&node.cluster, &SECRETS, secret).await;
    let volumes = "volumes: [{name: disk, emptyDir: {}}, {name: memory, emptyDir: {medium: Memory}}, \
                   {name: secret, secret: {secretName: secret}}]";
    let spec = |rest: &str| {
        let container = container(&format!(
            "command: [sh, -c, 'echo logged; echo x > /disk/x; echo x > /memory/x; {rest}'], volumeMounts: \
             [{{name: disk, mountPath: /disk}}, {{name: memory, mountPath: /memory}}, \
             {{name: secret, mountPath: /secret}}, {{name: disk, mountPath: /part, subPath: part}}]"
        ));
        format!("{container}, {volumes}, restartPolicy: Never, terminationGracePeriodSeconds: 1")
    };
    let late = format!("activeDeadlineSeconds: 3, {}", spec("exec sleep 1000"));
    for (name, spec, ended) in [
        ("done", spec("exit 0"), "Succeeded"),
        ("late", late, "Failed"),
    ] {
        node.run(name, &spec).await;
        let pod = node.until_pod(name, ended).await;
        let dir = node.volumes_dir().join(pod.uid());
        // The status says that it has ended once the volumes are gone.
        assert!(dir.is_dir());
        for part in ["volumes", "volume-subpaths"] {
            assert!(!dir.join(part).exists(), "{name}: {part}");
        }
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        assert!(!mounts.contains(pod.uid()), "{name}: {mounts}");
        assert_eq!(node.log(name, "").await, "logged\n");
    }

    // What an agent has left that was killed in between is removed by the next one.
    node.cluster.restart_with(|builder| builder.nodes(0)).await;
    let done = get_pod(&node.cluster, "done").await;
    let left = node.volumes_dir().join(done.uid()).join("volumes");
    fs::create_dir(&left).unwrap();
    node.run_agent().await;
    node.until("the volumes are removed", async |_| !left.exists())
        .await;
    assert_eq!(node.log("done", "").await, "logged\n");
}

/// Creates a volume and a claim that are bound to each other.
pub(super) async fn create_bound(node: &RealNode, name: &str, source: &str) {
    let cluster = &node.cluster;
    let claim = create_claim(node, name).await;
    let uid = claim["metadata"]["uid"].str();
    let volume = format!(
        "{{apiVersion: v1, kind: PersistentVolume, metadata: {{name: pv-{name}}}, spec: {{capacity: {{storage: 1Gi}}, \
         accessModes: [ReadWriteOnce], claimRef: {{namespace: default, name: {name}, uid: {uid}}}, {source}}}}}"
    );
    cluster.apply(&volume).await;
    let key = format!("default/{name}");
    let bound = format!("{{spec: {{volumeName: pv-{name}}}}}");
    cluster
        .patch(&PERSISTENT_VOLUME_CLAIMS, &key, "", &bound)
        .await;
    let set_bound = |status: &mut Value| status.set("phase", "Bound");
    cluster
        .change_status(&PERSISTENT_VOLUME_CLAIMS, &key, set_bound)
        .await;
}

async fn create_claim(node: &RealNode, name: &str) -> mizzen_sdk::Object {
    let text = format!(
        "{{metadata: {{name: {name}}}, spec: {{accessModes: [ReadWriteOnce], storageClassName: '', \
         resources: {{requests: {{storage: 1Gi}}}}}}}}"
    );
    create(&node.cluster, &PERSISTENT_VOLUME_CLAIMS, &text).await
}

pub(super) fn only_on(node: &str) -> String {
    format!(
        "nodeAffinity: {{required: {{nodeSelectorTerms: [{{matchExpressions: [{{key: kubernetes.io/hostname, \
         operator: In, values: [{node}]}}]}}]}}}}"
    )
}

/// A pod with one claim at `/data`.
pub(super) fn with_claim(command: &str, claim: &str) -> String {
    let container = container(&format!(
        "command: {command}, volumeMounts: [{{name: data, mountPath: /data}}]"
    ));
    format!("{container}, volumes: [{{name: data, persistentVolumeClaim: {{{claim}}}}}]")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_waits_for_its_claim_and_sees_its_directory() {
    let Some(node) = RealNode::start("real-claims", 42).await else {
        return;
    };
    let sleep = "[sleep, '1000']";
    node.run("early", &with_claim(sleep, "claimName: early"))
        .await;
    let waits = "Unable to attach or mount volumes: unmounted volumes=[data], unattached volumes=[], \
                 failed to process volumes=[data]: error processing PVC default/early:";
    let missing = "failed to fetch PVC from API server: persistentvolumeclaims \"early\" not found";
    node.until_event("early", &format!("{waits} {missing}"))
        .await;

    // Volumes that this node cannot mount: of a CSI driver, of another node, without its directory.
    let csi = "csi: {driver: far.example.com, volumeHandle: x}";
    create_bound(&node, "far", csi).await;
    let dir = node.containerd.path("disk");
    fs::create_dir(&dir).unwrap();
    let local = format!("local: {{path: '{}'}}", dir.display());
    create_bound(
        &node,
        "other",
        &format!("{local}, {}", only_on("elsewhere")),
    )
    .await;
    let nowhere = node.containerd.path("nowhere");
    let lost = format!(
        "local: {{path: '{}'}}, {}",
        nowhere.display(),
        only_on(node.name)
    );
    create_bound(&node, "lost", &lost).await;
    for name in ["far", "other", "lost"] {
        node.run(name, &with_claim(sleep, &format!("claimName: {name}")))
            .await;
    }
    node.until_event(
        "far",
        "MountVolume.MountDevice failed for volume \"pv-far\" : kubernetes.io/csi: attacher.MountDevice failed to create \
         newCsiDriverClient: driver name far.example.com not found in the list of registered CSI drivers",
    )
    .await;
    let affinity = "MountVolume.NodeAffinity check failed for volume \"pv-other\" : no matching NodeSelectorTerms";
    node.until_event("other", affinity).await;
    let missing = format!(
        "MountVolume.NewMounter initialization failed for volume \"pv-lost\" : path {nowhere:?} does not exist"
    );
    node.until_event("lost", &missing).await;

    fs::write(dir.join("file"), "kept").unwrap();
    create_bound(&node, "early", &format!("{local}, {}", only_on(node.name))).await;
    let spec = with_claim(sleep, "claimName: early");
    let grace = "terminationGracePeriodSeconds: 2";
    let group = "securityContext: {runAsUser: 1000, fsGroup: 2000}";
    node.run("writer", &format!("{spec}, {group}, {grace}"))
        .await;
    node.until_pod("writer", "ready=True c=running").await;
    let write = "cat /data/file; echo more > /data/new";
    assert_eq!(node.sh("writer", write).await, "kept");
    let new = fs::metadata(dir.join("new")).unwrap();
    assert_eq!((new.uid(), new.gid()), (1000, 2000));
    let read_only = with_claim(sleep, "claimName: early, readOnly: true");
    node.run("reader", &format!("{read_only}, {grace}")).await;
    node.until_pod("reader", "ready=True c=running").await;
    let (_, err, code) = node.exec("reader", "touch /data/x", "").await;
    assert!(code != 0 && err.contains("Read-only"), "{err}");

    delete_pod(&node.cluster, "writer", Some(0)).await;
    delete_pod(&node.cluster, "reader", Some(0)).await;
    node.until("both pods are gone", async |node| {
        let directories = fs::read_dir(node.volumes_dir()).unwrap();
        let left = directories
            .flatten()
            .filter(|pod| pod.path().join("etc-hosts").exists());
        left.count() <= 1
    })
    .await;
    assert_eq!(fs::read_to_string(dir.join("new")).unwrap(), "more\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_gets_a_directory_that_grows_and_goes_with_it() {
    let controllers = [
        "persistentvolume-binder-controller",
        "persistentvolume-expander-controller",
        "persistentvolume-protection-controller",
        "persistentvolumeclaim-protection-controller",
        "ephemeral-volume-controller",
        // It removes the taint of a node that was not ready.
        "node-lifecycle-controller",
    ];
    let builder = Cluster::builder()
        .without_bootstrap()
        .controllers(controllers)
        .scheduler(true)
        .nodes(0);
    let Some(node) = RealNode::start_in(builder, "real-classes", 43).await else {
        return;
    };
    let cluster = &node.cluster;
    let class = format!(
        "{{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {{name: standard}}, provisioner: {PROVISIONER}, \
         volumeBindingMode: WaitForFirstConsumer, allowVolumeExpansion: true, allowedTopologies: [{{matchLabelExpressions: \
         [{{key: mizzen.dev/node-runtime, values: [cri]}}]}}]}}"
    );
    cluster.apply(&class).await;
    cluster.object(&STORAGE_CLASSES, "standard").await;
    let claim_spec = "accessModes: [ReadWriteOnce], storageClassName: standard, resources: {requests: {storage: 1Gi}}";
    let claim = format!("{{metadata: {{name: data}}, spec: {{{claim_spec}}}}}");
    create(cluster, &PERSISTENT_VOLUME_CLAIMS, &claim).await;
    let container = container(
        "command: [sleep, '1000'], volumeMounts: [{name: data, mountPath: /data}, {name: own, mountPath: /own, \
         subPathExpr: $(WHO)}], env: [{name: WHO, value: me}]",
    );
    let spec = format!(
        "{container}, terminationGracePeriodSeconds: 2, \
         volumes: [{{name: data, persistentVolumeClaim: {{claimName: data}}}}, \
         {{name: own, ephemeral: {{volumeClaimTemplate: {{spec: {{{claim_spec}}}}}}}}}]"
    );
    // The scheduler selects the node.
    for _ in 0..2 {
        let pod = format!("{{metadata: {{name: web}}, spec: {{{spec}}}}}");
        create(cluster, &PODS, &pod).await;
        node.until_pod("web", "ready=True c=running").await;
        node.sh("web", "touch /own/x; echo here >> /data/log").await;
        delete_pod(cluster, "web", Some(0)).await;
        node.until("the pod is gone", async |node| {
            node.cluster.objects(&PODS, "").await.is_empty()
        })
        .await;
        // No garbage collector runs that would remove the claim of the pod.
        cluster
            .delete(&PERSISTENT_VOLUME_CLAIMS, "default/web-own")
            .await;
        node.until("the ephemeral volume is gone", async |node| {
            node.cluster.objects(&PERSISTENT_VOLUMES, "").await.len() == 1
        })
        .await;
    }
    let directories = node.containerd.path("node").join("volumes");
    let only = || -> Vec<_> {
        let entries = fs::read_dir(&directories).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect()
    };
    let [directory] = &only()[..] else {
        panic!("{:?}", only());
    };
    let log = fs::read_to_string(directory.join("log")).unwrap();
    assert_eq!(log, "here\nhere\n");

    let larger = "{spec: {resources: {requests: {storage: 2Gi}}}}";
    cluster
        .patch(&PERSISTENT_VOLUME_CLAIMS, "default/data", "", larger)
        .await;
    node.until("the claim has grown", async |node| {
        let claim = node
            .cluster
            .object(&PERSISTENT_VOLUME_CLAIMS, "default/data")
            .await;
        let status = &claim["status"];
        status["capacity"]["storage"].str() == "2Gi"
            && status["conditions"].list().is_empty()
            && status["allocatedResourceStatuses"].is_empty()
    })
    .await;
    let volumes = cluster.objects(&PERSISTENT_VOLUMES, "").await;
    assert_eq!(volumes[0]["spec"]["capacity"]["storage"].str(), "2Gi");
    let events = cluster.objects(&EVENTS, "default").await;
    let reasons: Vec<&str> = events.iter().map(|event| event["reason"].str()).collect();
    for wanted in [
        "ProvisioningSucceeded",
        "Resizing",
        "VolumeResizeSuccessful",
    ] {
        assert!(reasons.contains(&wanted), "{reasons:?}");
    }

    cluster
        .delete(&PERSISTENT_VOLUME_CLAIMS, "default/data")
        .await;
    node.until("the volume and its data are gone", async |node| {
        node.cluster
            .objects(&PERSISTENT_VOLUMES, "")
            .await
            .is_empty()
            && only().is_empty()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_cannot_leave_its_volumes_or_fill_them() {
    let Some(mut node) = RealNode::start("real-paths", 44).await else {
        return;
    };
    // The second start finds a link to the host where its subPath was.
    let escape = container(
        "command: [sh, -c, 'if [ -e /all/n ]; then exit 1; fi; touch /all/n; rm -r /all/part; ln -s /etc /all/part; exit 1'], \
         volumeMounts: [{name: v, mountPath: /all}, {name: v, mountPath: /part, subPath: part}]",
    );
    node.run(
        "escape",
        &format!("{escape}, volumes: [{{name: v, emptyDir: {{}}}}]"),
    )
    .await;
    let pod = node
        .until_pod("escape", "c=CreateContainerConfigError")
        .await;
    let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"];
    let message = waiting["message"].str();
    let expected = "failed to prepare subPath for volumeMount \"v\" of container \"c\"";
    assert!(message.starts_with(expected), "{message}");

    let strict = container(
        "command: [sleep, '1000'], volumeMounts: [{name: v, mountPath: /v, readOnly: true, recursiveReadOnly: Enabled}]",
    );
    node.run(
        "strict",
        &format!("{strict}, volumes: [{{name: v, emptyDir: {{}}}}]"),
    )
    .await;
    let pod = node
        .until_pod("strict", "c=CreateContainerConfigError")
        .await;
    let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"];
    assert_eq!(
        waiting["message"].str(),
        "failed to resolve recursive read-only mode: volume \"v\" requested recursive read-only mode, but it is not \
         supported by the runtime"
    );

    let greedy = container(
        "command: [sh, -c, 'head -c 3000000 /dev/zero > /v/big; exec sleep 1000'], \
         volumeMounts: [{name: v, mountPath: /v}]",
    );
    let limited = "volumes: [{name: v, emptyDir: {sizeLimit: 1Mi}}]";
    node.run("greedy", &format!("{greedy}, {limited}")).await;
    let pod = node.until_pod("greedy", "Failed ready=False").await;
    let said = "Usage of EmptyDir volume \"v\" exceeds the limit \"1Mi\". ";
    let status = &pod["status"];
    assert_eq!(
        (status["reason"].str(), status["message"].str()),
        ("Evicted", said)
    );
    node.until_event("greedy", &format!("Warning Evicted  {said}"))
        .await;

    // What an agent left that ended at the wrong moment is removed by the next one.
    node.cluster.restart_with(|builder| builder.nodes(0)).await;
    let orphan = node.volumes_dir().join("orphan");
    let stranger = node.volumes_dir().join("stranger");
    for (dir, owner) in [(&orphan, node.name), (&stranger, "another-node")] {
        fs::create_dir_all(dir.join("volumes")).unwrap();
        fs::write(dir.join("node"), owner).unwrap();
    }
    let mount = |path: &Path| {
        nix::mount::mount(
            Some("tmpfs"),
            path,
            Some("tmpfs"),
            nix::mount::MsFlags::empty(),
            None::<&str>,
        )
    };
    mount(&orphan.join("volumes")).unwrap();
    for name in ["escape", "strict", "greedy"] {
        delete_pod(&node.cluster, name, Some(0)).await;
    }
    node.run_agent().await;
    node.until("the directories are removed", async |node| {
        let left = fs::read_dir(node.volumes_dir()).unwrap().flatten();
        let left: Vec<_> = left.map(|entry| entry.path()).collect();
        left == [stranger.clone()]
    })
    .await;
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let root = node.volumes_dir().display().to_string();
    assert!(!mounts.contains(&root), "{mounts}");
}
