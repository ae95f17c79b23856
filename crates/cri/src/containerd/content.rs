//! Blobs of containerd: written as a stream, read as a whole, labelled.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use futures_util::stream;
use http::uri::PathAndQuery;
use ring::digest::{Context, SHA256};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tonic::{Code, Streaming};
use tonic_prost::ProstCodec;

use super::messages::*;
use super::{Containerd, LONG, digest_text};
use crate::client::{CallError, ready};

/// The most bytes of a blob that is read as a whole: manifests and configurations.
const MAX_DOCUMENT: usize = 8 << 20;

/// A blob that is being written.
pub(super) struct BlobWriter {
    requests: mpsc::Sender<WriteContentRequest>,
    state: WriteState,
    name: String,
    expected: String,
    total: i64,
    offset: i64,
    hash: Context,
}

enum WriteState {
    /// Nothing was sent.
    New(mpsc::Receiver<WriteContentRequest>),
    Open(Box<Streaming<WriteContentResponse>>),
    /// The content store has the blob.
    Present,
}

impl Containerd {
    /// Starts to write a blob. With an `expected` digest nothing is sent that the content store has.
    pub(super) fn write(&self, name: String, expected: &str, total: i64) -> BlobWriter {
        let (requests, received) = mpsc::channel(1);
        BlobWriter {
            requests,
            state: WriteState::New(received),
            name,
            expected: expected.into(),
            total,
            offset: 0,
            hash: Context::new(&SHA256),
        }
    }

    /// Appends a part.
    pub(super) async fn append(
        &self,
        writer: &mut BlobWriter,
        data: Bytes,
    ) -> Result<(), CallError> {
        writer.hash.update(&data);
        let length = i64::try_from(data.len()).unwrap_or(i64::MAX);
        self.send(writer, WriteAction::Write, data).await?;
        writer.offset += length;
        Ok(())
    }

    /// Completes a blob and returns its digest.
    pub(super) async fn commit(&self, mut writer: BlobWriter) -> Result<String, CallError> {
        let digest = digest_text(writer.hash.clone().finish().as_ref());
        if !writer.expected.is_empty() && writer.expected != digest {
            return Err(CallError {
                code: Code::DataLoss,
                message: format!("the content of {} is that of {digest}", writer.expected),
            });
        }
        writer.expected.clone_from(&digest);
        self.send(&mut writer, WriteAction::Commit, Bytes::new())
            .await?;
        Ok(digest)
    }

    /// Sends a message and waits for its response, unless the content store has the blob.
    ///
    /// One response is read per message: a server whose responses are not read stops to read.
    async fn send(
        &self,
        writer: &mut BlobWriter,
        action: WriteAction,
        data: Bytes,
    ) -> Result<(), CallError> {
        if matches!(writer.state, WriteState::Present) {
            return Ok(());
        }
        let message = WriteContentRequest {
            action: action as i32,
            r#ref: writer.name.clone(),
            total: writer.total,
            expected: writer.expected.clone(),
            offset: writer.offset,
            data,
        };
        let sent = async {
            // It fails if the stream has ended, which its response tells.
            let _ = writer.requests.send(message).await;
            self.open(&mut writer.state).await?;
            let WriteState::Open(responses) = &mut writer.state else {
                return Ok(());
            };
            let response = responses.message().await;
            match response.map_err(|status| CallError::from_status(&status))? {
                Some(_) => Ok(()),
                None => Err(CallError {
                    code: Code::Unavailable,
                    message: "the content store has ended a write".into(),
                }),
            }
        };
        match timeout(LONG, sent).await {
            Ok(Err(error)) if error.code == Code::AlreadyExists => {
                writer.state = WriteState::Present;
                Ok(())
            }
            Ok(sent) => sent,
            Err(_) => Err(CallError {
                code: Code::DeadlineExceeded,
                message: format!("no response within {} s", LONG.as_secs()),
            }),
        }
    }

    /// Starts the stream, once its first message waits to be sent.
    async fn open(&self, state: &mut WriteState) -> Result<(), CallError> {
        let WriteState::New(_) = state else {
            return Ok(());
        };
        let WriteState::New(received) = std::mem::replace(state, WriteState::Present) else {
            return Ok(());
        };
        let messages = stream::unfold(received, async |mut received| {
            let message = received.recv().await?;
            Some((message, received))
        });
        let mut grpc = self.client.grpc();
        ready(&mut grpc).await?;
        let path = PathAndQuery::from_static("/containerd.services.content.v1.Content/Write");
        let codec = ProstCodec::<WriteContentRequest, WriteContentResponse>::default();
        let opened = grpc.streaming(self.request(messages), path, codec).await;
        let opened = opened.map_err(|status| CallError::from_status(&status))?;
        *state = WriteState::Open(Box::new(opened.into_inner()));
        Ok(())
    }

    /// Reads a small blob.
    pub(super) async fn read(&self, digest: &str) -> Result<Bytes, CallError> {
        let message = ReadContentRequest {
            digest: digest.into(),
        };
        let reading = async {
            let mut grpc = self.client.grpc();
            ready(&mut grpc).await?;
            let path = PathAndQuery::from_static("/containerd.services.content.v1.Content/Read");
            let codec = ProstCodec::<ReadContentRequest, ReadContentResponse>::default();
            let failed = |status: tonic::Status| CallError::from_status(&status);
            let opened = grpc.server_streaming(self.request(message), path, codec);
            let mut parts = opened.await.map_err(failed)?.into_inner();
            let mut blob = BytesMut::new();
            while let Some(part) = parts.message().await.map_err(failed)? {
                blob.extend_from_slice(&part.data);
                if blob.len() > MAX_DOCUMENT {
                    return Err(CallError {
                        code: Code::ResourceExhausted,
                        message: format!("{digest} is larger than {MAX_DOCUMENT} bytes"),
                    });
                }
            }
            Ok(blob.freeze())
        };
        timeout(LONG, reading).await.unwrap_or_else(|_| {
            Err(CallError {
                code: Code::DeadlineExceeded,
                message: format!("no response within {} s", LONG.as_secs()),
            })
        })
    }

    /// Whether the content store has a blob.
    pub(super) async fn has_blob(&self, digest: &str) -> Result<bool, CallError> {
        let digest = digest.into();
        match self.call(ContentInfoRequest { digest }).await {
            Ok(_) => Ok(true),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Adds labels to a blob.
    pub(super) async fn label(
        &self,
        digest: &str,
        labels: BTreeMap<String, String>,
    ) -> Result<(), CallError> {
        let paths = labels.keys().map(|key| format!("labels.{key}")).collect();
        let info = ContentInfo {
            digest: digest.into(),
            labels,
            ..ContentInfo::default()
        };
        let request = UpdateContentRequest {
            info: Some(info),
            update_mask: Some(FieldMask { paths }),
        };
        self.call(request).await.map(drop)
    }
}
