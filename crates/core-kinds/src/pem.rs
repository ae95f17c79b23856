//! Key pairs in PEM: the errors of Go's `tls.X509KeyPair` that the block types alone determine.

const CERTIFICATE: &str = "CERTIFICATE";
const KEY: &str = "PRIVATE KEY";

/// The error of Go's `tls.X509KeyPair` for texts without the right PEM blocks.
pub(super) fn key_pair_problem(certificate: &str, key: &str) -> Option<String> {
    let blocks = block_types(certificate);
    if !blocks.contains(&CERTIFICATE) {
        return Some(match &blocks[..] {
            [] => "tls: failed to find any PEM data in certificate input".into(),
            [only] if only.ends_with(KEY) => {
                "tls: failed to find certificate PEM data in certificate input, but did find \
                                          a private key; PEM inputs may have been switched"
                    .into()
            }
            _ => format!(
                "tls: failed to find \"CERTIFICATE\" PEM block in certificate input after skipping PEM blocks of the \
             following types: [{}]",
                blocks.join(" ")
            ),
        });
    }
    let blocks = block_types(key);
    let is_key = |ty: &&str| **ty == *KEY || ty.ends_with(" PRIVATE KEY");
    (!blocks.iter().any(is_key)).then(|| match &blocks[..] {
        [] => "tls: failed to find any PEM data in key input".into(),
        [CERTIFICATE] => {
            "tls: found a certificate rather than a key in the PEM for the private key".into()
        }
        _ => format!(
            "tls: failed to find PEM block with type ending in \"PRIVATE KEY\" in key input after skipping PEM blocks \
             of the following types: [{}]",
            blocks.join(" ")
        ),
    })
}

/// The types of the blocks that begin and end.
fn block_types(text: &str) -> Vec<&str> {
    let mut types = Vec::new();
    let mut open = None;
    for line in text.lines().map(str::trim_end) {
        if let Some(ty) = marker(line, "-----BEGIN ") {
            open = Some(ty);
        } else if let Some(ty) = marker(line, "-----END ").filter(|ty| open == Some(*ty)) {
            types.push(ty);
            open = None;
        }
    }
    types
}

fn marker<'a>(line: &'a str, start: &str) -> Option<&'a str> {
    line.strip_prefix(start)?.strip_suffix("-----")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swapped_texts_are_noticed() {
        let certificate = "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n";
        let key = "-----BEGIN RSA PRIVATE KEY-----\nMA==\n-----END RSA PRIVATE KEY-----\n";
        assert_eq!(key_pair_problem(certificate, key), None);
        assert!(
            key_pair_problem(key, certificate)
                .unwrap()
                .ends_with("PEM inputs may have been switched")
        );
        assert!(
            key_pair_problem(certificate, certificate)
                .unwrap()
                .contains("found a certificate rather than a key")
        );
        assert_eq!(
            key_pair_problem(certificate, "").unwrap(),
            "tls: failed to find any PEM data in key input"
        );
    }
}
