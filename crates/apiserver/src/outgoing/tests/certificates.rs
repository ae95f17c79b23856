//! Servers with certificates of every make, and whether they are believed.

use rcgen::ExtendedKeyUsagePurpose::{Any, ClientAuth, ServerAuth};
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd,
};
use tokio_rustls::rustls::pki_types::CertificateDer;

use super::peer::{Peer, Reaction, tls};
use super::{client, post};

/// A certificate with its key, able to sign others whether or not it may.
struct Made {
    certificate: Certificate,
    params: CertificateParams,
    key: KeyPair,
}

impl Made {
    fn der(&self) -> CertificateDer<'static> {
        self.certificate.der().clone()
    }

    fn pem(&self) -> String {
        self.certificate.pem()
    }
}

/// A certificate for 127.0.0.1.
fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

fn authority(mut params: CertificateParams) -> CertificateParams {
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
}

fn own(params: CertificateParams) -> Made {
    let key = KeyPair::generate().unwrap();
    Made {
        certificate: params.self_signed(&key).unwrap(),
        params,
        key,
    }
}

fn signed(params: CertificateParams, by: &Made) -> Made {
    let key = KeyPair::generate().unwrap();
    let issuer = Issuer::from_params(&by.params, &by.key);
    Made {
        certificate: params.signed_by(&key, &issuer).unwrap(),
        params,
        key,
    }
}

/// Posts to a server that shows `chain`, trusting `bundle`.
async fn ask(chain: &[&Made], bundle: &str) -> String {
    let ders = chain.iter().map(|made| made.der()).collect();
    let config = tls(ders, &chain[0].key);
    let peer = Peer::serving(config, bundle.into(), |_| Reaction::Reply(200, "{}".into())).await;
    let said = post(
        &client(),
        &format!("https://127.0.0.1:{}/", peer.port),
        &peer.bundle(),
        2000,
    )
    .await;
    let told = said
        .split_once("tls: failed to verify certificate: x509: ")
        .map(|(_, told)| told.to_owned());
    told.unwrap_or(said)
}

const GOOD: &str = "answered {}";
const UNKNOWN: &str = "certificate signed by unknown authority";
const USAGE: &str = "certificate specifies an incompatible key usage";

#[tokio::test]
async fn a_leaf_that_is_in_the_bundle_is_trusted() {
    let leaf = own(params("leaf"));
    assert_eq!(ask(&[&leaf], &leaf.pem()).await, GOOD);
    let both = own(authority(params("leaf and authority")));
    assert_eq!(ask(&[&both], &both.pem()).await, GOOD);
    let root = own(authority(params("root")));
    let below = signed(params("leaf"), &root);
    assert_eq!(ask(&[&below], &below.pem()).await, GOOD);
    assert_eq!(ask(&[&leaf], &below.pem()).await, UNKNOWN);
}

#[tokio::test]
async fn a_leaf_that_is_in_the_bundle_must_fit_all_the_same() {
    let mut old = params("leaf");
    old.not_after = date_time_ymd(2020, 1, 1);
    let old = own(old);
    let expected = "certificate has expired or is not yet valid: current time 2027-01-15T08:00:00Z is after \
                    2020-01-01T00:00:00Z";
    assert_eq!(ask(&[&old], &old.pem()).await, expected);

    let mut early = params("leaf");
    early.not_before = date_time_ymd(2040, 1, 1);
    let early = own(early);
    let expected = "certificate has expired or is not yet valid: current time 2027-01-15T08:00:00Z is before \
                    2040-01-01T00:00:00Z";
    assert_eq!(ask(&[&early], &early.pem()).await, expected);

    let other =
        own(CertificateParams::new(vec!["127.0.0.2".to_owned(), "a.io".to_owned()]).unwrap());
    assert_eq!(
        ask(&[&other], &other.pem()).await,
        "certificate is valid for 127.0.0.2, not 127.0.0.1"
    );

    for (purposes, expected) in [
        (vec![ServerAuth], GOOD),
        (vec![Any], GOOD),
        (vec![ClientAuth, ServerAuth], GOOD),
        (vec![ClientAuth], USAGE),
    ] {
        let mut params = authority(params("leaf"));
        params.extended_key_usages = purposes;
        let leaf = own(params);
        assert_eq!(ask(&[&leaf], &leaf.pem()).await, expected);
    }
}

#[tokio::test]
async fn a_common_name_is_no_name() {
    let mut params = CertificateParams::default();
    params
        .distinguished_name
        .push(DnType::CommonName, "127.0.0.1");
    let leaf = own(params);
    let expected = "certificate relies on legacy Common Name field, use SANs instead";
    assert_eq!(ask(&[&leaf], &leaf.pem()).await, expected);
}

#[tokio::test]
async fn a_chain_may_end_at_any_certificate_of_the_bundle_that_may_sign() {
    let root = own(authority(params("root")));
    let middle = signed(authority(params("middle")), &root);
    let other = own(authority(params("root")));
    for leaf in [
        signed(params("leaf"), &middle),
        signed(authority(params("leaf")), &middle),
    ] {
        assert_eq!(ask(&[&leaf], &middle.pem()).await, GOOD);
        assert_eq!(ask(&[&leaf, &middle], &root.pem()).await, GOOD);
        assert_eq!(ask(&[&leaf, &other, &middle], &root.pem()).await, GOOD);
        assert_eq!(ask(&[&leaf], &root.pem()).await, UNKNOWN);
        assert_eq!(ask(&[&leaf, &middle], &other.pem()).await, UNKNOWN);
        let several = format!(
            "no certificate\n{}{}{}",
            other.pem(),
            leaf.pem(),
            root.pem()
        );
        assert_eq!(ask(&[&leaf, &middle], &several).await, GOOD);
    }
}

#[tokio::test]
async fn who_may_not_sign_vouches_for_nobody() {
    let leaf = own(params("leaf"));
    let root = own(authority(params("root")));
    let middle = signed(params("middle"), &root);
    for template in [params("below"), authority(params("below"))] {
        let below = signed(template.clone(), &leaf);
        assert_eq!(ask(&[&below], &leaf.pem()).await, UNKNOWN);
        let below = signed(template, &middle);
        assert_eq!(ask(&[&below, &middle], &root.pem()).await, UNKNOWN);
    }
}

#[tokio::test]
async fn a_root_has_its_time_and_its_purpose() {
    let mut old = authority(params("root"));
    old.not_after = date_time_ymd(2020, 1, 1);
    let old = own(old);
    let mut clients = authority(params("root"));
    clients.extended_key_usages = vec![ClientAuth];
    let clients = own(clients);
    let mut short = authority(params("root"));
    short.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    let short = own(short);
    for template in [params("leaf"), authority(params("leaf"))] {
        let said = ask(&[&signed(template.clone(), &old)], &old.pem()).await;
        assert!(said.ends_with("is after 2020-01-01T00:00:00Z"), "{said}");
        let said = ask(&[&signed(template.clone(), &clients)], &clients.pem()).await;
        assert!([UNKNOWN, USAGE].contains(&said.as_str()), "{said}");
        assert_eq!(
            ask(&[&signed(template.clone(), &short)], &short.pem()).await,
            GOOD
        );
        let middle = signed(authority(params("middle")), &short);
        assert_eq!(
            ask(&[&signed(template, &middle), &middle], &short.pem()).await,
            UNKNOWN
        );
    }
}
