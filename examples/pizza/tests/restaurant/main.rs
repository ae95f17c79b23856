//! The restaurant in process: its conversion webhook.

mod webhook;
