//! Attribute values: what an OTLP `AnyValue` can hold, and how typed fields map to them.

use std::collections::BTreeMap;

/// The value of one attribute. Covers every `AnyValue` of OTLP, so that nothing unknown is lost on the way.
#[derive(Debug, Clone, PartialEq, PartialOrd)]
pub enum Value {
    /// Text.
    Str(String),
    /// A signed integer. Unsigned 64-bit values that may exceed `i64::MAX` travel as text.
    Int(i64),
    /// A floating point number; may be NaN.
    Float(f64),
    /// A truth value.
    Bool(bool),
    /// Raw bytes.
    Bytes(Vec<u8>),
    /// A list, possibly of mixed types.
    List(Vec<Value>),
    /// Key-value pairs in the order in which they came.
    Map(Vec<(String, Value)>),
    /// Present without a value.
    Empty,
}

/// A Rust type that can stand as a field of an observation.
pub trait Field: Sized {
    /// The name of the type in the generated documentation.
    const TYPE: &'static str;
    /// The closed list of words, where the type is one.
    const WORDS: &'static [&'static str] = &[];
    /// The attribute value; `None` leaves the attribute out.
    fn put(&self) -> Option<Value>;
    /// Reads the attribute value; gives it back when its type is not this field's.
    fn take(value: Value) -> Result<Self, Value>;
}

impl Field for String {
    const TYPE: &'static str = "text";
    fn put(&self) -> Option<Value> {
        Some(Value::Str(self.clone()))
    }
    fn take(value: Value) -> Result<Self, Value> {
        match value {
            Value::Str(text) => Ok(text),
            other => Err(other),
        }
    }
}

impl Field for i64 {
    const TYPE: &'static str = "integer";
    fn put(&self) -> Option<Value> {
        Some(Value::Int(*self))
    }
    fn take(value: Value) -> Result<Self, Value> {
        match value {
            Value::Int(number) => Ok(number),
            other => Err(other),
        }
    }
}

impl Field for f64 {
    const TYPE: &'static str = "number";
    fn put(&self) -> Option<Value> {
        Some(Value::Float(*self))
    }
    fn take(value: Value) -> Result<Self, Value> {
        match value {
            Value::Float(number) => Ok(number),
            other => Err(other),
        }
    }
}

impl Field for bool {
    const TYPE: &'static str = "flag";
    fn put(&self) -> Option<Value> {
        Some(Value::Bool(*self))
    }
    fn take(value: Value) -> Result<Self, Value> {
        match value {
            Value::Bool(flag) => Ok(flag),
            other => Err(other),
        }
    }
}

impl<T: Field> Field for Option<T> {
    const TYPE: &'static str = T::TYPE;
    const WORDS: &'static [&'static str] = T::WORDS;
    fn put(&self) -> Option<Value> {
        self.as_ref().and_then(Field::put)
    }
    fn take(value: Value) -> Result<Self, Value> {
        T::take(value).map(Some)
    }
}

impl Field for Vec<String> {
    const TYPE: &'static str = "list of text";
    fn put(&self) -> Option<Value> {
        (!self.is_empty()).then(|| Value::List(self.iter().cloned().map(Value::Str).collect()))
    }
    fn take(value: Value) -> Result<Self, Value> {
        let Value::List(items) = value else { return Err(value) };
        if items.is_empty() || items.iter().any(|item| !matches!(item, Value::Str(_))) {
            return Err(Value::List(items));
        }
        Ok(items
            .into_iter()
            .filter_map(|item| match item {
                Value::Str(text) => Some(text),
                _ => None,
            })
            .collect())
    }
}

/// Reads a map whose keys are unique and sorted and whose values are all of one type; anything else is given back
/// so that it can be kept unread.
fn take_map<T>(value: Value, read: impl Fn(&Value) -> Option<T>) -> Result<BTreeMap<String, T>, Value> {
    let Value::Map(pairs) = value else { return Err(value) };
    let sorted = pairs.windows(2).all(|pair| pair[0].0 < pair[1].0);
    if pairs.is_empty() || !sorted {
        return Err(Value::Map(pairs));
    }
    let values: Option<Vec<T>> = pairs.iter().map(|(_, value)| read(value)).collect();
    match values {
        Some(values) => Ok(pairs.into_iter().map(|(key, _)| key).zip(values).collect()),
        None => Err(Value::Map(pairs)),
    }
}

impl Field for BTreeMap<String, String> {
    const TYPE: &'static str = "map of text";
    fn put(&self) -> Option<Value> {
        (!self.is_empty())
            .then(|| Value::Map(self.iter().map(|(k, v)| (k.clone(), Value::Str(v.clone()))).collect()))
    }
    fn take(value: Value) -> Result<Self, Value> {
        take_map(value, |v| match v {
            Value::Str(text) => Some(text.clone()),
            _ => None,
        })
    }
}

impl Field for BTreeMap<String, f64> {
    const TYPE: &'static str = "map of numbers";
    fn put(&self) -> Option<Value> {
        (!self.is_empty())
            .then(|| Value::Map(self.iter().map(|(k, v)| (k.clone(), Value::Float(*v))).collect()))
    }
    fn take(value: Value) -> Result<Self, Value> {
        take_map(value, |v| match v {
            Value::Float(number) => Some(*number),
            _ => None,
        })
    }
}
