//! A controller that survives exploration, and copies of it with one bug each, which exploration finds.
//!
//! For every ConfigMap with the label `role: source` it keeps a child with the same value, and an external resource, which
//! is deleted before the source is (here a ConfigMap without an owner). It reports the value in an annotation.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client, Error, Resource as _, ResourceExt as _};
use mizzen_testing::{Cluster, Explore};

const FINALIZER: &str = "example.com/external";
const OBSERVED: &str = "example.com/observed";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bug {
    None,
    /// The child is looked up in a cache, and created under a random name.
    StaleCache,
    /// The external resource is created before the finalizer is set.
    LateFinalizer,
    /// The value is reported before the child has it, and what is reported is not done again.
    StatusFirst,
    /// The child gets its owner after it was created, and only then.
    LateOwner,
    /// A conflict counts as success.
    IgnoredConflict,
    /// A source that failed is not tried again.
    LostRetry,
}

#[derive(Clone)]
struct Controller {
    configs: Api<ConfigMap>,
    bug: Bug,
}

async fn run(client: Client, bug: Bug) {
    let configs = Api::default_namespaced(client);
    let controller = Controller { configs, bug };
    // The version of each source that was handled.
    let mut handled = HashMap::new();
    loop {
        let sources = ListParams::default().labels("role=source");
        let listed = controller.configs.list(&sources).await;
        for source in listed.map(|list| list.items).unwrap_or_default() {
            let (name, version) = (source.name_any(), source.resource_version());
            if handled.get(&name) == Some(&version) {
                continue;
            }
            match controller.reconcile(source).await {
                Ok(version) => drop(handled.insert(name, version)),
                Err(_) if bug == Bug::LostRetry => drop(handled.insert(name, version)),
                Err(_) => {}
            }
        }
        // Most of what a run costs are these lists.
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

impl Controller {
    /// Returns the version of the source that is handled: the last one that was written here.
    async fn reconcile(&self, mut source: ConfigMap) -> Result<Option<String>, Error> {
        let name = source.name_any();
        if source.metadata.deletion_timestamp.is_some() {
            let external = format!("{name}-external");
            missing_is_ok(
                self.configs
                    .delete(&external, &Default::default())
                    .await
                    .map(drop),
            )?;
            source.finalizers_mut().retain(|one| one != FINALIZER);
            missing_is_ok(self.replace(&source).await.map(drop))?;
            return Ok(None);
        }
        let value = source.data.clone().unwrap_or_default();
        let reported = value.get("value").cloned().unwrap_or_default();
        let is_reported = source.annotations().get(OBSERVED) == Some(&reported);
        if self.bug == Bug::StatusFirst && is_reported {
            return Ok(source.resource_version());
        }
        if self.bug == Bug::LateFinalizer {
            self.create(named(&format!("{name}-external"))).await?;
        }
        if !source.finalizers().iter().any(|one| one == FINALIZER) {
            source.finalizers_mut().push(FINALIZER.into());
            source = self.replace(&source).await?;
        }
        self.create(named(&format!("{name}-external"))).await?;
        if self.bug != Bug::StatusFirst {
            self.ensure_child(&source, &value).await?;
        }
        if !is_reported {
            source.annotations_mut().insert(OBSERVED.into(), reported);
            source = match self.replace(&source).await {
                Err(Error::Api(status))
                    if status.code == 409 && self.bug == Bug::IgnoredConflict =>
                {
                    source
                }
                replaced => replaced?,
            };
        }
        if self.bug == Bug::StatusFirst {
            self.ensure_child(&source, &value).await?;
        }
        Ok(source.resource_version())
    }

    async fn ensure_child(
        &self,
        source: &ConfigMap,
        value: &BTreeMap<String, String>,
    ) -> Result<(), Error> {
        let prefix = format!("{}-child", source.name_any());
        let owner = source.controller_owner_ref(&()).into_iter().collect();
        let mut child = ConfigMap {
            data: Some(value.clone()),
            metadata: ObjectMeta {
                name: Some(prefix.clone()),
                owner_references: Some(owner),
                ..ObjectMeta::default()
            },
            ..ConfigMap::default()
        };
        match self.bug {
            Bug::StaleCache => {
                let cached = self
                    .configs
                    .list(&ListParams::default().match_any())
                    .await?;
                if cached.iter().any(|one| one.name_any().starts_with(&prefix)) {
                    return Ok(());
                }
                child.metadata.name = None;
                child.metadata.generate_name = Some(prefix);
            }
            Bug::LateOwner => {
                let owner = child.metadata.owner_references.take();
                if self.create(child).await? {
                    let patch = serde_json::json!({"metadata": {"ownerReferences": owner}});
                    let patch = Patch::Merge(patch);
                    self.configs
                        .patch(&prefix, &PatchParams::default(), &patch)
                        .await?;
                }
                return Ok(());
            }
            _ => {}
        }
        if !self.create(child.clone()).await? && self.bug != Bug::StaleCache {
            let old = self.configs.get(&child.name_any()).await?;
            if old.data != child.data {
                child.metadata.resource_version = old.resource_version();
                self.replace(&child).await?;
            }
        }
        Ok(())
    }

    async fn replace(&self, config: &ConfigMap) -> Result<ConfigMap, Error> {
        let name = config.name_any();
        self.configs
            .replace(&name, &PostParams::default(), config)
            .await
    }

    /// Returns whether it did not exist.
    async fn create(&self, config: ConfigMap) -> Result<bool, Error> {
        match self.configs.create(&PostParams::default(), &config).await {
            Err(Error::Api(status)) if status.reason == "AlreadyExists" => Ok(false),
            outcome => outcome.map(|_| true),
        }
    }
}

fn named(name: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.into()),
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    }
}

fn missing_is_ok(outcome: Result<(), Error>) -> Result<(), Error> {
    match outcome {
        Err(Error::Api(status)) if status.code == 404 => Ok(()),
        outcome => outcome,
    }
}

async fn scenario(cluster: &Cluster, bug: Bug) {
    cluster.run("copier", move |client| run(client, bug));
    let second = Duration::from_secs(1);
    let source = |name: &str, value: u32| {
        format!(
            "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}, labels: {{role: source}}}}, \
             data: {{value: '{value}'}}}}"
        )
    };
    let configs: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    for name in ["a", "b", "c", "d"] {
        cluster.apply(&source(name, 1)).await;
        cluster.advance(second).await;
    }
    if bug != Bug::LateOwner && bug != Bug::StaleCache {
        cluster.apply(&source("a", 2)).await;
    }
    cluster.advance(second).await;
    if has_deletions(bug) {
        for name in ["b", "c"] {
            configs.delete(name, &Default::default()).await.unwrap();
            cluster.advance(second).await;
        }
    }
}

/// Whether sources are deleted, so that the garbage collector is needed: without it, a child would be left behind only if
/// its source was handled before it was deleted.
fn has_deletions(bug: Bug) -> bool {
    matches!(bug, Bug::None | Bug::LateFinalizer | Bug::LateOwner)
}

fn explore(bug: Bug) -> Explore {
    let controllers = has_deletions(bug).then_some("garbage-collector-controller");
    Explore::new(Cluster::builder().server_only().controllers(controllers))
}

/// Few faults are enough, and the story names the steps.
#[track_caller]
fn is_found(bug: Bug, steps: &[&str]) {
    let finding = explore(bug).seeds(0..100).expect_finding(
        async |cluster: &Cluster| scenario(cluster, bug).await,
        steps,
    );
    let story = finding.story();
    println!("{bug:?}: {story}");
    assert!((1..=6).contains(&finding.faults.len()), "{story}");
}

#[test]
fn a_controller_without_a_bug_survives() {
    let explored = explore(Bug::None)
        .seeds(0..20)
        .run(async |cluster: &Cluster| scenario(cluster, Bug::None).await);
    assert!(explored.n_faults > explored.n_seeds);
}

#[test]
fn a_child_that_is_created_twice_is_found() {
    is_found(
        Bug::StaleCache,
        &[
            "+ ConfigMap default/a-child* of a",
            "copier FAULT LIST configmaps sees a state",
            "copier configmaps/a-child created",
        ],
    );
}

#[test]
fn a_finalizer_that_is_set_too_late_is_found() {
    is_found(
        Bug::LateFinalizer,
        &[
            "+ ConfigMap default/c-external",
            "test configmaps/c deleted",
            "copier configmaps/c-external created",
            "copier configmaps/c PUT answered 404",
        ],
    );
}

#[test]
fn a_status_that_is_written_too_early_is_found() {
    is_found(
        Bug::StatusFirst,
        &[
            "- ConfigMap default/b-child of b",
            "copier FAULT PUT configmaps (b) is applied and answered 500",
            "copier configmaps/b metadata.annotations set",
        ],
    );
}

#[test]
fn a_child_without_an_owner_is_found() {
    is_found(
        Bug::LateOwner,
        &[
            "+ ConfigMap default/a-child {",
            "copier configmaps/a-child created",
            "copier FAULT PATCH configmaps (a-child) gets 409 Conflict, not applied",
            "copier configmaps/a-child POST answered 409",
        ],
    );
}

#[test]
fn a_conflict_that_is_ignored_is_found() {
    is_found(
        Bug::IgnoredConflict,
        &[
            r#"- ConfigMap default/c {"value":"1"} {"example.com/observed":"1"}"#,
            "copier configmaps/c metadata.finalizers set",
            "copier FAULT PUT configmaps (c) gets 409 Conflict, not applied",
        ],
    );
}

#[test]
fn a_retry_that_is_lost_is_found() {
    is_found(
        Bug::LostRetry,
        &[
            r#"- ConfigMap default/c {"value":"1"} {"example.com/observed":"1"}"#,
            "copier configmaps/c metadata.finalizers set",
            "copier FAULT POST configmaps (c-external) gets 503, not applied",
        ],
    );
}
