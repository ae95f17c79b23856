//! The three calls of a KMS plug-in (`v2.KeyManagementService`, kms/apis/v2/api.proto).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mizzen_object::proto::ProtoError;
use mizzen_object::proto::wire::{WireReader, WireValue, put_bytes};
use ring::digest::{SHA256, digest};
use tokio::time::Instant;

use super::grpc::{Channel, GrpcError};
use super::metrics::KmsMetrics;
use super::object::{DekSource, SEED_KIND, add_annotation, put_annotations};

/// Calls a plug-in.
pub(super) struct KmsService {
    channel: Channel,
    metrics: Arc<KmsMetrics>,
}

/// The response to `Status`.
#[derive(Debug, Default)]
pub(super) struct StatusResponse {
    pub(super) version: String,
    pub(super) health: String,
    pub(super) key_id: String,
}

impl KmsService {
    pub(super) fn new(socket: &str, timeout: Duration, metrics: Arc<KmsMetrics>) -> KmsService {
        KmsService {
            channel: Channel::new(socket, timeout),
            metrics,
        }
    }

    async fn call(&self, method: &'static str, message: Vec<u8>) -> Result<Bytes, GrpcError> {
        let started = Instant::now();
        let response = self.channel.call(method, message).await;
        let code = response.as_ref().map_or_else(GrpcError::code, |_| "OK");
        self.metrics.record_call(method, code, started.elapsed());
        response
    }

    /// Its health and its current key.
    pub(super) async fn status(&self) -> Result<StatusResponse, GrpcError> {
        let response = self
            .call("/v2.KeyManagementService/Status", Vec::new())
            .await?;
        let mut status = StatusResponse::default();
        each_field(&response, |tag, content| {
            match tag {
                1 => status.version = text(content, "version")?,
                2 => status.health = text(content, "healthz")?,
                3 => status.key_id = text(content, "key_id")?,
                _ => {}
            }
            Ok(())
        })?;
        Ok(status)
    }

    /// Encrypts a seed.
    pub(super) async fn encrypt(&self, seed: &[u8], uid: String) -> Result<DekSource, GrpcError> {
        let mut request = Vec::new();
        put_bytes(1, seed, &mut request);
        put_bytes(2, uid.as_bytes(), &mut request);
        let response = self
            .call("/v2.KeyManagementService/Encrypt", request)
            .await?;
        let (encrypted, key_id, annotations) = (Vec::new(), String::new(), BTreeMap::new());
        let mut source = DekSource {
            kind: SEED_KIND,
            encrypted,
            key_id,
            annotations,
        };
        each_field(&response, |tag, content| {
            match tag {
                1 => source.encrypted = content.bytes("ciphertext")?.to_vec(),
                2 => source.key_id = text(content, "key_id")?,
                3 => add_annotation(content.bytes("annotations")?, &mut source.annotations)?,
                _ => {}
            }
            Ok(())
        })?;
        Ok(source)
    }

    /// Decrypts a seed or key.
    pub(super) async fn decrypt(
        &self,
        source: &DekSource,
        uid: String,
    ) -> Result<Vec<u8>, GrpcError> {
        let mut request = Vec::new();
        put_bytes(1, &source.encrypted, &mut request);
        put_bytes(2, uid.as_bytes(), &mut request);
        put_bytes(3, source.key_id.as_bytes(), &mut request);
        put_annotations(4, &source.annotations, &mut request);
        let response = self
            .call("/v2.KeyManagementService/Decrypt", request)
            .await?;
        let mut plain = Vec::new();
        each_field(&response, |tag, content| {
            if tag == 1 {
                plain = content.bytes("plaintext")?.to_vec();
            }
            Ok(())
        })?;
        Ok(plain)
    }
}

fn each_field(
    message: &[u8],
    mut on_field: impl FnMut(u32, WireValue<'_>) -> Result<(), ProtoError>,
) -> Result<(), GrpcError> {
    let mut reader = WireReader::new(message);
    while let Some((tag, content)) = reader.field()? {
        on_field(tag, content)?;
    }
    Ok(())
}

fn text(content: WireValue<'_>, field: &str) -> Result<String, ProtoError> {
    content
        .bytes(field)
        .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
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
