//! Tests that run over every operation of the OpenAPI document.

pub(crate) mod declared;
mod document;
pub(crate) mod faults;
mod hostile;
mod matrix;
mod words;
