//! A server whose disk fails a sync: ext4 on a loop device whose file cannot grow. Where that cannot be mounted the test
//! says so and does nothing, and fails in CI; `crates/store/src/disk/tests.rs` lets every operation of a disk fail that
//! only pretends.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::kubectl::skip;
use crate::process::Home;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A file system that believes to have 256 MiB, on a file system of 32 MiB. Unmounted at the end.
struct OvercommittedDisk {
    below: PathBuf,
    above: PathBuf,
}

impl OvercommittedDisk {
    fn mount(below: PathBuf, above: PathBuf) -> Option<OvercommittedDisk> {
        fs::create_dir(&below).unwrap();
        fs::create_dir(&above).unwrap();
        let run = |program: &str, arguments: &[&str], path: &Path, more: Option<&Path>| {
            let mut command = Command::new(program);
            let status = command.args(arguments).arg(path).args(more).status();
            status.is_ok_and(|status| status.success())
        };
        if !run(
            "mount",
            &["-t", "tmpfs", "-o", "size=32m", "tmpfs"],
            &below,
            None,
        ) {
            skip("a tmpfs cannot be mounted here");
            return None;
        }
        let disk = OvercommittedDisk { below, above };
        let image = disk.below.join("image");
        File::create(&image).unwrap().set_len(256 << 20).unwrap();
        let options = ["-q", "-F", "-O", "^has_journal"];
        let is_mounted = run("mkfs.ext4", &options, &image, None)
            && run("mount", &["-o", "loop"], &image, Some(&disk.above));
        if !is_mounted {
            skip("a loop device cannot be mounted here");
        }
        is_mounted.then_some(disk)
    }

    /// Lets another program take all that is left below.
    fn fill(&self) -> PathBuf {
        let ballast = self.below.join("ballast");
        let mut size = 32 << 20;
        while size > 0 && fs::write(&ballast, vec![0; size]).is_err() {
            size -= 64 << 10;
        }
        ballast
    }
}

impl Drop for OvercommittedDisk {
    fn drop(&mut self) {
        for path in [&self.above, &self.below] {
            let _ = Command::new("umount").arg("-l").arg(path).status();
        }
    }
}

#[tokio::test]
async fn a_server_stops_after_a_failed_sync_and_keeps_acknowledged_writes() {
    let home = Home::on_disk().filtered("info");
    let below = home.path().join("below");
    let Some(disk) = OvercommittedDisk::mount(below, home.data_dir()) else {
        return;
    };
    let mut process = home.start().await;
    let admin = process.admin().await;
    let ballast = disk.fill();
    let mut acknowledged = Vec::new();
    for number in 0..1000 {
        let name = format!("n{number:04}");
        let text = "x".repeat(100 << 10);
        let body = format!(r#"{{"metadata":{{"name":"{name}"}},"data":{{"text":"{text}"}}}}"#);
        match admin.post(CONFIG_MAPS, body).await.status {
            201 => acknowledged.push(name),
            status => {
                assert_eq!(status, 500, "the result is unknown");
                break;
            }
        }
    }
    let status = process.ended().await;
    assert_eq!(status.code(), Some(1), "{}", home.log());
    let is_logged = home
        .log()
        .contains("stopped because the log could not be synced");
    assert!(is_logged, "{}", home.log());

    fs::remove_file(ballast).unwrap();
    let process = home.start().await;
    let list = process.admin().await.get(CONFIG_MAPS).await.expect(200);
    let list = list.json();
    let items = list["items"].as_array().unwrap().iter();
    let names: Vec<_> = items
        .map(|item| item["metadata"]["name"].as_str().unwrap())
        .collect();
    let missing: Vec<_> = acknowledged
        .iter()
        .filter(|name| !names.contains(&&***name))
        .collect();
    assert!(missing.is_empty(), "{missing:?} of {}", acknowledged.len());
    process.stop().await;
}
