//! The three calls of a plug-in (`v2.KeyManagementService`, kms/apis/v2/api.proto).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mizzen_object::proto::ProtoError;
use mizzen_object::proto::wire::{Content, Reader, put_bytes};
use ring::digest::{SHA256, digest};
use tokio::time::Instant;

use super::call::{CallError, Channel};
use super::counts::PluginCounts;
use super::object::{SEED_KIND, Source, add_annotation, put_annotations};

/// Calls a plug-in.
pub(super) struct Service {
    channel: Channel,
    counts: Arc<PluginCounts>,
}

/// How a plug-in says it is.
#[derive(Debug, Default)]
pub(super) struct Status {
    pub(super) version: String,
    pub(super) health: String,
    pub(super) key_id: String,
}

impl Service {
    pub(super) fn new(socket: &str, timeout: Duration, counts: Arc<PluginCounts>) -> Service {
        Service {
            channel: Channel::new(socket, timeout),
            counts,
        }
    }

    async fn call(&self, method: &'static str, message: Vec<u8>) -> Result<Bytes, CallError> {
        let started = Instant::now();
        let answer = self.channel.call(method, message).await;
        let code = answer.as_ref().map_or_else(CallError::code, |_| "OK");
        self.counts.called(method, code, started.elapsed());
        answer
    }

    /// How it is, and which key it uses now.
    pub(super) async fn status(&self) -> Result<Status, CallError> {
        let answer = self
            .call("/v2.KeyManagementService/Status", Vec::new())
            .await?;
        let mut status = Status::default();
        each_field(&answer, |tag, content| {
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

    /// Seals a seed.
    pub(super) async fn encrypt(&self, seed: &[u8], uid: String) -> Result<Source, CallError> {
        let mut request = Vec::new();
        put_bytes(1, seed, &mut request);
        put_bytes(2, uid.as_bytes(), &mut request);
        let answer = self
            .call("/v2.KeyManagementService/Encrypt", request)
            .await?;
        let (sealed, key_id, annotations) = (Vec::new(), String::new(), BTreeMap::new());
        let mut source = Source {
            kind: SEED_KIND,
            sealed,
            key_id,
            annotations,
        };
        each_field(&answer, |tag, content| {
            match tag {
                1 => source.sealed = content.bytes("ciphertext")?.to_vec(),
                2 => source.key_id = text(content, "key_id")?,
                3 => add_annotation(content.bytes("annotations")?, &mut source.annotations)?,
                _ => {}
            }
            Ok(())
        })?;
        Ok(source)
    }

    /// Opens a seed or key.
    pub(super) async fn decrypt(&self, source: &Source, uid: String) -> Result<Vec<u8>, CallError> {
        let mut request = Vec::new();
        put_bytes(1, &source.sealed, &mut request);
        put_bytes(2, uid.as_bytes(), &mut request);
        put_bytes(3, source.key_id.as_bytes(), &mut request);
        put_annotations(4, &source.annotations, &mut request);
        let answer = self
            .call("/v2.KeyManagementService/Decrypt", request)
            .await?;
        let mut plain = Vec::new();
        each_field(&answer, |tag, content| {
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
    mut take: impl FnMut(u32, Content<'_>) -> Result<(), ProtoError>,
) -> Result<(), CallError> {
    let mut reader = Reader::new(message);
    while let Some((tag, content)) = reader.field()? {
        take(tag, content)?;
    }
    Ok(())
}

fn text(content: Content<'_>, field: &str) -> Result<String, ProtoError> {
    content
        .bytes(field)
        .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
}

/// What may be told of a key's name.
pub(super) fn hash(key_id: &str) -> String {
    let hex = |byte: &u8| format!("{byte:02x}");
    let digest = digest(&SHA256, key_id.as_bytes());
    format!(
        "sha256:{}",
        digest.as_ref().iter().map(hex).collect::<String>()
    )
}
