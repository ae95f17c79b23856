//! Which pods may use an image that is on the node: the setting of the node.
//!
//! Kubernetes: pkg/kubelet/images/pullmanager/image_pull_policies.go.

use mizzen_cri::image_name::ImageName;

/// Whose credentials are verified before a pod uses an image that is on the node
/// (`imagePullCredentialsVerificationPolicy`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum VerificationPolicy {
    /// Any pod may use any image.
    NeverVerify,
    /// Any pod may use an image that this node has not pulled.
    #[default]
    NeverVerifyPreloadedImages,
    /// Any pod may use the images of a list.
    NeverVerifyAllowlistedImages,
    /// Every pod must be able to pull its images.
    AlwaysVerify,
}

impl VerificationPolicy {
    /// The name in a KubeletConfiguration.
    pub(super) fn name(self) -> &'static str {
        match self {
            VerificationPolicy::NeverVerify => "NeverVerify",
            VerificationPolicy::NeverVerifyPreloadedImages => "NeverVerifyPreloadedImages",
            VerificationPolicy::NeverVerifyAllowlistedImages => "NeverVerifyAllowlistedImages",
            VerificationPolicy::AlwaysVerify => "AlwaysVerify",
        }
    }
}

/// The policy, and the images that are exempt from it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImageVerification {
    policy: VerificationPolicy,
    /// Images without tag and digest, or prefixes with `/*` (`preloadedImagesVerificationAllowlist`).
    allowlist: Vec<String>,
}

impl ImageVerification {
    /// Checks the list, which only one policy has.
    pub fn new(
        policy: VerificationPolicy,
        allowlist: Vec<String>,
    ) -> Result<ImageVerification, String> {
        if !allowlist.is_empty() && policy != VerificationPolicy::NeverVerifyAllowlistedImages {
            return Err(format!(
                "a list of images that are not verified needs the policy NeverVerifyAllowlistedImages, not {}",
                policy.name()
            ));
        }
        allowlist
            .iter()
            .try_for_each(|pattern| check_pattern(pattern))?;
        Ok(ImageVerification { policy, allowlist })
    }

    pub(super) fn policy(&self) -> VerificationPolicy {
        self.policy
    }

    pub(super) fn allowlist(&self) -> &[String] {
        &self.allowlist
    }

    /// Whether a pod must have credentials for an image that is on the node. `was_pulled` if the node
    /// has pulled it.
    pub(super) fn is_required(&self, image: &str, was_pulled: bool) -> bool {
        match self.policy {
            VerificationPolicy::NeverVerify => false,
            VerificationPolicy::NeverVerifyPreloadedImages => was_pulled,
            VerificationPolicy::NeverVerifyAllowlistedImages => !self.is_listed(image),
            VerificationPolicy::AlwaysVerify => true,
        }
    }

    fn is_listed(&self, image: &str) -> bool {
        let repository = repository_as_spelled(image).unwrap_or(image);
        let mut patterns = self.allowlist.iter();
        patterns.any(|pattern| match pattern.strip_suffix('*') {
            Some(prefix) => repository.starts_with(prefix),
            None => repository == pattern,
        })
    }
}

/// A pattern is an image without tag and digest, or ends with `/*`.
fn check_pattern(pattern: &str) -> Result<(), String> {
    let refused = |why: &str| Err(format!("the image pattern {pattern:?} is invalid: {why}"));
    if pattern != pattern.trim() {
        return refused("leading/trailing spaces are not allowed");
    }
    let (prefix, is_wildcard) = match pattern.strip_suffix('*') {
        Some(prefix) if prefix.ends_with('/') => (prefix, true),
        _ => (pattern, false),
    };
    if prefix.is_empty() {
        return refused("the supplied pattern is too short");
    }
    if prefix.contains('*') {
        return refused("only patterns ending with '/*' are allowed");
    }
    if is_wildcard {
        return match prefix {
            "/" => refused("at least registry hostname is required"),
            _ => Ok(()),
        };
    }
    match repository_as_spelled(prefix) {
        None => refused("failed to parse as an image name"),
        Some(repository) if repository != prefix => {
            refused("neither tag nor digest is accepted in an image reference")
        }
        Some(_) => Ok(()),
    }
}

/// An image without its tag and its digest, otherwise as it is spelled; `None` if it is no name.
pub(super) fn repository_as_spelled(image: &str) -> Option<&str> {
    let name = ImageName::parse(image).ok()?;
    let mut rest = image;
    if let Some(digest) = &name.digest {
        rest = rest.strip_suffix(digest.as_str())?.strip_suffix('@')?;
    }
    if let Some(tag) = &name.tag {
        rest = rest.strip_suffix(tag.as_str())?.strip_suffix(':')?;
    }
    Some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_cut_before_its_tag_and_its_digest() {
        let digest = format!("sha256:{}", "0".repeat(64));
        for (image, expected) in [
            ("busybox", Some("busybox")),
            ("busybox:1", Some("busybox")),
            ("127.0.0.1:5000/team/app:1", Some("127.0.0.1:5000/team/app")),
            ("127.0.0.1:5000/team/app", Some("127.0.0.1:5000/team/app")),
            (&format!("a.example/app@{digest}"), Some("a.example/app")),
            (&format!("a.example/app:1@{digest}"), Some("a.example/app")),
            ("A", None),
        ] {
            assert_eq!(repository_as_spelled(image), expected, "{image}");
        }
    }

    #[test]
    fn a_policy_says_which_images_are_verified() {
        use VerificationPolicy::*;
        let list = vec!["a.example/base".to_owned(), "b.example/*".to_owned()];
        for (policy, list, image, was_pulled, expected) in [
            (NeverVerify, Vec::new(), "a", true, false),
            (NeverVerifyPreloadedImages, Vec::new(), "a", true, true),
            (NeverVerifyPreloadedImages, Vec::new(), "a", false, false),
            (AlwaysVerify, Vec::new(), "a", false, true),
            (
                NeverVerifyAllowlistedImages,
                list.clone(),
                "a.example/base:1",
                true,
                false,
            ),
            (
                NeverVerifyAllowlistedImages,
                list.clone(),
                "b.example/any/one",
                true,
                false,
            ),
            (
                NeverVerifyAllowlistedImages,
                list,
                "a.example/base2",
                false,
                true,
            ),
        ] {
            let verification = ImageVerification::new(policy, list).unwrap();
            let is_required = verification.is_required(image, was_pulled);
            assert_eq!(is_required, expected, "{policy:?} {image} {was_pulled}");
        }
        assert_eq!(
            ImageVerification::default().policy(),
            NeverVerifyPreloadedImages
        );
    }

    #[test]
    fn a_wrong_list_is_refused() {
        let listed = VerificationPolicy::NeverVerifyAllowlistedImages;
        for (policy, pattern, why) in [
            (listed, " a", "leading/trailing spaces"),
            (listed, "", "too short"),
            (listed, "a*", "only patterns ending with '/*'"),
            (listed, "a/*/b", "only patterns ending with '/*'"),
            (listed, "/*", "at least registry hostname"),
            (listed, "a:1", "neither tag nor digest"),
            (listed, "A", "failed to parse"),
            (
                VerificationPolicy::AlwaysVerify,
                "a",
                "needs the policy NeverVerifyAllowlistedImages, not AlwaysVerify",
            ),
        ] {
            let error = ImageVerification::new(policy, vec![pattern.into()]).unwrap_err();
            assert!(error.contains(why), "{pattern}: {error}");
        }
    }
}
