//! A cache of the last watch events.
//!
//! The watches of a collection send a change at about the same time, so its JSON is encoded once for all of them. It is not
//! kept with the object, which would then be in memory twice.

use parking_lot::Mutex;

use bytes::Bytes;
use mizzen_registry::Object;

/// How many events are cached.
const N_CACHED: usize = 256;
/// Events of larger objects are encoded for each watch; sending them costs far more.
const MAX_BYTES: usize = 64 * 1024;

/// Events by revision modulo the size of the cache.
pub(crate) struct WatchFrameCache(Vec<Mutex<Option<WatchFrame>>>);

struct WatchFrame {
    word: &'static str,
    /// The JSON of the object. It is kept alive, so its address identifies it.
    object: Bytes,
    text: Bytes,
}

impl Default for WatchFrameCache {
    fn default() -> WatchFrameCache {
        WatchFrameCache((0..N_CACHED).map(|_| Mutex::default()).collect())
    }
}

impl WatchFrameCache {
    /// The event `word` of an object, as JSON.
    pub(crate) fn event(&self, word: &'static str, object: &Object) -> Bytes {
        let record = object.record().filter(|_| object.json.len() <= MAX_BYTES);
        let Some(record) = record else {
            return json_frame(word, &object.json);
        };
        let place = usize::try_from(record.revision.0).unwrap_or_default() % N_CACHED;
        let mut kept = self.0[place].lock();
        if let Some(frame) = kept
            .as_ref()
            .filter(|frame| frame.matches(word, &object.json))
        {
            return frame.text.clone();
        }
        let text = json_frame(word, &object.json);
        *kept = Some(WatchFrame {
            word,
            object: object.json.clone(),
            text: text.clone(),
        });
        text
    }
}

impl WatchFrame {
    fn matches(&self, word: &str, object: &Bytes) -> bool {
        self.word == word
            && self.object.as_ptr() == object.as_ptr()
            && self.object.len() == object.len()
    }
}

/// An event with the JSON of an object.
pub(super) fn json_frame(word: &str, object: &[u8]) -> Bytes {
    let mut frame = start(word, object.len() + END.len());
    frame.extend_from_slice(object);
    frame.extend_from_slice(END);
    frame.into()
}

/// The JSON of an event before its object, with capacity for the rest.
pub(super) fn start(word: &str, room: usize) -> Vec<u8> {
    let mut frame = Vec::with_capacity(room + 40);
    frame.extend_from_slice(b"{\"type\":\"");
    frame.extend_from_slice(word.as_bytes());
    frame.extend_from_slice(b"\",\"object\":");
    frame
}

/// The JSON of an event after its object.
pub(super) const END: &[u8] = b"}\n";
