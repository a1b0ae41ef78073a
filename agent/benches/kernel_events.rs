//! What a record of the kernel programs costs, from the ring to the reader.
fn main() {}
