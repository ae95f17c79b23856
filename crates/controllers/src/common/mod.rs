//! What do several loops do alike?

pub mod batch;
pub mod claim;
pub mod failure;
pub mod fresh;
pub mod hash;
pub mod owned;
pub mod percent;
pub mod pod;
pub mod pods;
pub mod rank;
pub mod seen;
pub mod template;
pub mod wake;
