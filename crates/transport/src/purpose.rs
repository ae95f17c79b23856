//! What a certificate is for: a client or a server.
//!
//! A certificate that says what it is for must say that it is for this, or for anything. Kubernetes: RFC 5280 leaves it
//! open whether the latter is enough; for Go it is (crypto/x509/verify.go).

use webpki::{
    Error, ExtendedKeyUsageValidator, KeyPurposeId, KeyPurposeIdIter, KeyUsage,
    RequiredEkuNotFoundContext,
};

/// What a certificate must be for.
#[derive(Debug, Clone, Copy)]
pub enum Purpose {
    /// A client.
    Client,
    /// A server.
    Server,
}

/// anyExtendedKeyUsage.
const ANY: KeyPurposeId = KeyPurposeId::new(&[0x55, 0x1d, 0x25, 0]);
/// id-kp-serverAuth.
const SERVER: KeyPurposeId = KeyPurposeId::new(&[0x2b, 6, 1, 5, 5, 7, 3, 1]);
/// id-kp-clientAuth.
const CLIENT: KeyPurposeId = KeyPurposeId::new(&[0x2b, 6, 1, 5, 5, 7, 3, 2]);

impl ExtendedKeyUsageValidator for Purpose {
    fn validate(&self, purposes: KeyPurposeIdIter) -> Result<(), Error> {
        let (good, required) = match self {
            Purpose::Client => (CLIENT, KeyUsage::client_auth()),
            Purpose::Server => (SERVER, KeyUsage::server_auth()),
        };
        let mut present = Vec::new();
        for purpose in purposes {
            let purpose = purpose?;
            if purpose == good || purpose == ANY {
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
