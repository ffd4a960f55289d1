//! The steps, each in the file of what it is about.

pub mod asking;
pub mod pictures;
pub mod registering;
pub mod watching;
