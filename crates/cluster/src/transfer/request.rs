//! Requests to an API server, which are tried again for a while if it is busy or unreachable.

use std::time::Duration;

use http::Method;
use kube::{Client, Error};
use mizzen_sdk::dynamic::DynamicClient;
use mizzen_value::Value;

/// How often a request is tried.
const ATTEMPTS: u32 = 6;

/// The first pause between two attempts; each is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(200);

/// The longest pause, also if the server asks for a longer one.
const MAX_PAUSE: Duration = Duration::from_secs(10);

/// A client that tries again. Cheap to clone.
#[derive(Clone)]
pub(super) struct Requests {
    client: DynamicClient,
}

impl Requests {
    pub(super) fn new(client: Client) -> Requests {
        Requests {
            client: DynamicClient::new(client),
        }
    }

    /// Reads a path.
    pub(super) async fn get(&self, path: &str) -> Result<Value, Error> {
        self.send(Method::GET, path, None).await
    }

    /// Sends a request. A create that is tried again may find what its first attempt created.
    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, Error> {
        let mut attempt = 1;
        loop {
            let outcome = self.client.raw(method.clone(), path, body).await;
            match outcome {
                Ok(object) => return Ok(object.0),
                Err(error) => match pause_before_retry(&error, attempt) {
                    Some(pause) if attempt < ATTEMPTS => tokio::time::sleep(pause).await,
                    _ => return Err(error),
                },
            }
            attempt += 1;
        }
    }
}

/// How long to wait before the next attempt; none if another attempt would fail as well.
fn pause_before_retry(error: &Error, attempt: u32) -> Option<Duration> {
    let pause = FIRST_PAUSE * 2_u32.pow(attempt.min(10) - 1);
    let wanted = match error {
        Error::Api(status) if matches!(status.code, 429 | 500 | 502 | 503 | 504) => {
            let details = status.details.as_ref();
            let seconds = details.map_or(0, |details| details.retry_after_seconds);
            Duration::from_secs(seconds.into())
        }
        Error::HyperError(_) | Error::Service(_) => Duration::ZERO,
        _ => return None,
    };
    Some(pause.max(wanted).min(MAX_PAUSE))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(code: u16) -> Error {
        let mut status = kube::core::Status::failure("busy", "");
        status.code = code;
        Error::Api(Box::new(status))
    }

    #[test]
    fn only_what_may_pass_is_tried_again_with_growing_pauses() {
        assert_eq!(pause_before_retry(&failure(404), 1), None);
        assert_eq!(pause_before_retry(&failure(409), 1), None);
        assert_eq!(pause_before_retry(&failure(503), 1), Some(FIRST_PAUSE));
        assert_eq!(pause_before_retry(&failure(429), 3), Some(FIRST_PAUSE * 4));
        assert_eq!(pause_before_retry(&failure(500), 30), Some(MAX_PAUSE));
    }
}
