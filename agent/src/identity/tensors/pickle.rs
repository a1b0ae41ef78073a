//! The few of Python's pickles that name the tensors of a checkpoint.
//!
//! Nothing is executed: a pickle is a program of a small machine with a stack, of which only what builds a dictionary of
//! tensors is understood. Anything else becomes a value that nobody may use. Bounds: operations by the length of the text, the
//! stack and the memory of the machine by [`MAX_VALUES`], tuples in tuples by [`MAX_DEPTH`].
//!
//! Source: `Lib/pickletools.py` of CPython, protocols 2 to 4; `torch/_utils.py` and `torch/serialization.py` of PyTorch.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// Values on the stack, and as many that are remembered.
const MAX_VALUES: usize = 1 << 18;
/// Tuples in tuples.
const MAX_DEPTH: u8 = 4;

/// A tensor as a pickle tells it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PickledTensor {
    /// Type of its elements, as PyTorch names the storage of it: `FloatStorage`.
    pub storage: Rc<str>,
    /// Name of the file with its bytes.
    pub key: Rc<str>,
    /// First element in that file.
    pub offset: u64,
    pub shape: Vec<u64>,
    pub strides: Vec<u64>,
}

#[derive(Debug, Clone)]
enum Value {
    Number(i64),
    Text(Rc<str>),
    Tuple(Rc<[Value]>, u8),
    Dict(Rc<RefCell<Dict>>),
    /// `module name`.
    Global(Rc<str>),
    Storage {
        kind: Rc<str>,
        key: Rc<str>,
    },
    Tensor(Rc<PickledTensor>),
    Mark,
    Other,
}

/// A dictionary; only tensors by name are kept of it.
#[derive(Debug, Default)]
struct Dict {
    tensors: Vec<(Rc<str>, Rc<PickledTensor>)>,
    /// Something else was put into it.
    holds_more: bool,
}

/// The tensors by name of a pickled dictionary of nothing but tensors. `None`: it is something else, or damaged.
pub(super) fn tensors(text: &[u8]) -> Option<Vec<(String, Rc<PickledTensor>)>> {
    let mut machine = Machine { text, stack: Vec::new(), memory: HashMap::new() };
    while machine.step()? {}
    let Value::Dict(dict) = machine.stack.pop()? else { return None };
    let dict = dict.take();
    (!dict.holds_more)
        .then(|| dict.tensors.into_iter().map(|(name, tensor)| (name.to_string(), tensor)).collect())
}

struct Machine<'t> {
    text: &'t [u8],
    stack: Vec<Value>,
    memory: HashMap<u32, Value>,
}

// === impl Machine ===

impl Machine<'_> {
    /// One operation; `false` at the end.
    fn step(&mut self) -> Option<bool> {
        match self.byte()? {
            b'.' => return Some(false),
            0x80 => drop(self.bytes(1)?),
            0x95 => drop(self.bytes(8)?),
            b'(' => self.push(Value::Mark)?,
            b'}' => self.push(Value::Dict(Rc::default()))?,
            b')' => self.push(Value::Tuple(Rc::new([]), 1))?,
            b'N' | 0x88 | 0x89 | b']' | 0x8f => self.push(Value::Other)?,
            b'K' => {
                let number = self.number(1)?;
                self.push(Value::Number(number))?;
            }
            b'M' => {
                let number = self.number(2)?;
                self.push(Value::Number(number))?;
            }
            b'J' => {
                let bytes = self.bytes(4)?.try_into().ok()?;
                self.push(Value::Number(i32::from_le_bytes(bytes).into()))?;
            }
            0x8a => {
                let length = self.byte()?;
                let number = self.number(length.into());
                self.push(number.map_or(Value::Other, Value::Number))?;
            }
            b'G' => {
                self.bytes(8)?;
                self.push(Value::Other)?;
            }
            b'X' => self.text(4)?,
            0x8c => self.text(1)?,
            0x8d => self.text(8)?,
            b'B' | b'T' => self.skip(4)?,
            b'C' | b'U' => self.skip(1)?,
            0x8e => self.skip(8)?,
            b'c' => {
                let name = format!("{} {}", self.line()?, self.line()?);
                self.push(Value::Global(name.into()))?;
            }
            0x93 => {
                let (Value::Text(name), Value::Text(module)) = (self.stack.pop()?, self.stack.pop()?) else {
                    return None;
                };
                self.push(Value::Global(format!("{module} {name}").into()))?;
            }
            b'q' => {
                let at = u32::try_from(self.number(1)?).ok()?;
                self.remember(at)?;
            }
            b'r' => {
                let at = u32::try_from(self.number(4)?).ok()?;
                self.remember(at)?;
            }
            0x94 => {
                let at = u32::try_from(self.memory.len()).ok()?;
                self.remember(at)?;
            }
            b'h' => self.recall(1)?,
            b'j' => self.recall(4)?,
            b't' => {
                let values = self.since_mark()?;
                self.tuple(values)?;
            }
            number @ 0x85..=0x87 => {
                let first = self.stack.len().checked_sub(usize::from(number - 0x84))?;
                let values = self.stack.split_off(first);
                self.tuple(values)?;
            }
            b'Q' => {
                let name = self.stack.pop()?;
                self.push(storage(&name))?;
            }
            b'R' | 0x81 => {
                let (arguments, made_by) = (self.stack.pop()?, self.stack.pop()?);
                self.push(made(&made_by, &arguments)?)?;
            }
            b's' => {
                let (value, key) = (self.stack.pop()?, self.stack.pop()?);
                self.put(&[key, value])?;
            }
            b'u' => {
                let pairs = self.since_mark()?;
                self.put(&pairs)?;
            }
            b'a' | b'b' => drop(self.stack.pop()?),
            b'e' | 0x90 => drop(self.since_mark()?),
            b'0' => drop(self.stack.pop()?),
            _ => return None,
        }
        Some(true)
    }

    fn push(&mut self, value: Value) -> Option<()> {
        self.stack.push(value);
        (self.stack.len() <= MAX_VALUES).then_some(())
    }

    fn bytes(&mut self, count: u64) -> Option<&[u8]> {
        let (bytes, rest) = self.text.split_at_checked(usize::try_from(count).ok()?)?;
        self.text = rest;
        Some(bytes)
    }

    fn byte(&mut self) -> Option<u8> {
        self.bytes(1).map(|bytes| bytes[0])
    }

    /// A number of up to eight bytes that is not negative.
    fn number(&mut self, length: u64) -> Option<i64> {
        let bytes = self.bytes(length)?;
        if bytes.len() > 8 {
            return None;
        }
        let number = bytes.iter().rev().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
        i64::try_from(number).ok()
    }

    fn line(&mut self) -> Option<String> {
        let end = memchr::memchr(b'\n', self.text)?;
        let line = String::from_utf8(self.bytes(end as u64)?.to_vec()).ok()?;
        self.bytes(1)?;
        Some(line)
    }

    fn text(&mut self, width: u64) -> Option<()> {
        let length = u64::try_from(self.number(width)?).ok()?;
        let text: Rc<str> = std::str::from_utf8(self.bytes(length)?).ok()?.into();
        self.push(Value::Text(text))
    }

    fn skip(&mut self, width: u64) -> Option<()> {
        let length = u64::try_from(self.number(width)?).ok()?;
        self.bytes(length)?;
        self.push(Value::Other)
    }

    fn remember(&mut self, at: u32) -> Option<()> {
        self.memory.insert(at, self.stack.last()?.clone());
        (self.memory.len() <= MAX_VALUES).then_some(())
    }

    fn recall(&mut self, width: u64) -> Option<()> {
        let at = u32::try_from(self.number(width)?).ok()?;
        let value = self.memory.get(&at)?.clone();
        self.push(value)
    }

    /// Takes what was put on the stack since the last mark.
    fn since_mark(&mut self) -> Option<Vec<Value>> {
        let at = self.stack.iter().rposition(|value| matches!(value, Value::Mark))?;
        let values = self.stack.split_off(at + 1);
        self.stack.pop();
        Some(values)
    }

    fn tuple(&mut self, values: Vec<Value>) -> Option<()> {
        let depth_of = |value: &Value| if let Value::Tuple(_, depth) = value { *depth } else { 0 };
        let depth = values.iter().map(depth_of).max().unwrap_or_default() + 1;
        self.push(if depth > MAX_DEPTH { Value::Other } else { Value::Tuple(values.into(), depth) })
    }

    /// Puts keys and values into the dictionary on top of the stack.
    fn put(&mut self, pairs: &[Value]) -> Option<()> {
        match self.stack.last()? {
            Value::Dict(dict) => {
                let mut dict = dict.borrow_mut();
                for pair in pairs.chunks(2) {
                    match pair {
                        [Value::Text(name), Value::Tensor(tensor)] => {
                            dict.tensors.push((Rc::clone(name), Rc::clone(tensor)));
                        }
                        _ => dict.holds_more = true,
                    }
                }
                Some(())
            }
            Value::Other => Some(()),
            _ => None,
        }
    }
}

/// `('storage', torch.FloatStorage, '0', 'cpu', 4096)`.
fn storage(name: &Value) -> Value {
    let Value::Tuple(parts, _) = name else { return Value::Other };
    match parts.as_ref() {
        [Value::Text(what), Value::Global(kind), Value::Text(key), ..] if what.as_ref() == "storage" => {
            let kind = kind.strip_prefix("torch ").unwrap_or(kind);
            Value::Storage { kind: kind.into(), key: Rc::clone(key) }
        }
        _ => Value::Other,
    }
}

/// What a call makes.
fn made(by: &Value, arguments: &Value) -> Option<Value> {
    let (Value::Global(by), Value::Tuple(arguments, _)) = (by, arguments) else { return Some(Value::Other) };
    Some(match (by.as_ref(), arguments.as_ref()) {
        ("collections OrderedDict", []) => Value::Dict(Rc::default()),
        (
            "torch._utils _rebuild_tensor_v2" | "torch._utils _rebuild_tensor",
            [
                Value::Storage { kind, key },
                Value::Number(offset),
                Value::Tuple(shape, _),
                Value::Tuple(strides, _),
                ..,
            ],
        ) => Value::Tensor(Rc::new(PickledTensor {
            storage: Rc::clone(kind),
            key: Rc::clone(key),
            offset: u64::try_from(*offset).ok()?,
            shape: numbers(shape)?,
            strides: numbers(strides)?,
        })),
        ("torch._utils _rebuild_parameter", [Value::Tensor(tensor), ..]) => Value::Tensor(Rc::clone(tensor)),
        _ => Value::Other,
    })
}

fn numbers(values: &[Value]) -> Option<Vec<u64>> {
    let number = |value: &Value| match value {
        Value::Number(number) => u64::try_from(*number).ok(),
        _ => None,
    };
    values.iter().map(number).collect()
}
