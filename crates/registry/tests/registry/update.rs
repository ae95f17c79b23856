//! Changing objects: conflicts, retries, preconditions, parts, dry run.

use mizzen_object::schema::CanonicalObject;
use mizzen_object::{Action, Status};
use mizzen_registry::{BoxFuture, DeleteOptions, Resource, UpdateFn};
use mizzen_value::Value;

use crate::rig::{Rig, UpdateOptions, each_store, named};

fn set_data(current: &Value, key: &str) -> Value {
    let mut new = current.clone();
    new.entry("data").set(key, "v");
    new
}

#[tokio::test]
async fn an_update_without_a_version_replaces_what_is_there() {
    for rig in each_store() {
        let maps = rig.config_maps();
        let first = rig.create(&maps, &named("a")).await.unwrap().value();
        let text = r#"{"metadata":{"name":"a"},"data":{"k":"v"}}"#;
        let options = UpdateOptions::default();
        let updated = rig.replace(&maps, text, &options).await.unwrap();
        let object = updated.object.value();
        assert!(!updated.created);
        assert_eq!(object["data"]["k"].str(), "v");
        assert_eq!(object["metadata"]["resourceVersion"].str(), rig.revision());
        for field in ["uid", "creationTimestamp"] {
            assert_eq!(object["metadata"][field], first["metadata"][field]);
        }
    }
}

#[tokio::test]
async fn an_update_of_an_older_version_is_a_conflict() {
    for rig in each_store() {
        let maps = rig.config_maps();
        let first = rig.create(&maps, &named("a")).await.unwrap().value();
        let options = UpdateOptions::default();
        let edit = |current: Option<&Value>| set_data(current.unwrap(), "x");
        rig.edit(&maps, &options, edit).await.unwrap();
        let stale = move |_: Option<&Value>| set_data(&first, "y");
        let refusal = rig.edit(&maps, &options, stale).await.err().unwrap();
        assert_eq!((refusal.code, refusal.reason.as_str()), (409, "Conflict"));
        assert!(refusal.message.contains("the object has been modified"));
    }
}

/// Before it first makes its change, another writer changes the same object, or deletes it.
struct Overtaken<'a> {
    rig: &'a Rig,
    maps: &'a Resource,
    deletes: bool,
    keeps_version: bool,
    n_calls: usize,
}

impl UpdateFn for Overtaken<'_> {
    fn apply<'a>(
        &'a mut self,
        current: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<CanonicalObject, Status>> {
        Box::pin(async move {
            let current = current.unwrap();
            self.n_calls += 1;
            if self.n_calls == 1 && self.deletes {
                let deleted = self.rig.delete(self.maps, &DeleteOptions::default()).await;
                assert!(deleted.unwrap().gone);
            } else if self.n_calls == 1 {
                let other = |current: Option<&Value>| set_data(current.unwrap(), "other");
                let options = UpdateOptions::default();
                self.rig.edit(self.maps, &options, other).await.unwrap();
            }
            let mut new = set_data(current, "own");
            match self.keeps_version {
                // As a PUT: the version is what the client named, whatever is there.
                true => new.entry("metadata").set("resourceVersion", "2"),
                false => drop(new.entry("metadata").remove("resourceVersion")),
            }
            Ok(new.into())
        })
    }
}

#[tokio::test]
async fn an_update_that_lost_a_race_is_tried_again() {
    for rig in each_store() {
        let maps = &rig.config_maps();
        rig.create(maps, &named("a")).await.unwrap();
        let mut change = Overtaken {
            rig: &rig,
            maps,
            deletes: false,
            keeps_version: false,
            n_calls: 0,
        };
        let updated = rig
            .change(maps, &UpdateOptions::default(), &mut change)
            .await
            .unwrap();
        assert_eq!(change.n_calls, 2);
        let object = updated.object.value();
        assert_eq!(
            (object["data"]["own"].str(), object["data"]["other"].str()),
            ("v", "v")
        );
    }
}

#[tokio::test]
async fn an_update_that_names_a_version_and_lost_a_race_is_a_conflict() {
    for rig in each_store() {
        let maps = &rig.config_maps();
        let first = rig.create(maps, &named("a")).await.unwrap().value();
        assert_eq!(first["metadata"]["resourceVersion"].str(), "2");
        let mut change = Overtaken {
            rig: &rig,
            maps,
            deletes: false,
            keeps_version: true,
            n_calls: 0,
        };
        let outcome = rig
            .change(maps, &UpdateOptions::default(), &mut change)
            .await;
        assert_eq!(outcome.err().unwrap().code, 409);
        assert_eq!(change.n_calls, 2);
        assert!(rig.read(maps).await.unwrap()["data"]["own"].is_null());
    }
}

#[tokio::test]
async fn an_update_of_an_object_that_was_deleted_meanwhile_finds_nothing() {
    for rig in each_store() {
        let maps = &rig.config_maps();
        rig.create(maps, &named("a")).await.unwrap();
        let mut change = Overtaken {
            rig: &rig,
            maps,
            deletes: true,
            keeps_version: false,
            n_calls: 0,
        };
        let outcome = rig
            .change(maps, &UpdateOptions::default(), &mut change)
            .await;
        assert_eq!(outcome.err().unwrap().code, 404);
        assert_eq!(change.n_calls, 1);
    }
}

#[tokio::test]
async fn an_update_that_changes_nothing_takes_no_revision() {
    for rig in each_store() {
        let maps = rig.config_maps();
        rig.create(&maps, &named("a")).await.unwrap();
        let before = rig.revision();
        let same = rig
            .replace(&maps, &named("a"), &UpdateOptions::default())
            .await
            .unwrap();
        assert_eq!(
            same.object.value()["metadata"]["resourceVersion"].str(),
            before
        );
        assert_eq!(rig.revision(), before);
    }
}

#[tokio::test]
async fn an_update_creates_what_is_not_there_if_it_may() {
    for rig in each_store() {
        let maps = rig.config_maps();
        let options = UpdateOptions {
            create: true,
            ..UpdateOptions::default()
        };
        let refused = rig
            .replace(&maps, &named("a"), &UpdateOptions::default())
            .await;
        assert_eq!(refused.err().unwrap().code, 404);
        let versioned = r#"{"metadata":{"name":"a","resourceVersion":"1"}}"#;
        let created = rig.replace(&maps, versioned, &options).await.unwrap();
        assert!(created.created);
        assert!(
            !rig.replace(&maps, &named("a"), &options)
                .await
                .unwrap()
                .created
        );
    }
}

#[tokio::test]
async fn an_update_can_name_the_uid_that_it_means() {
    for rig in each_store() {
        let maps = rig.config_maps();
        rig.create(&maps, &named("a")).await.unwrap();
        let other = r#"{"metadata":{"name":"a","uid":"other"}}"#;
        let options = UpdateOptions {
            uid_precondition: true,
            ..UpdateOptions::default()
        };
        let refusal = rig.replace(&maps, other, &options).await.err().unwrap();
        assert_eq!(refusal.code, 409);
        assert!(
            refusal
                .message
                .contains("Precondition failed: UID in precondition: other")
        );
    }
}

#[tokio::test]
async fn some_kinds_are_updated_only_at_a_version() {
    for rig in each_store() {
        let budgets = rig.resource("policy/v1/poddisruptionbudgets");
        assert!(budgets.kind().rules.conditional_update);
        rig.create(&budgets, &named("a")).await.unwrap();
        let refused = rig
            .replace(&budgets, &named("a"), &UpdateOptions::default())
            .await;
        let refusal = refused.err().unwrap();
        assert_eq!(refusal.code, 422);
        assert!(refusal.message.contains("must be specified for an update"));
    }
}

#[tokio::test]
async fn the_object_and_its_status_are_written_apart_and_only_the_former_counts() {
    for rig in each_store() {
        let sets = rig.resource("apps/v1/replicasets");
        let text = r#"{"metadata":{"name":"a"},"spec":{"replicas":1,"selector":{"matchLabels":{"l":"a"}},
            "template":{"metadata":{"labels":{"l":"a"}},"spec":{"containers":[{"name":"c","image":"i"}]}}},
            "status":{"replicas":9}}"#;
        let created = rig.create(&sets, text).await.unwrap().value();
        assert_eq!(created["metadata"]["generation"].int(), 1);
        assert_eq!(
            created["status"]["replicas"].int(),
            0,
            "a status is not created"
        );
        let both = |current: Option<&Value>| {
            let mut new = current.unwrap().clone();
            new.entry("spec").set("replicas", 3);
            new.entry("status").set("replicas", 2);
            new
        };
        let main = rig
            .edit(&sets, &UpdateOptions::default(), both)
            .await
            .unwrap()
            .object
            .value();
        let seen = |object: &Value| {
            [
                &object["spec"]["replicas"],
                &object["status"]["replicas"],
                &object["metadata"]["generation"],
            ]
            .map(Value::int)
        };
        assert_eq!(seen(&main), [3, 0, 2]);
        let status = UpdateOptions {
            action: Action::Status,
            ..UpdateOptions::default()
        };
        let other = |current: Option<&Value>| {
            let mut new = both(current);
            new.entry("spec").set("replicas", 5);
            new
        };
        let part = rig
            .edit(&sets, &status, other)
            .await
            .unwrap()
            .object
            .value();
        assert_eq!(seen(&part), [3, 2, 2]);
    }
}

#[tokio::test]
async fn a_dry_run_of_an_update_changes_nothing() {
    for rig in each_store() {
        let maps = rig.config_maps();
        rig.create(&maps, &named("a")).await.unwrap();
        let before = (rig.revision(), rig.read(&maps).await.unwrap());
        let options = UpdateOptions {
            dry_run: true,
            ..UpdateOptions::default()
        };
        let edit = |current: Option<&Value>| set_data(current.unwrap(), "k");
        let updated = rig.edit(&maps, &options, edit).await.unwrap().object;
        assert_eq!(updated.value()["data"]["k"].str(), "v");
        assert!(updated.record().is_none());
        assert_eq!((rig.revision(), rig.read(&maps).await.unwrap()), before);
    }
}

#[tokio::test]
async fn warnings_of_all_attempts_reach_the_client_once() {
    for rig in each_store() {
        let pods = rig.resource("v1/pods");
        let pod = r#"{"metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"i",
            "env":[{"name":"E","value":"1"},{"name":"E","value":"2"}]}]}}"#;
        let warnings = mizzen_registry::Warnings::default();
        let create = mizzen_registry::Create {
            warnings: Some(&warnings),
            ..mizzen_registry::Create::new(&pods, "ns", crate::rig::draft(&pods, pod))
        };
        rig.registry.create(create).await.unwrap();
        let first = warnings.take();
        assert_eq!(first.len(), 1, "{first:?}");
        warnings.warn_all(first.iter().cloned().chain(first.clone()));
        assert_eq!(warnings.take(), first);
    }
}
