//! Parses certificate signing requests and checks them against the rules of their signers.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mizzen_value::Value;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer as _;

pub(super) const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
pub(super) const NODE_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
pub(super) const NODE_SERVER: &str = "kubernetes.io/kubelet-serving";
pub(super) const LEGACY_UNKNOWN: &str = "kubernetes.io/legacy-unknown";
const NODES: &str = "system:nodes";

/// A parsed certificate signing request.
#[derive(Debug, Default, PartialEq)]
pub(super) struct CertificateRequest {
    pub der: Vec<u8>,
    /// The subject's common name.
    pub common_name: String,
    groups: Vec<String>,
    names: usize,
    addresses: usize,
    mails: usize,
    uris: usize,
    usages: BTreeSet<String>,
}

impl CertificateRequest {
    /// Parses `spec.request` of the object.
    pub(super) fn from_object(object: &Value) -> Result<CertificateRequest, String> {
        let pem = STANDARD
            .decode(object["spec"]["request"].str())
            .map_err(|error| error.to_string())?;
        let block = Pem::iter_from_buffer(&pem).next().and_then(Result::ok);
        let block = block.filter(|block| block.label == "CERTIFICATE REQUEST");
        let der = block
            .ok_or("PEM block type must be CERTIFICATE REQUEST")?
            .contents;
        let mut request = CertificateRequest::from_der(&der)?;
        request.usages = object["spec"]["usages"]
            .list()
            .iter()
            .map(|usage| usage.str().into())
            .collect();
        request.der = der;
        Ok(request)
    }

    fn from_der(der: &[u8]) -> Result<CertificateRequest, String> {
        let (_, request) =
            X509CertificationRequest::from_der(der).map_err(|error| error.to_string())?;
        let subject = &request.certification_request_info.subject;
        let text = |attribute: &x509_parser::x509::AttributeTypeAndValue| {
            attribute.as_str().unwrap_or_default().to_string()
        };
        let mut parsed = CertificateRequest {
            common_name: subject
                .iter_common_name()
                .last()
                .map(text)
                .unwrap_or_default(),
            groups: subject.iter_organization().map(text).collect(),
            ..CertificateRequest::default()
        };
        for extension in request.requested_extensions().into_iter().flatten() {
            let ParsedExtension::SubjectAlternativeName(names) = extension else {
                continue;
            };
            for name in &names.general_names {
                match name {
                    GeneralName::DNSName(_) => parsed.names += 1,
                    GeneralName::IPAddress(_) => parsed.addresses += 1,
                    GeneralName::RFC822Name(_) => parsed.mails += 1,
                    GeneralName::URI(_) => parsed.uris += 1,
                    _ => (),
                }
            }
        }
        Ok(parsed)
    }

    /// Why the signer must not sign it; none for unknown signers, which are not ours.
    pub(super) fn signer_violation(&self, signer: &str) -> Option<String> {
        match signer {
            CLIENT => self.client_violation(),
            NODE_CLIENT => self.node_client_violation(),
            NODE_SERVER => self.node_server_violation(),
            _ => None,
        }
    }

    fn client_violation(&self) -> Option<String> {
        let optional = ["client auth", "digital signature", "key encipherment"];
        if let Some(usage) = self
            .usages
            .iter()
            .find(|usage| !optional.contains(&usage.as_str()))
        {
            return Some(format!("invalid usage for client certificate: {usage}"));
        }
        let has = self.usages.contains("client auth");
        (!has).then(|| "missing required usage for client certificate: client auth".into())
    }

    fn node_client_violation(&self) -> Option<String> {
        self.first_violation(&[
            (
                self.groups != [NODES],
                "subject organization is not system:nodes",
            ),
            (self.names > 0, "DNS subjectAltNames are not allowed"),
            (self.mails > 0, "Email subjectAltNames are not allowed"),
            (self.addresses > 0, "IP subjectAltNames are not allowed"),
            (self.uris > 0, "URI subjectAltNames are not allowed"),
            (
                !self.names_node(),
                "subject common name does not begin with system:node:",
            ),
            (
                !self.is_for("client auth"),
                "usages did not match [client auth digital signature key encipherment]",
            ),
        ])
    }

    fn node_server_violation(&self) -> Option<String> {
        self.first_violation(&[
            (
                self.groups != [NODES],
                "subject organization is not system:nodes",
            ),
            (
                self.names == 0 && self.addresses == 0,
                "DNS or IP subjectAltName is required",
            ),
            (self.mails > 0, "Email subjectAltNames are not allowed"),
            (self.uris > 0, "URI subjectAltNames are not allowed"),
            (
                !self.is_for("server auth"),
                "usages did not match [digital signature key encipherment server auth]",
            ),
            (
                !self.names_node(),
                "subject common name does not begin with system:node:",
            ),
        ])
    }

    fn first_violation(&self, all: &[(bool, &str)]) -> Option<String> {
        all.iter()
            .find(|(applies, _)| *applies)
            .map(|(_, why)| why.to_string())
    }

    fn names_node(&self) -> bool {
        self.common_name.starts_with("system:node:")
    }

    /// Whether the usages are those of this purpose and nothing else; "key encipherment" is
    /// optional.
    fn is_for(&self, purpose: &str) -> bool {
        let has = |usage: &str| self.usages.contains(usage);
        let n_needed = if has("key encipherment") { 3 } else { 2 };
        has(purpose) && has("digital signature") && self.usages.len() == n_needed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(common_name: &str, groups: &[&str], usages: &[&str]) -> CertificateRequest {
        CertificateRequest {
            common_name: common_name.into(),
            groups: groups.iter().map(|group| group.to_string()).collect(),
            usages: usages.iter().map(|usage| usage.to_string()).collect(),
            ..CertificateRequest::default()
        }
    }

    #[track_caller]
    fn check(request: CertificateRequest, signer: &str, wanted: Option<&str>) {
        assert_eq!(request.signer_violation(signer).as_deref(), wanted);
    }

    const CLIENT_USAGES: [&str; 2] = ["digital signature", "client auth"];

    #[test]
    fn a_node_client_request_has_only_node_names_and_usages() {
        let node = || request("system:node:n", &[NODES], &CLIENT_USAGES);
        check(node(), NODE_CLIENT, None);
        check(
            request(
                "system:node:n",
                &[NODES],
                &["key encipherment", "digital signature", "client auth"],
            ),
            NODE_CLIENT,
            None,
        );
        check(
            request("system:node:n", &["devs"], &CLIENT_USAGES),
            NODE_CLIENT,
            Some("subject organization is not system:nodes"),
        );
        check(
            request("system:node:n", &[NODES, "devs"], &CLIENT_USAGES),
            NODE_CLIENT,
            Some("subject organization is not system:nodes"),
        );
        check(
            request("jane", &[NODES], &CLIENT_USAGES),
            NODE_CLIENT,
            Some("subject common name does not begin with system:node:"),
        );
        let why = "usages did not match [client auth digital signature key encipherment]";
        check(
            request("system:node:n", &[NODES], &["client auth"]),
            NODE_CLIENT,
            Some(why),
        );
        check(
            CertificateRequest { names: 1, ..node() },
            NODE_CLIENT,
            Some("DNS subjectAltNames are not allowed"),
        );
        check(
            CertificateRequest {
                addresses: 1,
                ..node()
            },
            NODE_CLIENT,
            Some("IP subjectAltNames are not allowed"),
        );
    }

    #[test]
    fn a_node_server_request_has_its_addresses() {
        let node = || {
            request(
                "system:node:n",
                &[NODES],
                &["digital signature", "server auth"],
            )
        };
        check(
            node(),
            NODE_SERVER,
            Some("DNS or IP subjectAltName is required"),
        );
        check(
            CertificateRequest {
                addresses: 1,
                ..node()
            },
            NODE_SERVER,
            None,
        );
        check(
            CertificateRequest {
                addresses: 1,
                mails: 1,
                ..node()
            },
            NODE_SERVER,
            Some("Email subjectAltNames are not allowed"),
        );
    }

    #[test]
    fn a_client_request_has_only_client_usages() {
        check(request("jane", &["devs"], &CLIENT_USAGES), CLIENT, None);
        check(
            request("jane", &[], &["server auth"]),
            CLIENT,
            Some("invalid usage for client certificate: server auth"),
        );
        let why = "missing required usage for client certificate: client auth";
        check(
            request("jane", &[], &["digital signature"]),
            CLIENT,
            Some(why),
        );
        check(request("jane", &[], &["server auth"]), LEGACY_UNKNOWN, None);
    }

    #[test]
    fn an_invalid_request_is_rejected() {
        let object =
            |text: &[u8]| mizzen_value::value!({"spec": {"request": (STANDARD.encode(text))}});
        let wrong = "PEM block type must be CERTIFICATE REQUEST";
        assert_eq!(
            CertificateRequest::from_object(&object(b"nonsense")).unwrap_err(),
            wrong
        );
        let other = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert_eq!(
            CertificateRequest::from_object(&object(other)).unwrap_err(),
            wrong
        );
    }
}
