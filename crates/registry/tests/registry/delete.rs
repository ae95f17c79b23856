//! Deleting objects: finalizers, grace, propagation, preconditions, retries, collections.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use mizzen_object::Status;
use mizzen_registry::{
    BoxFuture, DeleteOptions, ListOptions, NoAdmission, Propagation, Resource, ValidatingAdmission,
};
use mizzen_value::Value;
use mizzen_value::time::from_unix;

use crate::rig::{BEGIN, Rig, UpdateOptions, each_store, key, named, next_events, selected};

const HELD: &str = r#"{"metadata":{"name":"a","finalizers":["example.com/hold"]}}"#;

fn finalizers(object: &Value) -> Vec<&str> {
    object["metadata"]["finalizers"]
        .list()
        .iter()
        .map(Value::str)
        .collect()
}

#[tokio::test]
async fn an_object_that_nothing_holds_is_gone_at_once() {
    for rig in each_store() {
        let maps = rig.config_maps();
        rig.create(&maps, &named("a")).await.unwrap();
        let mut watch = rig.watch(&maps, &rig.revision()).await;
        let deleted = rig.delete(&maps, &DeleteOptions::default()).await.unwrap();
        assert!(deleted.gone);
        assert_eq!(rig.read(&maps).await.unwrap_err().code, 404);
        let expected = format!("DELETED a {}", rig.revision());
        assert_eq!(next_events(&mut watch, 1).await, [expected]);
        let again = rig.delete(&maps, &DeleteOptions::default()).await;
        assert_eq!(again.err().unwrap().code, 404);
    }
}

#[tokio::test]
async fn an_object_with_finalizers_goes_with_the_last_of_them() {
    for rig in each_store() {
        let maps = rig.config_maps();
        rig.create(&maps, HELD).await.unwrap();
        rig.clock.advance(5);
        let deleted = rig.delete(&maps, &DeleteOptions::default()).await.unwrap();
        assert!(!deleted.gone);
        let metadata = &rig.read(&maps).await.unwrap()["metadata"];
        assert_eq!(metadata["deletionTimestamp"].str(), from_unix(BEGIN + 5));
        assert_eq!(metadata["deletionGracePeriodSeconds"].as_int(), Some(0));

        let marked = rig.revision();
        rig.clock.advance(5);
        assert!(
            !rig.delete(&maps, &DeleteOptions::default())
                .await
                .unwrap()
                .gone
        );
        assert_eq!(rig.revision(), marked, "deleted again, it stays as it is");

        let mut watch = rig.watch(&maps, &marked).await;
        let release = |current: Option<&Value>| {
            let mut new = current.unwrap().clone();
            new.entry("metadata").remove("finalizers");
            new
        };
        let updated = rig
            .edit(&maps, &UpdateOptions::default(), release)
            .await
            .unwrap();
        assert!(finalizers(&updated.object.value()).is_empty());
        assert_eq!(rig.read(&maps).await.unwrap_err().code, 404);
        let expected = format!("DELETED a {}", rig.revision());
        assert_eq!(next_events(&mut watch, 1).await, [expected]);
    }
}

const POD: &str = r#"{"metadata":{"name":"a"},"spec":{"nodeName":"n","containers":[{"name":"c","image":"i"}],
    "terminationGracePeriodSeconds":30}}"#;

fn grace(seconds: i64) -> DeleteOptions {
    DeleteOptions {
        grace: Some(seconds),
        ..DeleteOptions::default()
    }
}

#[tokio::test]
async fn a_grace_period_only_becomes_shorter() {
    for rig in each_store() {
        let pods = rig.resource("v1/pods");
        rig.create(&pods, POD).await.unwrap();
        let deleted = rig.delete(&pods, &DeleteOptions::default()).await.unwrap();
        let ends = |object: Value| {
            let metadata = &object["metadata"];
            (
                metadata["deletionTimestamp"].str().to_owned(),
                metadata["deletionGracePeriodSeconds"].int(),
            )
        };
        assert!(!deleted.gone);
        assert_eq!(ends(deleted.object.value()), (from_unix(BEGIN + 30), 30));
        rig.clock.advance(4);
        let longer = rig.delete(&pods, &grace(60)).await.unwrap();
        assert_eq!(ends(longer.object.value()), (from_unix(BEGIN + 30), 30));
        let shorter = rig.delete(&pods, &grace(10)).await.unwrap();
        assert_eq!(ends(shorter.object.value()), (from_unix(BEGIN + 10), 10));
        assert!(!shorter.gone);
    }
}

#[tokio::test]
async fn a_grace_period_of_zero_is_seen_by_watches_before_the_object_is_gone() {
    for rig in each_store() {
        let pods = rig.resource("v1/pods");
        rig.create(&pods, POD).await.unwrap();
        let created: u64 = rig.revision().parse().unwrap();
        let mut watch = rig.watch(&pods, &rig.revision()).await;
        assert!(rig.delete(&pods, &grace(0)).await.unwrap().gone);
        let expected = [
            format!("MODIFIED a {}", created + 1),
            format!("DELETED a {}", created + 2),
        ];
        assert_eq!(next_events(&mut watch, 2).await, expected);
    }
}

/// As a kubelet removes it with the last status of its pod.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_without_a_grace_period_may_be_removed_by_another_component_meanwhile() {
    for rig in each_store().map(Arc::new) {
        let pods = rig.resource("v1/pods");
        for _ in 0..200 {
            rig.create(&pods, POD).await.unwrap();
            let mut watch = rig.watch(&pods, &rig.revision()).await;
            let (other, resource) = (rig.clone(), pods.clone());
            let component = tokio::spawn(async move {
                next_events(&mut watch, 1).await;
                let _ = other.delete(&resource, &grace(0)).await;
            });
            assert!(rig.delete(&pods, &grace(0)).await.unwrap().gone);
            component.await.unwrap();
        }
    }
}

#[tokio::test]
async fn propagation_is_recorded_as_finalizers() {
    for (propagation, expected) in [
        (Propagation::Orphan, "orphan"),
        (Propagation::Foreground, "foregroundDeletion"),
    ] {
        for rig in each_store() {
            let maps = rig.config_maps();
            rig.create(&maps, &named("a")).await.unwrap();
            let options = DeleteOptions {
                propagation: Some(propagation),
                ..DeleteOptions::default()
            };
            assert!(!rig.delete(&maps, &options).await.unwrap().gone);
            assert_eq!(finalizers(&rig.read(&maps).await.unwrap()), [expected]);
            let background = DeleteOptions {
                propagation: Some(Propagation::Background),
                ..DeleteOptions::default()
            };
            assert!(rig.delete(&maps, &background).await.unwrap().gone);
        }
    }
}

#[tokio::test]
async fn a_delete_can_name_the_uid_and_the_version_that_it_means() {
    for rig in each_store() {
        let maps = rig.config_maps();
        let created = rig.create(&maps, &named("a")).await.unwrap().value();
        let text = |field: &str| Some(created["metadata"][field].str().to_owned());
        let (uid, version) = (text("uid"), text("resourceVersion"));
        for options in [
            DeleteOptions {
                uid: Some("other".into()),
                ..DeleteOptions::default()
            },
            DeleteOptions {
                version: Some("1".into()),
                ..DeleteOptions::default()
            },
        ] {
            let refusal = rig.delete(&maps, &options).await.err().unwrap();
            assert_eq!((refusal.code, refusal.reason.as_str()), (409, "Conflict"));
        }
        let options = DeleteOptions {
            uid,
            version,
            ..DeleteOptions::default()
        };
        assert!(rig.delete(&maps, &options).await.unwrap().gone);
    }
}

#[tokio::test]
async fn a_dry_run_of_a_delete_deletes_nothing() {
    for rig in each_store() {
        let maps = rig.config_maps();
        rig.create(&maps, &named("a")).await.unwrap();
        let before = rig.revision();
        let options = DeleteOptions {
            dry_run: true,
            ..DeleteOptions::default()
        };
        assert!(rig.delete(&maps, &options).await.unwrap().gone);
        assert_eq!(rig.revision(), before);
        assert!(rig.read(&maps).await.is_ok());
    }
}

/// Changes the object when it is first checked, as another writer may.
struct Overtakes<'a> {
    rig: &'a Rig,
    maps: &'a Resource,
    n_checks: AtomicUsize,
}

impl ValidatingAdmission for Overtakes<'_> {
    fn check<'a>(
        &'a self,
        _: Option<&'a Value>,
        old: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move {
            if self.n_checks.fetch_add(1, Ordering::Relaxed) == 0 {
                let mut new = old.unwrap().clone();
                new.entry("data").set("k", "v");
                let options = UpdateOptions::default();
                self.rig
                    .edit(self.maps, &options, move |_| new.clone())
                    .await
                    .map(drop)?;
            }
            Ok(())
        })
    }
}

#[tokio::test]
async fn a_delete_that_lost_a_race_is_tried_again() {
    for rig in each_store() {
        let maps = &rig.config_maps();
        rig.create(maps, &named("a")).await.unwrap();
        let gate = Overtakes {
            rig: &rig,
            maps,
            n_checks: AtomicUsize::new(0),
        };
        let options = DeleteOptions::default();
        let deleted = rig
            .registry
            .delete(maps, &key("a"), &options, &gate)
            .await
            .unwrap();
        assert!(deleted.gone);
        assert_eq!(deleted.object.value()["data"]["k"].str(), "v");
        assert_eq!(gate.n_checks.into_inner(), 2);
    }
}

#[tokio::test]
async fn a_collection_is_deleted_as_far_as_it_is_selected() {
    for rig in each_store() {
        let maps = rig.config_maps();
        for (name, label) in [("a", "x"), ("b", "y"), ("c", "x")] {
            let text = format!(r#"{{"metadata":{{"name":"{name}","labels":{{"l":"{label}"}}}}}}"#);
            rig.create(&maps, &text).await.unwrap();
        }
        let list = ListOptions {
            selection: selected("l=x", ""),
            ..ListOptions::default()
        };
        let options = DeleteOptions::default();
        let deleted = rig
            .registry
            .delete_collection(&maps, &list, &options, &NoAdmission)
            .await;
        assert_eq!(crate::rig::names(&deleted.ok().unwrap()), ["a", "c"]);
        let left = rig.list(&maps, &ListOptions::default()).await.ok().unwrap();
        assert_eq!(crate::rig::names(&left), ["b"]);
    }
}
