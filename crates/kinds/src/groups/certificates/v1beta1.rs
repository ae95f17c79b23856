//! Defaults of CertificateSigningRequests in v1beta1: usages, and a signer derived from the request.
//!
//! Kubernetes: pkg/apis/certificates/v1beta1/defaults.go and pkg/apis/certificates/helpers.go.

use mizzen_value::{Value, value};

use super::pem::{self, AlternativeNames};
use super::validate::{LEGACY, request_der};

const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";

pub(super) fn default(request: &mut Value) {
    let spec = request.entry("spec");
    spec.set_default("usages", value!(["digital signature", "key encipherment"]));
    let signer = default_signer(spec);
    spec.set_default("signerName", signer);
    for condition in request
        .at_mut("status.conditions")
        .into_iter()
        .flat_map(Value::list_mut)
    {
        if condition["status"].is_empty() {
            condition.set("status", "True");
        }
    }
}

fn default_signer(spec: &Value) -> &'static str {
    let Some(request) = request_der(spec["request"].str()) else {
        return LEGACY;
    };
    let names_node = pem::organizations(&request) == ["system:nodes"]
        && pem::common_name(&request).is_some_and(|name| name.starts_with("system:node:"));
    let AlternativeNames {
        hosts,
        addresses,
        mails,
        uris,
    } = pem::alternative_names(&request);
    match (hosts + addresses, mails + uris) {
        (0, 0) if names_node && is_for(spec, "client auth") => KUBELET_CLIENT,
        (1.., 0) if names_node && is_for(spec, "server auth") => KUBELET_SERVING,
        _ => LEGACY,
    }
}

/// Whether the usages are those of a node's certificate for one purpose; only some keys can encipher.
fn is_for(spec: &Value, purpose: &str) -> bool {
    let usages: Vec<&str> = spec["usages"].items().map(Value::str).collect();
    let known = [purpose, "digital signature", "key encipherment"];
    known[..2].iter().all(|needed| usages.contains(needed))
        && usages.iter().all(|usage| known.contains(usage))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(spec: Value, signer: &str) {
        let mut request = value!({"spec": spec});
        default(&mut request);
        assert_eq!(request["spec"]["signerName"].str(), signer);
    }

    #[test]
    fn a_request_that_cannot_be_read_has_the_legacy_signer() {
        check(value!({"request": "aGk="}), LEGACY);
        check(
            value!({"request": "aGk=", "signerName": "example.com/a"}),
            "example.com/a",
        );
    }

    #[test]
    fn a_node_has_a_signer_by_the_purpose_of_its_certificate() {
        let [client, serving] = [CLIENT, SERVING].map(|pem| {
            use base64::Engine as _;
            base64::engine::general_purpose::STANDARD.encode(pem)
        });
        let usages = value!(["digital signature", "key encipherment", "client auth"]);
        check(
            value!({"request": (client.as_str()), "usages": (usages.clone())}),
            KUBELET_CLIENT,
        );
        check(
            value!({"request": (client.as_str()), "usages": ["digital signature", "client auth"]}),
            KUBELET_CLIENT,
        );
        check(value!({"request": (client.as_str())}), LEGACY);
        check(
            value!({"request": (serving.as_str()), "usages": usages}),
            LEGACY,
        );
        check(
            value!({"request": (serving.as_str()), "usages": ["digital signature", "server auth"]}),
            KUBELET_SERVING,
        );
    }

    /// `openssl req -new -subj /O=system:nodes/CN=system:node:a`
    const CLIENT: &str = "\
-----BEGIN CERTIFICATE REQUEST-----\n\
MIHqMIGRAgEAMC8xFTATBgNVBAoMDHN5c3RlbTpub2RlczEWMBQGA1UEAwwNc3lz\n\
dGVtOm5vZGU6YTBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABDxz0DfUW/jWo6ct\n\
fwIYwg3ByknbyeOOUpYMSWlQJVQfTNLc/GUjeNt51Qoa87qJOROS0wrw/TaN5a8J\n\
SbhKLMWgADAKBggqhkjOPQQDAgNIADBFAiEA9m5Uqxc+S+4CztSoDqI4ehYw6A1e\n\
9uPOpkz1Y2/c2E4CIHQhhMh/QAGFCA1paTxp/iHzD5+L6y14RYS0iAH8fJN2\n\
-----END CERTIFICATE REQUEST-----\n";
    /// The same with `-addext subjectAltName=DNS:a,IP:10.0.0.1`
    const SERVING: &str = "\
-----BEGIN CERTIFICATE REQUEST-----\n\
MIIBDzCBtgIBADAvMRUwEwYDVQQKDAxzeXN0ZW06bm9kZXMxFjAUBgNVBAMMDXN5\n\
c3RlbTpub2RlOmEwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAAQ8c9A31Fv41qOn\n\
LX8CGMINwcpJ28njjlKWDElpUCVUH0zS3PxlI3jbedUKGvO6iTkTktMK8P02jeWv\n\
CUm4SizFoCUwIwYJKoZIhvcNAQkOMRYwFDASBgNVHREECzAJggFhhwQKAAABMAoG\n\
CCqGSM49BAMCA0gAMEUCIQCM1Rmbskl2yK1a+U8m/MMT2i2CS8RtKSz2kLV+6gq6\n\
8QIgU38bXiqXtcq/B8MMc+gYlk90zu40YNT4fK3P9FkrTTo=\n\
-----END CERTIFICATE REQUEST-----\n";
}
