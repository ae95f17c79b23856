//! Which images are collected. Kubernetes: pkg/kubelet/images/image_gc_manager.go.
//!
//! Invariant: pure. The caller lists images, removes them, and has the clock.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use mizzen_cri::messages::Image;

/// When images are collected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageGcPolicy {
    /// From this usage of the disk on images are removed (`imageGCHighThresholdPercent`).
    pub high_threshold_percent: u64,
    /// So many are removed that the usage is this (`imageGCLowThresholdPercent`).
    pub low_threshold_percent: u64,
    /// Images that were found later ago than this stay (`imageMinimumGCAge`).
    pub min_age: Duration,
    /// Images that were unused for longer than this are removed (`imageMaximumGCAge`); zero for
    /// never.
    pub max_age: Duration,
}

impl Default for ImageGcPolicy {
    fn default() -> ImageGcPolicy {
        ImageGcPolicy {
            high_threshold_percent: 85,
            low_threshold_percent: 80,
            min_age: Duration::from_secs(120),
            max_age: Duration::ZERO,
        }
    }
}

impl ImageGcPolicy {
    /// Why it is invalid.
    pub fn check(&self) -> Result<(), String> {
        let (high, low) = (self.high_threshold_percent, self.low_threshold_percent);
        if high > 100 || low > 100 {
            return Err("the thresholds of image collection are percentages up to 100".into());
        }
        match low >= high {
            true => Err(format!(
                "the low threshold of image collection, {low} %, must be below the high one, {high} %"
            )),
            false => Ok(()),
        }
    }
}

/// The size of a file system.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct DiskUsage {
    pub capacity: u64,
    pub available: u64,
}

impl DiskUsage {
    pub(super) fn used_percent(&self) -> u64 {
        let available = u128::from(self.available.min(self.capacity));
        let free = available * 100 / u128::from(self.capacity.max(1));
        100 - u64::try_from(free).unwrap_or(100)
    }

    /// The bytes to free, if the usage has reached the high threshold.
    pub(super) fn bytes_to_free(&self, policy: &ImageGcPolicy) -> Option<u64> {
        if self.used_percent() < policy.high_threshold_percent {
            return None;
        }
        let kept = u128::from(self.capacity) * u128::from(100 - policy.low_threshold_percent) / 100;
        let kept = u64::try_from(kept).unwrap_or(u64::MAX);
        Some(kept.saturating_sub(self.available))
    }

    /// The message if less was freed than wanted.
    pub(super) fn insufficient(&self, freed: u64) -> String {
        format!(
            "Insufficient free disk space on the node's image filesystem ({}% of {} used). Failed to free sufficient space \
             by deleting unused images (freed {freed} bytes). Investigate disk usage, as it could be used by active images, \
             logs, volumes, or other data.",
            self.used_percent(),
            size_text(self.capacity),
        )
    }
}

fn size_text(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut size = bytes as f64 / 1024.0;
    let mut units = UNITS.into_iter();
    let mut unit = units.next().unwrap_or_default();
    while size >= 1024.0
        && let Some(next) = units.next()
    {
        (size, unit) = (size / 1024.0, next);
    }
    format!("{size:.1} {unit}")
}

/// What is known of the images on the node, by ID.
#[derive(Default)]
pub(super) struct ImageRecords(HashMap<String, ImageRecord>);

struct ImageRecord {
    first_detected: Duration,
    last_used: Option<Duration>,
    size: u64,
    /// Whether a container has it, or the runtime needs it.
    is_kept: bool,
}

impl ImageRecords {
    /// Records the images that there are now.
    pub(super) fn detect(&mut self, images: &[Image], used: &HashSet<String>, now: Duration) {
        let ids: HashSet<&str> = images.iter().map(|image| image.id.as_str()).collect();
        self.0.retain(|id, _| ids.contains(id.as_str()));
        for image in images {
            let record = self.0.entry(image.id.clone()).or_insert(ImageRecord {
                first_detected: now,
                last_used: None,
                size: 0,
                is_kept: false,
            });
            let is_used = used.contains(&image.id);
            if is_used {
                record.last_used = Some(now);
            }
            (record.size, record.is_kept) = (image.size, is_used || image.pinned);
        }
    }

    /// The IDs of all images.
    pub(super) fn ids(&self) -> HashSet<String> {
        self.0.keys().cloned().collect()
    }

    pub(super) fn forget(&mut self, id: &str) {
        self.0.remove(id);
    }

    /// Images that were unused for too long. The agent must have run as long as that to know.
    pub(super) fn expired(
        &self,
        policy: &ImageGcPolicy,
        now: Duration,
        began: Duration,
    ) -> Vec<String> {
        let too_old = |since: Duration| now.saturating_sub(since) > policy.max_age;
        if policy.max_age.is_zero() || !too_old(began) {
            return Vec::new();
        }
        let candidates = self.in_order().into_iter();
        candidates
            // Kubernetes: an image that was never used is as old as can be.
            .filter(|(_, record)| record.last_used.is_none_or(too_old))
            .map(|(id, _)| id.to_owned())
            .collect()
    }

    /// The images that may be removed to free space, with their sizes: first those that were unused
    /// for longest.
    pub(super) fn removable(&self, policy: &ImageGcPolicy, now: Duration) -> Vec<(String, u64)> {
        let candidates = self.in_order().into_iter();
        candidates
            .filter(|(_, record)| now.saturating_sub(record.first_detected) >= policy.min_age)
            .map(|(id, record)| (id.to_owned(), record.size))
            .collect()
    }

    fn in_order(&self) -> Vec<(&str, &ImageRecord)> {
        let free = self.0.iter().filter(|(_, record)| !record.is_kept);
        let mut free: Vec<(&str, &ImageRecord)> =
            free.map(|(id, record)| (id.as_str(), record)).collect();
        free.sort_by_key(|(id, record)| (record.last_used, record.first_detected, *id));
        free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn so_much_is_freed_that_the_low_threshold_is_met() {
        let policy = ImageGcPolicy::default();
        for (available, percent, expected) in [
            (100, 0, None),
            (16, 84, None),
            (15, 85, Some(5)),
            (0, 100, Some(20)),
            (200, 0, None),
        ] {
            let disk = DiskUsage {
                capacity: 100 * GIB,
                available: available * GIB,
            };
            assert_eq!(disk.used_percent(), percent, "{available}");
            let expected = expected.map(|size: u64| size * GIB);
            assert_eq!(disk.bytes_to_free(&policy), expected, "{available}");
        }
    }

    #[test]
    fn the_event_says_how_full_the_disk_is() {
        let disk = DiskUsage {
            capacity: 3 * GIB / 2,
            available: 0,
        };
        let message = disk.insufficient(7);
        assert!(message.contains("(100% of 1.5 GiB used)"), "{message}");
        assert!(message.contains("(freed 7 bytes)"), "{message}");
        assert_eq!(size_text(1023), "1023 B");
        assert_eq!(size_text(u64::MAX), "16777216.0 TiB");
    }

    #[test]
    fn thresholds_must_be_in_order() {
        let check = |high_threshold_percent, low_threshold_percent| {
            let policy = ImageGcPolicy {
                high_threshold_percent,
                low_threshold_percent,
                ..ImageGcPolicy::default()
            };
            policy.check().is_ok()
        };
        assert!(check(85, 80));
        assert!(!check(80, 80) && !check(80, 85) && !check(101, 80));
    }

    fn image(id: &str, pinned: bool) -> Image {
        Image {
            id: id.into(),
            size: 10,
            pinned,
            ..Image::default()
        }
    }

    /// The images to remove after some minutes: `(listed, used)` per minute.
    fn records(minutes: &[(&str, &str)]) -> ImageRecords {
        let mut records = ImageRecords::default();
        for (minute, (listed, used)) in minutes.iter().enumerate() {
            let images: Vec<Image> = listed
                .split_whitespace()
                .map(|id| image(id, id == "pinned"))
                .collect();
            let used = used.split_whitespace().map(String::from).collect();
            records.detect(&images, &used, at(60 * minute as u64));
        }
        records
    }

    #[track_caller]
    fn check_removable(minutes: &[(&str, &str)], expected: &str) {
        let now = at(60 * (minutes.len() as u64 - 1));
        let removable = records(minutes).removable(&ImageGcPolicy::default(), now);
        let ids: Vec<&str> = removable.iter().map(|(id, _)| id.as_str()).collect();
        assert_eq!(ids.join(" "), expected, "{minutes:?}");
    }

    #[test]
    fn unused_images_are_removed_oldest_use_first() {
        // Too young, used, or pinned.
        check_removable(&[("a", "")], "");
        check_removable(&[("a", ""), ("a", "")], "");
        check_removable(&[("a pinned", ""), ("a", ""), ("a pinned", "a")], "");
        // One that was never used goes first.
        check_removable(
            &[
                ("a b c", "a b"),
                ("a b c", "b"),
                ("a b c", ""),
                ("a b c d", ""),
            ],
            "c a b",
        );
        // One that was removed and pulled again is young.
        check_removable(&[("a", ""), ("", ""), ("", ""), ("a", "")], "");
    }

    #[test]
    fn images_expire_once_the_agent_has_run_for_as_long() {
        let policy = ImageGcPolicy {
            max_age: at(90),
            ..ImageGcPolicy::default()
        };
        let known = records(&[("a b", "a"), ("a b", ""), ("a b", "")]);
        let expired = |now, began| known.expired(&policy, at(now), at(began));
        assert_eq!(expired(120, 60), [""; 0]);
        assert_eq!(expired(120, 0), ["b", "a"]);
        assert_eq!(expired(91, 0), ["b", "a"]);
        let never = ImageGcPolicy::default();
        assert_eq!(known.expired(&never, at(9999), at(0)), [""; 0]);
    }
}
