//! A server whose data directory is on a full disk: a small tmpfs. Where none can be mounted the test says so and does
//! nothing, and fails in CI; `crates/store/src/disk/tests.rs` has the same on a disk that only pretends.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::kubectl::skip;
use crate::process::Home;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Unmounts at the end.
struct Mount(PathBuf);

impl Mount {
    fn new(path: PathBuf) -> Option<Mount> {
        fs::create_dir(&path).unwrap();
        let mut mount = Command::new("mount");
        mount
            .args(["-t", "tmpfs", "-o", "size=24m,mode=0700", "tmpfs"])
            .arg(&path);
        let mounted = mount.status().is_ok_and(|status| status.success());
        if !mounted {
            skip("a tmpfs cannot be mounted here");
        }
        mounted.then_some(Mount(path))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn config_map(name: &str, size: usize) -> String {
    format!(
        r#"{{"metadata":{{"name":"{name}"}},"data":{{"text":"{}"}}}}"#,
        "x".repeat(size)
    )
}

#[tokio::test]
async fn a_server_survives_a_full_disk_without_a_restart() {
    let home = Home::on_disk().logging();
    let Some(_mount) = Mount::new(home.data_dir()) else {
        return;
    };
    let process = home.start().await;
    let admin = process.admin().await;
    admin
        .post(CONFIG_MAPS, config_map("first", 10))
        .await
        .expect(201);

    // Another program fills the disk.
    let ballast = home.data_dir().join("ballast");
    let mut size = 24 << 20;
    while size > 0 && fs::write(&ballast, vec![0; size]).is_err() {
        size -= 64 << 10;
    }
    let mut n_written = 0;
    while admin
        .post(CONFIG_MAPS, config_map(&format!("n{n_written}"), 100 << 10))
        .await
        .status
        == 201
    {
        n_written += 1;
    }
    admin
        .post(CONFIG_MAPS, config_map("more", 100 << 10))
        .await
        .expect(503);
    admin.get("/readyz").await.expect(500);
    admin.get("/livez").await.expect(200);
    admin.get(&format!("{CONFIG_MAPS}/first")).await.expect(200);
    admin
        .call("DELETE", &format!("{CONFIG_MAPS}/first"), "")
        .await
        .expect(200);

    fs::remove_file(&ballast).unwrap();
    admin
        .post(CONFIG_MAPS, config_map("more", 100 << 10))
        .await
        .expect(201);
    admin.get("/readyz").await.expect(200);
    assert!(
        home.log().contains("no space for the log"),
        "{}",
        home.log()
    );

    // Acknowledged writes survive a kill.
    process.kill().await;
    let process = home.start().await;
    let list = process
        .admin()
        .await
        .get(CONFIG_MAPS)
        .await
        .expect(200)
        .json();
    let names: Vec<_> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["metadata"]["name"].as_str().unwrap())
        .collect();
    assert!(
        names.contains(&"more") && !names.contains(&"first"),
        "{names:?}"
    );
    assert_eq!(
        names.iter().filter(|name| name.starts_with('n')).count(),
        n_written
    );
}
