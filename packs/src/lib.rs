//! Signature packs: what engines print, expose and are started with, as data.
