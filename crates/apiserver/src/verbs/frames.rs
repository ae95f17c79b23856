//! The watch events that were written last, for all who are told the same.
//!
//! Watchers of a collection hear of a change at about the same time, and its text is made once for all of them. It is not
//! kept with the object: that would be every object twice, for a moment's use.

use parking_lot::Mutex;

use bytes::Bytes;
use mizzen_registry::Object;

/// How many events are remembered.
const KEPT: usize = 256;
/// Events of larger objects are written anew for each watcher; sending them costs far more.
const MAX_BYTES: usize = 64 * 1024;

/// Events by revision, each in the place of an older one.
pub(crate) struct Frames(Vec<Mutex<Option<Frame>>>);

struct Frame {
    word: &'static str,
    /// The text of the object. It is held, so its address is its own.
    object: Bytes,
    text: Bytes,
}

impl Default for Frames {
    fn default() -> Frames {
        Frames((0..KEPT).map(|_| Mutex::default()).collect())
    }
}

impl Frames {
    /// The event `word` of an object, as JSON.
    pub(crate) fn event(&self, word: &'static str, object: &Object) -> Bytes {
        let record = object.record().filter(|_| object.json.len() <= MAX_BYTES);
        let Some(record) = record else {
            return json_frame(word, &object.json);
        };
        let place = usize::try_from(record.revision.0).unwrap_or_default() % KEPT;
        let mut kept = self.0[place].lock();
        if let Some(frame) = kept
            .as_ref()
            .filter(|frame| frame.is_of(word, &object.json))
        {
            return frame.text.clone();
        }
        let text = json_frame(word, &object.json);
        *kept = Some(Frame {
            word,
            object: object.json.clone(),
            text: text.clone(),
        });
        text
    }
}

impl Frame {
    fn is_of(&self, word: &str, object: &Bytes) -> bool {
        self.word == word
            && self.object.as_ptr() == object.as_ptr()
            && self.object.len() == object.len()
    }
}

/// An event with an object's text.
pub(super) fn json_frame(word: &str, object: &[u8]) -> Bytes {
    let mut frame = start(word, object.len() + END.len());
    frame.extend_from_slice(object);
    frame.extend_from_slice(END);
    frame.into()
}

/// What stands before the object of an event, with room for what follows.
pub(super) fn start(word: &str, room: usize) -> Vec<u8> {
    let mut frame = Vec::with_capacity(room + 40);
    frame.extend_from_slice(b"{\"type\":\"");
    frame.extend_from_slice(word.as_bytes());
    frame.extend_from_slice(b"\",\"object\":");
    frame
}

/// What stands behind it.
pub(super) const END: &[u8] = b"}\n";
