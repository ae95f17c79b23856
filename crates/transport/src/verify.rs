//! Is a server's certificate good? As Go's `crypto/x509` decides it, which upstream relies on.
//!
//! Its dates and its name come first. Then it is trusted if it is itself in the bundle, or if a chain leads from it to a
//! certificate of the bundle that may sign: one of an intermediate authority will do. Last comes what the certificates
//! say they are for. webpki builds the chains; it rejects a leaf that is also an authority, as `openssl req -x509` makes
//! them, and Go does not, so that those chains are built here.
//!
//! Invariant: dates, names and purposes are checked whatever makes a certificate trusted.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use mizzen_object::time;
use tokio_rustls::rustls::client::danger::{ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::pki_types::{
    CertificateDer, ServerName, SubjectPublicKeyInfoDer, TrustAnchor, UnixTime,
};
use tokio_rustls::rustls::{self, CertificateError, OtherError};
use webpki::{
    ALL_VERIFICATION_ALGS, EndEntityCert, RawPublicKeyEntity, VerifiedPath,
    anchor_from_trusted_cert,
};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate, X509Version};

use crate::check_signatures;
use crate::purpose::Purpose;

/// Go: how many signatures are checked for one chain at most.
const MAX_SIGNATURES: usize = 100;

/// Why a certificate is not trusted, in the words of Go's `crypto/x509`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Untrusted(String);

impl Untrusted {
    fn unknown_authority() -> Untrusted {
        Untrusted("certificate signed by unknown authority".into())
    }

    fn purpose() -> Untrusted {
        Untrusted("certificate specifies an incompatible key usage".into())
    }
}

impl From<Untrusted> for rustls::Error {
    fn from(untrusted: Untrusted) -> rustls::Error {
        CertificateError::Other(OtherError(Arc::new(untrusted))).into()
    }
}

/// The certificates of a bundle.
pub(crate) struct Roots(Vec<Root>);

struct Root {
    der: CertificateDer<'static>,
    /// How chains end at it; none if it may not sign others.
    anchor: Option<TrustAnchor<'static>>,
}

impl Roots {
    pub(crate) fn new(certificates: impl IntoIterator<Item = CertificateDer<'static>>) -> Roots {
        let roots = certificates.into_iter().filter_map(|der| {
            let (_, parsed) = X509Certificate::from_der(&der).ok()?;
            let anchor = anchor_from_trusted_cert(&der)
                .ok()
                .filter(|_| may_sign(&parsed));
            let anchor = anchor.map(|anchor| anchor.to_owned());
            Some(Root { der, anchor })
        });
        Roots(roots.collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a server with these certificates may be believed to be `name` at the second `now`.
    fn check(
        &self,
        leaf: &CertificateDer,
        between: &[CertificateDer],
        name: &ServerName,
        now: i64,
    ) -> Result<(), Untrusted> {
        let (_, parsed) = X509Certificate::from_der(leaf)
            .map_err(|error| Untrusted(format!("malformed certificate: {error}")))?;
        check_dates(&parsed, now)?;
        check_name(leaf, &parsed, name)?;
        if self.0.iter().any(|root| root.der == *leaf) {
            return check_purpose(&parsed);
        }
        if parsed.is_ca() {
            let between = between
                .iter()
                .filter_map(|der| Some(X509Certificate::from_der(der).ok()?.1))
                .collect();
            return Search {
                roots: self,
                between,
                now,
                signatures: 0,
            }
            .parent_of(&parsed, 0);
        }
        self.check_chain(leaf, between, now)
    }

    fn check_chain(
        &self,
        leaf: &CertificateDer,
        between: &[CertificateDer],
        now: i64,
    ) -> Result<(), Untrusted> {
        let end = EndEntityCert::try_from(leaf).map_err(|_| Untrusted::unknown_authority())?;
        let anchors: Vec<TrustAnchor> = self
            .0
            .iter()
            .filter_map(|root| root.anchor.clone())
            .collect();
        let at = unix_time(now);
        // webpki says nothing of an anchor's own dates and purposes, and Go does.
        let alive = |path: &VerifiedPath<'_>| -> Result<(), webpki::Error> {
            let ends = self
                .0
                .iter()
                .filter(|root| root.anchor.as_ref() == Some(path.anchor()));
            let mut problem = webpki::Error::UnknownIssuer;
            for root in ends.filter_map(|root| Some(X509Certificate::from_der(&root.der).ok()?.1)) {
                let until = root.validity().not_after.timestamp();
                if path_len(&root)
                    .is_some_and(|most| path.intermediate_certificates().count() > most)
                {
                    continue;
                }
                match (check_dates(&root, now), check_purpose(&root)) {
                    (Ok(()), Ok(())) => return Ok(()),
                    (Err(_), _) if until < now => {
                        problem = webpki::Error::CertExpired {
                            time: at,
                            not_after: unix_time(until),
                        };
                    }
                    _ => {}
                }
            }
            Err(problem)
        };
        let usage = Purpose::Server;
        match end.verify_for_usage(
            ALL_VERIFICATION_ALGS,
            &anchors,
            between,
            at,
            usage,
            None,
            Some(&alive),
        ) {
            Ok(_) => Ok(()),
            Err(
                webpki::Error::RequiredEkuNotFoundContext(_) | webpki::Error::EmptyEkuExtension,
            ) => Err(Untrusted::purpose()),
            Err(webpki::Error::CertExpired { not_after, .. }) => {
                Err(expired(now, "after", seconds(not_after)))
            }
            Err(webpki::Error::CertNotValidYet { not_before, .. }) => {
                Err(expired(now, "before", seconds(not_before)))
            }
            Err(_) => Err(Untrusted::unknown_authority()),
        }
    }
}

/// The way from a leaf that is an authority to a root.
struct Search<'a> {
    roots: &'a Roots,
    between: Vec<X509Certificate<'a>>,
    now: i64,
    signatures: usize,
}

impl Search<'_> {
    /// Looks for who has signed `child`, which has `depth` certificates between itself and the leaf.
    fn parent_of(&mut self, child: &X509Certificate, depth: usize) -> Result<(), Untrusted> {
        check_purpose(child)?;
        let mut problem = Untrusted::unknown_authority();
        let roots = self.roots.0.iter().filter(|root| root.anchor.is_some());
        let roots: Vec<_> = roots
            .filter_map(|root| Some(X509Certificate::from_der(&root.der).ok()?.1))
            .collect();
        for root in &roots {
            match self
                .signed(root, child, depth)
                .map(|()| check_purpose(root))
            {
                Ok(found) => return found,
                Err(Some(worse)) => problem = worse,
                Err(None) => {}
            }
        }
        for parent in self.between.clone() {
            match self.signed(&parent, child, depth) {
                Ok(()) if self.parent_of(&parent, depth + 1).is_ok() => return Ok(()),
                Err(Some(worse)) => problem = worse,
                _ => {}
            }
        }
        Err(problem)
    }

    /// Whether `parent` has signed `child` and might; if not, what is wrong beyond that.
    fn signed(
        &mut self,
        parent: &X509Certificate,
        child: &X509Certificate,
        depth: usize,
    ) -> Result<(), Option<Untrusted>> {
        // What names an authority may sign for is webpki's to know; here such an authority signs for none.
        let free = parent
            .name_constraints()
            .is_ok_and(|constraints| constraints.is_none());
        let fits = parent.subject().as_raw() == child.issuer().as_raw()
            && may_sign(parent)
            && free
            && path_len(parent).is_none_or(|most| depth <= most)
            && self.signatures < MAX_SIGNATURES;
        if !fits {
            return Err(None);
        }
        self.signatures += 1;
        if !has_signed(parent, child) {
            return Err(None);
        }
        check_dates(parent, self.now).map_err(Some)
    }
}

fn has_signed(parent: &X509Certificate, child: &X509Certificate) -> bool {
    let key = SubjectPublicKeyInfoDer::from(parent.public_key().raw);
    let Ok(key) = RawPublicKeyEntity::try_from(&key) else {
        return false;
    };
    let (message, signature) = (child.tbs_certificate.as_ref(), &child.signature_value.data);
    ALL_VERIFICATION_ALGS
        .iter()
        .any(|algorithm| key.verify_signature(*algorithm, message, signature).is_ok())
}

/// How many certificates may stand between an authority and a leaf.
fn path_len(certificate: &X509Certificate) -> Option<usize> {
    let limits = certificate.basic_constraints().ok().flatten()?;
    limits
        .value
        .path_len_constraint
        .and_then(|most| usize::try_from(most).ok())
}

/// Whether others may be signed with a certificate's key. Go: one of version 1 cannot say that it may not.
fn may_sign(certificate: &X509Certificate) -> bool {
    let usage = certificate.key_usage().ok().flatten();
    (certificate.version() == X509Version::V1 || certificate.is_ca())
        && usage.is_none_or(|usage| usage.value.key_cert_sign())
}

fn check_dates(certificate: &X509Certificate, now: i64) -> Result<(), Untrusted> {
    let validity = certificate.validity();
    let (from, until) = (
        validity.not_before.timestamp(),
        validity.not_after.timestamp(),
    );
    if now < from {
        return Err(expired(now, "before", from));
    }
    if now > until {
        return Err(expired(now, "after", until));
    }
    Ok(())
}

fn expired(now: i64, relation: &str, limit: i64) -> Untrusted {
    let (now, limit) = (time::from_unix(now), time::from_unix(limit));
    Untrusted(format!(
        "certificate has expired or is not yet valid: current time {now} is {relation} {limit}"
    ))
}

fn unix_time(seconds: i64) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(
        u64::try_from(seconds).unwrap_or_default(),
    ))
}

fn seconds(time: UnixTime) -> i64 {
    i64::try_from(time.as_secs()).unwrap_or(i64::MAX)
}

/// A certificate that says what it is for must say that it is for servers, or for anything.
fn check_purpose(certificate: &X509Certificate) -> Result<(), Untrusted> {
    match certificate.extended_key_usage() {
        Ok(None) => Ok(()),
        Ok(Some(usage)) if usage.value.server_auth || usage.value.any => Ok(()),
        _ => Err(Untrusted::purpose()),
    }
}

/// Whether the certificate has the name. Go: a common name is none.
fn check_name(
    leaf: &CertificateDer,
    parsed: &X509Certificate,
    name: &ServerName,
) -> Result<(), Untrusted> {
    let named =
        EndEntityCert::try_from(leaf).and_then(|leaf| leaf.verify_is_valid_for_subject_name(name));
    if named.is_ok() {
        return Ok(());
    }
    let wanted = name.to_str();
    let alternative = parsed.subject_alternative_name().ok().flatten();
    let common = parsed
        .subject()
        .iter_common_name()
        .next()
        .and_then(|name| name.as_str().ok());
    if alternative.is_none() && common.is_some_and(|common| common.eq_ignore_ascii_case(&wanted)) {
        return Err(Untrusted(
            "certificate relies on legacy Common Name field, use SANs instead".into(),
        ));
    }
    let names = alternative
        .map(|names| names.value.general_names.as_slice())
        .unwrap_or_default();
    let is_address = matches!(name, ServerName::IpAddress(_));
    let names: Vec<String> = names
        .iter()
        .filter_map(|name| shown(name, is_address))
        .collect();
    Err(Untrusted(match (names.is_empty(), is_address) {
        (true, true) => {
            format!(
                "cannot validate certificate for {wanted} because it doesn't contain any IP SANs"
            )
        }
        (true, false) => {
            format!("certificate is not valid for any names, but wanted to match {wanted}")
        }
        (false, _) => format!(
            "certificate is valid for {}, not {wanted}",
            names.join(", ")
        ),
    }))
}

fn shown(name: &GeneralName, is_address: bool) -> Option<String> {
    match name {
        GeneralName::DNSName(name) if !is_address => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) if is_address => {
            let four = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
            four.or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from))
                .ok()
                .map(|ip| ip.to_string())
        }
        _ => None,
    }
}

/// Verifies servers by the roots of a target.
pub(crate) struct Verifier {
    pub roots: Arc<Roots>,
    pub provider: Arc<CryptoProvider>,
}

impl fmt::Debug for Verifier {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Verifier({})", self.roots.0.len())
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.roots
            .check(end_entity, intermediates, server_name, seconds(now))?;
        Ok(ServerCertVerified::assertion())
    }

    check_signatures! { provider }
}
