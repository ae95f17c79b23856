//! The limits of `emptyDir` volumes: `sizeLimit` (upstream: pkg/kubelet/eviction).

use std::collections::HashSet;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use mizzen_value::Value;
use mizzen_value::quantity::Quantity;

use super::location;
use super::pinned::Pinned;
use crate::cri::config::NodePaths;

/// The bytes of a block in the metadata of a file.
const BLOCK: u64 = 512;

/// An `emptyDir` that may not grow above a size.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::cri) struct LimitedVolume {
    name: String,
    dir: PathBuf,
    limit: Quantity,
}

/// The volumes of a pod with a limit.
pub(in crate::cri) fn limited_volumes(pod: &Value, paths: &NodePaths) -> Vec<LimitedVolume> {
    let volumes = pod["spec"]["volumes"].list().iter();
    let limited = volumes.filter_map(|volume| {
        let limit = Quantity::parse_or_zero(volume["emptyDir"]["sizeLimit"].str());
        (limit.value() > 0).then(|| LimitedVolume {
            name: volume["name"].str().into(),
            dir: location(pod, volume, paths),
            limit,
        })
    });
    limited.collect()
}

impl LimitedVolume {
    /// The message about a volume that has grown above its limit.
    pub(in crate::cri) fn excess(&self) -> Option<String> {
        let limit = u64::try_from(self.limit.value()).unwrap_or(u64::MAX);
        let is_above = used_bytes(&self.dir).is_ok_and(|used| used > limit);
        let message = || {
            format!(
                "Usage of EmptyDir volume {:?} exceeds the limit \"{}\". ",
                self.name, self.limit
            )
        };
        is_above.then(message)
    }
}

/// The bytes that a directory and all below it take on its file system; a file with several names
/// counts once.
fn used_bytes(dir: &Path) -> io::Result<u64> {
    let (mut seen, mut used) = (HashSet::new(), 0);
    Pinned::open(dir)?.walk(&mut |_, found| {
        if found.is_dir() || found.nlink() == 1 || seen.insert(found.ino()) {
            used += found.blocks() * BLOCK;
        }
        Ok(())
    })?;
    Ok(used)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_file_counts_once_and_links_lead_nowhere() {
        let dir = tempfile::tempdir().unwrap();
        let (volume, outside) = (dir.path().join("v"), dir.path().join("outside"));
        fs::create_dir(&volume).unwrap();
        fs::write(&outside, vec![1; 1 << 20]).unwrap();
        fs::write(volume.join("a"), vec![1; 1 << 16]).unwrap();
        let once = used_bytes(&volume).unwrap();
        assert!((1 << 16..1 << 17).contains(&once), "{once}");
        fs::hard_link(volume.join("a"), volume.join("b")).unwrap();
        symlink(&outside, volume.join("link")).unwrap();
        let now = used_bytes(&volume).unwrap();
        assert!(now < 1 << 17, "{now}");
    }

    #[test]
    fn a_volume_above_its_limit_is_named() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a"), vec![1; 1 << 16]).unwrap();
        let volume = |limit: &str| LimitedVolume {
            name: "data".into(),
            dir: dir.path().into(),
            limit: Quantity::parse_or_zero(limit),
        };
        assert_eq!(volume("1Mi").excess(), None);
        assert_eq!(
            volume("16Ki").excess().as_deref(),
            Some("Usage of EmptyDir volume \"data\" exceeds the limit \"16Ki\". ")
        );
    }
}
