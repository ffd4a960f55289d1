#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

/// What KV caches are made of: pools, and the layout that prefill and decode agree on.
pub mod kv {
    #[allow(clippy::all, clippy::pedantic, missing_docs)]
    pub mod v1 {
        include!("gen/interlock.kv.v1.rs");
    }
}

/// Where the ranks of prefill servers register, and where decode servers and routers learn the topology.
pub mod bootstrap {
    #[allow(clippy::all, clippy::pedantic, missing_docs)]
    pub mod v1 {
        include!("gen/interlock.bootstrap.v1.rs");
    }
}

/// Turns pictures into the bf16 patches that a vision tower eats.
pub mod preprocess {
    #[allow(clippy::all, clippy::pedantic, missing_docs)]
    pub mod v1 {
        include!("gen/interlock.preprocess.v1.rs");
    }
}

/// The contract as a serialised `google.protobuf.FileDescriptorSet`, for reflection and for JSON.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("gen/descriptors.bin");
