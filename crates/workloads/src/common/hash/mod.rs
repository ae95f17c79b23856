//! The pod template hash.
//!
//! Kubernetes: the hash is computed from the text in which Go prints the struct with every field
//! (controller_utils.go, ComputeHash). A new field would change every hash and start a rollout of
//! every workload, so nothing else may be hashed.

mod dump;
mod quantity;

use mizzen_value::Value;

/// The hash of a pod template. `collisions` is the collision count.
pub(crate) fn hash_pod_template(template: &Value, collisions: Option<i64>) -> String {
    let hash = continued(FIRST, dump::template(template).as_bytes());
    // Kubernetes: a 32-bit number in a buffer of eight bytes; the last four stay zero.
    let hash = collisions.map_or(hash, |collisions| {
        continued(hash, &u64::from(collisions as u32).to_le_bytes())
    });
    safe_encode(&hash.to_string())
}

/// Encodes a hash without vowels, as rand.SafeEncodeString does.
pub(crate) fn safe_encode(text: &str) -> String {
    text.bytes()
        .map(|byte| char::from(ALPHABET[usize::from(byte) % ALPHABET.len()]))
        .collect()
}

const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
/// FNV-1a, 32 bits.
const FIRST: u32 = 0x811c_9dc5;
const PRIME: u32 = 0x0100_0193;

fn continued(hash: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(hash, |hash, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(PRIME)
    })
}

#[cfg(test)]
mod tests {
    use mizzen_value::json;

    use super::*;

    fn check(template: &str, collisions: Option<i64>, hash: &str) {
        assert_eq!(
            hash_pod_template(&json::parse(template.as_bytes()).expect("JSON"), collisions),
            hash
        );
    }

    const NGINX: &str = r#"{"metadata": {"labels": {"app": "a"}}, "spec": {
        "containers": [{"name": "c", "image": "nginx:1.25", "imagePullPolicy": "IfNotPresent", "resources": {},
            "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}],
        "dnsPolicy": "ClusterFirst", "restartPolicy": "Always", "schedulerName": "golden-none",
        "securityContext": {}, "terminationGracePeriodSeconds": 30}}"#;

    #[test]
    fn a_template_has_the_hash_that_kubernetes_gives_it() {
        check(NGINX, None, "79d48bdd9c");
    }

    #[test]
    fn the_template_of_a_daemon_has_the_hash_that_kubernetes_gives_it() {
        let busybox = NGINX
            .replace("nginx:1.25", "busybox")
            .replace("IfNotPresent", "Always");
        let busybox = busybox.replace(
            r#""dnsPolicy""#,
            r#""nodeSelector": {"golden": "nobody"}, "dnsPolicy""#,
        );
        check(&busybox, None, "cc5b6f4b4");
    }

    #[test]
    fn an_empty_list_is_no_list() {
        check(
            &NGINX.replace(
                r#""securityContext""#,
                r#""tolerations": [], "securityContext""#,
            ),
            None,
            "79d48bdd9c",
        );
    }

    #[test]
    fn each_collision_leads_to_another_hash() {
        let template = json::parse(NGINX.as_bytes()).expect("JSON");
        let hashes = [None, Some(0), Some(1), Some(2)]
            .map(|collisions| hash_pod_template(&template, collisions));
        let unique: std::collections::HashSet<&String> = hashes.iter().collect();
        assert_eq!(unique.len(), hashes.len());
    }

    #[test]
    fn hashes_are_those_of_the_standard() {
        let known: [(&[u8], u32); 3] = [
            (b"", 0x811c_9dc5),
            (b"a", 0xe40c_292c),
            (b"foobar", 0xbf9c_f968),
        ];
        assert!(
            known
                .iter()
                .all(|(bytes, hash)| continued(FIRST, bytes) == *hash)
        );
    }
}
