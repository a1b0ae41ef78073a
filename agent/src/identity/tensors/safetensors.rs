//! The header of a safetensors file: its length in eight bytes, JSON, then the bytes of the tensors.
//!
//! Source: the format's description in the repository of `safetensors`. `__metadata__` holds words of who saved the file
//! and changes nothing; nor does what engines compute themselves and load from no file.

use super::reader::HeaderReader;
use super::{Layout, MAX_TENSORS, Tensor};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};

/// Endings of names of tensors that old releases saved although the configuration gives them.
const COMPUTED: [&str; 1] = [".rotary_emb.inv_freq"];

#[derive(Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: [u64; 2],
}

/// The tensors by name; a name that stands twice is kept twice.
struct Entries(Vec<(String, Entry)>);

pub(super) fn layout(reader: &mut HeaderReader<'_>) -> Option<Layout> {
    let length = reader.u64()?;
    let Entries(entries) = serde_json::from_slice(reader.bytes(length)?).ok()?;
    let data = reader.position();
    let tensors = entries
        .into_iter()
        .filter(|(name, _)| !is_computed(name))
        .map(|(name, entry)| {
            let [begin, end] = entry.data_offsets;
            let length = end.checked_sub(begin)?;
            Some(Tensor::new(&name, &entry.dtype, &entry.shape, data.checked_add(begin)?, length))
        })
        .collect::<Option<Vec<Tensor>>>()?;
    Some(Layout { tensors, ..Layout::default() })
}

/// Whether the configuration gives a tensor.
pub(super) fn is_computed(name: &str) -> bool {
    COMPUTED.iter().any(|ending| name.ends_with(ending))
}

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Map;
        impl<'de> Visitor<'de> for Map {
            type Value = Entries;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("tensors by name")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
                let mut entries = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    if name == "__metadata__" {
                        map.next_value::<IgnoredAny>()?;
                    } else if entries.len() < MAX_TENSORS {
                        entries.push((name, map.next_value()?));
                    } else {
                        return Err(serde::de::Error::custom("too many tensors"));
                    }
                }
                Ok(Entries(entries))
            }
        }
        deserializer.deserialize_map(Map)
    }
}
