//! The wire form of protobuf, field by field. Reading allocates nothing.

/// The value of a field.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Field<'a> {
    /// A number of any length.
    Varint(u64),
    /// Eight bytes.
    Fixed64(u64),
    /// Text, bytes or a message.
    Bytes(&'a [u8]),
    /// Four bytes.
    Fixed32(u32),
}

/// Visits the fields of a message; `None` when the bytes are no message, or when `visit` says so.
pub fn fields<'a>(bytes: &'a [u8], visit: &mut dyn FnMut(u64, Field<'a>) -> Option<()>) -> Option<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let tag = varint(&mut rest)?;
        let value = match tag & 7 {
            0 => Field::Varint(varint(&mut rest)?),
            1 => {
                let (eight, behind) = rest.split_first_chunk()?;
                rest = behind;
                Field::Fixed64(u64::from_le_bytes(*eight))
            }
            2 => {
                let length = usize::try_from(varint(&mut rest)?).ok()?;
                let (body, behind) = rest.split_at_checked(length)?;
                rest = behind;
                Field::Bytes(body)
            }
            5 => {
                let (four, behind) = rest.split_first_chunk()?;
                rest = behind;
                Field::Fixed32(u32::from_le_bytes(*four))
            }
            // Groups are no part of proto3.
            _ => return None,
        };
        visit(tag >> 3, value)?;
    }
    Some(())
}

/// Visits the fields that have a length.
pub fn each_field<'a>(bytes: &'a [u8], visit: &mut dyn FnMut(u64, &'a [u8]) -> Option<()>) -> Option<()> {
    fields(bytes, &mut |number, field| match field {
        Field::Bytes(body) => visit(number, body),
        _ => Some(()),
    })
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..70).step_by(7) {
        let (byte, behind) = rest.split_first()?;
        *rest = behind;
        value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// Appends a field.
#[inline]
pub fn put(out: &mut Vec<u8>, number: u64, field: Field<'_>) {
    let tag = |kind: u64| number << 3 | kind;
    match field {
        Field::Varint(value) => {
            put_varint(out, tag(0));
            put_varint(out, value);
        }
        Field::Fixed64(value) => {
            put_varint(out, tag(1));
            out.extend_from_slice(&value.to_le_bytes());
        }
        Field::Bytes(body) => {
            open(out, number, body.len());
            out.extend_from_slice(body);
        }
        Field::Fixed32(value) => {
            put_varint(out, tag(5));
            out.extend_from_slice(&value.to_le_bytes());
        }
    }
}

/// Appends what stands before a body of a length.
#[inline]
pub fn open(out: &mut Vec<u8>, number: u64, length: usize) {
    put_varint(out, number << 3 | 2);
    put_varint(out, length as u64);
}

/// Bytes of a field with its tag and length, for numbers up to 15: their tags take one byte.
#[inline]
pub fn field_size(length: usize) -> usize {
    1 + varint_size(length as u64) + length
}

/// Bytes of a number.
#[inline]
pub fn varint_size(value: u64) -> usize {
    (u64::BITS - value.leading_zeros()).max(1).div_ceil(7) as usize
}

/// Appends a number.
#[inline]
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_put_is_read(number in 1u64..1 << 29, value in any::<u64>(), body in proptest::collection::vec(any::<u8>(), 0..300)) {
            let put_in = [
                Field::Varint(value),
                Field::Fixed64(value),
                Field::Bytes(&body),
                Field::Fixed32(value as u32),
            ];
            let mut bytes = Vec::new();
            put_in.iter().for_each(|field| put(&mut bytes, number, *field));
            let mut found = Vec::new();
            let read = fields(&bytes, &mut |at, field| {
                found.push((at, field));
                Some(())
            });
            prop_assert_eq!(read, Some(()));
            prop_assert_eq!(found, put_in.map(|field| (number, field)));
        }

        #[test]
        fn sizes_are_those_of_what_is_put(number in 1u64..16, value in any::<u64>(), length in 0usize..70_000) {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, value);
            prop_assert_eq!(bytes.len(), varint_size(value));
            bytes.clear();
            put(&mut bytes, number, Field::Bytes(&vec![0; length]));
            prop_assert_eq!(bytes.len(), field_size(length));
        }

        #[test]
        fn nothing_that_is_no_message_makes_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = fields(&bytes, &mut |_, _| Some(()));
        }
    }
}
