//! Records that cannot be decoded: an error for each of their readers, and for nothing else.

use mizzen_registry::{
    DeleteOptions, FollowedChanges, Follower, ListOptions, NoAdmission, Resource, WatchOptions,
};
use mizzen_store::{Draft, Expect, Write};

use crate::rig::{Rig, UpdateOptions, each_store, key, named, names};

/// What a record may have become, and what upstream's decoder says of it.
const CORRUPT: [(&str, &str); 4] = [
    (
        "not json",
        "invalid character 'o' in literal null (expecting 'u')",
    ),
    (
        r#"{"kind":"ConfigMap","meta"#,
        "unexpected end of JSON input",
    ),
    ("{}", "Object 'Kind' is missing in '{}'"),
    ("null", "Object 'Kind' is missing in 'null'"),
];

/// Writes `text` where the object named `a` is.
async fn corrupt(rig: &Rig, resource: &Resource, text: &'static str) {
    let draft = Draft {
        value: text.into(),
        ..Draft::default()
    };
    let write = Write::put(resource.space(), "ns/a", Expect::Any, draft);
    rig.registry.store().commit_one(write).await.unwrap();
}

fn n_errors(resource: &Resource) -> u64 {
    resource.space().stats().decode_errors
}

#[tokio::test]
async fn a_record_that_cannot_be_decoded_is_an_error_for_every_reader() {
    for (text, expected) in CORRUPT {
        for rig in each_store() {
            corrupt(&rig, &rig.config_maps(), text).await;
            let rig = rig.reopened().await;
            let maps = rig.config_maps();
            rig.create(&maps, &named("b")).await.unwrap();

            let mut seen = vec![rig.read(&maps).await.err().unwrap()];
            seen.push(rig.registry.get(&maps, &key("a"), "").err().unwrap());
            seen.push(
                rig.list(&maps, &ListOptions::default())
                    .await
                    .err()
                    .unwrap(),
            );
            seen.push(
                rig.registry
                    .list(&maps, &ListOptions::default())
                    .err()
                    .unwrap(),
            );
            let options = UpdateOptions::default();
            let replaced = rig.replace(&maps, &named("a"), &options).await;
            seen.push(replaced.err().unwrap());
            seen.push(
                rig.delete(&maps, &DeleteOptions::default())
                    .await
                    .err()
                    .unwrap(),
            );
            let (all, options) = (ListOptions::default(), DeleteOptions::default());
            let emptied = rig
                .registry
                .delete_collection(&maps, &all, &options, &NoAdmission);
            seen.push(emptied.await.err().unwrap());
            let watch = rig.registry.watch(&maps, WatchOptions::default()).await;
            seen.push(watch.err().unwrap());
            assert_eq!(n_errors(&maps), seen.len() as u64);
            for refusal in seen {
                let words = (
                    refusal.code,
                    refusal.reason.as_str(),
                    refusal.message.as_str(),
                );
                assert_eq!(words, (500, "", expected));
            }
            assert_eq!(
                rig.registry
                    .read(&maps, &key("b"), "")
                    .await
                    .ok()
                    .unwrap()
                    .value()["metadata"]["name"]
                    .str(),
                "b"
            );
        }
    }
}

#[tokio::test]
async fn a_name_whose_record_cannot_be_decoded_is_taken() {
    for rig in each_store() {
        let maps = rig.config_maps();
        corrupt(&rig, &maps, "not json").await;
        let refusal = rig.create(&maps, &named("a")).await.err().unwrap();
        assert_eq!(refusal.message, r#"configmaps "a" already exists"#);
    }
}

#[tokio::test]
async fn a_list_fails_at_the_page_that_has_the_record() {
    for rig in each_store() {
        let maps = rig.config_maps();
        for name in ["0", "b"] {
            rig.create(&maps, &named(name)).await.unwrap();
        }
        corrupt(&rig, &maps, "not json").await;
        let page = |token: &str| ListOptions {
            limit: 1,
            token: token.into(),
            ..ListOptions::default()
        };
        let first = rig.list(&maps, &page("")).await.ok().unwrap();
        assert_eq!(names(&first), ["0"]);
        assert_eq!(
            rig.list(&maps, &page(&first.token))
                .await
                .err()
                .unwrap()
                .code,
            500
        );
    }
}

#[tokio::test]
async fn a_watch_ends_with_an_internal_error_at_the_corrupt_record() {
    for rig in each_store() {
        let maps = rig.config_maps();
        let mut watch = rig.watch(&maps, &rig.revision()).await;
        corrupt(&rig, &maps, "not json").await;
        let refusal = watch.next().await.err().unwrap();
        assert_eq!(
            (refusal.code, refusal.reason.as_str()),
            (500, "InternalError")
        );
        let expected =
            "Internal error occurred: invalid character 'o' in literal null (expecting 'u')";
        assert_eq!(refusal.message, expected);
    }
}

#[tokio::test]
async fn an_index_has_every_object_but_the_one_that_cannot_be_decoded() {
    for rig in each_store() {
        let maps = rig.config_maps();
        rig.create(&maps, &named("b")).await.unwrap();
        corrupt(&rig, &maps, "not json").await;
        let mut follower = Follower::new(maps.clone());
        let FollowedChanges::All(objects) = follower.changes() else {
            panic!("everything at first")
        };
        assert_eq!(objects.len(), 1);
        corrupt(&rig, &maps, "{}").await;
        let FollowedChanges::Some(changed) = follower.changes() else {
            panic!("what has changed")
        };
        assert!(
            changed
                .iter()
                .all(|it| it.before.is_none() && it.after.is_none())
        );
        assert_eq!(n_errors(&maps), 3);
    }
}

#[tokio::test]
async fn a_record_that_cannot_be_decoded_cannot_be_converted() {
    for rig in each_store() {
        let autoscalers = rig.resource("autoscaling/v1/horizontalpodautoscalers");
        let (v1, v2, convert) = rig.widgets();
        for resource in [&autoscalers, &v1, &v2] {
            corrupt(&rig, resource, "not json").await;
            assert_eq!(rig.read(resource).await.err().unwrap().code, 500);
            let list = rig.list(resource, &ListOptions::default()).await;
            assert_eq!(list.err().unwrap().code, 500);
        }
        assert!(convert.calls.lock().is_empty());
    }
}
