//! placeholder
mod scene;
