//! Closed lists of words: enums that survive a newer sender, and documented constants.
//!
//! A value that this version does not know is kept as `Other` and travels on unchanged, so that an old collector
//! between a new agent and a new reader loses nothing.

/// Declares an enum whose variants are words, with `as_str`, `From<&str>`, `Display` and `ALL`.
#[macro_export]
macro_rules! string_enum {
    ($(#[$meta:meta])* $vis:vis enum $name:ident { $($(#[$vmeta:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $vis enum $name {
            $($(#[$vmeta])* $variant,)+
            /// A word of a newer version, kept as it came.
            Other(String),
        }

        impl $name {
            /// Every word this version knows, in declaration order.
            pub const ALL: &'static [&'static str] = &[$($word),+];

            /// The word as it travels and is printed.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $word,)+
                    Self::Other(word) => word,
                }
            }
        }

        impl From<&str> for $name {
            fn from(word: &str) -> Self {
                match word {
                    $($word => Self::$variant,)+
                    other => Self::Other(other.to_owned()),
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Ok(Self::from(String::deserialize(deserializer)?.as_str()))
            }
        }

        impl $crate::value::Field for $name {
            const TYPE: &'static str = "word";
            const WORDS: &'static [&'static str] = Self::ALL;
            fn put(&self) -> Option<$crate::value::Value> {
                Some($crate::value::Value::Str(self.as_str().to_owned()))
            }
            fn take(value: $crate::value::Value) -> Result<Self, $crate::value::Value> {
                match value {
                    $crate::value::Value::Str(word) => Ok(Self::from(word.as_str())),
                    other => Err(other),
                }
            }
        }
    };
}

/// Declares text constants, and `ALL`: every one with the lines of its documentation.
#[macro_export]
macro_rules! documented_constants {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal;)+) => {
        $($(#[doc = $doc])+ pub const $name: &str = $text;)+
        /// Every name with its documentation, for the reference page and the validation of packs.
        pub const ALL: &[(&str, &[&str])] = &[$(($text, &[$($doc),+])),+];
    };
}
