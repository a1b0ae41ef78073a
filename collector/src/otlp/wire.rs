//! The wire form of protobuf, walked field by field. Allocates nothing.

/// The value of a field.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Field<'a> {
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
pub(crate) fn fields<'a>(bytes: &'a [u8], visit: &mut dyn FnMut(u64, Field<'a>) -> Option<()>) -> Option<()> {
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
pub(crate) fn each_field<'a>(
    bytes: &'a [u8],
    visit: &mut dyn FnMut(u64, &'a [u8]) -> Option<()>,
) -> Option<()> {
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
