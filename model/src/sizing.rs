//! Sizes and costs of KV, for expected bytes and for what a recompute costs.

/// The shape of a model that decides the size of its KV.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KvShape {
    /// Grouped or multi-head attention: keys and values for each KV head.
    Heads {
        /// Layers.
        layers: u64,
        /// KV heads.
        kv_heads: u64,
        /// Elements of one head.
        head_size: u64,
        /// Bytes of one element.
        element_bytes: u64,
    },
    /// Multi-head latent attention: one latent vector a layer, not divided by tensor parallelism.
    Latent {
        /// Layers.
        layers: u64,
        /// Elements of the latent vector and its rope part.
        latent_size: u64,
        /// Bytes of one element.
        element_bytes: u64,
    },
}

impl KvShape {
    /// Bytes of KV for one token, over all ranks.
    pub fn bytes_per_token(self) -> u64 {
        match self {
            Self::Heads { layers, kv_heads, head_size, element_bytes } => {
                2 * layers * kv_heads * head_size * element_bytes
            }
            Self::Latent { layers, latent_size, element_bytes } => layers * latent_size * element_bytes,
        }
    }
}

/// Floating point operations of a prefill: `2·P·S + 2·L·h·d_h·S²`.
pub fn prefill_flops(parameters: f64, layers: f64, heads: f64, head_size: f64, tokens: f64) -> f64 {
    2.0 * parameters * tokens + 2.0 * layers * heads * head_size * tokens * tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn llama_3_70b_in_bf16_needs_327_680_bytes_a_token() {
        let shape = KvShape::Heads { layers: 80, kv_heads: 8, head_size: 128, element_bytes: 2 };
        assert_eq!(shape.bytes_per_token(), 327_680);
        assert_eq!(shape.bytes_per_token() * 8_192, 2_684_354_560);
    }

    #[test]
    fn deepseek_v3_needs_70_272_bytes_a_token() {
        let shape = KvShape::Latent { layers: 61, latent_size: 576, element_bytes: 2 };
        assert_eq!(shape.bytes_per_token(), 70_272);
    }

    #[test]
    fn a_70b_prefill_of_8192_tokens_is_about_1_24e15_operations() {
        let flops = prefill_flops(70e9, 80.0, 64.0, 128.0, 8_192.0);
        assert!((flops / 1.24e15 - 1.0).abs() < 0.02, "{flops:e}");
    }
}
