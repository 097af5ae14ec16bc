//! Flag fields, one type each, so that a command flag never passes for a transmission flag.

macro_rules! flag_field {
    ($(#[$doc:meta])* $name:ident: $bits:ty { $($(#[$flag_doc:meta])* $flag:ident = $bit:expr,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct $name(pub $bits);

        impl $name {
            /// No flag.
            pub const NONE: $name = $name(0);
            $($(#[$flag_doc])* pub const $flag: $name = $name(1 << $bit);)*
            /// Every flag this implementation knows.
            pub const KNOWN: $name = $name(0 $(| 1 << $bit)*);

            /// Returns true if all flags of `other` are set.
            pub const fn contains(self, other: $name) -> bool {
                self.0 & other.0 == other.0
            }

            /// Returns these flags and those of `other`.
            #[must_use]
            pub const fn with(self, other: $name) -> $name {
                $name(self.0 | other.0)
            }

            /// Returns these flags except those of `other`.
            #[must_use]
            pub const fn without(self, other: $name) -> $name {
                $name(self.0 & !other.0)
            }

            /// Returns true if no flag is set.
            pub const fn is_empty(self) -> bool {
                self.0 == 0
            }
        }

        impl core::ops::BitOr for $name {
            type Output = $name;
            fn bitor(self, other: $name) -> $name {
                self.with(other)
            }
        }
    };
}

flag_field! {
    /// Features of the server in the handshake, section "Handshake flags".
    HandshakeFlags: u16 {
        /// Options are answered.
        FIXED_NEWSTYLE = 0,
        /// The 124 zero bytes after `NBD_OPT_EXPORT_NAME` can be left out.
        NO_ZEROES = 1,
    }
}

flag_field! {
    /// Features of the client in the handshake, section "Client flags".
    ClientFlags: u32 {
        /// The client knows that options are answered.
        FIXED_NEWSTYLE = 0,
        /// The client wants no zero bytes after `NBD_OPT_EXPORT_NAME`.
        NO_ZEROES = 1,
    }
}

flag_field! {
    /// Features of an export, section "Transmission flags".
    TransmissionFlags: u16 {
        /// Always set.
        HAS_FLAGS = 0,
        /// Writes are refused with `EPERM`.
        READ_ONLY = 1,
        /// `NBD_CMD_FLUSH` is understood.
        SEND_FLUSH = 2,
        /// `NBD_CMD_FLAG_FUA` is understood.
        SEND_FUA = 3,
        /// The medium seeks.
        ROTATIONAL = 4,
        /// `NBD_CMD_TRIM` is understood.
        SEND_TRIM = 5,
        /// `NBD_CMD_WRITE_ZEROES` and `NBD_CMD_FLAG_NO_HOLE` are understood.
        SEND_WRITE_ZEROES = 6,
        /// `NBD_CMD_FLAG_DF` is understood. Only with structured or extended replies.
        SEND_DF = 7,
        /// A flush or FUA on one connection covers all of them.
        CAN_MULTI_CONN = 8,
        /// `NBD_CMD_CACHE` is understood.
        SEND_CACHE = 10,
        /// `NBD_CMD_FLAG_FAST_ZERO` is understood.
        SEND_FAST_ZERO = 11,
        /// `NBD_CMD_BLOCK_STATUS` can name the contexts it wants. Only with extended headers.
        BLOCK_STATUS_PAYLOAD = 12,
    }
}

flag_field! {
    /// Flags of one request, section "Command flags".
    CommandFlags: u16 {
        /// The write is durable before it is answered.
        FUA = 0,
        /// Write-zeroes keeps the extent allocated.
        NO_HOLE = 1,
        /// The read is answered in one piece.
        DF = 2,
        /// Block status answers one extent.
        REQ_ONE = 3,
        /// Write-zeroes fails at once unless it is faster than a write.
        FAST_ZERO = 4,
        /// The length field counts payload that follows. Only with extended headers.
        PAYLOAD_LEN = 5,
    }
}

flag_field! {
    /// Flags of one reply chunk, section "Structured reply flags".
    ReplyFlags: u16 {
        /// The last chunk of this reply.
        DONE = 0,
    }
}
