//! Creating objects: system metadata, names, conflicts, dry run, validation and admission.

use parking_lot::Mutex;
use std::sync::atomic::Ordering;

use mizzen_object::Status;
use mizzen_registry::{BoxFuture, DeleteOptions, NoAdmission, ValidatingAdmission};
use mizzen_value::Value;
use mizzen_value::time::from_unix;

use crate::rig::{BEGIN, CreateOptions, each_store, named};

fn dry_run() -> CreateOptions {
    CreateOptions { dry_run: true }
}

#[tokio::test]
async fn a_new_object_has_system_metadata_and_the_revision_of_its_write() {
    for rig in each_store() {
        let maps = rig.config_maps();
        let object = rig.create(&maps, &named("a")).await.unwrap().value();
        let metadata = &object["metadata"];
        assert_eq!(metadata["resourceVersion"].str(), rig.revision());
        assert_eq!(metadata["creationTimestamp"].str(), from_unix(BEGIN));
        assert_eq!(metadata["namespace"].str(), "ns");
        assert_eq!(metadata["uid"].str().len(), 36);
        assert_eq!(rig.read(&maps).await.unwrap(), object);
    }
}

#[tokio::test]
async fn a_name_that_is_taken_is_a_conflict() {
    for rig in each_store() {
        let maps = rig.config_maps();
        rig.create(&maps, &named("a")).await.unwrap();
        let refusal = rig.create(&maps, &named("a")).await.err().unwrap();
        assert_eq!(
            (refusal.code, refusal.reason.as_str()),
            (409, "AlreadyExists")
        );
        assert_eq!(refusal.message, r#"configmaps "a" already exists"#);
    }
}

#[tokio::test]
async fn a_name_whose_object_is_being_deleted_is_still_taken() {
    for rig in each_store() {
        let maps = rig.config_maps();
        let held = r#"{"metadata":{"name":"a","finalizers":["example.com/hold"]}}"#;
        rig.create(&maps, held).await.unwrap();
        rig.delete(&maps, &DeleteOptions::default()).await.unwrap();
        let refusal = rig.create(&maps, &named("a")).await.err().unwrap();
        let expected = r#"object is being deleted: configmaps "a" already exists"#;
        assert_eq!(refusal.message, expected);
    }
}

#[tokio::test]
async fn a_new_object_cannot_have_a_version_unless_it_is_not_stored() {
    for rig in each_store() {
        let maps = rig.config_maps();
        let versioned = r#"{"metadata":{"name":"a","resourceVersion":"7"}}"#;
        let refusal = rig.create(&maps, versioned).await.err().unwrap();
        let expected = "resourceVersion should not be set on objects to be created";
        assert_eq!((refusal.code, refusal.message.as_str()), (500, expected));
        let object = rig
            .create_with(&maps, versioned, &dry_run(), &NoAdmission)
            .await
            .unwrap()
            .value();
        assert_eq!(object["metadata"]["resourceVersion"].str(), "7");
    }
}

#[tokio::test]
async fn a_generated_name_that_is_taken_is_replaced_by_another() {
    for rig in each_store() {
        let maps = rig.config_maps();
        let prefixed = r#"{"metadata":{"generateName":"a-"}}"#;
        rig.random.repeats.store(1, Ordering::Relaxed);
        let first = rig.create(&maps, prefixed).await.unwrap().value();
        assert_eq!(first["metadata"]["name"].str(), "a-bbbbb");
        rig.random.repeats.store(3, Ordering::Relaxed);
        let second = rig.create(&maps, prefixed).await.unwrap().value();
        assert!(second["metadata"]["name"].str().starts_with("a-"));
        assert_ne!(first["metadata"]["name"], second["metadata"]["name"]);
        assert_eq!(maps.space().snapshot().len(), 2);
    }
}

#[tokio::test]
async fn after_eight_conflicts_of_generated_names_the_client_has_to_retry() {
    for rig in each_store() {
        let maps = rig.config_maps();
        let prefixed = r#"{"metadata":{"generateName":"a-"}}"#;
        rig.random.repeats.store(9, Ordering::Relaxed);
        rig.create(&maps, prefixed).await.unwrap();
        let refusal = rig.create(&maps, prefixed).await.err().unwrap();
        let expected = r#"configmaps "a-bbbbb" already exists, the server was not able to generate a unique name for the object"#;
        assert_eq!(refusal.message, expected);
        assert_eq!(refusal.retry_after, Some(1));
        assert_eq!(rig.random.repeats.load(Ordering::Relaxed), 0, "eight tries");
    }
}

#[tokio::test]
async fn a_prefix_does_not_replace_a_name() {
    for rig in each_store() {
        let maps = rig.config_maps();
        let both = r#"{"metadata":{"name":"a","generateName":"b-"}}"#;
        rig.create(&maps, both).await.unwrap();
        let gate = Judge::default();
        let refusal = rig
            .create_with(&maps, both, &CreateOptions::default(), &gate)
            .await
            .err()
            .unwrap();
        assert_eq!((refusal.code, refusal.retry_after), (409, Some(1)));
        assert_eq!(gate.seen.lock().len(), 1, "no other name is tried");
    }
}

#[tokio::test]
async fn a_dry_run_stores_nothing_and_takes_no_revision() {
    for rig in each_store() {
        let (maps, before) = (rig.config_maps(), rig.revision());
        let object = rig
            .create_with(&maps, &named("a"), &dry_run(), &NoAdmission)
            .await
            .unwrap();
        assert_eq!(object.value()["metadata"]["name"].str(), "a");
        assert!(object.record().is_none());
        assert_eq!((rig.revision(), maps.space().snapshot().len()), (before, 0));
        rig.create(&maps, &named("a")).await.unwrap();
        let again = rig
            .create_with(&maps, &named("a"), &dry_run(), &NoAdmission)
            .await;
        assert_eq!(again.err().unwrap().reason, "AlreadyExists");
    }
}

#[tokio::test]
async fn an_invalid_object_is_rejected_for_all_reasons_at_once() {
    for rig in each_store() {
        let maps = rig.config_maps();
        let invalid = r#"{"metadata":{"name":"A_"},"data":{"k/":"v"}}"#;
        let refusal = rig.create(&maps, invalid).await.err().unwrap();
        let fields: Vec<&str> = refusal
            .details
            .as_ref()
            .unwrap()
            .causes
            .iter()
            .map(|cause| cause.field.as_str())
            .collect();
        assert_eq!(
            (refusal.code, fields),
            (422, vec!["metadata.name", "data[k/]"])
        );
    }
}

/// Remembers what it was asked, and refuses names that begin with `no`.
#[derive(Default)]
struct Judge {
    seen: Mutex<Vec<(Option<Value>, Option<Value>)>>,
}

impl ValidatingAdmission for Judge {
    fn check<'a>(
        &'a self,
        new: Option<&'a Value>,
        old: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), Status>> {
        self.seen.lock().push((new.cloned(), old.cloned()));
        let name = new.or(old).unwrap()["metadata"]["name"].str();
        let refused = name.starts_with("no");
        Box::pin(async move {
            match refused {
                true => Err(Status::bad_request("no")),
                false => Ok(()),
            }
        })
    }
}

#[tokio::test]
async fn validating_admission_sees_what_would_be_stored_and_may_refuse_it() {
    for rig in each_store() {
        let (maps, gate) = (rig.config_maps(), Judge::default());
        let options = CreateOptions::default();
        let created = rig.create_with(&maps, &named("a"), &options, &gate).await;
        let created = created.unwrap().value();
        let refused = rig.create_with(&maps, &named("no"), &options, &gate).await;
        assert_eq!(refused.err().unwrap().message, "no");
        assert_eq!(maps.space().snapshot().len(), 1);
        let seen = gate.seen.into_inner();
        let (new, old) = &seen[0];
        let new = new.as_ref().unwrap();
        assert!(old.is_none());
        assert_eq!(new["metadata"]["uid"], created["metadata"]["uid"]);
    }
}
