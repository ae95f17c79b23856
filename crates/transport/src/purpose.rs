//! What a client's certificate is for.
//!
//! A certificate that says what it is for must say that it is for this, or for anything. Kubernetes: RFC 5280 leaves it
//! open whether the latter is enough; for Go it is (crypto/x509/verify.go).

use webpki::{
    Error, ExtendedKeyUsageValidator, KeyPurposeId, KeyPurposeIdIter, KeyUsage,
    RequiredEkuNotFoundContext,
};

/// A certificate must be for clients.
#[derive(Debug, Clone, Copy)]
pub struct ClientPurpose;

/// anyExtendedKeyUsage.
const ANY: KeyPurposeId = KeyPurposeId::new(&[0x55, 0x1d, 0x25, 0]);
/// id-kp-clientAuth.
const CLIENT: KeyPurposeId = KeyPurposeId::new(&[0x2b, 6, 1, 5, 5, 7, 3, 2]);

impl ExtendedKeyUsageValidator for ClientPurpose {
    fn validate(&self, purposes: KeyPurposeIdIter) -> Result<(), Error> {
        let required = KeyUsage::client_auth();
        let mut present = Vec::new();
        for purpose in purposes {
            let purpose = purpose?;
            if purpose == CLIENT || purpose == ANY {
                return Ok(());
            }
            present.push(purpose.to_decoded_oid());
        }
        let missing = RequiredEkuNotFoundContext { required, present };
        if missing.present.is_empty() {
            Ok(())
        } else {
            Err(Error::RequiredEkuNotFoundContext(missing))
        }
    }
}
