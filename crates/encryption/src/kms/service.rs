//! The three calls of a KMS plug-in (`v2.KeyManagementService`, kms/apis/v2/api.proto).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use prost::Message;
use ring::digest::{SHA256, digest};
use tokio::time::Instant;

use super::grpc::{Channel, GrpcError};
use super::metrics::KmsMetrics;
use super::object::{DekSource, SEED_KIND};

/// Calls a plug-in.
pub(super) struct KmsService {
    channel: Channel,
    metrics: Arc<KmsMetrics>,
}

#[derive(Clone, PartialEq, Message)]
struct StatusRequest {}

/// The response to `Status`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct StatusResponse {
    #[prost(string, tag = "1")]
    pub(super) version: String,
    #[prost(string, tag = "2")]
    pub(super) health: String,
    #[prost(string, tag = "3")]
    pub(super) key_id: String,
}

#[derive(Clone, PartialEq, Message)]
struct EncryptRequest {
    #[prost(bytes = "vec", tag = "1")]
    plaintext: Vec<u8>,
    #[prost(string, tag = "2")]
    uid: String,
}

#[derive(Clone, PartialEq, Message)]
struct EncryptResponse {
    #[prost(bytes = "vec", tag = "1")]
    ciphertext: Vec<u8>,
    #[prost(string, tag = "2")]
    key_id: String,
    #[prost(btree_map = "string, bytes", tag = "3")]
    annotations: BTreeMap<String, Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
struct DecryptRequest {
    #[prost(bytes = "vec", tag = "1")]
    ciphertext: Vec<u8>,
    #[prost(string, tag = "2")]
    uid: String,
    #[prost(string, tag = "3")]
    key_id: String,
    #[prost(btree_map = "string, bytes", tag = "4")]
    annotations: BTreeMap<String, Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
struct DecryptResponse {
    #[prost(bytes = "vec", tag = "1")]
    plaintext: Vec<u8>,
}

impl KmsService {
    pub(super) fn new(socket: &str, timeout: Duration, metrics: Arc<KmsMetrics>) -> KmsService {
        KmsService {
            channel: Channel::new(socket, timeout),
            metrics,
        }
    }

    async fn call<M, R>(&self, method: &'static str, message: M) -> Result<R, GrpcError>
    where
        M: Message + Clone + 'static,
        R: Message + Default + 'static,
    {
        let started = Instant::now();
        let response = self.channel.call(method, message).await;
        let code = response.as_ref().map_or_else(GrpcError::code, |_| "OK");
        self.metrics.record_call(method, code, started.elapsed());
        response
    }

    /// Its health and its current key.
    pub(super) async fn status(&self) -> Result<StatusResponse, GrpcError> {
        self.call("/v2.KeyManagementService/Status", StatusRequest {})
            .await
    }

    /// Encrypts a seed.
    pub(super) async fn encrypt(&self, seed: &[u8], uid: String) -> Result<DekSource, GrpcError> {
        let request = EncryptRequest {
            plaintext: seed.into(),
            uid,
        };
        let response: EncryptResponse = self
            .call("/v2.KeyManagementService/Encrypt", request)
            .await?;
        Ok(DekSource {
            kind: SEED_KIND,
            encrypted: response.ciphertext,
            key_id: response.key_id,
            annotations: response.annotations,
        })
    }

    /// Decrypts a seed or key.
    pub(super) async fn decrypt(
        &self,
        source: &DekSource,
        uid: String,
    ) -> Result<Vec<u8>, GrpcError> {
        let request = DecryptRequest {
            ciphertext: source.encrypted.clone(),
            uid,
            key_id: source.key_id.clone(),
            annotations: source.annotations.clone(),
        };
        let response: DecryptResponse = self
            .call("/v2.KeyManagementService/Decrypt", request)
            .await?;
        Ok(response.plaintext)
    }
}

/// The hash of a key ID, for logs, metrics and errors.
pub(super) fn key_id_hash(key_id: &str) -> String {
    let hex = |byte: &u8| format!("{byte:02x}");
    let digest = digest(&SHA256, key_id.as_bytes());
    format!(
        "sha256:{}",
        digest.as_ref().iter().map(hex).collect::<String>()
    )
}
