//! Watching objects: from a revision, from the beginning, through a selector, after the window has moved on.

use mizzen_registry::{Create, StoreOptions, WatchEvent, WatchOptions, WindowLimits};
use mizzen_value::Value;

use crate::rig::{UpdateOptions, each_store, each_store_with, named, next_events, selected};

fn labelled(name: &str, label: &str) -> String {
    format!(r#"{{"metadata":{{"name":"{name}","labels":{{"l":"{label}"}}}}}}"#)
}

#[tokio::test]
async fn a_watch_begins_after_its_revision() {
    for rig in each_store() {
        let maps = rig.config_maps();
        rig.create(&maps, &named("b")).await.unwrap();
        let start: u64 = rig.revision().parse().unwrap();
        rig.create(&maps, &named("a")).await.unwrap();
        let text = r#"{"metadata":{"name":"a"},"data":{"k":"v"}}"#;
        rig.replace(&maps, text, &UpdateOptions::default())
            .await
            .unwrap();
        rig.delete(&maps, &Default::default()).await.unwrap();
        let mut watch = rig.watch(&maps, &start.to_string()).await;
        let expected = ["ADDED", "MODIFIED", "DELETED"];
        let expected: Vec<String> = expected
            .iter()
            .zip(start + 1..)
            .map(|(word, at)| format!("{word} a {at}"))
            .collect();
        assert_eq!(next_events(&mut watch, 3).await, expected);
    }
}

#[tokio::test]
async fn a_watch_without_a_version_begins_with_everything_that_is_there() {
    for rig in each_store() {
        let maps = rig.config_maps();
        rig.create(&maps, &named("a")).await.unwrap();
        let mut watch = rig.watch(&maps, "").await;
        assert!(watch.progress().is_none(), "it has told nothing yet");
        let expected = [
            format!("ADDED a {}", rig.revision()),
            format!("INITIAL {}", rig.revision()),
        ];
        assert_eq!(next_events(&mut watch, 2).await, expected);
        assert_eq!(watch.progress().unwrap().to_string(), rig.revision());
        rig.create(&maps, &named("b")).await.unwrap();
        assert_eq!(
            next_events(&mut watch, 1).await,
            [format!("ADDED b {}", rig.revision())]
        );
    }
}

#[tokio::test]
async fn an_object_that_leaves_the_selection_is_deleted_as_it_was_seen_last_at_the_new_version() {
    for rig in each_store() {
        let maps = rig.config_maps();
        rig.create(&maps, &labelled("a", "x")).await.unwrap();
        let options = WatchOptions {
            selection: selected("l=x", ""),
            version: rig.revision(),
            ..WatchOptions::default()
        };
        let mut watch = rig.registry.watch(&maps, options).await.ok().unwrap();
        rig.replace(&maps, &labelled("a", "y"), &UpdateOptions::default())
            .await
            .unwrap();
        let left = rig.revision();
        rig.replace(&maps, &labelled("a", "x"), &UpdateOptions::default())
            .await
            .unwrap();
        let events = watch.next().await.ok().unwrap();
        let WatchEvent::Object(change, object) = &events[0] else {
            panic!("an object")
        };
        let object = object.value();
        assert_eq!(
            (change.word(), object["metadata"]["resourceVersion"].str()),
            ("DELETED", left.as_str())
        );
        assert_eq!(
            object["metadata"]["labels"]["l"].str(),
            "x",
            "as it was seen last"
        );
        let next = match events.get(1) {
            Some(WatchEvent::Object(change, _)) => change.word(),
            _ => next_events(&mut watch, 1).await[0]
                .split(' ')
                .next()
                .map(|word| match word {
                    "ADDED" => "ADDED",
                    _ => "another",
                })
                .unwrap(),
        };
        assert_eq!(next, "ADDED", "it came into view again");
    }
}

#[tokio::test]
async fn a_deleted_object_keeps_what_looks_like_its_version_elsewhere() {
    for rig in each_store() {
        let maps = rig.config_maps();
        let text = |label: &str| {
            format!(
                r#"{{"metadata":{{"name":"a","annotations":{{"resourceVersion":"2"}},"labels":{{"l":"{label}","resourceVersion":"2"}}}},"data":{{"resourceVersion":"2"}}}}"#
            )
        };
        rig.create(&maps, &text("x")).await.unwrap();
        assert_eq!(rig.revision(), "2");
        let options = WatchOptions {
            selection: selected("l=x", ""),
            version: rig.revision(),
            ..WatchOptions::default()
        };
        let mut watch = rig.registry.watch(&maps, options).await.ok().unwrap();
        rig.replace(&maps, &text("y"), &UpdateOptions::default())
            .await
            .unwrap();
        let events = watch.next().await.ok().unwrap();
        let WatchEvent::Object(_, object) = &events[0] else {
            panic!("an object")
        };
        let object = object.value();
        assert_eq!(object["metadata"]["resourceVersion"].str(), "3");
        for other in [
            &object["metadata"]["annotations"],
            &object["metadata"]["labels"],
            &object["data"],
        ] {
            assert_eq!(other["resourceVersion"].str(), "2");
        }
    }
}

#[tokio::test]
async fn a_watch_may_be_limited_to_a_namespace() {
    for rig in each_store() {
        let maps = rig.config_maps();
        let options = WatchOptions {
            selection: mizzen_registry::Selection {
                namespace: "n".into(),
                ..Default::default()
            },
            version: rig.revision(),
            ..WatchOptions::default()
        };
        let mut watch = rig.registry.watch(&maps, options).await.ok().unwrap();
        rig.create(&maps, &named("a")).await.unwrap();
        let draft = mizzen_value::json::parse(named("b").as_bytes()).unwrap();
        let create = Create::new(&maps, "n", draft);
        rig.registry.create(create).await.unwrap();
        assert_eq!(
            next_events(&mut watch, 1).await,
            [format!("ADDED b {}", rig.revision())]
        );
    }
}

#[tokio::test]
async fn a_watch_from_before_the_window_is_refused_and_one_that_falls_out_of_it_ends() {
    let window = WindowLimits {
        min_events: 2,
        max_events: 2,
        ..WindowLimits::default()
    };
    for rig in each_store_with(&StoreOptions {
        window,
        ..StoreOptions::default()
    }) {
        let maps = rig.config_maps();
        rig.create(&maps, &named("a")).await.unwrap();
        let start = rig.revision();
        let mut slow = rig.watch(&maps, &start).await;
        for number in 0..4 {
            let edit = |current: Option<&Value>| {
                let mut new = current.unwrap().clone();
                new.entry("data").set("k", number.to_string());
                new
            };
            rig.edit(&maps, &UpdateOptions::default(), edit)
                .await
                .unwrap();
        }
        let ended = slow.next().await.err().unwrap();
        assert_eq!((ended.code, ended.reason.as_str()), (410, "Expired"));
        let options = WatchOptions {
            version: start,
            ..WatchOptions::default()
        };
        let refused = rig.registry.watch(&maps, options).await.err().unwrap();
        assert!(
            refused.message.starts_with("too old resource version: "),
            "{}",
            refused.message
        );
    }
}
