//! What is refused of somebody who applies.

use crate::rig::{CONFIG_MAPS, Rig};

#[tokio::test]
async fn who_means_an_object_that_is_gone_is_told_so_before_anything_else() {
    let rig = Rig::new().await;
    for metadata in
        [r#"{"name":"a","uid":"u"}"#, r#"{"uid":"u"}"#, r#"{"name":"a","namespace":"else","uid":"u"}"#]
    {
        let config = format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{metadata}}}"#);
        let refused = rig.apply(&format!("{CONFIG_MAPS}/a"), "me", &config).await.expect(409);
        let why = "uid mismatch: the provided object specified uid u, and no existing object was found";
        assert_eq!(
            refused.message(),
            format!(r#"Operation cannot be fulfilled on configmaps "a": {why}"#),
            "{metadata}"
        );
    }
    let unnamed = r#"{"apiVersion":"v1","kind":"ConfigMap"}"#;
    rig.apply(&format!("{CONFIG_MAPS}/a"), "me", unnamed).await.expect(400);
}
