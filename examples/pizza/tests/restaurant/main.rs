//! The restaurant in process: what the documentation says of it, and its conversion webhook.

mod documentation;
mod webhook;
