//! Servers with certificates of every make, and whether they are believed.

use rcgen::ExtendedKeyUsagePurpose::{Any, ClientAuth, ServerAuth};
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CidrSubnet, DnType, GeneralSubtree, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, NameConstraints, PKCS_ED25519, date_time_ymd,
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
const CANNOT_SIGN: &str =
    "x509: invalid signature: parent certificate cannot sign this kind of certificate";
const WRONG_SIGNATURE: &str = "x509: ECDSA verification failure";

/// Go's message for a certificate of the right name that is not trusted.
fn unknown(why: &str, candidate: &str) -> String {
    format!(
        "{UNKNOWN} (possibly because of \"{why}\" while trying to verify candidate authority certificate \"{candidate}\")"
    )
}

#[tokio::test]
async fn a_leaf_that_is_in_the_bundle_is_trusted() {
    let leaf = own(params("leaf"));
    assert_eq!(ask(&[&leaf], &leaf.pem()).await, GOOD);
    let both = own(authority(params("leaf and authority")));
    assert_eq!(ask(&[&both], &both.pem()).await, GOOD);
    let root = own(authority(params("root")));
    let below = signed(params("leaf"), &root);
    assert_eq!(ask(&[&below], &below.pem()).await, GOOD);
    let said = ask(&[&leaf], &below.pem()).await;
    assert_eq!(said, unknown(CANNOT_SIGN, "leaf"));
}

#[tokio::test]
async fn a_leaf_in_the_bundle_must_be_valid() {
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
async fn the_common_name_is_not_a_host_name() {
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
        let said = ask(&[&leaf, &middle], &other.pem()).await;
        assert_eq!(said, unknown(WRONG_SIGNATURE, "root"));
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
async fn a_certificate_that_may_not_sign_is_no_authority() {
    let leaf = own(params("leaf"));
    let root = own(authority(params("root")));
    let middle = signed(params("middle"), &root);
    for template in [params("below"), authority(params("below"))] {
        let below = signed(template.clone(), &leaf);
        let said = ask(&[&below], &leaf.pem()).await;
        assert_eq!(said, unknown(CANNOT_SIGN, "leaf"));
        let below = signed(template, &middle);
        let said = ask(&[&below, &middle], &root.pem()).await;
        assert_eq!(said, unknown(CANNOT_SIGN, "middle"));
    }
}

#[tokio::test]
async fn a_root_has_a_validity_period_and_a_purpose() {
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
        assert_eq!(said, USAGE);
        assert_eq!(
            ask(&[&signed(template.clone(), &short)], &short.pem()).await,
            GOOD
        );
        let middle = signed(authority(params("middle")), &short);
        let said = ask(&[&signed(template, &middle), &middle], &short.pem()).await;
        assert_eq!(said, "too many intermediates for path length constraint");
    }
}

/// Each was seen at v1.36.4, in the message of an admission webhook that could not be called.
#[tokio::test]
async fn an_invalid_certificate_is_reported_in_gos_words() {
    let root = own(authority(params("root")));
    let of_other_key = own(authority(params("root")));
    let ed25519 = {
        let key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
        let params = authority(params("root"));
        let certificate = params.self_signed(&key).unwrap();
        Made {
            certificate,
            params,
            key,
        }
    };
    let leaf = signed(params("leaf"), &root);
    let said = ask(&[&leaf], &of_other_key.pem()).await;
    assert_eq!(said, unknown(WRONG_SIGNATURE, "root"));
    let said = ask(&[&leaf], &ed25519.pem()).await;
    let mismatch = "x509: signature algorithm specifies an ECDSA public key, but have public key of type ed25519.PublicKey";
    assert_eq!(said, unknown(mismatch, "root"));
    let said = ask(&[&leaf], &(of_other_key.pem() + &ed25519.pem())).await;
    assert_eq!(said, unknown(WRONG_SIGNATURE, "root"));
    let said = ask(&[&leaf], &(of_other_key.pem() + &root.pem())).await;
    assert_eq!(said, GOOD);

    let mut no_signer = authority(params("root"));
    no_signer.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    let no_signer = own(no_signer);
    let said = ask(&[&signed(params("leaf"), &no_signer)], &no_signer.pem()).await;
    assert_eq!(said, unknown(CANNOT_SIGN, "root"));

    let mut early = authority(params("root"));
    early.not_before = date_time_ymd(2040, 1, 1);
    let early = own(early);
    let said = ask(&[&signed(params("leaf"), &early)], &early.pem()).await;
    assert!(said.ends_with("is before 2040-01-01T00:00:00Z"), "{said}");

    let mut organization = authority(CertificateParams::default());
    organization.distinguished_name = rcgen::DistinguishedName::new();
    organization
        .distinguished_name
        .push(DnType::OrganizationName, "Org Name");
    let (real, other) = (own(organization.clone()), own(organization));
    let said = ask(&[&signed(params("leaf"), &real)], &other.pem()).await;
    assert_eq!(said, unknown(WRONG_SIGNATURE, "Org Name"));

    let addresses: Vec<String> = (1..=120).map(|n| format!("10.1.1.{n}")).collect();
    let many = signed(CertificateParams::new(addresses).unwrap(), &root);
    let said = ask(&[&many], &root.pem()).await;
    assert_eq!(
        said,
        "certificate is valid for 120 IP SANs, but none matched 127.0.0.1"
    );
}

#[tokio::test]
async fn name_constraints_of_an_authority_are_enforced() {
    let constrained = |permitted: Vec<GeneralSubtree>, excluded: Vec<GeneralSubtree>| {
        let mut params = authority(params("root"));
        params.name_constraints = Some(NameConstraints {
            permitted_subtrees: permitted,
            excluded_subtrees: excluded,
        });
        own(params)
    };
    let dns = |name: &str| GeneralSubtree::DnsName(name.into());
    let network =
        |first: u8| GeneralSubtree::IpAddress(CidrSubnet::V4([first, 0, 0, 0], [255, 0, 0, 0]));
    let refused = |detail: &str| {
        format!(
            "a root or intermediate certificate is not authorized to sign for this name: {detail}"
        )
    };
    let names = ["127.0.0.1", "a.example.com"].map(str::to_owned);
    let cases = [
        (constrained(vec![network(127)], vec![]), GOOD.to_owned()),
        (
            constrained(
                vec![network(127), dns("example.com")],
                vec![dns("b.example.com")],
            ),
            GOOD.to_owned(),
        ),
        (
            constrained(vec![network(10)], vec![]),
            refused(r#"IP address "127.0.0.1" is not permitted by any constraint"#),
        ),
        (
            constrained(vec![], vec![network(127)]),
            refused(r#"IP address "127.0.0.1" is excluded by constraint "127.0.0.0/8""#),
        ),
        (
            constrained(vec![dns("b.example.com")], vec![]),
            refused(r#"DNS name "a.example.com" is not permitted by any constraint"#),
        ),
        (
            constrained(vec![], vec![dns("example.com")]),
            refused(r#"DNS name "a.example.com" is excluded by constraint "example.com""#),
        ),
    ];
    for (root, expected) in cases {
        for template in [params("leaf"), authority(params("leaf"))] {
            let mut template = template;
            template.subject_alt_names = CertificateParams::new(names.to_vec())
                .unwrap()
                .subject_alt_names;
            assert_eq!(
                ask(&[&signed(template, &root)], &root.pem()).await,
                expected
            );
        }
    }
}
